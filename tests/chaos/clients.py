"""Clients that produce, read and commit without pause, and record what they observe.

All are librdkafka with its defaults: the retries and timeouts are those that users have.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.history import Commit, History, Partition, Records, Watermark, token

GROUP = "chaos"
LIST_OFFSETS, FETCH_OFFSETS, READ, CONSUME, COMMIT = (
    "list offsets", "fetch offsets", "read", "consume", "commit"
)  # fmt: skip
LEFT_TO_THE_CALLER = {
    f"{LIST_OFFSETS}: FENCED_LEADER_EPOCH",
    f"{LIST_OFFSETS}: NOT_LEADER_FOR_PARTITION",
    f"{LIST_OFFSETS}: OFFSET_NOT_AVAILABLE",
    f"{LIST_OFFSETS}: _NOENT",
    f"{LIST_OFFSETS}: no offset",
    f"{FETCH_OFFSETS}: NOT_COORDINATOR",
    "delete-records: _NOENT",
    "delete-records: NOT_LEADER_FOR_PARTITION",
}
"""Answers of a broker that no longer leads, or whose high watermark has not reached its leader epoch yet
(KIP-207), and librdkafka's own error while its search for the leader has no answer. Java's clients search
and ask again; librdkafka leaves that to the caller of these requests."""
_VALUE_BYTES = 200
_MOST_OUTSTANDING = 2000
"""Records without a response at which a producer pauses: several seconds of the load."""
_COMMIT_EVERY_S = 0.5
_WATCH_EVERY_S = 0.25
QUIET = {"log_level": 0}


def value_of(record: int) -> bytes:
    """Returns the value of the record with a token. It is compressible, as most data."""
    return b"%d;" % record + b"." * (_VALUE_BYTES - 20)


def token_of(value: bytes) -> int:
    """Returns the token in a value."""
    return int(value.partition(b";")[0])


class Client:
    """One client in a thread of its own. An exception of the thread is a failure of the run."""

    def __init__(self, name: str, history: History) -> None:
        self.name, self.history = name, history
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 400) -> None:
        self.over.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.history.client_errors.append(f"{self.name} did not end in {timeout_s:g} s")

    def run(self) -> None:
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as e:
            self.history.client_errors.append(f"{self.name}: {type(e).__name__}: {e}")

    def retried(self, what: str, error: KafkaError) -> None:
        self.history.retried[f"{what}: {error.name()}"] += 1

    def on_error(self, error: KafkaError) -> None:
        """Receives the errors of a client's connections. librdkafka reconnects, so only fatal ones count."""
        if error.fatal():
            self.history.client_errors.append(f"{self.name}: fatal: {error}")


class Acknowledgements:
    """When records of each partition were acknowledged, and how long after they were sent."""

    def __init__(self) -> None:
        self.at: defaultdict[Partition, array[float]] = defaultdict(lambda: array("d"))
        self._latencies: list[float] = []

    def add(self, partition: Partition, now: float, latency_s: float) -> None:
        self.at[partition].append(now)
        self._latencies.append(latency_s)

    def take_latencies(self) -> list[float]:
        """Returns the latencies since the last call."""
        taken, self._latencies = self._latencies, []
        return taken

    def longest_gap_s(self, start: float, end: float) -> float:
        """The longest time without an acknowledgement in one partition that overlaps the interval."""
        longest = 0.0
        for times in list(self.at.values()):
            first = max(0, bisect_right(times, start) - 1)
            last = bisect_left(times, end)
            inside = [*times[first : last + 1], *([end] if last >= len(times) else [])]
            longest = max([longest, *(b - a for a, b in itertools.pairwise(inside))])
        return longest


class NumberProducer(Client):
    """An idempotent producer with acks=all that writes numbered records to all partitions in turn."""

    def __init__(self, number: int, servers: str, history: History, acknowledgements: Acknowledgements,
                 partitions: Sequence[Partition], rate: float, **config: object) -> None:  # fmt: skip
        """`rate` is in records a second."""
        super().__init__(f"producer {number}", history)
        self._number = number
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._acknowledgements = acknowledgements
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "client.id": self.name,
                "error_cb": self.on_error,
                **QUIET,
                **config,
            }
        )

    def run(self) -> None:
        due = time.monotonic()
        at = 0
        while not self.over.is_set():
            self._producer.poll(max(0.0, due - time.monotonic()))
            # After a time in which nothing could be sent, the load does not catch up.
            due = max(due + self._pause_s, time.monotonic() - 1)
            if len(self._producer) < _MOST_OUTSTANDING:
                self._send(self._partitions[at % len(self._partitions)])
                at += 1
        if left := self._producer.flush(360):
            self.history.client_errors.append(f"{self.name}: {left} records without an answer")

    def _send(self, partition: Partition) -> None:
        held = self.history.partitions[partition]
        record = token(self._number, held.sent[self._number])
        sent = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.history.client_errors.append(f"{self.name}: {partition}: {error}")
                return
            now = time.monotonic()
            offset = message.offset()
            held.acknowledged.add(-1 if offset is None or offset < 0 else offset, record)
            self._acknowledgements.add(partition, now, now - sent)

        topic, number = partition
        try:
            self._producer.produce(topic, value_of(record), partition=number, on_delivery=delivered)
        except BufferError:  # the queue is full: the next turn sends this record
            self._producer.poll(0.1)
            return
        held.sent[self._number] += 1


