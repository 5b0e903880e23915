"""Changes of the active controller: deferred requests, the last commits of a controller that closes, and
the preparation of a standby."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from quorate.controller import standby_preload
from quorate.controller.standby_preload import StandbyPreload
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.types import LeaderAndEpoch

from .requests import broker, topics
from .support import Harness


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def elected_but_not_active() -> Harness:
    """A controller that was elected for epoch 3 but is not active, because the LeaderChange record was
    not delivered."""
    h = await Harness().start()
    await broker(h)
    h.raft.follow(2, 2)
    h.raft.leader_and_epoch = LeaderAndEpoch(h.raft.node_id, 3)
    assert not h.controller.state.is_active
    return h


def test_a_request_between_election_and_activation_is_deferred_and_handled() -> None:
    async def test() -> None:
        h = await elected_but_not_active()
        first, second = h.send(topics("a")), h.send(topics("a"))
        assert not first.done()
        h.raft.become_leader(3)
        for _ in range(3):
            h.raft.commit()
            await asyncio.sleep(0)
        assert (await first).topics[0].error_code == ErrorCode.NONE
        assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    run(test())


def test_a_deferred_request_fails_if_another_controller_becomes_the_leader() -> None:
    async def test() -> None:
        h = await elected_but_not_active()
        waiting = h.send(topics("a"))
        h.raft.follow(2, 4)
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_the_number_of_deferred_requests_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("quorate.controller.requests.deferred.MAX_DEFERRED", 2)
        h = await elected_but_not_active()
        waiting = [h.send(topics("a")), h.send(topics("b"))]
        with pytest.raises(KafkaError):
            h.send(topics("c"))
        h.raft.follow(2, 4)
        assert all(isinstance(e, KafkaError) for e in await asyncio.gather(*waiting, return_exceptions=True))

    run(test())


async def active_before_its_first_record_commits() -> tuple[Harness, int]:
    """A controller that is active before its LeaderChange record is committed, and the offset of this
    record."""
    h = await Harness().start()
    await broker(h)
    h.raft.follow(2, 2)
    start = h.raft.log.end
    h.raft.become_leader(3, committed=False)
    assert h.controller.state.is_active
    return h, start


def test_a_write_before_the_first_commit_of_an_epoch_is_answered_when_it_is_committed() -> None:
    async def test() -> None:
        h, start = await active_before_its_first_record_commits()
        written = h.send(topics("a"))
        h.raft.commit(start + 1)
        assert not written.done()
        assert "a" not in h.controller.state.image.topics.by_name
        h.raft.commit()
        assert (await written).topics[0].error_code == ErrorCode.NONE
        assert "a" in h.controller.state.image.topics.by_name
        assert h.controller.state.image.provenance.offset == h.raft.log.end - 1

    run(test())


def test_writes_of_an_epoch_that_never_committed_fail_and_are_reverted() -> None:
    async def test() -> None:
        h, start = await active_before_its_first_record_commits()
        written = h.send(topics("a"))
        h.raft.log.truncate(start)
        h.raft.follow(2, 4)
        with pytest.raises(KafkaError) as raised:
            await written
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert "a" not in h.controller.state.next_image.topics.by_name

    run(test())


def test_a_controller_that_closes_waits_for_its_last_commits_and_accepts_no_more_requests() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        written = h.send(topics("a"))
        closing = asyncio.ensure_future(h.controller.close())
        await asyncio.sleep(0)
        late = h.send(topics("b"))
        h.raft.commit()
        assert (await written).topics[0].error_code == ErrorCode.NONE
        await closing
        assert not late.done()
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError):
            await late
        assert h.controller.state.image.topics.by_name.get("b") is None

    run(test())


READY = """
import sys
import quorate.controller.driver
from quorate.controller.standby_preload import FIRST_REQUESTS, RAFT_KEYS, RECORDS, pieces, structs
from quorate.controller.requests.routes import write_handler
from quorate.protocol.api import REGISTRY, ApiKey
before = set(sys.modules)
for _ in pieces():
    pass
loaded = set(sys.modules)
assert "quorate.controller.handlers.create_topics" not in before
for key in FIRST_REQUESTS:
    write_handler(key)
for key in (*FIRST_REQUESTS, ApiKey.ENVELOPE, *RAFT_KEYS):
    spec = REGISTRY[key]
    assert spec.max_version in spec.request._decoders, key
    assert spec.max_version in spec.response._encoders, key
for key in RAFT_KEYS:
    spec = REGISTRY[key]
    assert spec.max_version in spec.request._encoders and spec.max_version in spec.response._decoders, key
assert set(sys.modules) == loaded
from quorate.metadata import records
from quorate.protocol.schema import Struct
from quorate.records.control import LeaderChangeMessage
built = [LeaderChangeMessage, *(getattr(records, name) for name in RECORDS)]
built += [REGISTRY[key].request for key in RAFT_KEYS]
built += [REGISTRY[key].response for key in (*FIRST_REQUESTS, ApiKey.ENVELOPE, *RAFT_KEYS)]
slow = [struct for message in built for struct in structs(message) if struct.__init__ is Struct.__init__]
assert not slow, slow
"""


def test_a_standby_loads_the_modules_of_an_active_controller_in_advance() -> None:
    done = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_standby_takes_longer_pauses_while_its_event_loop_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(standby_preload, "BEGIN_AFTER_S", 0.0)
        monkeypatch.setattr(standby_preload, "pieces", lambda: (steps.append(loop.time()) for _ in range(6)))
        preload = StandbyPreload(lambda: False)
        preload.begin()
        while not preload.done:
            if 1 < len(steps) < 4:
                loop.call_soon(time.sleep, 2 * standby_preload.PAUSE_S + standby_preload.BUSY_AFTER_S)
            await asyncio.sleep(0)

    asyncio.run(test())
    pauses = [after - before for before, after in pairwise(steps)]
    assert sum(pause >= standby_preload.BUSY_PAUSE_S for pause in pauses) >= 2


def test_an_active_controller_loads_nothing_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[bool] = []
    looks = 0

    def is_active() -> bool:
        nonlocal looks
        looks += 1
        return looks <= 3

    async def test() -> None:
        for pause in ("BEGIN_AFTER_S", "ACTIVE_PAUSE_S"):
            monkeypatch.setattr(standby_preload, pause, 0.0)
        monkeypatch.setattr(standby_preload, "pieces", lambda: (steps.append(looks > 3) for _ in range(6)))
        preload = StandbyPreload(is_active)
        preload.begin()
        while not preload.done:
            await asyncio.sleep(0)

    asyncio.run(test())
    assert steps == [True] * 6
