"""The active controller dies during a change of so many partitions that it takes several batches."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

PARTITIONS = 5_000
BROKER = 4
FSYNC_MS = 1_500
"""Each of the ten portions waits for an fsync: the change takes long enough to be seen on a busy machine."""
CONFIG = {"broker.session.timeout.ms": 4_000, "broker.heartbeat.interval.ms": 500}


@pytest.mark.timeout(240)
def test_a_broker_that_returns_before_its_fencing_is_complete_leads_its_partitions() -> None:
    """Its registration changes with the last portion, so for the next active controller the broker was never
    fenced."""
    with KafkaCluster(controllers=3, brokers=4, config=CONFIG) as cluster:
        alive = ",".join(cluster.bootstrap_servers.split(",")[: BROKER - 1])
        admin = AdminClient({"bootstrap.servers": alive, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, replica_assignment=[[BROKER]] * PARTITIONS)
        admin.create_topics([topic])["t"].result(60)

        def leaderless() -> int:
            partitions = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
            return sum(partition.leader == -1 for partition in partitions)

        wait_for("all partitions to be led", lambda: leaderless() == 0, 60, 0.1)
        cluster.freeze(BROKER)
        for controller in cluster.controller_ids:
            cluster.slow_disk(controller, fsync_ms=FSYNC_MS)
        begun = wait_for("the first portion", leaderless, 60, 0.02)
        cluster.kill(active_controller(cluster))
        assert begun != PARTITIONS, "the change was over before the controller died"
        for controller in cluster.controller_ids:
            if cluster.is_running(controller):
                cluster.slow_disk(controller)
        cluster.thaw(BROKER)
        wait_for("all partitions to be led again", lambda: leaderless() == 0, 60, 0.1)


@pytest.mark.timeout(240)
def test_a_killed_broker_leads_its_partitions_although_a_controller_died_while_it_was_unfenced() -> None:
    """Its unclean restart leaves ISR and ELR empty, so it can only lead as the last known leader."""
    # Several fsyncs precede the first portion, and the session of the broker must not end meanwhile.
    config = {**CONFIG, "broker.session.timeout.ms": 30_000}
    with KafkaCluster(controllers=3, brokers=4, config=config) as cluster:
        alive = ",".join(cluster.bootstrap_servers.split(",")[: BROKER - 1])
        admin = AdminClient({"bootstrap.servers": alive, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, replica_assignment=[[BROKER]] * PARTITIONS)
        admin.create_topics([topic])["t"].result(60)

        def leaderless() -> int:
            partitions = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
            return sum(partition.leader == -1 for partition in partitions)

        wait_for("all partitions to be led", lambda: leaderless() == 0, 60, 0.1)
        cluster.kill(BROKER)
        wait_for("the broker to be fenced", lambda: leaderless() == PARTITIONS, 60, 0.1)
        for controller in cluster.controller_ids:
            cluster.slow_disk(controller, fsync_ms=FSYNC_MS)
        cluster.start(BROKER, wait=False)
        wait_for("the first portion", lambda: leaderless() < PARTITIONS, 120, 0.02)
        cluster.kill(active_controller(cluster))
        assert leaderless(), "the change was over before the controller died"
        for controller in cluster.controller_ids:
            if cluster.is_running(controller):
                cluster.slow_disk(controller)
        wait_for("all partitions to be led again", lambda: leaderless() == 0, 60, 0.1)


def active_controller(cluster: KafkaCluster) -> int:
    """The controller that has started to fence the broker."""
    return next(c for c in cluster.controller_ids if "Fencing broker" in cluster.log_tail(c, 10_000))
