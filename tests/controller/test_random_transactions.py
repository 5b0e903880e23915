"""Random histories of three controllers with metadata transactions, from a printed seed.

Requests arrive, parts commit, and leaders change at random instants. After each commit every image shows
all partitions of a large topic or none of them, and images at the same offset are the same.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from quorate.metadata.image import MetadataImage
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import AbortTransactionRecord, EndTransactionRecord
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .requests import broker, topics
from .support import FakeLog, FakeRaft, Harness

NODES = (1, 2, 3)
LARGE = 1_500
GROWN = 2_600
TURNS = 300


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images have the same topics and brokers, without the text of a failed comparison."""
    return one.topics == other.topics and one.cluster == other.cluster


class World:
    """Three controllers on one log, and random events."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.log = FakeLog()
        self.nodes = {
            node_id: Harness(
                FakeRaft(node_id, self.log, voters=NODES), node_id=node_id, max_records_per_op=100_000
            )
            for node_id in NODES
        }
        self.leader = 1
        self.epoch = 1
        self.names = 0
        self.answers: list[asyncio.Future[Any]] = []
        self.seen: dict[int, MetadataImage] = {}

    async def start(self) -> None:
        for node_id, node in self.nodes.items():
            node.controller.state._rng = Random(self.rng.random())  # topic ids are unique
            node.controller.add_image_listener(self.check)
            await node.start(lead=node_id == 1)
        await broker(self.nodes[1])

    def check(self, image: MetadataImage) -> None:
        for topic in image.topics.by_name.values():
            allowed = {LARGE, GROWN} if topic.name.startswith("large") else {1}
            assert len(topic.partitions) in allowed, topic.name
        known = self.seen.setdefault(image.provenance.offset, image)
        assert same(known, image)
        hidden = [each.transaction.pending for each in (known, image) if each.transaction is not None]
        assert not hidden or same(*hidden)

    def send(self, request: Any) -> None:
        try:
            answer = self.nodes[self.leader].send(request)
        except KafkaError:
            return
        if isinstance(answer, asyncio.Future):
            self.answers.append(answer)

    def step(self) -> None:
        chance = self.rng.random()
        image = self.nodes[self.leader].controller.state.image
        if chance < 0.04:
            self.names += 1
            make = CreateTopicsRequest.CreatableTopic
            topic = make(name=f"large{self.names}", num_partitions=LARGE, replication_factor=1)
            self.send(CreateTopicsRequest(topics=[topic]))
        elif chance < 0.10:
            self.names += 1
            self.send(topics(f"small{self.names}"))
        elif chance < 0.13:
            grown = [name for name in image.topics.by_name if name.startswith("large")]
            if grown:
                wanted = CreatePartitionsRequest.CreatePartitionsTopic
                topic_ = wanted(name=self.rng.choice(grown), count=GROWN, assignments=None)
                self.send(CreatePartitionsRequest(topics=[topic_]))
        elif chance < 0.20:
            registration = image.cluster.brokers[1]
            self.send(
                BrokerHeartbeatRequest(
                    broker_id=1,
                    broker_epoch=registration.epoch,
                    current_metadata_offset=self.log.end,
                    want_fence=self.rng.random() < 0.3,
                )
            )
        elif chance < 0.25:
            self.elect(self.rng.choice(NODES), lose=self.rng.random() < 0.5)
        elif chance < 0.7:
            self.commit(self.rng.choice(self.log.batches).last_offset + 1)

    def committed(self) -> int:
        return max(node.raft.delivered for node in self.nodes.values())

    def commit(self, end: int) -> None:
        for node in self.nodes.values():
            node.raft.commit(max(end, self.committed()))

    def elect(self, node_id: int, *, lose: bool) -> None:
        """A new epoch. What is not committed is lost, or commits in it."""
        self.epoch += 1
        for node in self.nodes.values():
            if node.raft.node_id != node_id:
                node.raft.follow(node_id, self.epoch)
        elected = self.nodes[node_id]
        if elected.raft.is_leader:
            elected.raft.follow(None, self.epoch)
            self.epoch += 1
        if lose:
            self.log.truncate(self.committed())
        self.leader = node_id
        elected.raft.become_leader(self.epoch)


@pytest.mark.parametrize("first", [0, 3, 6])
def test_no_history_shows_a_part_of_a_transaction(first: int) -> None:
    kinds: set[type] = set()

    async def history(seed: int) -> None:
        print("seed", seed)
        world = World(seed)
        await world.start()
        for _ in range(TURNS):
            world.step()
            await asyncio.sleep(0)
        for _ in range(200):
            world.commit(world.log.end)
            await asyncio.sleep(0)
        await asyncio.gather(*world.answers, return_exceptions=True)
        images = [node.controller.state.image for node in world.nodes.values()]
        assert [node.fatal for node in world.nodes.values()] == [[], [], []]
        from_the_log = apply_committed(MetadataImage(), world.log.batches)
        assert all(same(image, from_the_log) for image in images)
        assert images[0].transaction is None
        assert [node.controller.state.exclusive for node in world.nodes.values()] == [False] * 3
        kinds.update(map(type, world.nodes[1].records))

    for seed in range(first, first + 3):
        asyncio.run(history(seed))
    assert kinds >= {AbortTransactionRecord, EndTransactionRecord}
