"""Reads records through librdkafka and prints them.

An offset is committed after its record was written to standard output. `Printer.flush_records` stores the
offsets. librdkafka commits the stored offsets at intervals, before a partition is revoked, and at the end.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, BinaryIO

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from quorate.dataclass import dataclass
from quorate.tools.client.options import INTERNAL_TOPICS
from quorate.tools.command_line import ToolError
from quorate.tools.console.librdkafka_client import (
    ConnectionErrors,
    Interrupted,
    Interrupts,
    TopicWait,
    describe,
    open_handle,
    partitions_of,
)
from quorate.tools.console.librdkafka_properties import Translation
from quorate.tools.console.message_format import Formatter

CLOSE_TIMEOUT_S = 10.0
"""The timeout of the last commit. Java's consumer waits 30 s, which is long after Ctrl-C."""

ASSIGNMENT_WARNING_S = 5.0
"""The time after which the tool warns that the group has assigned no partitions. librdkafka reports nothing
if a cluster does not support the protocol of KIP-848.
"""

IDLE_S = 0.1
"""How long one call waits for a record. A signal is handled after this time at the latest."""

_RECOVERABLE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
"""Errors after which librdkafka retries. A deleted topic may be created again, and a member rejoins its
group.
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read, the first offsets, and when to stop."""

    topic: str | None
    pattern: str | None
    partition: int | None
    start: int | str
    """The first offset without a group: a number, or a value of auto.offset.reset."""
    group: bool
    commit: bool
    internal_topics: bool
    max_messages: int | None
    timeout_ms: int | None
    max_poll_records: int
    api_timeout_ms: int


def consume(settings: Translation, selection: Selection, formatter: Formatter, *, skip_errors: bool) -> int:
    """Prints records until the selection ends or a signal arrives, and returns the exit status.

    Raises ToolError.
    """
    closed = True
    with Interrupts(SimpleQueue[Any]()).installed() as interrupts:
        errors = ConnectionErrors("Consumer")
        consumer = open_handle(Consumer, settings, errors)
        printer = Printer(consumer, formatter, sys.stdout.buffer, selection, skip_errors)
        topics = Topics(
            consumer, selection, printer, int(settings.settings["topic.metadata.refresh.interval.ms"]) / 1000
        )
        wait = TopicWait(consumer, settings, selection.api_timeout_ms / 1000, errors)
        connected = False
        try:
            topics.begin(wait.run(selection.topic, interrupts))
            connected = True
            _read(consumer, settings.settings, topics, printer, selection, errors, interrupts)
        except Interrupted:
            pass
        finally:
            try:
                printer.flush_records()
            finally:
                if connected:  # otherwise a thread still uses it, and there is nothing to commit
                    closed = _close(consumer, interrupts)
                if not closed:
                    errors.print(
                        "The last offsets may not be committed: the group's coordinator does not answer"
                    )
                print(f"Processed a total of {printer.count} messages", file=sys.stderr)
    return 0 if closed else 1


def _close(consumer: Consumer, interrupts: Interrupts) -> bool:
    """Commits the stored offsets and leaves the group. Returns False after a timeout or a signal."""
    done = threading.Event()

    def work() -> None:
        try:
            consumer.close()
        finally:
            done.set()

    # librdkafka waits for the coordinator without a timeout and handles no signals, so a daemon thread closes
    # the consumer.
    threading.Thread(target=work, name="close", daemon=True).start()
    before, deadline = interrupts.count, time.monotonic() + CLOSE_TIMEOUT_S
    while not done.wait(0.05):
        if interrupts.count > before or time.monotonic() >= deadline:
            return False
    return True


def _read(
    consumer: Consumer,
    settings: Mapping[str, str],
    topics: Topics,
    printer: Printer,
    selection: Selection,
    errors: ConnectionErrors,
    interrupts: Interrupts,
) -> None:
    began = last = time.monotonic()
    warned_of_assignment = not (selection.group and settings.get("group.protocol", "").lower() == "consumer")
    while not printer.full and not interrupts.count:
        message = consumer.poll(IDLE_S)
        if message is None:
            if selection.timeout_ms is not None and (time.monotonic() - last) * 1000 > selection.timeout_ms:
                return
        else:
            _print_available(consumer, printer, message, selection.max_poll_records, errors)
            last = time.monotonic()
        if errors.refused is not None:
            raise ToolError(errors.refused)
        topics.refresh_when_due()
        if not warned_of_assignment and time.monotonic() - began > ASSIGNMENT_WARNING_S:
            warned_of_assignment = True
            if not consumer.assignment():
                errors.print(
                    "The group has given no partitions yet; group.protocol=consumer needs a cluster with "
                    "group.version=1"
                )


def _print_available(
    consumer: Consumer, printer: Printer, first: Message, limit: int, errors: ConnectionErrors
) -> None:
    """Prints a record and the records that have arrived with it, and flushes the output."""
    message: Message | None = first
    room = limit
    try:
        while message is not None:
            error = message.error()
            if error is None:
                printer.print(message)
            elif error.code() in _RECOVERABLE or error.retriable():
                errors.print(describe(error))
            else:
                raise ToolError(f"Error processing message, terminating consumer process: {describe(error)}")
            room -= 1
            message = consumer.poll(0) if room and not printer.full else None
    finally:
        printer.flush_records()


