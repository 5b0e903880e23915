"""The load of the soak: topics that are created, configured and deleted through each broker, and the
responses."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, NetError
from quorate.admin.transport import BROKERS, Transport
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest as Alter
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.schema import Request

TOPIC, SET = 2, 0
ATTEMPT_S = 8.0
"""Of one attempt: a broker answers REQUEST_TIMED_OUT itself before."""


@dataclass(slots=True)
class Ledger:
    """The responses to one stream. Every change is requested until it is answered, so the outcome of each is
    known."""

    living: dict[str, str] = field(default_factory=dict)
    """topic -> the value of its retention.ms"""
    ids: dict[str, bytes] = field(default_factory=dict)
    """topic, deleted or not -> its id as answered; a creation whose first answer was lost tells none"""
    deleted: set[str] = field(default_factory=set)
    created: int = 0
    configured: int = 0
    retried: int = 0
    """attempts that were refused or not answered"""
    told_exists: int = 0
    """creations that a repeated attempt, of this stream or of its broker, found there"""
    answered: list[float] = field(default_factory=list)
    """when each change was answered, monotonic seconds"""


class Stream:
    """Changes through one broker, one after the other, with pauses. At most `keep` topics exist at a time."""

    def __init__(self, name: str, bootstrap: str, seed: int, *, pause_s: float, keep: int) -> None:
        self.name, self.ledger = name, Ledger()
        self._random = random.Random(f"{seed} {name}")
        self._transport = Transport(
            bootstrap, endpoint_type=BROKERS, client_id=f"soak-{name}", request_timeout_s=ATTEMPT_S
        )
        self._address = next(iter(self._transport._bootstrap))
        self._pause_s, self._keep = pause_s, keep
        self._number = 0
        self.asking_since: float | None = None

    async def run(self, may_go: Callable[[], bool], over: Callable[[], bool]) -> None:
        while not over():
            if not may_go():
                await asyncio.sleep(0.02)
                continue
            self.asking_since = time.monotonic()
            await self._step(over)
            self.asking_since = None
            await asyncio.sleep(self._pause_s * self._random.uniform(0.5, 1.5))
        await self._transport.close()

    async def _step(self, over: Callable[[], bool]) -> None:
        living = self.ledger.living
        dice = self._random.random()
        if living and (dice < 0.2 or len(living) >= self._keep):
            await self._delete(self._random.choice(sorted(living)), over)
        elif living and dice < 0.4:
            await self._configure(self._random.choice(sorted(living)), over)
        else:
            await self._create(over)

    async def _create(self, over: Callable[[], bool]) -> None:
        self._number += 1
        name, retention = f"{self.name}-{self._number}", str(self._random.randrange(10**6, 10**9))
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=self._random.randint(1, 3),
            replication_factor=self._random.randint(1, 2),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=retention)],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        answer = await self._until(request, lambda a: a.topics[0], ErrorCode.TOPIC_ALREADY_EXISTS, over)
        if answer is None:
            return
        self.ledger.living[name] = retention
        self.ledger.created += 1
        if answer.error_code:
            self.ledger.told_exists += 1
        else:
            self.ledger.ids[name] = bytes(answer.topic_id)

    async def _delete(self, name: str, over: Callable[[], bool]) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=5000
        )
        answer = await self._until(
            request, lambda a: a.responses[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, over
        )
        if answer is not None:
            del self.ledger.living[name]
            self.ledger.deleted.add(name)

    async def _configure(self, name: str, over: Callable[[], bool]) -> None:
        value = str(self._random.randrange(10**6, 10**9))
        change = Alter.AlterableConfig(name="retention.ms", config_operation=SET, value=value)
        request = Alter(
            resources=[Alter.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[change])]
        )
        answer = await self._until(request, lambda a: a.responses[0], ErrorCode.NONE, over)
        if answer is not None:
            self.ledger.living[name] = value
            self.ledger.configured += 1

    async def _until(
        self, request: Request, part: Callable[[Any], Any], also: ErrorCode, over: Callable[[], bool]
    ) -> Any:
        """The result of the response, or None if the soak ends before there is one."""
        while True:
            try:
                answer = part(await self._transport.ask(self._address, request, timeout_s=ATTEMPT_S))
                if answer.error_code in (0, int(also)):
                    self.ledger.answered.append(time.monotonic())
                    return answer
                code = ErrorCode.of(answer.error_code)
                if not code.retriable and code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise AssertionError(
                        f"{self.name}: {request} was answered with {code.name}: {answer.error_message}"
                    )
            except (NetError, OSError, TimeoutError, KafkaError):
                pass
            self.ledger.retried += 1
            if over():
                return None
            await asyncio.sleep(0.02)

    async def names(self) -> set[str]:
        """The topics in the metadata of the broker."""
        answer = await self._transport.ask(self._address, MetadataRequest(topics=None), timeout_s=ATTEMPT_S)
        return {topic.name for topic in answer.topics if not topic.is_internal}


class Load:
    """All streams, on an event loop in a thread of their own."""

    def __init__(self, streams: list[Stream]) -> None:
        self.streams = streams
        self._go, self._over = threading.Event(), threading.Event()
        self._loop = asyncio.new_event_loop()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="load", daemon=True)
        self._go.set()
        self._thread.start()

    def _main(self) -> None:
        async def all_() -> None:
            async with asyncio.TaskGroup() as group:
                for stream in self.streams:
                    group.create_task(stream.run(self._go.is_set, self._over.is_set))

        try:
            self._loop.run_until_complete(all_())
        except BaseException as e:
            self.failure = e

    def pause(self, timeout_s: float) -> None:
        """Pauses the load. Returns when every requested change is answered. Raises AssertionError if one is
        not answered in time."""
        self._go.clear()
        deadline = time.monotonic() + timeout_s
        while any(s.asking_since is not None for s in self.streams):
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"a change was not answered in {timeout_s} s"
            time.sleep(0.02)

    def resume(self) -> None:
        self._go.set()

    def names(self) -> list[set[str]]:
        """The topics in the metadata of each broker. Only to be called while the load is paused."""
        return [asyncio.run_coroutine_threadsafe(s.names(), self._loop).result(20) for s in self.streams]

    def stop(self) -> None:
        self._over.set()
        self._go.set()
        self._thread.join(30)


def longest_gap(answered: list[float], start: float, end: float) -> float:
    """The longest time without an answer that overlaps start to end; monotonic seconds."""
    first = max(0, bisect.bisect_right(answered, start) - 1)
    last = bisect.bisect_right(answered, end)
    times = [*answered[first : last + 1]]
    if last >= len(answered):
        times.append(end)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    return max(gaps, default=0.0)
