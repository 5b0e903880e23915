"""AlterPartition, ElectLeaders, AssignReplicasToDirs, periodic elections, and reassignments."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.handlers.allocate_producer_ids import allocate_producer_ids
from quorate.controller.handlers.alter_partition import alter_partition
from quorate.controller.handlers.alter_partition_reassignments import alter_partition_reassignments
from quorate.controller.handlers.assign_replicas_to_dirs import assign_replicas_to_dirs
from quorate.controller.handlers.delete_topics import delete_topics
from quorate.controller.handlers.elect_leaders import elect_leaders, preferred_elections, unclean_elections
from quorate.controller.handlers.list_partition_reassignments import list_partition_reassignments
from quorate.controller.replication.broker_changes import ChangeBatch, fence
from quorate.metadata.image.partitions import RECOVERED
from quorate.metadata.records import ConfigRecord, PartitionChangeRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

from .support import Cluster, directory, uid

Partition = AlterPartitionRequest.PartitionData
State = AlterPartitionRequest.BrokerState


def isr(*members: int | tuple[int, int]) -> list[AlterPartitionRequest.BrokerState]:
    pairs = [member if isinstance(member, tuple) else (member, 100 + member) for member in members]
    return [State(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in pairs]


def alter(
    cluster: Cluster,
    topic_id: bytes,
    version: int = 3,
    *,
    sender: int = 1,
    epoch: int | None = None,
    **changes: Any,
) -> Any:
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=100 + sender if epoch is None else epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[Partition(**changes)])],
    )
    result = cluster.run(alter_partition, request, version)
    return result, result.response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 1, "new_isr_with_epochs": isr(1)}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 2, "new_isr_with_epochs": isr(1)}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1, "new_isr_with_epochs": isr(1)}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 2, "new_isr_with_epochs": isr(2)}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": -1, "new_isr_with_epochs": isr(1)}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"new_isr_with_epochs": isr(1, 9)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(1, 2, 2)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(2)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(1, 2), "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(1), "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(1), "leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": isr(1, 3)}, ErrorCode.INELIGIBLE_REPLICA),
        ({"new_isr_with_epochs": isr(1, 4)}, ErrorCode.INELIGIBLE_REPLICA),
        ({"new_isr_with_epochs": isr(1, (2, 5))}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_isr_changes_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster().brokers(1, 2).brokers(3, fenced=True).brokers(4)
    topic_id = cluster.topic("t", [1, 2, 3, 4], isr=[1])
    cluster.shutting_down(4)
    result, answer = alter(cluster, topic_id, **changes)
    assert (ErrorCode(answer.error_code), result.records) == (code, [])


def test_an_unknown_topic_is_an_error_of_each_partition() -> None:
    _, answer = alter(Cluster().brokers(1), uid(5))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_all_changes_of_a_sender_with_an_old_broker_epoch_are_refused() -> None:
    cluster = Cluster().brokers(1)
    with pytest.raises(KafkaError) as raised:
        alter(cluster, uid(5), epoch=1)
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (3, {"new_isr_with_epochs": isr(1, (2, -1))}),
        (3, {"new_isr_with_epochs": isr(1, 2)}),
        (2, {"new_isr": [1, 2]}),
    ],
)
def test_an_isr_grows(version: int, changes: dict[str, Any]) -> None:
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[1])
    _, answer = alter(cluster, topic_id, version, **changes)
    assert (answer.error_code, answer.isr, answer.partition_epoch, answer.leader_epoch) == (0, [1, 2], 1, 0)
    assert (cluster.partition("t").isr, cluster.partition("t").partition_epoch) == ((1, 2), 1)


@pytest.mark.parametrize(
    ("before", "code"),
    [(1, ErrorCode.INELIGIBLE_REPLICA), (0, ErrorCode.NONE), (None, ErrorCode.NONE)],
    ids=["chosen before the unfencing", "chosen after the unfencing", "not known"],
)
def test_a_new_member_was_chosen_since_it_was_unfenced(before: int | None, code: ErrorCode) -> None:
    """A delayed copy of a request must not add a member that was refused to a later copy."""
    cluster = Cluster().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2, 3], isr=[1, 3])
    cluster.fence(2).fence(2, fenced=False)
    unfenced = cluster.image.provenance.offset
    offset = -1 if before is None else unfenced - before
    _, answer = alter(cluster, topic_id, new_isr_with_epochs=isr(1, 2, 3), metadata_offset=offset)
    assert ErrorCode(answer.error_code) == code


def test_a_member_of_the_isr_is_not_checked_again_when_the_isr_changes() -> None:
    """After a restart from a snapshot a controller knows only the end of the snapshot as such an offset."""
    cluster = Cluster().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2, 3])
    _, answer = alter(cluster, topic_id, new_isr_with_epochs=isr(1, 2), metadata_offset=0)
    assert (answer.error_code, answer.isr) == (0, [1, 2])


def test_an_unchanged_isr_is_answered_without_a_record() -> None:
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2])
    result, answer = alter(cluster, topic_id, new_isr_with_epochs=isr(1, 2))
    assert (result.records, answer.error_code, answer.partition_epoch) == ([], 0, 0)


def test_a_leader_reports_its_recovery() -> None:
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[1])
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader_recovery_state=1)])
    alter(cluster, topic_id, partition_epoch=1, new_isr_with_epochs=isr(1), leader_recovery_state=0)
    assert cluster.partition("t").leader_recovery_state == 0


# -- elections


def elect(cluster: Cluster, kind: int, topics: Any) -> dict[tuple[str, int], int]:
    wanted = None
    if topics is not None:
        wanted = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=ids) for name, ids in topics]
    result = cluster.run(elect_leaders, ElectLeadersRequest(election_type=kind, topic_partitions=wanted))
    return {
        (answer.topic, part.partition_id): ErrorCode(part.error_code)
        for answer in result.response.replica_election_results
        for part in answer.partition_result
    }


def test_preferred_elections_on_request() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2], isr=[1, 2], leader=2)
    cluster.topic("u", [1, 2], isr=[1, 2], leader=1)
    cluster.topic("v", [1, 2], isr=[2], leader=2)
    assert elect(cluster, 0, [("t", [0]), ("u", [0]), ("v", [0, 5]), ("w", [0])]) == {
        ("t", 0): ErrorCode.NONE,
        ("u", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("v", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("v", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("w", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.partition("t").leader == 1


def test_an_election_of_all_partitions_omits_those_that_need_none() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2], isr=[1, 2], leader=2)
    cluster.topic("u", [1, 2])
    assert elect(cluster, 0, None) == {("t", 0): ErrorCode.NONE}


def test_unclean_elections_on_request() -> None:
    cluster = Cluster().brokers(1, fenced=True).brokers(2)
    cluster.topic("t", [1, 2], isr=[1], leader=-1)
    cluster.topic("u", [1], isr=[1], leader=-1)
    cluster.topic("v", [2])
    assert elect(cluster, 1, [("t", [0]), ("u", [0]), ("v", [0])]) == {
        ("t", 0): ErrorCode.NONE,
        ("u", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("v", 0): ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert (cluster.partition("t").isr, cluster.partition("t").leader_recovery_state) == ((2,), 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (0, "The preferred leader was not available. Broker 1 is fenced and not in the ISR."),
        (
            1,
            "Eligible topic partition leaders are not available. Broker 1 is fenced and not in the "
            "ISR. Broker 2 is in controlled shutdown and in the ISR. Broker 9 is not registered and "
            "not in the ISR.",
        ),
    ],
)
def test_an_election_without_a_candidate_names_each_replica_and_its_state(kind: int, message: str) -> None:
    cluster = Cluster().brokers(1, fenced=True).brokers(2).shutting_down(2)
    cluster.topic("t", [1, 2, 9], isr=[2], leader=-1)
    wanted = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    response = cluster.run(
        elect_leaders, ElectLeadersRequest(election_type=kind, topic_partitions=[wanted])
    ).response
    assert response.replica_election_results[0].partition_result[0].error_message == message


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        elect(Cluster(), 2, None)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_the_sweep_elects_preferred_leaders_within_its_limit() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", *[[1, 2]] * 5, leader=2)
    topic = cluster.image.topics.by_name["t"]
    candidates = [(topic, index, partition) for index, partition in topic.partitions.items()]
    assert len(preferred_elections(cluster.view, candidates, 3)) == 3


@pytest.mark.parametrize(("allowed", "count"), [("true", 1), ("false", 0)])
def test_the_unclean_sweep_uses_the_config_of_the_topic(allowed: str, count: int) -> None:
    cluster = Cluster().brokers(1, fenced=True).brokers(2)
    cluster.topic("t", [1, 2], isr=[1], leader=-1)
    cluster.apply(
        [
            ConfigRecord(
                resource_type=2, resource_name="t", name="unclean.leader.election.enable", value=allowed
            )
        ]
    )
    topic = cluster.image.topics.by_name["t"]
    assert len(unclean_elections(cluster.view, [(topic, 0, topic.partitions[0])], 10)) == count


def test_a_topic_that_allows_it_elects_uncleanly_when_a_leader_is_fenced() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2], isr=[1])
    cluster.apply(
        [ConfigRecord(resource_type=4, resource_name="", name="unclean.leader.election.enable", value="true")]
    )
    records: list[Any] = []
    fence(cluster.view, (1,), records, ChangeBatch())
    cluster.apply(records)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


# -- directories


def assign(cluster: Cluster, directory_id: bytes, topic_id: bytes, *partitions: int) -> list[ErrorCode]:
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=101,
        directories=[
            AssignReplicasToDirsRequest.DirectoryData(
                id=directory_id,
                topics=[
                    AssignReplicasToDirsRequest.TopicData(
                        topic_id=topic_id,
                        partitions=[
                            AssignReplicasToDirsRequest.PartitionData(partition_index=p) for p in partitions
                        ],
                    )
                ],
            )
        ],
    )
    response = cluster.run(assign_replicas_to_dirs, request).response
    return [ErrorCode(part.error_code) for part in response.directories[0].topics[0].partitions]


def test_a_broker_reports_the_directories_of_its_replicas() -> None:
    cluster = Cluster().brokers(1, directories=2).brokers(2)
    topic_id = cluster.topic("t", [1, 2], [2])
    assert assign(cluster, directory(1, 1), topic_id, 0, 1, 2) == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.partition("t").directories == (directory(1, 1), directory(2))
    assert assign(cluster, directory(1), uid(77), 0) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_replica_in_a_lost_directory_leaves_the_isr() -> None:
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2])
    assign(cluster, uid(2), topic_id, 0)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)


def test_a_replica_that_got_a_new_directory_may_lead_again() -> None:
    """The broker of the preferred replica returned with an empty disk, and caught up."""
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[2, 1], leader=2)
    cluster.apply(
        [PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[uid(500), directory(2)])]
    )
    elect = ElectLeadersRequest(
        election_type=0, topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    )
    answer = cluster.run(elect_leaders, elect).response.replica_election_results[0].partition_result[0]
    assert answer.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert assign(cluster, directory(1), topic_id, 0) == [ErrorCode.NONE]
    assert cluster.partition("t").directories == (directory(1), directory(2))
    cluster.run(elect_leaders, elect)
    assert cluster.partition("t").leader == 1


def test_a_leaderless_partition_is_led_as_soon_as_its_replica_has_a_directory() -> None:
    """Broker 1 returned with an empty disk. The other broker of the ISR died before broker 1 assigned a
    directory."""
    cluster = Cluster().brokers(1, 2)
    topic_id = cluster.topic("t", [1, 2], isr=[1, 2], leader=2)
    cluster.apply(
        [PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[uid(500), directory(2)])]
    )
    records: list[Any] = []
    fence(cluster.view, (2,), records, ChangeBatch())
    cluster.apply(records)
    assert cluster.partition("t").leader == -1
    assert assign(cluster, directory(1), topic_id, 0) == [ErrorCode.NONE]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))


# -- reassignments


def reassign(
    cluster: Cluster, replicas: list[int] | None, *, name: str = "t", partition: int = 0, **changes: Any
) -> ErrorCode:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=name,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=partition, replicas=replicas
                    )
                ],
            )
        ],
        **changes,
    )
    response = cluster.run(alter_partition_reassignments, request).response
    return ErrorCode(response.responses[0].partitions[0].error_code)


def under_way(cluster: Cluster, topics: Any = None) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    response = cluster.run(
        list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics)
    ).response
    return [
        (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in response.topics
        for part in topic.partitions
    ]


def test_a_reassignment_from_start_to_end() -> None:
    cluster = Cluster().brokers(1, 2, 3, 4, 5)
    topic_id = cluster.topic("t", [1, 2, 3])
    assert reassign(cluster, [3, 4, 5]) == ErrorCode.NONE
    assert under_way(cluster) == [("t", 0, [3, 4, 5, 1, 2], [4, 5], [1, 2])]
    _, answer = alter(cluster, topic_id, partition_epoch=1, new_isr_with_epochs=isr(1, 2, 3, 4))
    assert answer.isr == [1, 2, 3, 4]
    _, answer = alter(cluster, topic_id, partition_epoch=2, new_isr_with_epochs=isr(1, 2, 3, 4, 5))
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED  # the sender is not a replica any more
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 4, 5), (3, 4, 5), 3)
    assert partition.directories == tuple(directory(r) for r in (3, 4, 5))
    assert under_way(cluster) == []


def test_a_topic_that_is_being_reassigned_may_be_deleted() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2])
    assert reassign(cluster, [3]) == ErrorCode.NONE
    assert cluster.partition("t").is_reassigning
    cluster.run(delete_topics, DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]))
    assert "t" not in cluster.image.topics.by_name
    assert under_way(cluster) == []


def test_a_target_inside_the_isr_is_reached_at_once() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3])
    assert reassign(cluster, [2, 1]) == ErrorCode.NONE
    assert (cluster.partition("t").replicas, cluster.partition("t").leader_epoch) == ((2, 1), 1)


@pytest.mark.parametrize(
    ("original", "first", "second", "adding"),
    [
        ([1], [2], [1, 2], [2]),
        ([1, 2, 3], [4], [1, 2, 3, 4], [4]),
        ([1, 2], [3, 4], [4, 2, 1, 3], [3, 4]),
        ([1, 2], [3], [3, 2], [3]),
    ],
)
def test_a_reassignment_that_replaces_another_one_ends_with_its_own_target(
    original: list[int], first: list[int], second: list[int], adding: list[int]
) -> None:
    cluster = Cluster().brokers(1, 2, 3, 4)
    topic_id = cluster.topic("t", original)
    assert reassign(cluster, first) == ErrorCode.NONE
    assert reassign(cluster, second) == ErrorCode.NONE
    removing = sorted(set(original) - set(second))
    assert under_way(cluster) == [("t", 0, second + removing, adding, removing)]
    assert reassign(cluster, second) == ErrorCode.NONE
    assert cluster.partition("t").partition_epoch == 2, "it was repeated, and nothing had to change"
    alter(cluster, topic_id, partition_epoch=2, new_isr_with_epochs=isr(*sorted({*original, *adding})))
    assert sorted(cluster.partition("t").replicas) == sorted(cluster.partition("t").isr) == sorted(second)
    assert under_way(cluster) == []


def test_a_removal_that_waits_is_taken_back_by_the_original_target() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2, 3])
    alter(cluster, topic_id, partition_epoch=0, new_isr_with_epochs=isr(1, 2))
    assert reassign(cluster, [1, 3]) == ErrorCode.NONE
    assert under_way(cluster) == [("t", 0, [1, 3, 2], [], [2])]
    assert reassign(cluster, [1, 2, 3]) == ErrorCode.NONE
    assert under_way(cluster) == []
    alter(cluster, topic_id, partition_epoch=3, new_isr_with_epochs=isr(1, 2, 3))
    assert cluster.partition("t").replicas == cluster.partition("t").isr == (1, 2, 3)


def test_reassignments_are_cancelled() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2])
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, [3])
    assert reassign(cluster, None) == ErrorCode.NONE
    assert (cluster.partition("t").replicas, cluster.partition("t").isr) == ((1, 2), (1, 2))
    assert under_way(cluster) == []


@pytest.mark.parametrize(
    ("allowed", "code"), [("false", ErrorCode.INVALID_REPLICA_ASSIGNMENT), ("true", ErrorCode.NONE)]
)
def test_cancelling_without_an_original_replica_in_sync_takes_an_unclean_election(
    allowed: str, code: ErrorCode
) -> None:
    cluster = Cluster().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2])
    reassign(cluster, [3])
    cluster.apply(
        [
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=0,
                isr=[3],
                leader=3,
                replicas=[3, 4, 1, 2],
                adding_replicas=[3, 4],
                directories=[directory(3), directory(4), directory(1), directory(2)],
            ),
            ConfigRecord(
                resource_type=2, resource_name="t", name="unclean.leader.election.enable", value=allowed
            ),
        ]
    )
    assert reassign(cluster, None) == code


def test_cancelling_without_an_original_replica_in_sync_elects_one_that_is_eligible() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    topic_id = cluster.topic("t", [1, 2])
    cluster.elr()
    minimum = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    cluster.apply([minimum])
    reassign(cluster, [3])
    moved = PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, isr=[3], leader=3, eligible_leader_replicas=[2]
    )
    cluster.apply([moved])
    assert reassign(cluster, None) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr, partition.leader) == ((1, 2), (2,), (), 2)
    assert partition.leader_recovery_state == RECOVERED


@pytest.mark.parametrize(
    ("replicas", "name", "partition", "code"),
    [
        ([], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([9], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], "u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], "t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_that_are_refused(
    replicas: list[int], name: str, partition: int, code: ErrorCode
) -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2])
    assert reassign(cluster, replicas, name=name, partition=partition) == code


def test_a_change_of_the_replication_factor_can_be_forbidden() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2])
    assert (
        reassign(cluster, [1], allow_replication_factor_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert reassign(cluster, [1, 3], allow_replication_factor_change=False) == ErrorCode.NONE
    assert (
        reassign(cluster, [3], allow_replication_factor_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    )


def test_listing_named_partitions() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1], [1])
    reassign(cluster, [2], partition=1)
    names = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    asked = [names(name="t", partition_indexes=[0, 1, 9]), names(name="zzz", partition_indexes=[0])]
    assert [found[:2] for found in under_way(cluster, asked)] == [("t", 1)]


# -- producer ids


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = Cluster().brokers(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=101)
    starts = [cluster.run(allocate_producer_ids, request).response.producer_id_start for _ in range(3)]
    assert starts == [0, 1000, 2000]
    assert cluster.image.producer_ids.next_producer_id == 3000
    with pytest.raises(KafkaError) as raised:
        cluster.run(allocate_producer_ids, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH
