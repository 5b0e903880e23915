"""Creates librdkafka's producers and consumers for the console tools and reports their errors.

The import of librdkafka takes half of the time before a console tool connects. So a tool imports this module
after its options are checked.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from quorate.admin.errors import ErrorCode, NetError, NotKafkaError, error_text
from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.protocol.errors import KafkaError as BrokerError
from quorate.tools.command_line import ToolError
from quorate.tools.console.librdkafka_properties import Translation

if TYPE_CHECKING:
    from quorate.admin import client as admin_client
else:
    admin_client = lazy_module("quorate.admin.client")

Handle = TypeVar("Handle", Producer, Consumer)

_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')
_NAMED = re.compile(r'"([\w.]+)"')

_ALIASES = {
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
}
"""The other names of properties, which librdkafka uses in its errors."""

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Discards librdkafka's log, which repeats the errors of its callbacks on stderr."""

REPEAT_INTERVAL_S = 30.0
"""The time after which the same message is printed again."""

_REFUSALS = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)


def open_handle(
    kind: type[Handle], translation: Translation, errors: ConnectionErrors, **callbacks: Any
) -> Handle:
    """Creates a producer or consumer. Raises ToolError for an invalid value.

    A setting that librdkafka does not know is left out with a warning, as Java's clients do.
    """
    settings: dict[str, Any] = dict(translation.settings)
    if "debug" in settings:
        settings["log_level"] = "7"
    else:
        callbacks["logger"] = _SILENT
    while True:
        try:
            return kind({**settings, **callbacks, "error_cb": errors})
        except KafkaException as error:
            text = error.args[0].str().strip()
            unknown = _UNKNOWN.search(text)
            if unknown is None or unknown[1] not in settings:
                raise ToolError(f"Invalid configuration: {_in_given_names(text, translation)}") from error
            del settings[unknown[1]]
            name = translation.given.get(unknown[1], unknown[1])
            print(f"The configuration '{name}' was supplied but isn't a known config.", file=sys.stderr)
        except (TypeError, ValueError) as error:
            raise ToolError(f"Invalid configuration: {error}") from error


def _in_given_names(text: str, translation: Translation) -> str:
    """Adds to an error the name by which the user set the property, if librdkafka has another name for it."""
    for name in _NAMED.findall(text):
        given = translation.given.get(name) or translation.given.get(_ALIASES.get(name, ""))
        if given is not None and given != name:
            return f"{text} ({given})"
    return text


def describe(error: KafkaError) -> str:
    """Returns the text of an error: for codes of Kafka that of the other tools, otherwise librdkafka's."""
    if error.code() > 0:
        return error_text(BrokerError(ErrorCode.of(error.code())))
    return _plain(error.str())


def _plain(text: str) -> str:
    """Removes from librdkafka's text the prefix `Local:` and the time in a state, which always differs."""
    text = re.sub(r"\s*\(after \d+ms in state .*\)", "", text).removeprefix("Local: ")
    text = re.sub(r"^\w+://", "", text)
    return re.sub(r"/(\w+): ", ": ", text, count=1).strip()


class ConnectionErrors:
    """librdkafka's error callback. It prints a message when no broker can be reached.

    A lost connection to one of several brokers is not reported, because librdkafka recovers by itself.
    """

    def __init__(self, client: str) -> None:
        self.reason: str | None = None
        self.refused: str | None = None
        """The reason why the cluster rejects this client. A retry would not help."""
        self.suppressed = False
        """Whether messages are suppressed while a more exact cause is checked for."""
        self._client = client
        self._printed_at: dict[str, float] = {}

    def __call__(self, error: KafkaError) -> None:
        text = describe(error)
        if error.fatal() or error.code() in _REFUSALS:
            self.refused = text
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.reason = text
        elif not self.suppressed and self.refused is None:
            self.print(f"{self.reason or 'No broker can be reached'}; trying again")

    def print(self, text: str) -> None:
        now = time.monotonic()
        if now - self._printed_at.get(text, -REPEAT_INTERVAL_S) >= REPEAT_INTERVAL_S:
            self._printed_at[text] = now
            print(f"[{self._client}] {text}", file=sys.stderr, flush=True)


class Interrupts:
    """Puts SIGINT and SIGTERM into a queue, so that a tool can end cleanly.

    After a second signal it does not wait for that.
    """

    def __init__(self, events: SimpleQueue[Any]) -> None:
        self.count = 0
        self._events = events

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Installs the handlers.

        A signal that the parent ignores (`nohup`, `&` in a script) stays ignored.
        """
        numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._arrived) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._events.put(signal.Signals(number))  # SimpleQueue.put may be called in a signal handler


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal arrived during a wait."""