class Reader(Client):
    """Reads all partitions from the beginning, without a group."""

    def __init__(self, servers: str, history: History, partitions: Sequence[Partition], name: str = "reader",
                 **config: object) -> None:  # fmt: skip
        super().__init__(name, history)
        history.read_from_followers[name] = 0
        for partition in partitions:
            history.partitions[partition].read[name] = Records()
        self._partitions = partitions
        self._at_followers: set[Partition] = set()
        self._consumer = _consumer(
            servers,
            name,
            self.on_error,
            **{
                "enable.auto.commit": False,
                "statistics.interval.ms": 200,
                "stats_cb": self._statistics,
                **config,
            },
        )

    def _statistics(self, text: str) -> None:
        """Notes which partitions are fetched from another broker than their leader."""
        self._at_followers = {
            (topic, int(number))
            for topic, found in json.loads(text)["topics"].items()
            for number, partition in found["partitions"].items()
            if partition["broker"] >= 0 and partition["broker"] != partition["leader"]
        }

    def run(self) -> None:
        self._consumer.assign([TopicPartition(t, p, 0) for t, p in self._partitions])
        while not self.over.is_set():
            for message in self._consumer.consume(500, 0.2):
                if (error := message.error()) is not None:
                    self.retried(READ, error)
                    continue
                partition = _partition(message)
                self._take(partition, message)
        self._consumer.close()

    def _take(self, partition: Partition, message: Message) -> None:
        _add(self.history.partitions[partition].read[self.name], message)
        self.history.read_from_followers[self.name] += partition in self._at_followers


class Member(Client):
    """A member of the group. It commits synchronously, and leaves and joins again from time to time."""

    def __init__(self, number: int, servers: str, history: History, topics: Sequence[str],
                 dice: random.Random, stays_s: tuple[float, float] = (10, 40)) -> None:  # fmt: skip
        """`stays_s` is the least and the most time until it leaves."""
        super().__init__(f"member {number}", history)
        self._servers, self._topics, self._dice, self._stays_s = servers, list(topics), dice, stays_s
        self.joined = 0

    def run(self) -> None:
        while not self.over.is_set():
            self._stay(time.monotonic() + self._dice.uniform(*self._stays_s))

    def _stay(self, until: float) -> None:
        consumer = _consumer(self._servers, GROUP, self.on_error, **{"enable.auto.commit": False})
        consumer.subscribe(self._topics, on_assign=self._assigned)
        commit_at = time.monotonic() + _COMMIT_EVERY_S
        while not self.over.is_set() and time.monotonic() < until:
            for message in consumer.consume(500, 0.2):
                if (error := message.error()) is not None:
                    self.retried(CONSUME, error)
                    continue
                topic, number = _partition(message)
                self.history.partitions[topic, number].consume(message.offset())  # type: ignore[arg-type]
            if time.monotonic() >= commit_at:
                self._commit(consumer)
                commit_at = time.monotonic() + _COMMIT_EVERY_S
        self._commit(consumer)
        consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined += 1
        _record_fetched(self, lambda: consumer.committed(partitions, timeout=30))

    def _commit(self, consumer: Consumer) -> None:
        start = time.monotonic()
        try:
            answered: Any = consumer.commit(asynchronous=False)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._NO_OFFSET:  # nothing was consumed since the last commit
                self.retried(COMMIT, e.args[0])
            return
        end = time.monotonic()
        for found in answered:
            if found.error is not None:
                self.retried(COMMIT, found.error)
            elif found.offset >= 0:
                commits = self.history.partitions[found.topic, found.partition].commits
                commits.append(Commit(start, end, found.offset))


