"""A zone of brokers is lost: very many partitions change, most of which are encoded in the image."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from quorate.controller.changes.record_versions import version_of
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, ChangeBatch, fence
from quorate.controller.replication.fencing import fence_expired
from quorate.metadata.framing import encode_record
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.partition_table import Entry, PartitionTable
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.schema import Data

from .requests import beat, broker
from .support import LATEST, Cluster, Harness, directory, uid
from .test_portions import CHANGES, Change, carry_out

BROKERS = range(1, 7)
ZONES = 3
LOST = (1, 4)
"""The brokers of one zone."""


def zone_of(broker_id: int) -> int:
    return broker_id % ZONES


class EncodedCluster(Cluster):
    """A cluster whose image keeps partitions encoded, as the log delivers them."""

    def apply(self, records: Any) -> None:
        level = self.image.features.metadata_version or LATEST
        records = list(records)
        values = [encode_record(record, version_of(record, level)) for record in records]
        self.offset += len(records)
        self.image = apply_records(
            self.image, records, offset=self.offset - 1, epoch=1, timestamp_ms=0, encoded=values
        )


def filled(cluster: Cluster, seed: int, *, partitions: int = 60) -> Cluster:
    """Adds topics with replicas in all zones, some of them not in sync, and one topic with its own
    settings."""
    rng = Random(seed)
    cluster.brokers(*BROKERS)
    records: list[Data] = []
    for number in range(4):
        topic_id = uid(0xA000 + number)
        records.append(TopicRecord(name=f"t{number}", topic_id=topic_id))
        for partition_id in range(partitions // 4):
            replicas = rng.sample(BROKERS, rng.randint(1, 4))
            isr = replicas[: rng.randint(1, len(replicas))]
            record = PartitionRecord(
                partition_id=partition_id, topic_id=topic_id, replicas=replicas, isr=isr, leader=isr[0],
                leader_epoch=rng.randrange(9), partition_epoch=rng.randrange(9),
            )  # fmt: skip
            record.directories = [directory(broker_id) for broker_id in replicas]
            records.append(record)
    for name, value in (("unclean.leader.election.enable", "true"), ("min.insync.replicas", "2")):
        records.append(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t3", name=name, value=value)
        )
    cluster.apply(records)
    return cluster


@pytest.mark.parametrize("elr", (False, True), ids=("without ELR", "with ELR"))
@pytest.mark.parametrize("change", CHANGES)
def test_encoded_partitions_change_like_decoded_ones(change: Change, elr: bool) -> None:
    for seed in range(10):
        decoded, encoded = Cluster(), EncodedCluster()
        for cluster in (decoded, encoded):
            filled(cluster, seed)
            if elr:
                cluster.elr()
        carry_out(decoded, change, 7)
        carry_out(encoded, change, 7)
        assert encoded.image.topics == decoded.image.topics
        assert encoded.image.topics.leader_counts == decoded.image.topics.leader_counts
        assert encoded.image.topics.leaderless_index == decoded.image.topics.leaderless_index


def test_the_partitions_that_are_led_change_first() -> None:
    cluster = filled(EncodedCluster(), 5)
    sessions = [(broker_id, 100 + broker_id) for broker_id in LOST]
    led = sum(cluster.image.topics.leader_count(broker_id) for broker_id in LOST)
    records, left = fence_expired(cluster.view, sessions)
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    assert left is None
    assert 0 < led < len(changes)
    assert all(record.leader != -2 for record in changes[:led])
    assert all(record.leader == -2 for record in changes[led:])
    assert [type(record) for record in records[len(changes) :]] == [BrokerRegistrationChangeRecord] * 2


@pytest.mark.parametrize("changes", (1, 3, 7))
@pytest.mark.parametrize("seed", range(5))
def test_portions_of_any_size_make_the_same_changes_in_the_same_order(seed: int, changes: int) -> None:
    """So the led partitions change first in all portions together."""
    sessions = [(broker_id, 100 + broker_id) for broker_id in LOST]
    expected, _ = fence_expired(filled(EncodedCluster(), seed).view, sessions)
    cluster = filled(EncodedCluster(), seed)
    written: list[Data] = []
    batch = ChangeBatch(None, changes, 20)
    while True:
        records: list[Data] = []
        fence(cluster.view, LOST, records, batch)
        assert len(records) <= changes + len(LOST)
        cluster.apply(records)
        written += records
        if batch.continuation is None:
            break
        batch = ChangeBatch(batch.continuation, changes, 20)
    assert [encode_record(record, 0) for record in written] == [encode_record(r, 0) for r in expected]


@pytest.mark.parametrize("visits", (1, 10, 100, 1_000))
def test_a_portion_looks_at_a_limited_number_of_partitions(
    visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it leaves for later count as well, so that no turn is long where few are led."""
    looked_up = 0

    def entries_of(table: PartitionTable, partition_ids: Iterable[int]) -> list[tuple[int, Entry]]:
        nonlocal looked_up
        found = plain(table, partition_ids)
        looked_up += len(found)
        return found

    plain = PartitionTable.entries_of
    monkeypatch.setattr(PartitionTable, "entries_of", entries_of)
    cluster = EncodedCluster().brokers(*BROKERS)
    for name in ("a", "b", "c"):
        cluster.topic(name, *([[2, 1, 3]] * 200))
    cluster.topic("d", [1, 2, 3])
    portions, continuation = 0, None
    while True:
        looked_up = 0
        batch = ChangeBatch(continuation, 50, visits)
        fence(cluster.view, (1,), [], batch)
        portions += 1
        assert looked_up <= visits
        if (continuation := batch.continuation) is None:
            break
    assert portions >= 2 * 601 / min(visits, 650)


