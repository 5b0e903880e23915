"""What kafka-console-producer does once its options are read: lines of standard input become records
that librdkafka sends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from quorate.tools.console.librdkafka_client import (
    ConnectionErrors,
    Interrupted,
    Interrupts,
    TopicWait,
    describe,
    open_handle,
)
from quorate.tools.console.librdkafka_properties import Translation

Headers = tuple[tuple[str, bytes | None], ...]
Parse = Callable[[bytes], tuple[bytes | None, bytes | None, Headers]]

CHUNK_BYTES = 64 * 1024
INTERRUPTED = "The tool was interrupted"

IDLE_S = 0.1
"""How often delivery reports are looked at while no line comes."""


def produce(settings: Translation, parse: Parse, topic: str, *, sync: bool, max_block_s: float) -> int:
    """Sends every line; the tool's exit status: 1 when a record was not stored, 128 and its number
    after a signal.

    Raises ToolError, for a line that is none or a cluster that cannot be used, when everything before
    it has been sent.
    """
    events: SimpleQueue[Any] = SimpleQueue()
    with Interrupts(events).installed() as interrupts:
        errors = ConnectionErrors("Producer")
        # Failures only: a record that is stored costs no call.
        producer = open_handle(Producer, settings, errors, **{"delivery.report.only.error": True})
        sender = Sender(producer, topic, sync, interrupts, errors)
        source = Input(sys.stdin.buffer, events, sys.stdin.isatty())
        wait = TopicWait(producer, settings, max_block_s, errors)
        known = interrupted = False
        try:
            for line in source.lines():
                if line is None:
                    if known:  # before the first line nothing is asked, so that nothing is to be told
                        sender.serve(0)
                    continue
                record = parse(line)
                if not (known or interrupted):
                    try:
                        wait.run(topic, interrupts)
                        known = True
                    except Interrupted:
                        interrupted = True
                if interrupted:
                    sender.not_sent(record[0], record[1])
                else:
                    sender.send(*record)
        finally:
            if known:
                sender.finish()
    if source.unfinished:
        print(f"An unfinished line of {len(source.unfinished)} bytes was not sent.", file=sys.stderr)
    if sender.failed:
        return 1
    return 0 if source.signal is None else 128 + source.signal


class Input:
    """Lines of a stream as soon as they are there, until it ends or a signal comes.

    A thread reads, one chunk when it is asked for: what is not read yet when a signal comes stays where
    it is.
    """

    def __init__(self, source: BinaryIO, events: SimpleQueue[Any], prompt: bool) -> None:
        self.signal: signal.Signals | None = None
        self.unfinished = b""
        """What came after the last line's end when a signal came."""
        self._source = source
        self._events = events
        self._prompt = prompt
        self._wanted = threading.Semaphore(0)

    def lines(self) -> Iterator[bytes | None]:
        """Lines without their ends; a last one without an end counts. None when nothing came for a while."""
        threading.Thread(target=self._read, name="standard-input", daemon=True).start()
        rest = b""
        while (chunk := (yield from self._chunk())) is not None:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.removesuffix(b"\r")
        if self.signal is not None:
            self.unfinished = rest
        elif rest:
            yield rest.removesuffix(b"\r")

    def _chunk(self) -> Generator[None, None, bytes | None]:
        """The next bytes; None at the end."""
        if self.signal is None:
            if self._prompt:
                print(">", end="", flush=True)
            self._wanted.release()
        while True:
            try:
                event = self._events.get(timeout=IDLE_S)
            except Empty:
                if self.signal is not None:
                    return None
                yield None
                continue
            match event:
                case signal.Signals():
                    self.signal = (
                        self.signal or event
                    )  # what a read has brought at this moment is still taken
                case BaseException():
                    raise event
                case _:
                    data: bytes = event
                    return data or None

    def _read(self) -> None:
        # Past the stream's buffer, whose lock the interpreter would want at its end: Ctrl-C waits for
        # no input.
        source: Any = self._source
        raw = getattr(source, "raw", None)
        read_some = source.read1 if raw is None else raw.read
        while True:
            self._wanted.acquire()
            try:
                data = read_some(CHUNK_BYTES) or b""
            except (OSError, ValueError) as error:
                self._events.put(error)
                return
            self._events.put(data)
            if not data:
                return


class Sender:
    """Sends records, waits for their acknowledgements and reports each one that was not stored."""

    def __init__(
        self, producer: Producer, topic: str, sync: bool, interrupts: Interrupts, errors: ConnectionErrors
    ) -> None:
        self.failed = 0
        self._producer = producer
        self._topic = topic
        self._sync = sync
        self._interrupts = interrupts
        self._errors = errors
        self._gave_up: str | None = None
        """Why no record is sent any more."""

    def serve(self, timeout_s: float) -> int:
        """Lets librdkafka report what it has done; the number of records that are still on their way."""
        try:
            if timeout_s:
                return int(self._producer.flush(timeout_s))
            self._producer.poll(0)
        except KafkaException as error:  # fatal: the producer will not send another record
            self._give_up(describe(error.args[0]))
        return len(self._producer)

    def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        while self._gave_up is None:
            try:
                self._producer.produce(
                    self._topic, value, key, headers=list(headers), on_delivery=self._delivered
                )
            except BufferError:  # the queue is full: room comes with acknowledgements
                self._wait(0.1)
                continue
            except KafkaException as error:
                self._report(key, value, error.args[0])
            break
        else:
            self.not_sent(key, value)
        if self._sync:
            self.finish()

    def finish(self) -> None:
        """Returns when every record is acknowledged or reported."""
        told = False
        while len(self._producer):
            left = self._wait(1.0)
            if left and self._interrupts.count and not told:
                told = True
                print(
                    f"{left} records are not acknowledged yet; interrupt again to give them up",
                    file=sys.stderr,
                    flush=True,
                )

    def not_sent(self, key: bytes | None, value: bytes | None) -> None:
        self._report(key, value, None)

    def _wait(self, timeout_s: float) -> int:
        """Lets librdkafka work; the number of records that are still on their way. A second interrupt
        gives them up."""
        steps = max(1, round(timeout_s / 0.05))
        left = len(self._producer)
        for _ in range(steps):
            if self._interrupts.count > 1 and self._gave_up is None:
                self._give_up(INTERRUPTED)
            left = self.serve(0.05)
            if not left:
                break
        return left

    def _give_up(self, reason: str) -> None:
        self._gave_up = reason
        self._errors.say(reason)
        self._producer.purge()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._report(message.key(), message.value(), error)

    def _report(self, key: bytes | None, value: bytes | None, error: KafkaError | None) -> None:
        self.failed += 1
        key_size, value_size = ("null" if data is None else f"{len(data)} bytes" for data in (key, value))
        text = describe(error) if error is not None else self._gave_up or INTERRUPTED
        print(
            f"Error when sending message to topic {self._topic} with key: {key_size}, value: {value_size} "
            f"with error: {text}",
            file=sys.stderr,
        )