class Watcher(Client):
    """Asks for the ends of all partitions and the committed offsets of the group, again and again."""

    def __init__(self, servers: str, history: History, partitions: Sequence[Partition]) -> None:
        super().__init__("watcher", history)
        self._partitions = [TopicPartition(t, p) for t, p in partitions]
        self._admin = AdminClient(
            {"bootstrap.servers": servers, "client.id": self.name, "error_cb": self.on_error, **QUIET}
        )
        # Not by the admin client: librdkafka 2.16 crashes if NOT_COORDINATOR answers that request.
        self._consumer = offsets_consumer(servers, self.on_error)

    def run(self) -> None:
        while not self.over.wait(_WATCH_EVERY_S):
            self._watch_ends()
            _record_fetched(self, lambda: self._consumer.committed(self._partitions, timeout=30))
        self._consumer.close()

    def _watch_ends(self) -> None:
        start = time.monotonic()
        asked = self._admin.list_offsets({tp: OffsetSpec.latest() for tp in self._partitions})
        failed = False
        for tp, future in asked.items():
            try:
                found = future.result()
            except KafkaException as e:
                self.retried(LIST_OFFSETS, e.args[0])
                failed = True
                continue
            if found.offset < 0:  # librdkafka has an answer without this partition
                self.history.retried[f"{LIST_OFFSETS}: no offset"] += 1
                continue
            seen = Watermark(
                start,
                time.monotonic(),
                -1 if found.leader_epoch is None else found.leader_epoch,
                found.offset,
            )
            held = self.history.partitions[tp.topic, tp.partition].watermarks
            if held and held[-1][2:] == seen[2:]:
                continue  # nothing happened
            held.append(seen)
        if failed:
            refresh_metadata(self._admin)


def refresh_metadata(admin: AdminClient) -> None:
    """Makes an admin client look for the leaders. librdkafka's asks the former leader again and again after
    NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH, until its metadata is five minutes old.
    """
    with contextlib.suppress(KafkaException):  # no broker answers: the next attempt says so
        admin.list_topics(timeout=5)


def _record_fetched(client: Client, fetch: Callable[[], list[TopicPartition]]) -> None:
    start = time.monotonic()
    try:
        fetched = fetch()
    except KafkaException as e:
        client.retried(FETCH_OFFSETS, e.args[0])
        return
    end = time.monotonic()
    for found in fetched:
        if found.error is not None:
            client.retried(FETCH_OFFSETS, found.error)
            continue
        held = client.history.partitions[found.topic, found.partition].fetched_commits
        # -1001 stands for no committed offset.
        held.append(Commit(start, end, max(found.offset, -1)))


def list_offsets(
    admin: AdminClient, partitions: Sequence[Partition], spec: OffsetSpec, timeout_s: float = 60
) -> dict[Partition, int]:
    """Asks for the offsets of all partitions again until each is answered. Raises KafkaException after the
    timeout."""
    deadline = time.monotonic() + timeout_s
    found: dict[Partition, int] = {}
    while True:
        asked = admin.list_offsets({TopicPartition(*p): spec for p in partitions if p not in found})
        failure: KafkaException | None = None
        for tp, future in asked.items():
            try:
                offset = future.result().offset
            except KafkaException as e:
                failure = e
                continue
            if offset < 0:  # librdkafka has an answer without this partition
                failure = KafkaException(KafkaError(KafkaError._PARTIAL))
                continue
            found[tp.topic, tp.partition] = offset
        if failure is None:
            return found
        if time.monotonic() > deadline:
            raise failure
        refresh_metadata(admin)


def offsets_consumer(servers: str, on_error: Callable[[KafkaError], None] = lambda _: None) -> Consumer:
    """Returns a consumer that asks for the committed offsets of the group and does not join it."""
    return _consumer(servers, GROUP, on_error, **{"enable.auto.commit": False})


def _consumer(servers: str, group: str, on_error: Callable[[KafkaError], None], **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "error_cb": on_error,
            **QUIET,
            **config,
        }
    )


def _partition(message: Message) -> Partition:
    return message.topic(), message.partition()  # type: ignore[return-value]


def _add(records: Records, message: Message) -> None:
    records.add(message.offset(), token_of(message.value()))  # type: ignore[arg-type]


def read_everything(
    servers: str, partitions: Sequence[Partition], timeout_s: float = 120
) -> dict[Partition, Records]:
    """Reads each partition from its log start to its end with a new consumer.

    Raises AssertionError if that takes too long.
    """
    errors: list[KafkaError] = []
    consumer = _consumer(
        servers, "final reader", errors.append, **{"enable.auto.commit": False, "enable.partition.eof": True}
    )
    read = {partition: Records() for partition in partitions}
    waiting = set(partitions)
    deadline = time.monotonic() + timeout_s
    consumer.assign([TopicPartition(t, p, 0) for t, p in partitions])
    try:
        while waiting:
            assert time.monotonic() < deadline, (
                f"{sorted(waiting)} were not read in {timeout_s:g} s: {errors}"
            )
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    _add(read[_partition(message)], message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(_partition(message))
    finally:
        consumer.close()
    return read
