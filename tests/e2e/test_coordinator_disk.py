"""A new coordinator cannot read a part of its log, on real brokers: the directory goes offline, and the
other replica takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.cluster import Node, free_ports, wait_for
from tests.support.differential import Peer

pytestmark = pytest.mark.timeout(200)
OFFSETS, TOPIC, GROUP, COMMITS = "__consumer_offsets", "t", "g", 280


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, Node]]:
    (port,) = free_ports(1)
    quick = {"broker.heartbeat.interval.ms": 300, "broker.session.timeout.ms": 3000}
    controller = Node(
        tmp_path / "c", node_id=9, roles="controller", static=True, voters={9: port}, controller_port=port,
        extra=dict(quick),
    )  # fmt: skip
    made = {9: controller}
    for node_id in (1, 2):
        base = tmp_path / f"n{node_id}"
        extra = quick | {
            "offsets.topic.replication.factor": 2,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.segment.bytes": 1 << 20,
            "log.dirs": f"{base}/a,{base}/b",
        }
        made[node_id] = Node(
            base, node_id=node_id, roles="broker", static=True, voters={9: port}, extra=extra
        )
    try:
        for node in made.values():
            node.format()
            node.start(wait=False)
        for node in made.values():
            node.wait_ready()
        yield made
    finally:
        for node in made.values():
            node.kill()


def peer(node: Node) -> Peer:
    return Peer(str(node.node_id), {"broker": node.broker_port})


def coordinator(node: Node) -> int:
    answer = peer(node).ask(FindCoordinatorRequest(key=GROUP), 3).response
    return -1 if answer is None or answer.error_code else int(answer.node_id)


def commit(node: Node, offset: int) -> None:
    entry = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m" * 4096
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])]
    answer = peer(node).ask(OffsetCommitRequest(group_id=GROUP, topics=topics), 8).response
    assert answer is not None
    assert not answer.topics[0].partitions[0].error_code


def found(nodes: dict[int, Node]) -> int | None:
    """The committed offset as a client finds it, from the coordinator that a broker names."""
    try:
        node = nodes[coordinator(nodes[1])]
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
        answer = peer(node).ask(OffsetFetchRequest(groups=groups), 8).response
    except (KeyError, OSError):
        return None
    if answer is None or answer.groups[0].error_code:
        return None
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def test_a_coordinator_that_cannot_read_its_log_gives_it_up(nodes: dict[int, Node]) -> None:
    admin = nodes[1].admin()
    admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(30)
    wait_for("a coordinator", lambda: coordinator(nodes[1]) > 0, 60)
    wait_for("its start", lambda: found(nodes) is not None, 60)
    leads = coordinator(nodes[1])
    for offset in range(1, COMMITS + 1):
        commit(nodes[leads], offset)
    other = 3 - leads

    def isr() -> int:
        return len(admin.list_topics(OFFSETS, timeout=10).topics[OFFSETS].partitions[0].isrs)

    # After a restart the follower has only its newest segment open. An older one is gone, which to the
    # reader is the same as a bad sector.
    assert nodes[other].stop() == 0
    nodes[other].start()
    wait_for("the follower in the ISR", lambda: isr() == 2, 60)
    segments = sorted(nodes[other].base.glob(f"?/{OFFSETS}-0/*.log"))
    assert len(segments) > 1
    segments[0].unlink()
    moved = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=0, replicas=[other, leads]
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=OFFSETS, partitions=[moved])
    answer = peer(nodes[leads]).ask(AlterPartitionReassignmentsRequest(topics=[topic]), 0).response
    assert answer is not None
    assert not answer.error_code
    elected = TopicPartition(OFFSETS, 0)
    assert admin.elect_leaders(ElectionType.PREFERRED, [elected]).result(30)[elected] is None
    wait_for("the new coordinator to fail", lambda: "Could not load" in nodes[other].log_tail(1000), 60)
    wait_for("the committed offset", lambda: found(nodes) == COMMITS, 60)
    assert coordinator(nodes[1]) == leads
    assert nodes[other].proc is not None
    assert nodes[other].proc.poll() is None
