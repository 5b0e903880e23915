"""Reads lines from standard input and sends them as records through librdkafka."""

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
from quorate.tools.console.line_reader import Headers

Parse = Callable[[bytes], tuple[bytes | None, bytes | None, Headers]]

CHUNK_BYTES = 64 * 1024
INTERRUPTED = "The tool was interrupted"

IDLE_S = 0.1
"""The interval at which delivery reports are handled while no line arrives."""


def produce(settings: Translation, parse: Parse, topic: str, *, sync: bool, max_block_s: float) -> int:
    """Sends every line and returns the exit status: 1 if a record was not stored, 128 plus the number of
    the signal after a signal.

    Raises ToolError for a line that cannot be parsed and for a cluster that cannot be used. All lines before
    are sent first.
    """
    events: SimpleQueue[Any] = SimpleQueue()
    with Interrupts(events).installed() as interrupts:
        errors = ConnectionErrors("Producer")
        # Only failures are reported, so that a stored record costs no callback.
        producer = open_handle(Producer, settings, errors, **{"delivery.report.only.error": True})
        sender = Sender(producer, topic, sync, interrupts, errors)
        source = Input(sys.stdin.buffer, events, sys.stdin.isatty())
        wait = TopicWait(producer, settings, max_block_s, errors)
        known = interrupted = False
        try:
            for line in source.lines():
                if line is None:
                    if known:  # no request is sent before the first line
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
    """Yields the lines of a stream as they arrive, until the stream ends or a signal arrives.

    A thread reads one chunk at a time on request. Bytes that are not read when a signal arrives stay in the
    stream.
    """

    def __init__(self, source: BinaryIO, events: SimpleQueue[Any], prompt: bool) -> None:
        self.signal: signal.Signals | None = None
        self.unfinished = b""
        """The bytes after the last line when a signal arrived."""
        self._source = source
        self._events = events
        self._prompt = prompt
        self._wanted = threading.Semaphore(0)

    def lines(self) -> Iterator[bytes | None]:
        """Yields lines without their line ends, and None while no line arrives. The last line may have no
        end.
        """
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
        """Returns the next bytes, or None at the end of the stream."""
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
                    self.signal = self.signal or event  # a chunk that was requested is still handled
                case BaseException():
                    raise event
                case _:
                    data: bytes = event
                    return data or None

    def _read(self) -> None:
        # Reads below the buffered stream, whose lock the interpreter takes when it exits. Otherwise Ctrl-C
        # would wait for input.
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
    """Sends records, waits for their acknowledgements and reports each record that was not stored."""

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
        """The reason why no further records are sent."""

    def serve(self, timeout_s: float) -> int:
        """Handles delivery reports and returns how many records are not acknowledged yet."""
        try:
            if timeout_s:
                return int(self._producer.flush(timeout_s))
            self._producer.poll(0)
        except KafkaException as error:  # fatal: the producer sends no further records
            self._give_up(describe(error.args[0]))
        return len(self._producer)

    def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        while self._gave_up is None:
            try:
                self._producer.produce(
                    self._topic, value, key, headers=list(headers), on_delivery=self._delivered
                )
            except BufferError:  # the queue is full until records are acknowledged
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
        """Waits until every record is acknowledged or reported."""
        warned = False
        while len(self._producer):
            left = self._wait(1.0)
            if left and self._interrupts.count and not warned:
                warned = True
                print(
                    f"{left} records are not acknowledged yet; interrupt again to give them up",
                    file=sys.stderr,
                    flush=True,
                )

    def not_sent(self, key: bytes | None, value: bytes | None) -> None:
        self._report(key, value, None)

    def _wait(self, timeout_s: float) -> int:
        """Handles delivery reports for a while and returns how many records are not acknowledged yet.

        A second interrupt discards them.
        """
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
        self._errors.print(reason)
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
