"""A replica of the offsets topic hangs, on real brokers: no uncommitted offset is returned, and the next
coordinator answers at once.

The hanging replica stays in the ISR for longer than any of these tests.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster import Node, free_ports, wait_for
from tests.support.differential import Peer

pytestmark = pytest.mark.timeout(200)
E = ErrorCode
OFFSETS, TOPIC = "__consumer_offsets", "t"
IN_SYNC_MS = 120_000
"""How long a hanging replica stays in the ISR and its broker unfenced."""


@dataclass
class Brokers:
    """The brokers in the order of the replicas of the offsets partition. The first one leads, the last one
    will hang."""

    nodes: list[Node]
    peers: dict[int, Peer]

    def ask(self, node: Node, request: Any, version: int, timeout_s: float = 20.0) -> Any:
        answer = self.peers[node.node_id].ask(request, version, timeout_s=timeout_s)
        assert answer.response is not None, answer.shown
        return answer.response

    def commit(self, node: Node, group: str, offset: int) -> int:
        answer = self.ask(node, commit_request(group, offset), 8)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(self, node: Node, group: str, *, stable: bool = False) -> tuple[int, int]:
        """(error code, offset)"""
        response = self.ask(node, fetch_request(group, stable=stable), 8)
        code = int(response.groups[0].error_code)
        return (code, -1) if code else (0, offset_in(response))

    def high_watermark(self, node: Node) -> int:
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=OFFSETS, partitions=[partition])
        return int(
            self.ask(node, ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
            .topics[0]
            .partitions[0]
            .offset
        )


def commit_request(group: str, offset: int) -> OffsetCommitRequest:
    entry = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])]
    return OffsetCommitRequest(group_id=group, topics=topics)


def fetch_request(group: str, *, stable: bool = False) -> OffsetFetchRequest:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)]
    return OffsetFetchRequest(groups=groups, require_stable=stable)


def offset_in(response: OffsetFetchResponse) -> int:
    """The only committed offset in a response."""
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


def high_watermark(node: Node) -> int:
    """The high watermark of the offsets partition in the checkpoint of a follower."""
    noted = node.data / "replication-offset-checkpoint"
    lines = noted.read_text().splitlines() if noted.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{OFFSETS} 0 ")), -1)


@contextlib.contextmanager
def hung(node: Node) -> Iterator[None]:
    assert node.proc is not None
    node.proc.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.proc.send_signal(signal.SIGCONT)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Node]:
    (port,) = free_ports(1)
    extra = {"broker.session.timeout.ms": IN_SYNC_MS}
    node = Node(
        tmp_path / "controller", node_id=9, roles="controller", static=True, voters={9: port},
        controller_port=port, extra=extra,
    )  # fmt: skip
    try:
        node.format()
        node.start()
        yield node
    finally:
        node.kill()


@pytest.fixture
def brokers(controller: Node, tmp_path: Path) -> Iterator[Brokers]:
    extra = {
        "replica.lag.time.max.ms": IN_SYNC_MS,
        "offsets.topic.replication.factor": 3,
        "offsets.topic.num.partitions": 1,
        "offsets.commit.timeout.ms": 1000,
        "replica.high.watermark.checkpoint.interval.ms": 100,
    }
    nodes = {
        i: Node(
            tmp_path / f"n{i}",
            node_id=i,
            roles="broker",
            static=True,
            voters=controller.voters,
            extra=dict(extra),
        )
        for i in (1, 2, 3)
    }
    peers = {i: Peer(str(i), {"broker": node.broker_port}) for i, node in nodes.items()}
    try:
        for node in nodes.values():
            node.format()
            node.start(wait=False)
        for node in nodes.values():
            node.wait_ready()
        admin = nodes[1].admin()
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(20)
        began = time.monotonic()
        peers[1].send(FindCoordinatorRequest(key="g"), 3)
        peers[1].send(ListGroupsRequest(), 4)
        first = peers[1].answer(FindCoordinatorRequest(key="g"), 3).response
        peers[1].answer(ListGroupsRequest(), 4)
        assert first.error_code == E.COORDINATOR_NOT_AVAILABLE, (
            f"answered after {time.monotonic() - began:.2f} s"
        )

        def ready() -> bool:
            found = peers[1].ask(FindCoordinatorRequest(key="g"), 3).response
            return not found.error_code and served(found.node_id)

        def served(node_id: int) -> bool:
            asked = OffsetFetchRequest(
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
            )
            return not peers[node_id].ask(asked, 8).response.groups[0].error_code

        wait_for("the coordinator", ready)
        described = (
            peers[1]
            .ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=OFFSETS)]), 8)
            .response
        )
        (partition,) = described.topics[0].partitions
        assert partition.leader_id == partition.replica_nodes[0] and len(partition.isr_nodes) == 3
        yield Brokers([nodes[i] for i in partition.replica_nodes], peers)
    except BaseException:
        for node in nodes.values():
            print(f"-- node {node.node_id}\n{node.log_tail()}")
        raise
    finally:
        for peer in peers.values():
            peer.close()
        for node in nodes.values():
            node.kill()


def test_an_uncommitted_offset_is_not_returned(brokers: Brokers) -> None:
    coordinator, _, hanging = brokers.nodes
    assert brokers.commit(coordinator, "g", 1) == E.NONE
    with hung(hanging):
        assert brokers.commit(coordinator, "g", 2) == E.COORDINATOR_NOT_AVAILABLE, "timed out"
        assert brokers.fetch(coordinator, "g") == (E.NONE, 1)
        assert brokers.fetch(coordinator, "g", stable=True) == (E.NOT_COORDINATOR, -1), "timed out too"
        assert brokers.commit(coordinator, "new", 2) == E.COORDINATOR_NOT_AVAILABLE
        assert [g.group_id for g in brokers.ask(coordinator, ListGroupsRequest(), 4).groups] == ["g"]
    wait_for("the commits to commit after all", lambda: brokers.fetch(coordinator, "g") == (E.NONE, 2))
    assert brokers.fetch(coordinator, "g", stable=True) == (E.NONE, 2)
    assert brokers.fetch(coordinator, "new") == (E.NONE, 2)


def test_an_offset_is_fetched_after_the_commit_before_it_on_the_connection(brokers: Brokers) -> None:
    """Both requests arrive while a replica hangs for a moment."""
    coordinator, _, hanging = brokers.nodes
    peer = brokers.peers[coordinator.node_id]
    commit, fetch = commit_request("g", 2), fetch_request("g")
    assert brokers.commit(coordinator, "g", 1) == E.NONE
    with hung(hanging):
        peer.send(commit, 8)
        peer.send(fetch, 8)
        other = peer.ask(fetch, 8, via="another connection").response
    committed, fetched = peer.answer(commit, 8).response, peer.answer(fetch, 8).response
    assert offset_in(other) == 1
    assert committed.topics[0].partitions[0].error_code == E.NONE, "it hung for longer than a second"
    assert offset_in(fetched) == 2


def test_a_hanging_replica_delays_no_failover(brokers: Brokers) -> None:
    coordinator, heir, hanging = brokers.nodes
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    join = JoinGroupRequest(
        group_id="members",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    member = brokers.ask(coordinator, join, 3)
    assert member.error_code == E.NONE
    given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"A")]
    sync = SyncGroupRequest(
        group_id="members", generation_id=1, member_id=member.member_id, assignments=given
    )
    assert brokers.ask(coordinator, sync, 3).error_code == E.NONE
    for group in ("calm", "g"):
        assert brokers.commit(coordinator, group, 1) == E.NONE
    # The heir must know that these are committed, as it does after a fetch or two.
    wait_for(
        "the heir to know the high watermark",
        lambda: high_watermark(heir) == brokers.high_watermark(coordinator),
    )
    with hung(hanging):
        assert brokers.commit(coordinator, "g", 2) == E.COORDINATOR_NOT_AVAILABLE, "timed out"
        # It hands its leaderships over at once; its process ends when all brokers know, which the
        # hanging one does not.
        assert coordinator.proc is not None
        coordinator.proc.send_signal(signal.SIGTERM)
        beat = HeartbeatRequest(group_id="members", generation_id=1, member_id=member.member_id)
        wait_for("the next coordinator", lambda: brokers.fetch(heir, "calm") == (E.NONE, 1), timeout_s=20)
        assert brokers.ask(heir, beat, 3).error_code == E.NONE
        assert brokers.fetch(heir, "g") == (E.NONE, 1), "what the former one could not commit is not told"
        assert brokers.commit(heir, "g", 3) == E.COORDINATOR_NOT_AVAILABLE
        assert brokers.fetch(heir, "g") == (E.NONE, 1)
    wait_for("the commits to commit after all", lambda: brokers.fetch(heir, "g") == (E.NONE, 3))
