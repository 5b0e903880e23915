"""Committed batches become published deltas."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.metadata.publisher import BrokerMetadataListener
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import encode_record
from quorate.metadata.records import PartitionRecord, TopicRecord
from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch

from .controllers import run
from .world import topic_id_of


def batch(base: int, *records: Any) -> CommittedBatch:
    values = [encode_record(record, 0) for record in records]
    return CommittedBatch(base, base + len(values) - 1, 1, 1000 + base, values, sum(map(len, values)))


def topic(name: str) -> list[Any]:
    return [
        TopicRecord(name=name, topic_id=topic_id_of(name)),
        PartitionRecord(partition_id=0, topic_id=topic_id_of(name), replicas=[1], isr=[1], leader=1),
    ]


class World:
    def __init__(self) -> None:
        self.faults: list[BaseException] = []
        self.cache = MetadataCache()
        self.listener = BrokerMetadataListener(1, self.cache, asyncio.get_running_loop(), self.faults.append)
        self.steps: list[list[str]] = []

    def publish(self) -> None:
        self.listener.start_publishing()
        self.listener.subscribe("test", self.note)

    def note(self, delta: Any) -> None:
        assert self.cache.image is delta.new
        self.steps.append(sorted(t.name for t in delta.topics_created.values()))


def test_nothing_is_shown_before_publishing_starts():
    async def body() -> None:
        world = World()
        world.listener.on_commit([batch(0, *topic("a"))])
        assert "a" in world.listener.image.topics.by_name
        assert not world.cache.image.topics.by_name
        world.publish()
        assert "a" in world.cache.image.topics.by_name
        assert world.steps == []

    run(body)


def test_each_delivery_is_one_step():
    async def body() -> None:
        world = World()
        world.publish()
        world.listener.on_commit([batch(0, *topic("a")), batch(2, *topic("b"))])
        world.listener.on_commit([batch(4, *topic("c"))])
        assert world.steps == [["a", "b"], ["c"]]

    run(body)


def test_control_batches_move_the_offset():
    async def body() -> None:
        world = World()
        world.listener.on_commit([CommittedBatch(0, 2, 1, 0, [], 100)])
        assert world.listener.offset == 2

    run(body)


def test_a_snapshot_replaces_everything():
    async def body() -> None:
        world = World()
        world.publish()
        world.listener.on_commit([batch(0, *topic("old"))])
        deleted: list[str] = []
        world.listener.subscribe(
            "deleted", lambda d: deleted.extend(t.name for t in d.topics_deleted.values())
        )
        for _ in world.listener.on_snapshot(OffsetEpoch(50, 3), iter([batch(0, *topic("new"))])):
            pass
        assert (deleted, world.steps[-1], world.listener.offset) == (["old"], ["new"], 49)

    run(body)


def test_a_record_that_cannot_be_replayed_stops_the_broker():
    async def body() -> None:
        world = World()
        bad = CommittedBatch(7, 7, 1, 0, [b"\x01\x7f\x00"], 3)
        with pytest.raises(MetadataError):
            world.listener.on_commit([bad])
        assert "offset 7" in str(world.faults[0])

    run(body)


def test_a_failing_subscriber_is_counted_and_the_others_are_called():
    async def body() -> None:
        world = World()
        world.listener.start_publishing()

        def broken(_delta: Any) -> None:
            raise RuntimeError("broken")

        world.listener.subscribe("broken", broken)
        world.listener.subscribe("test", world.note)
        world.listener.on_commit([batch(0, *topic("a"))])
        assert (world.faults, world.listener.apply_errors) == ([], 1)
        assert world.steps == [["a"]]

    run(body)


def test_waiting_for_an_offset():
    async def body() -> None:
        world = World()
        far = asyncio.ensure_future(world.listener.wait_for_offset(3, 5))
        near = asyncio.ensure_future(world.listener.wait_for_offset(1, 5))
        await asyncio.sleep(0)
        world.listener.on_commit([batch(0, *topic("a"))])
        assert await near
        assert not far.done()
        world.listener.on_commit([batch(2, *topic("b"))])
        assert await far
        assert not await world.listener.wait_for_offset(99, 0.01)

    run(body)


def test_waiting_for_a_condition():
    async def body() -> None:
        world = World()
        seen = asyncio.ensure_future(world.listener.wait_until(lambda image: "b" in image.topics.by_name, 5))
        await asyncio.sleep(0)
        world.listener.on_commit([batch(0, *topic("a"))])
        await asyncio.sleep(0)
        assert not seen.done()
        world.listener.on_commit([batch(2, *topic("b"))])
        assert await seen
        assert not await world.listener.wait_until(lambda _image: False, 0.01)

    run(body)


def test_leader_changes_are_passed_on():
    async def body() -> None:
        world = World()
        told: list[LeaderAndEpoch] = []
        world.listener.on_leader(told.append)
        world.listener.on_leader_change(LeaderAndEpoch(3, 9))
        assert told == [LeaderAndEpoch(3, 9)]

    run(body)