class Printer:
    """Prints records up to a number and stores their offsets for the commit."""

    def __init__(
        self,
        consumer: Consumer,
        formatter: Formatter,
        output: BinaryIO,
        selection: Selection,
        skip_errors: bool,
    ) -> None:
        self.count = 0
        self.full = selection.max_messages == 0
        self._consumer = consumer
        self._write = formatter.write
        self._output = output
        self._limit = selection.max_messages
        self._skip_errors = skip_errors
        self._commit = selection.commit
        self._printed: dict[tuple[str | None, int | None], Message] = {}
        """The last record of each partition that was printed since the last flush."""

    def print(self, message: Message) -> None:
        """Prints one record. Raises ToolError if it cannot be printed."""
        self.count += 1
        self.full = self.count == self._limit
        try:
            self._write(message, self._output)
        except ValueError as error:
            if not self._skip_errors:
                raise ToolError(f"Error processing message, terminating consumer process: {error}") from error
            print(f"Error processing message, skipping this message: {error}", file=sys.stderr)
        if self._commit:
            self._printed[message.topic(), message.partition()] = message

    def flush_records(self) -> None:
        """Flushes the output and stores the offsets of the printed records for the commit."""
        self._output.flush()
        for message in self._printed.values():
            try:
                self._consumer.store_offsets(message)
            except KafkaException:
                pass  # the partition was revoked; its new owner continues from the last commit
        self._printed.clear()

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Stores offsets before partitions are revoked. librdkafka then commits them."""
        self.flush_records()

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Discards offsets after the group has expelled this member, which then must not commit them."""
        self._printed.clear()


class Topics:
    """Selects the partitions to read, and adds new ones later.

    Without a group all partitions are assigned directly: no group is created, and the first record needs no
    rebalance. With a group, librdkafka subscribes to topics and finds new partitions itself. Only the topics
    of a pattern are looked up here.
    """

    def __init__(self, consumer: Consumer, selection: Selection, printer: Printer, interval_s: float) -> None:
        self._consumer = consumer
        self._selection = selection
        self._printer = printer
        self._interval_s = interval_s
        self._timeout_s = 1.0
        self._next = 0.0
        self._names: list[str] = []
        self._assigned: set[tuple[str, int]] = set()
        self._selects: Callable[[str], bool] = lambda name: name == selection.topic
        if selection.pattern is not None:
            try:
                pattern = re.compile(selection.pattern)
            except re.error as error:
                raise ToolError(f"{selection.pattern} is an invalid regex: {error}") from error
            self._selects = lambda name: (
                pattern.fullmatch(name) is not None
                and (selection.internal_topics or name not in INTERNAL_TOPICS)
            )

    def begin(self, partitions: dict[str, list[int]]) -> None:
        """Assigns or subscribes to the partitions.

        Raises ToolError if the topic lacks the chosen partition.
        """
        self._next = time.monotonic() + self._interval_s
        topic, partition = self._selection.topic, self._selection.partition
        if topic is None or partition is None:
            self._take(
                partitions, OFFSET_BEGINNING if self._selection.group else first_offset(self._selection.start)
            )
            return
        count = len(partitions[topic])
        if not 0 <= partition < count:
            raise ToolError(f"There is no partition {partition} of topic {topic}, which has {count}.")
        self._consumer.assign([TopicPartition(topic, partition, first_offset(self._selection.start))])

    def refresh_when_due(self) -> None:
        """Adds new topics of the pattern, and without a group also new partitions.

        The request is sent to a connected broker. If it does not answer, the next record is delayed by the
        timeout.
        """
        if time.monotonic() < self._next or self._selection.partition is not None:
            return
        if self._selection.group and self._selection.pattern is None:
            return
        try:
            # A partition that is created later is read from its beginning.
            self._take(
                partitions_of(self._consumer, self._selection.topic, self._timeout_s), OFFSET_BEGINNING
            )
            self._timeout_s = 1.0
        except KafkaException:
            self._timeout_s = min(self._timeout_s * 2, 5.0)  # a large cluster may take longer
        self._next = time.monotonic() + self._interval_s

    def _take(self, partitions: dict[str, list[int]], start: int) -> None:
        found = {name: numbers for name, numbers in partitions.items() if self._selects(name)}
        if self._selection.group:
            names = sorted(found)
            if names and names != self._names:
                self._names = names
                self._consumer.subscribe(names, on_revoke=self._printer.revoked, on_lost=self._printer.lost)
            return
        new = {(name, number) for name, numbers in found.items() for number in numbers} - self._assigned
        if new:
            self._assigned |= new
            self._consumer.incremental_assign(
                [TopicPartition(name, number, start) for name, number in sorted(new)]
            )


def first_offset(where: int | str) -> int:
    """Returns librdkafka's number of an offset, `earliest` or `latest`.

    Raises ToolError for any other value.
    """
    match where:
        case int():
            return where
        case "earliest":
            return int(OFFSET_BEGINNING)
        case "latest":
            return int(OFFSET_END)
    raise ToolError("Undefined offset with no reset policy for the partitions")
