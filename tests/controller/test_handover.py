"""Between two terms: requests that wait for a new active controller, changes that an old one lets
commit; being ready."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.types import LeaderAndEpoch

from .asking import broker, topics
from .support import Harness


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def elected_but_not_active() -> Harness:
    """Leads epoch 3 as Raft has it; the LeaderChange has not been delivered, so that the controller is
    a standby still."""
    h = await Harness().start()
    await broker(h)
    h.raft.follow(2, 2)
    h.raft.leader_and_epoch = LeaderAndEpoch(h.raft.node_id, 3)
    assert not h.controller.state.is_active
    return h


def test_a_request_that_comes_between_election_and_activation_waits_and_is_done() -> None:
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


def test_it_is_refused_when_another_leads_after_all() -> None:
    async def test() -> None:
        h = await elected_but_not_active()
        waiting = h.send(topics("a"))
        h.raft.follow(2, 4)
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_so_many_may_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """And the offset of that record: LeaderChange."""
    h = await Harness().start()
    await broker(h)
    h.raft.follow(2, 2)
    start = h.raft.log.end
    h.raft.become_leader(3, committed=False)
    assert h.controller.state.is_active
    return h, start


def test_what_is_written_before_the_epochs_first_record_commits_is_answered_when_it_has_committed_itself() -> (
    None
):
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


def test_what_was_written_in_an_epoch_that_never_was_is_refused_and_forgotten() -> None:
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


def test_a_controller_that_closes_lets_its_last_changes_commit_and_takes_on_no_more() -> None:
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
from quorate.controller.warm_up import MODULES, RAFT_KEYS, RECORDS, pieces
from quorate.controller.requests.routes import WRITES, write_handler
from quorate.protocol.api import REGISTRY, ApiKey
before = set(sys.modules)
for _ in pieces():
    pass
loaded = set(sys.modules)
assert "quorate.controller.handlers.create_topics" not in before
for key in WRITES:
    write_handler(key)
for key in (*WRITES, ApiKey.ENVELOPE, *RAFT_KEYS):
    spec = REGISTRY[key]
    assert spec.max_version in spec.request._decoders, key
    assert spec.max_version in spec.response._encoders, key
for key in RAFT_KEYS:
    spec = REGISTRY[key]
    assert spec.max_version in spec.request._encoders and spec.max_version in spec.response._decoders, key
assert set(sys.modules) == loaded
"""


def test_a_standby_has_loaded_what_it_will_need() -> None:
    done = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
