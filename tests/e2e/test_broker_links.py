"""Links between brokers that are cut: what is acknowledged is on the replicas that the ISR names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from quorate.net.client import Connection
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for
from tests.support.ledger import QUIET, read_partition

pytestmark = pytest.mark.timeout(180)

CONTROLLER, OLD, OTHER, SHORT = 1, 2, 3, 4
PATIENT = {
    "broker.session.timeout.ms": 30_000,
    "replica.lag.time.max.ms": 120_000,
    "auto.leader.rebalance.enable": False,
}


def test_a_leader_that_missed_two_elections_acknowledges_only_what_its_followers_have() -> None:
    """While the old leader has no link to the controller, a member of the ISR with fewer records leads for a
    moment, and the other follower truncates its log to that. The old leader, which leads again, took the
    follower's earlier Fetches for proof, acknowledged its records, and lost them when it was killed."""
    with KafkaCluster(controllers=1, brokers=4, config=PATIENT) as cluster:
        ports = [int(address.rpartition(":")[2]) for address in cluster.bootstrap_servers.split(",")]

        def ask(request: Any, node_id: int = CONTROLLER) -> Any:
            """Asks one node, by default the one that has the controller. No link to a client is cut."""

            async def exchange() -> Any:
                connection = await Connection.connect("127.0.0.1", ports[node_id - 1], client_id="test")
                try:
                    return await connection.call(request, 60)
                finally:
                    connection.close()

            return asyncio.run(exchange())

        def partition_at(node_id: int) -> Any:
            topics = [MetadataRequest.MetadataRequestTopic(name="t")]
            return ask(MetadataRequest(topics=topics), node_id).topics[0].partitions[0]

        def leads(node_id: int, isr: set[int]) -> Callable[[], bool]:
            def probe() -> bool:
                found = partition_at(CONTROLLER)
                return bool(found.leader_id == node_id and set(found.isr_nodes) >= isr)

            return probe

        def epoch_at(node_id: int) -> int:
            return int(partition_at(node_id).leader_epoch)

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
        topic = NewTopic(
            "t", 1, replica_assignment=[[SHORT, OLD, OTHER]], config={"min.insync.replicas": "2"}
        )
        admin.create_topics([topic])["t"].result(60)
        cluster.stop(SHORT)
        wait_for("the old leader", leads(OLD, {OLD, OTHER}), 60)
        cluster.start(SHORT)
        wait_for("the whole ISR", leads(OLD, {SHORT, OLD, OTHER}), 60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "retries": 0, **QUIET})
        producer.produce("t", b"committed", partition=0)
        assert producer.flush(30) == 0
        cluster.cut(OLD, SHORT)
        acknowledged: list[bytes] = []
        producer.produce(
            "t",
            b"not on the short one",
            partition=0,
            on_delivery=lambda error, message: None if error else acknowledged.append(message.value()),
        )
        wait_for("the record", lambda: _end(cluster, OTHER) == _end(cluster, OLD) > _end(cluster, SHORT), 30)
        producer.poll(0)
        assert not acknowledged
        cluster.cut(OLD, CONTROLLER)
        cluster.cut(OLD, OTHER)
        partitions = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
        ask(ElectLeadersRequest(election_type=0, topic_partitions=partitions))
        wait_for("the election", leads(SHORT, set()), 60)
        wait_for("the truncation", lambda: "Truncating t-0 from" in cluster.log_tail(OTHER, 2000), 60)
        cluster.stop(SHORT)
        wait_for("the election back", leads(OLD, {OLD, OTHER}), 60)
        cluster.heal(OLD, CONTROLLER)
        wait_for("the news of it", lambda: epoch_at(OLD) == epoch_at(CONTROLLER), 60)
        producer.flush(2)  # an acknowledgement would come at once
        cluster.kill(OLD)
        wait_for("the follower to lead", leads(OTHER, set()), 90)
        kept = read_partition(cluster.bootstrap_servers, "t", 0)
        assert set(acknowledged) <= set(kept)


def _end(cluster: KafkaCluster, node_id: int) -> int:
    """The size of the log on the disk of a node."""
    path = cluster.data_directory(node_id) / "t-0" / f"{0:020d}.log"
    return path.stat().st_size if path.exists() else 0
