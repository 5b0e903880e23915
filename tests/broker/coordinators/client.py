"""Requests of a client of the coordinators, and helpers to run them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

from quorate.protocol.api import REGISTRY, ApiKey, encode_request
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.protocol.schema import Request
from tests.broker.coordinators.fakes import World, id_of

E = ErrorCode


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 20))

    return run


def versions(key: ApiKey) -> range:
    spec = REGISTRY[key]
    return range(spec.min_version, spec.max_version + 1)


def commit_request(
    offset: int = 5, *, group: str = "g", topic: str = "t", partitions: tuple[int, ...] = (0,), **kwargs: Any
) -> OffsetCommitRequest:
    entries = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=p, committed_offset=offset, committed_metadata="m"
        )
        for p in partitions
    ]
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=id_of(topic), partitions=entries)
    ]
    return OffsetCommitRequest(group_id=group, topics=topics, **kwargs)


def fetch_request(
    version: int, *, group: str = "g", topics: list[tuple[str, list[int]]] | None = None, stable: bool = False
) -> OffsetFetchRequest:
    if version >= 8:
        entries = (
            None
            if topics is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopics(name=t, topic_id=id_of(t), partition_indexes=p)
                for t, p in topics
            ]
        )
        return OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=entries)],
            require_stable=stable,
        )
    old = (
        None
        if topics is None
        else [OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in topics]
    )
    request = OffsetFetchRequest(group_id=group, topics=old)
    if stable:
        request.require_stable = True
    return request


def fetched(response: Any, version: int) -> dict[tuple[str, int], int]:
    """Committed offsets by topic and partition. From version 10 on, the topic is found by its id."""
    topics = response.groups[0].topics if version >= 8 else response.topics
    return {
        (t.topic_id.decode().strip("-") if version >= 10 else t.name, p.partition_index): p.committed_offset
        for t in topics
        for p in t.partitions
    }


def join_request(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(
                name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
            )
        ],
    )


async def joined(w: World, version: int, group: str = "g") -> Any:
    answer = await w.call(ApiKey.JOIN_GROUP, join_request(group=group), version)
    if answer.error_code == E.MEMBER_ID_REQUIRED:
        answer = await w.call(ApiKey.JOIN_GROUP, join_request(answer.member_id, group), version)
    return answer


def frame(of: Request, version: int = 9, correlation_id: int = 7, client_id: str | None = "me") -> bytes:
    return encode_request(correlation_id, client_id, of, version)


async def stable_member(w: World, group: str = "g") -> Any:
    """A member of a stable group."""
    member = await joined(w, 9, group)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"a")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=member.generation_id,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    assert (await w.call(ApiKey.SYNC_GROUP, sync, 5)).error_code == E.NONE
    return member


class Turns:
    """Counts the turns of the event loop during a coroutine."""

    count = 0

    async def during(self, work: Awaitable[Any]) -> Any:
        async def count() -> None:
            while True:
                self.count += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        try:
            return await work
        finally:
            other.cancel()
