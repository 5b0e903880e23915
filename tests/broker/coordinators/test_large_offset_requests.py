"""Requests for very many offsets, which take several turns of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.broker.coordinators.group.offset_metadata_manager import STEP
from quorate.broker.coordinators.group.requests import offset_requests
from quorate.net import turns
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.coordinators.client import (
    Turns,
    commit_request,
    fetch_request,
    in_loop,
)
from tests.broker.coordinators.fakes import World

E = ErrorCode


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", [1, 6, 9])
@in_loop
async def test_a_fetch_of_very_many_offsets_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch, version: int, stable: bool
) -> None:
    """The offsets are those of one moment, whatever is committed between two turns."""
    wanted = [("t", list(range(3)) * 100), *[(f"x{i}", []) for i in range(20)], ("none", list(range(300)))]
    request = fetch_request(version, topics=wanted, stable=stable and version >= 7)
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, partitions=(0, 2)), 9)
        small = await w.call(ApiKey.OFFSET_FETCH, request, version)
        monkeypatch.setattr(turns, "SLICE_S", 0.0)
        monkeypatch.setattr(offset_requests, "AT_ONCE", 100)
        counted = Turns()

        async def both() -> Any:
            answer = asyncio.ensure_future(w.call(ApiKey.OFFSET_FETCH, request, version))
            for _ in range(6):
                await asyncio.sleep(0)
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, partitions=(0, 2)), 9)
            return await answer

        assert repr(await counted.during(both())) == repr(small)
        assert counted.count >= 600 / STEP


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize("count", [1, 60_000])
@in_loop
async def test_a_commit_of_very_many_offsets_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch, count: int, version: int
) -> None:
    """Some offsets are stored, and others refused, because their topics do not exist. With 60,000 all are
    refused, because one batch cannot have so many."""
    request = commit_request(7, partitions=(0, 1, 2) * count)
    make = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index) for index in range(300)
    ]
    request.topics += [make(name=name, partitions=partitions) for name in ("none", "other", "none")]
    async with World() as w:
        small = await w.call(ApiKey.OFFSET_COMMIT, request, version)
        monkeypatch.setattr(turns, "SLICE_S", 0.0)
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.OFFSET_COMMIT, request, version, is_large=True))
        assert repr(answer) == repr(small)
        assert counted.count >= (900 + (count > 1) * 2 * 3 * count) / STEP


@pytest.mark.parametrize("version", [1, 10])
@in_loop
async def test_a_failed_fetch_of_very_many_offsets_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Unknown topic ids, and the error of each partition before version 2."""
    async with World(lead=version >= 10) as w:
        request = fetch_request(version, topics=[("none", list(range(1000))), ("other", list(range(1000)))])
        monkeypatch.setattr(turns, "SLICE_S", 0.0)
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.OFFSET_FETCH, request, version))
        topics = answer.topics if version < 8 else answer.groups[0].topics
        code = E.NOT_COORDINATOR if version < 10 else E.UNKNOWN_TOPIC_ID
        assert [p.error_code for topic in topics for p in topic.partitions] == [code] * 2000
        assert counted.count >= 2000 / STEP


@in_loop
async def test_a_transactional_commit_of_very_many_topics_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = TxnOffsetCommitRequest(topics=[make(name=f"t{number}") for number in range(600)])
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    async with World() as w:
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.TXN_OFFSET_COMMIT, request, 3))
        assert counted.count >= 600
        assert len(answer.topics) == 600


@in_loop
async def test_a_transactional_commit_of_very_many_offsets_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=i)
                    for i in range(300)
                ],
            )
            for name in ("t", "u")
        ],
    )
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    async with World() as w:
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.TXN_OFFSET_COMMIT, request, 3))
        assert counted.count >= 600
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("t", 300), ("u", 300)]
        code = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert all(p.error_code == code for topic in answer.topics for p in topic.partitions)
