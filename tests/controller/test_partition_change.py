"""PartitionChangeBuilder: elections, ISR and ELR, epochs."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.replication.partition_change import Election, PartitionChangeBuilder
from quorate.metadata.records import PartitionChangeRecord

from .support import Cluster, directory, uid


def change(
    cluster: Cluster, name: str = "t", *, min_isr: int = 1, election: Election = Election.ONLINE
) -> PartitionChangeBuilder:
    topic = cluster.image.topics.by_name[name]
    return PartitionChangeBuilder(
        cluster.view, topic.id, 0, topic.partitions[0], min_isr=min_isr, election=election
    )


def set_fields(record: PartitionChangeRecord | None) -> dict[str, Any]:
    """The fields that the record sets."""
    if record is None:
        return {}
    fields = {
        "isr": None,
        "leader": -2,
        "replicas": None,
        "removing_replicas": None,
        "adding_replicas": None,
        "leader_recovery_state": -1,
        "eligible_leader_replicas": None,
        "last_known_elr": None,
        "directories": None,
    }
    return {
        name: getattr(record, name) for name, default in fields.items() if getattr(record, name) != default
    }


def test_nothing_to_change_is_no_record() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3])
    assert change(cluster).build() is None


@pytest.mark.parametrize(
    ("election", "leader", "isr", "fenced", "expected"),
    [
        (Election.ONLINE, 2, [1, 2, 3], [], {}),
        (Election.PREFERRED, 2, [1, 2, 3], [], {"leader": 1}),
        (Election.PREFERRED, 2, [2, 3], [], {}),
        (Election.PREFERRED, 2, [2, 3], [2], {"leader": 3}),
        (Election.ONLINE, 1, [1, 2, 3], [1], {"leader": 2}),
        (Election.ONLINE, 1, [1, 3], [1], {"leader": 3}),
        (Election.ONLINE, 1, [1], [1], {"leader": -1}),
        (Election.PREFERRED, 1, [1], [1], {"leader": -1}),
        (Election.UNCLEAN, 1, [1], [1], {"leader": 2, "isr": [2], "leader_recovery_state": 1}),
        (Election.UNCLEAN, 1, [1, 3], [1], {"leader": 3}),
        (Election.UNCLEAN, 1, [1], [1, 2, 3], {"leader": -1}),
        (Election.ONLINE, -1, [2], [], {"leader": 2}),
    ],
)
def test_elections(
    election: Election, leader: int, isr: list[int], fenced: list[int], expected: dict[str, Any]
) -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3], isr=isr, leader=leader)
    for broker_id in fenced:
        cluster.fence(broker_id)
    assert set_fields(change(cluster, election=election).build()) == expected


def test_a_replica_in_an_offline_directory_cannot_lead() -> None:
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2])
    cluster.apply(
        [PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[uid(0xDEAD00), directory(2)])]
    )
    assert set_fields(change(cluster).build()) == {"leader": 2}


def test_an_isr_shrink_leaves_the_leader_epoch_alone_from_metadata_version_12_on() -> None:
    for level, expected in ((11, {"isr": [1, 2], "leader": 1}), (12, {"isr": [1, 2]})):
        cluster = Cluster(level).brokers(1, 2, 3)
        cluster.topic("t", [1, 2, 3])
        wanted = change(cluster)
        wanted.isr = (1, 2)
        assert set_fields(wanted.build()) == expected


def test_a_reassignment_whose_target_is_in_sync_completes_at_once_and_raises_the_leader_epoch() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3])
    wanted = change(cluster)
    wanted.replicas, wanted.removing = (2, 1, 3), (3,)
    assert set_fields(wanted.build()) == {
        "isr": [1, 2],
        "leader": 1,
        "replicas": [2, 1],
        "directories": [directory(2), directory(1)],
    }


def test_a_reassignment_waits_for_the_new_replicas() -> None:
    cluster = Cluster().brokers(1, 2, 3, 4)
    cluster.topic("t", [1, 2])
    wanted = change(cluster)
    wanted.replicas, wanted.removing, wanted.adding = (3, 4, 1, 2), (1, 2), (3, 4)
    assert set_fields(wanted.build()) == {
        "replicas": [3, 4, 1, 2],
        "removing_replicas": [1, 2],
        "adding_replicas": [3, 4],
        "directories": [directory(3), directory(4), directory(1), directory(2)],
    }


# -- eligible leader replicas


def test_a_member_that_leaves_an_isr_below_its_minimum_becomes_eligible() -> None:
    cluster = Cluster().elr().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3], isr=[1, 2])
    wanted = change(cluster, min_isr=2)
    wanted.isr = (1,)
    assert set_fields(wanted.build()) == {"isr": [1], "eligible_leader_replicas": [2]}


def test_an_unclean_shutdown_does_not_make_eligible() -> None:
    cluster = Cluster().elr().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3], isr=[1, 2])
    wanted = change(cluster, min_isr=2)
    wanted.isr, wanted.uncleanly_stopped_broker = (1,), 2
    assert set_fields(wanted.build()) == {"isr": [1]}


def test_the_last_member_leaves_an_empty_isr_and_is_remembered_as_leader() -> None:
    cluster = Cluster().elr().brokers(1, 2)
    cluster.topic("t", [1, 2], isr=[1])
    cluster.fence(1)
    wanted = change(cluster, min_isr=2)
    wanted.isr = ()
    assert set_fields(wanted.build()) == {
        "isr": [],
        "leader": -1,
        "eligible_leader_replicas": [1],
        "last_known_elr": [1],
    }


def test_an_eligible_replica_is_elected_cleanly_when_the_isr_is_empty() -> None:
    cluster = Cluster().elr().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[1])
    cluster.fence(1)
    cluster.apply(
        [
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=0,
                isr=[],
                leader=-1,
                eligible_leader_replicas=[1, 2],
                last_known_elr=[1],
            )
        ]
    )
    assert set_fields(change(cluster, min_isr=2).build()) == {
        "isr": [2],
        "leader": 2,
        "eligible_leader_replicas": [1],
        "last_known_elr": [],
    }


@pytest.mark.parametrize(
    ("alive", "expected"),
    [
        (True, {"isr": [1], "leader": 1, "leader_recovery_state": 1, "last_known_elr": []}),
        (False, {}),
    ],
)
def test_the_last_known_leader_is_elected_uncleanly_if_it_is_alive_and_no_replica_is_eligible(
    alive: bool, expected: dict[str, Any]
) -> None:
    cluster = Cluster().elr().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[1])
    cluster.apply(
        [PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[], leader=-1, last_known_elr=[1])]
    )
    if not alive:
        cluster.fence(1)
    assert set_fields(change(cluster, min_isr=1).build()) == expected


def test_a_last_known_leader_that_is_no_replica_any_more_is_not_elected() -> None:
    """It has deleted its log. Nothing would ever elect a replica in its place."""
    cluster = Cluster().elr().brokers(1, 2)
    topic_id = cluster.topic("t", [2])
    cluster.apply(
        [PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[], leader=-1, last_known_elr=[1])]
    )
    assert set_fields(change(cluster, min_isr=1).build()) == {}


def test_a_leader_that_a_reassignment_removes_is_not_the_last_known_one() -> None:
    cluster = Cluster().elr().brokers(1, 2)
    cluster.topic("t", [1, 2])
    view = cluster.view
    topic = cluster.image.topics.by_name["t"]
    wanted = PartitionChangeBuilder(
        view, topic.id, 0, topic.partitions[0], acceptable=lambda replica: replica != 2, min_isr=1
    )
    wanted.replicas, wanted.removing = (2, 1), (1,)
    record = wanted.build()
    assert record is not None
    assert (record.replicas, record.isr, record.leader, record.last_known_elr) == ([2], [2], -1, [2])
    cluster.apply([record])
    wanted = change(cluster)
    wanted.isr, wanted.uncleanly_stopped_broker = (), 2  # broker 2 has stopped uncleanly, and is back
    assert set_fields(wanted.build()) == {
        "isr": [2],
        "leader": 2,
        "leader_recovery_state": 1,
        "last_known_elr": [],
    }


def test_a_leaderless_partition_without_a_last_known_leader_remembers_none_when_it_is_reassigned() -> None:
    """The partition lost its leader before eligible leader replicas were enabled."""
    cluster = Cluster().elr().brokers(1, 2).fence(2)
    topic_id = cluster.topic("t", [1, 2], isr=[2])
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1)])
    wanted = change(cluster)
    wanted.replicas, wanted.removing = (2, 1), (1,)
    record = wanted.build()
    assert record is not None
    assert (record.replicas, record.leader, record.last_known_elr) == ([2], -1, None)


def test_an_isr_that_is_large_enough_clears_the_eligible_ones() -> None:
    cluster = Cluster().elr().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2, 3], isr=[1])
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, eligible_leader_replicas=[2])])
    wanted = change(cluster, min_isr=2)
    wanted.isr = (1, 3)
    assert set_fields(wanted.build()) == {"isr": [1, 3], "eligible_leader_replicas": []}
