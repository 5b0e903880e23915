"""Opens librdkafka's producers and consumers for the console tools, and says what goes wrong with them
in clear lines.

librdkafka does its network work in threads of its own. This module imports it, which takes as long as
everything else that a console tool does before it connects: a tool imports this module when its options
are right.
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
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from quorate.admin.errors import ErrorCode, NetError, NotKafkaError, error_text
from quorate.lazy import lazy_modules
from quorate.protocol.errors import KafkaError as BrokerError
from quorate.tools.command_line import ToolError
from quorate.tools.console.librdkafka_properties import Translation

if TYPE_CHECKING:
    from quorate.admin import client as admin_client
    from quorate.admin import diagnosis
else:
    admin_client, diagnosis = lazy_modules("quorate.admin", "client", "diagnosis")

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
"""Names that librdkafka's errors have for properties that were given by their other name."""

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Takes librdkafka's log, which repeats on stderr what its callbacks say."""

SAID_AGAIN_S = 30.0
"""The same trouble is told again after this time: often enough for a log, rarely enough for a terminal."""

_REFUSALS = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)


def open_handle(
    kind: type[Handle], translation: Translation, errors: ConnectionErrors, **callbacks: Any
) -> Handle:
    """A producer or consumer with these settings. One that librdkafka does not know is left out, with a
    warning, as Java's clients do. Raises ToolError for a wrong value."""
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
    """The text with the property's name as the user gave it, where it has another one in librdkafka."""
    for name in _NAMED.findall(text):
        given = translation.given.get(name) or translation.given.get(_ALIASES.get(name, ""))
        if given is not None and given != name:
            return f"{text} ({given})"
    return text


def describe(error: KafkaError) -> str:
    """An error for people: Kafka's codes in the words of the other tools, librdkafka's own in its words."""
    if error.code() > 0:
        return error_text(BrokerError(ErrorCode.of(error.code())))
    return _plain(error.str())


def _plain(text: str) -> str:
    """librdkafka's text without the time in a state, which makes each one different, and without `Local:`."""
    text = re.sub(r"\s*\(after \d+ms in state .*\)", "", text).removeprefix("Local: ")
    text = re.sub(r"^\w+://", "", text)
    return re.sub(r"/(\w+): ", ": ", text, count=1).strip()


class ConnectionErrors:
    """librdkafka's error callback: keeps the last reason, and tells in one line that no broker can be
    reached.

    A connection that breaks while others stand is no trouble of the user's: librdkafka goes on by itself.
    """

    def __init__(self, client: str) -> None:
        self.reason: str | None = None
        self.refused: str | None = None
        """Why the cluster does not let this client in: trying again is of no use."""
        self.held = False
        """Whether somebody else is about to say more than that nobody can be reached."""
        self._client = client
        self._said: dict[str, float] = {}

    def __call__(self, error: KafkaError) -> None:
        text = describe(error)
        if error.fatal() or error.code() in _REFUSALS:
            self.refused = text
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.reason = text
        elif not self.held and self.refused is None:
            self.say(f"{self.reason or 'No broker can be reached'}; trying again")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(text, -SAID_AGAIN_S) >= SAID_AGAIN_S:
            self._said[text] = now
            print(f"[{self._client}] {text}", file=sys.stderr, flush=True)


class Interrupts:
    """SIGINT and SIGTERM as events of a queue, so that a tool ends its work in order. They come in at
    any time; a second one means that the order is not waited for."""

    def __init__(self, events: SimpleQueue[Any]) -> None:
        self.count = 0
        self._events = events

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """A signal that the parent ignores, as `nohup` and `&` in a script do, stays ignored."""
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


class Interrupted(Exception):  # noqa: N818 - an end, not an error
    """A signal came while something was waited for."""


def partitions_of(handle: Producer | Consumer, topic: str | None, timeout_s: float) -> dict[str, list[int]]:
    """The partitions of a topic, or of all topics, as a broker tells them now. Raises KafkaException."""
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
    """Lets the error callback be called."""
    try:
        handle.poll(0)
    except KafkaException as error:  # raised for a fatal error
        errors.refused = describe(error.args[0])


@dataclass(slots=True)
class TopicWait:
    """Waits for the cluster to be there and, where a topic is named, for the topic, which the question
    creates where the cluster does that."""

    handle: Producer | Consumer
    settings: Translation
    timeout_s: float
    errors: ConnectionErrors

    @property
    def _plaintext(self) -> bool:
        return self.settings.settings.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"

    def run(self, topic: str | None, interrupts: Interrupts) -> dict[str, list[int]]:
        """The partitions of the topic, or of all topics.

        Raises Interrupted, and ToolError when the time is over, the cluster refuses, or something else
        than Kafka listens at the addresses.
        """
        answer: SimpleQueue[dict[str, list[int]] | ToolError] = SimpleQueue()

        def work() -> None:
            try:
                answer.put(self._until_there(topic))
            except ToolError as error:
                answer.put(error)

        # librdkafka's call does not hear signals: it runs in a thread, which ends with the process.
        self.errors.held = self._plaintext
        threading.Thread(target=work, name="metadata", daemon=True).start()
        before = interrupts.count
        while True:
            try:
                found = answer.get(timeout=0.02)
            except Empty:
                _serve(self.handle, self.errors)
                if self.errors.refused is not None and not self.errors.held:
                    raise ToolError(self.errors.refused) from None
                if interrupts.count > before:
                    raise Interrupted from None
                continue
            self.errors.held = False
            if isinstance(found, ToolError):
                raise found
            return found

    def _until_there(self, topic: str | None) -> dict[str, list[int]]:
        began, patience_s, looked = time.monotonic(), 1.0, False
        while True:
            left_s = self.timeout_s - (time.monotonic() - began)
            if looked and self.errors.held:
                self.errors.held = False
                self.errors.say(f"{self.errors.reason or 'No broker answers'}; trying again")
            if left_s <= 0:
                what = (
                    "The cluster did not answer"
                    if topic is None
                    else f"Topic {topic} not present in metadata"
                )
                reason = "" if self.errors.reason is None else f": {self.errors.reason}"
                raise ToolError(f"{what} after {round(self.timeout_s * 1000)} ms{reason}")
            try:
                found = partitions_of(self.handle, topic, min(patience_s, left_s))
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
                if not looked:
                    looked = True
                    self._look_who_is_there()
                patience_s *= 2
            elif failure.code() in _TOPIC_COMES:
                self.errors.reason = None
                if time.monotonic() - began > 1:
                    self.errors.say(f"Topic {topic} is not present in metadata; trying again")
            elif not failure.retriable():
                raise ToolError(f"Topic {topic}: {describe(failure)}")
            time.sleep(min(0.05, max(0.0, left_s)))  # asks again; nobody tells when a topic is created

    def _look_who_is_there(self) -> None:
        """Raises ToolError when no bootstrap server is a broker: librdkafka does not tell what it is
        instead."""
        if not self._plaintext:
            return

        async def look() -> None:
            async with admin_client.AdminClient(
                self.settings.settings["bootstrap.servers"], api_timeout_s=1.0
            ) as admin:
                await admin.describe_cluster()

        logging.getLogger("quorate.admin").setLevel(logging.CRITICAL)  # what it warns of is told already
        try:
            asyncio.run(look())
        except NotKafkaError as error:
            raise ToolError(
                str(error).replace(diagnosis.TLS, "it speaks TLS: set security.protocol to SSL or SASL_SSL")
            ) from error
        except (BrokerError, NetError, ValueError, OSError):
            return


_TOPIC_COMES = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