def partitions_of(handle: Producer | Consumer, topic: str | None, timeout_s: float) -> dict[str, list[int]]:
    """Requests from a broker the partitions of a topic, or of all topics. Raises KafkaException."""
    found = {}
    listed = (
        handle.list_topics(timeout=timeout_s)
        if topic is None
        else handle.list_topics(topic, timeout=timeout_s)
    )
    for name, metadata in listed.topics.items():
        if metadata.error is not None:
            if topic is not None:
                raise KafkaException(metadata.error)
            continue
        found[name] = sorted(metadata.partitions)
    return found


def _serve(handle: Producer | Consumer, errors: ConnectionErrors) -> None:
    """Runs the callbacks of librdkafka."""
    try:
        handle.poll(0)
    except KafkaException as error:  # raised for a fatal error
        errors.refused = describe(error.args[0])


@dataclass(slots=True)
class TopicWait:
    """Waits until the cluster answers and, if a topic is given, until the topic exists.

    The request creates the topic if the cluster allows that.
    """

    handle: Producer | Consumer
    settings: Translation
    timeout_s: float
    errors: ConnectionErrors

    @property
    def _plaintext(self) -> bool:
        return self.settings.settings.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"

    def run(self, topic: str | None, interrupts: Interrupts) -> dict[str, list[int]]:
        """Returns the partitions of the topic, or of all topics.

        Raises Interrupted, and ToolError after the timeout, if the cluster rejects the client, or if the
        servers are not Kafka brokers.
        """
        answer: SimpleQueue[dict[str, list[int]] | ToolError] = SimpleQueue()

        def work() -> None:
            try:
                answer.put(self._wait(topic))
            except ToolError as error:
                answer.put(error)

        # librdkafka's call handles no signals, so it runs in a daemon thread.
        self.errors.suppressed = self._plaintext
        threading.Thread(target=work, name="metadata", daemon=True).start()
        before = interrupts.count
        while True:
            try:
                found = answer.get(timeout=0.02)
            except Empty:
                _serve(self.handle, self.errors)
                if self.errors.refused is not None and not self.errors.suppressed:
                    raise ToolError(self.errors.refused) from None
                if interrupts.count > before:
                    raise Interrupted from None
                continue
            self.errors.suppressed = False
            if isinstance(found, ToolError):
                raise found
            return found

    def _wait(self, topic: str | None) -> dict[str, list[int]]:
        began, request_timeout_s, checked = time.monotonic(), 1.0, False
        while True:
            left_s = self.timeout_s - (time.monotonic() - began)
            if checked and self.errors.suppressed:
                self.errors.suppressed = False
                self.errors.print(f"{self.errors.reason or 'No broker answers'}; trying again")
            if left_s <= 0:
                what = (
                    "The cluster did not answer"
                    if topic is None
                    else f"Topic {topic} not present in metadata"
                )
                reason = "" if self.errors.reason is None else f": {self.errors.reason}"
                raise ToolError(f"{what} after {round(self.timeout_s * 1000)} ms{reason}")
            try:
                found = partitions_of(self.handle, topic, min(request_timeout_s, left_s))
                if isinstance(self.handle, Producer):
                    # The first answer may come by the bootstrap connection, which librdkafka then
                    # closes. Asking again makes it connect to a broker. Otherwise it looks for one to
                    # get a producer id from half a second later.
                    with suppress(KafkaException):
                        partitions_of(self.handle, topic, 1.0)
                return found
            except KafkaException as error:
                failure = error.args[0]
            if failure.code() < 0:
                if not checked:
                    checked = True
                    self._check_servers()
                request_timeout_s *= 2
            elif failure.code() in _TOPIC_IS_BEING_CREATED:
                self.errors.reason = None
                if time.monotonic() - began > 1:
                    self.errors.print(f"Topic {topic} is not present in metadata; trying again")
            elif not failure.retriable():
                raise ToolError(f"Topic {topic}: {describe(failure)}")
            time.sleep(min(0.05, max(0.0, left_s)))  # polls, because nothing notifies of a new topic

    def _check_servers(self) -> None:
        """Raises ToolError if the bootstrap servers are not brokers. librdkafka does not detect what they
        are.
        """
        if not self._plaintext:
            return

        async def describe_cluster() -> None:
            async with admin_client.AdminClient(
                self.settings.settings["bootstrap.servers"], api_timeout_s=1.0
            ) as admin:
                await admin.describe_cluster()

        logging.getLogger("quorate.admin").setLevel(
            logging.CRITICAL
        )  # its warnings repeat librdkafka's errors
        try:
            asyncio.run(describe_cluster())
        except NotKafkaError as error:
            raise ToolError(str(error)) from error
        except (BrokerError, NetError, ValueError, OSError):
            return


_TOPIC_IS_BEING_CREATED = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