def test_a_leadership_never_moves_to_another_lost_broker() -> None:
    cluster = filled(EncodedCluster(), 6)
    records, _ = fence_expired(cluster.view, [(broker_id, 100 + broker_id) for broker_id in LOST])
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    assert not {record.leader for record in changes} & set(LOST)
    assert len({(record.topic_id, record.partition_id) for record in changes}) == len(changes)


def test_a_change_of_brokers_between_two_portions_is_respected() -> None:
    """The outcomes of the first portion are not used in the second one."""
    cluster = EncodedCluster().brokers(1, 2, 3)
    cluster.topic("t", *([[1, 2, 3]] * 10))
    records: list[Data] = []
    first = ChangeBatch(None, 5)
    CHANGES[0](cluster.view, records, first)
    cluster.apply(records)
    cluster.fence(2)
    records = []
    CHANGES[0](cluster.view, records, ChangeBatch(first.continuation, 100))
    cluster.apply(records)
    assert [p.leader for p in cluster.image.topics.by_name["t"].partitions] == [2] * 5 + [3] * 5


def test_outcomes_that_are_not_known_shorten_a_portion() -> None:
    """To decide about a partition takes sixty times as long as to look at it."""
    cluster = filled(EncodedCluster(), 7, partitions=400)
    batch = ChangeBatch(None, changes=1_000, visits=400)
    records: list[Data] = []
    CHANGES[0](cluster.view, records, batch)
    assert batch.continuation is not None
    assert 0 < len(records) < 20


def test_a_lost_zone_leaves_no_partition_without_a_leader() -> None:
    async def test() -> None:
        h = await Harness().start()
        epochs = {broker_id: await broker(h, broker_id) for broker_id in BROKERS}
        make, assign = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
        count = 3 * CHANGES_PER_TURN
        places = [[1 + n % 6, 1 + (n + 1) % 6, 1 + (n + 2) % 6] for n in range(count)]
        wanted = make(
            name="many",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assign(partition_index=n, broker_ids=ids) for n, ids in enumerate(places)],
        )
        await h.call(CreateTopicsRequest(topics=[wanted]))
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s - 1
        for broker_id in BROKERS:
            if broker_id not in LOST:
                await beat(h, broker_id, epochs[broker_id])
        h.clock.seconds += 2
        state = h.controller.state
        portions = 0
        while not all(state.image.cluster.brokers[broker_id].fenced for broker_id in LOST):
            before = h.raft.log.end
            h.clock.seconds += 0.01
            h.controller.run_due()
            assert h.raft.log.end - before <= CHANGES_PER_TURN + len(LOST)
            h.raft.commit()
            portions += 1
            if portions == 1:
                assert sum(state.image.topics.leader_count(broker_id) for broker_id in LOST) == 0
        assert portions == 4, "the last one has only the registrations"
        assert state.image.topics.leader_count(-1) == 0
        assert not any(state.image.cluster.brokers[b].fenced for b in BROKERS if b not in LOST)
        table = state.image.topics.by_name["many"].partitions
        assert all(isinstance(entry, bytes) for _, entry in table.entries()), "they stay encoded"
        assert all(set(LOST).isdisjoint(partition.isr) for partition in table)

    asyncio.run(asyncio.wait_for(test(), 60))
