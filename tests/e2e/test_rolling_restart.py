"""A rolling restart of three controllers and three brokers under load: no client sees an error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.checker import check
from tests.chaos.clients import LEFT_TO_THE_CALLER
from tests.chaos.cluster import STOP_TIMEOUT_S, ChaosCluster
from tests.chaos.run import PARTITIONS, Load, Settings, final_state
from tests.support.cluster import wait_for

pytestmark = pytest.mark.timeout(240)


def test_no_error_reaches_a_client_in_a_rolling_restart(tmp_path: Path) -> None:
    """Each node gets SIGTERM and starts again when the cluster is complete. Every client has librdkafka's
    default retries. Its topics have two replicas: with three, a broker in controlled shutdown would rightly
    be missed (INVALID_REPLICATION_FACTOR)."""
    cluster = ChaosCluster(tmp_path)
    try:
        load = Load(
            cluster.kafka.bootstrap_servers, Settings(rate=200, operator_pause_s=0.2, operator_replicas=2)
        )
        load.start()
        try:
            for node_id in cluster.nodes:
                cluster.kafka.stop(node_id, timeout_s=STOP_TIMEOUT_S)
                since_ms = time.time() * 1000
                cluster.kafka.start(node_id)
                wait_for("all brokers in every ISR", lambda: cluster.incomplete_brokers() is None, 60)
                wait_for(
                    "all controllers to follow", lambda at=since_ms: cluster.incomplete_quorum(at) is None, 60
                )
            load.stop()
        finally:
            load.abandon()
        assert not load.history.client_errors
        assert not load.history.retried.keys() - LEFT_TO_THE_CALLER
        assert check(load.history, final_state(cluster, load.history)) == []
        assert all(load.history.partitions[partition].acknowledged for partition in PARTITIONS)
        assert cluster.tracebacks() == []
    finally:
        cluster.kafka.close()
