"""One log directory of a follower fails: producers with acks=all are not kept waiting."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.clients import QUIET
from tests.chaos.cluster import ChaosCluster

PARTITIONS = 6
LAG_S = 60
"""replica.lag.time.max.ms: how long a leader would wait for the replica that failed."""


def test_acks_all_is_answered_while_the_directory_of_a_follower_fails(tmp_path: Path) -> None:
    cluster = ChaosCluster(tmp_path / "nodes", {"replica.lag.time.max.ms": LAG_S * 1000}, wide=True)
    try:
        servers = cluster.kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result()
        producer = Producer({"bootstrap.servers": servers, "acks": "all", **QUIET})

        def write(timeout_s: float) -> None:
            for partition in range(PARTITIONS):
                producer.produce("t", b"x", partition=partition)
            assert producer.flush(timeout_s) == 0, f"not acknowledged in {timeout_s:g} s"

        write(60)
        (topic,) = (t for t in cluster.metadata(cluster.brokers[0]).topics if t.name == "t")
        victim = next(
            broker
            for broker in cluster.brokers
            for p in topic.partitions
            if broker in p.replica_nodes
            and broker != p.leader_id
            and cluster.replica(broker, f"t-{p.partition_index}").parent.name == "second"
        )
        cluster.kafka.fail_disk(victim, cluster.log_directories(victim)[1])
        started = time.monotonic()
        for _ in range(10):
            write(LAG_S / 2)
        assert time.monotonic() - started < LAG_S / 2
        assert cluster.kafka.is_running(victim)
    finally:
        cluster.kafka.close()
