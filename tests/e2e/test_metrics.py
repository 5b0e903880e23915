"""What the metrics of real nodes mean: each has the value that the state of the cluster implies."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.e2e.membership import HTTP, QUICK, RAFT, metrics, stopping, tool
from tests.support.cluster import Node, free_ports, wait_for

pytestmark = pytest.mark.timeout(180)

LOG = 'kafka_log_log_{}{{topic="orders",partition="0"}}'
PARTITION = 'kafka_cluster_partition_{}{{topic="orders",partition="0"}}'
REPLICAS = "kafka_server_replicamanager_"
TOPICS = "kafka_server_brokertopicmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
COORDINATOR = "kafka_server_group_coordinator_metrics_"
REQUESTS = "kafka_network_requestmetrics_"


def cluster(base: Path) -> list[Node]:
    """Node 1 is broker and controller, node 2 a broker."""
    http = free_ports(2)
    (controller,) = free_ports(1)
    extra = {
        **QUICK,
        "broker.session.timeout.ms": 3000,
        "replica.lag.time.max.ms": 2000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 2,
        "group.initial.rebalance.delay.ms": 0,
    }
    return [
        Node(
            base / f"n{node_id}",
            node_id=node_id,
            roles=roles,
            voters={1: controller},
            controller_port=controller if node_id == 1 else 0,
            extra={**extra, HTTP: f"127.0.0.1:{port}"},
        )
        for node_id, roles, port in zip((1, 2), ("broker,controller", "broker"), http, strict=True)
    ]


def has(found: Mapping[str, float], expected: Mapping[str, float]) -> bool:
    """Whether the metrics have the expected values. An assertion names those that differ."""
    assert {name: found.get(name) for name in expected} == expected
    return True


def eventually(what: str, node: Node, expected: Mapping[str, float]) -> Mapping[str, float]:
    """Waits until the metrics of a node have the expected values. Returns all of them."""

    def check() -> Mapping[str, float] | None:
        found = metrics(node)
        return found if all(found.get(name) == value for name, value in expected.items()) else None

    return wait_for(what, check, 30, 0.2)  # type: ignore[return-value]


def test_the_metrics_follow_the_cluster(tmp_path: Path) -> None:
    first, second = nodes = cluster(tmp_path)
    with stopping(nodes):
        first.format()
        second.format()
        first.start(wait=False)
        second.start(wait=False)
        first.wait_ready()
        second.wait_ready()
        create = ("--create", "--topic")
        tool("kafka-topics", second, *create, "orders", "--replica-assignment", "1:2,2:1")
        strict = ("--config", "min.insync.replicas=2", "--config", "max.message.bytes=2000")
        tool("kafka-topics", second, *create, "strict", "--replica-assignment", "1:2", *strict)
        producer = Producer({"bootstrap.servers": first.bootstrap, "acks": "all"})
        _produce_and_read(producer, first)

        lag = 'kafka_server_fetcherlagmetrics_consumerlag{clientId="ReplicaFetcherThread-0-1",'
        lag += 'topic="orders",partition="0"}'
        follower = eventually("the follower", second, {LOG.format("logendoffset"): 10, lag: 0})
        leader = metrics(first)
        _check_topics(leader, follower)
        _check_replicas(leader, follower)
        _check_requests(leader)
        _check_controller(leader)
        _check_applied(first)
        _check_applied(second)
        _check_groups(leader, follower)
        _check_node(leader)
        _check_node(follower)
        assert _documented() == {_family(name) for name in leader}

        second.kill()
        found = eventually("the loss", first, {REPLICAS + "underreplicatedpartitions": 4})
        has(
            found,
            {
                CONTROLLER + "activebrokercount": 1,
                CONTROLLER + "fencedbrokercount": 1,
                CONTROLLER + 'brokerregistrationstate{broker="2"}': 10,
                CONTROLLER + "offlinepartitionscount": 0,
                REPLICAS + "leadercount": 4,
                REPLICAS + "underminisrpartitioncount": 1,
                PARTITION.format("insyncreplicascount"): 1,
                PARTITION.format("underreplicated"): 1,
                PARTITION.format("atminisr"): 1,
                PARTITION.format("underminisr"): 0,
            },
        )
        assert found[CONTROLLER + "preferredreplicaimbalancecount"] >= 1, "node 2 was the first of one"
        producer.produce("strict", b"z", partition=0)
        failed = TOPICS + 'failedproducerequests_total{topic="strict"}'
        wait_for("the refusal", lambda: producer.poll(0) >= 0 and metrics(first)[failed] >= 1, 20, 0.2)

        second.start()
        found = eventually("the return", first, {REPLICAS + "underreplicatedpartitions": 0})
        assert found[REPLICAS + "isrexpands_total"] >= 1
        assert producer.flush(30) == 0


def _documented() -> set[str]:
    """The metrics in the tables of docs/metrics.md."""
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter|summary)", text, re.MULTILINE))


def _family(series: str) -> str:
    """The name of the metric that a series belongs to."""
    name = series.partition("{")[0]
    if not name.startswith(("kafka_", "process_", "quorate_")):
        name = RAFT + name
    return name.removesuffix("_count") if name.endswith(("ms_count", "bytes_count")) else name


def _produce_and_read(producer: Producer, node: Node) -> None:
    """Ten batches and one that is too large; one consumer reads and commits."""
    errors: list[object] = []
    for _ in range(10):
        producer.produce("orders", b"x" * 1000, partition=0, on_delivery=lambda e, _m: errors.append(e))
        assert producer.flush(30) == 0
    assert errors == [None] * 10
    producer.produce("strict", b"y" * 5000, partition=0)
    assert producer.flush(30) == 0
    group = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": node.bootstrap, **group})
    consumer.subscribe(["orders"])
    read = 0
    while read < 10:
        message = consumer.poll(20)
        read += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


def _check_topics(leader: Mapping[str, float], follower: Mapping[str, float]) -> None:
    size = leader[LOG.format("size")]
    assert size > 10_000
    has(
        leader,
        {
            TOPICS + 'messagesin_total{topic="orders"}': 10,
            TOPICS + 'bytesin_total{topic="orders"}': size,
            TOPICS + 'bytesout_total{topic="orders"}': size,
            TOPICS + 'totalproducerequests_total{topic="orders"}': 10,
            TOPICS + 'failedproducerequests_total{topic="orders"}': 0,
            TOPICS + 'bytesrejected_total{topic="orders"}': 0,
            TOPICS + 'failedproducerequests_total{topic="strict"}': 0,  # as in Kafka: the client's mistake
            LOG.format("logstartoffset"): 0,
            LOG.format("logendoffset"): 10,
            LOG.format("numlogsegments"): 1,
        },
    )
    assert leader[TOPICS + 'bytesrejected_total{topic="strict"}'] > 5000
    assert leader[TOPICS + "messagesin_total"] >= 10
    assert leader[TOPICS + "replicationbytesout_total"] >= size
    assert follower[TOPICS + "replicationbytesin_total"] >= size
    assert follower.get(TOPICS + 'messagesin_total{topic="orders"}', 0) == 0


def _check_replicas(leader: Mapping[str, float], follower: Mapping[str, float]) -> None:
    has(
        leader,
        {
            PARTITION.format("insyncreplicascount"): 2,
            PARTITION.format("replicascount"): 2,
            PARTITION.format("underreplicated"): 0,
            PARTITION.format("laststableoffsetlag"): 0,
            REPLICAS + "underreplicatedpartitions": 0,
            REPLICAS + "underminisrpartitioncount": 0,
            REPLICAS + "atminisrpartitioncount": 1,
            REPLICAS + "offlinereplicacount": 0,
            REPLICAS + "reassigningpartitions": 0,
            REPLICAS + "partitioncount": 4,
            "kafka_server_kafkaserver_brokerstate": 3,
            "kafka_controller_kafkaserver_metadatalag": 0,
            'kafka_server_replicafetchermanager_maxlag{clientId="Replica"}': 0,
            "kafka_log_logmanager_offlinelogdirectorycount": 0,
        },
    )
    has(follower, {PARTITION.format("replicascount"): 0, REPLICAS + "partitioncount": 4})
    assert leader[REPLICAS + "leadercount"] + follower[REPLICAS + "leadercount"] == 4
    sessions = 'kafka_server_fetchsessioncache_numincrementalfetch{}{{cacheShard="0"}}'
    assert leader[sessions.format("sessions")] == 1, "that of the follower: librdkafka asks for none"
    assert leader[sessions.format("partitionscached")] == leader[REPLICAS + "leadercount"]
    assert leader["kafka_server_assignmentsmanager_queuedreplicatodirassignments"] == 0


def _check_requests(leader: Mapping[str, float]) -> None:
    too_large = 'errors_total{request="Produce",error="MESSAGE_TOO_LARGE"}'
    has(leader, {REQUESTS + too_large: 1, REQUESTS + 'totaltimems_count{request="Produce"}': 11})
    times = {
        part: leader[f'{REQUESTS}{part}timems{{request="Produce",quantile="0.50"}}']
        for part in ("total", "local", "remote", "requestqueue")
    }
    assert times["total"] >= times["local"] > 0
    assert times["total"] >= times["remote"] > 0, "acks=all waits for the follower"
    assert leader[REQUESTS + 'requestbytes{request="Produce",quantile="0.50"}'] > 1000
    listener = '{listener="PLAINTEXT",networkProcessor="0"}'
    connections = {
        what: leader[f"kafka_server_socket_server_metrics_connection_{what}{listener}"]
        for what in ("count", "creation_total", "close_total")
    }
    assert connections["count"] >= 2
    assert connections["creation_total"] == connections["count"] + connections["close_total"]
    assert connections["close_total"] >= 1, "the consumer has left"
    assert leader["kafka_network_requestchannel_requestqueuesize"] == 0
    assert 0 < leader["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"] <= 1


def _check_controller(leader: Mapping[str, float]) -> None:
    has(
        leader,
        {
            'current_state_info{state="leader"}': 1,
            CONTROLLER + "activecontrollercount": 1,
            CONTROLLER + "newactivecontrollerscount": 1,
            CONTROLLER + "activebrokercount": 2,
            CONTROLLER + "fencedbrokercount": 0,
            CONTROLLER + "controlledshutdownbrokercount": 0,
            CONTROLLER + 'brokerregistrationstate{broker="2"}': 30,
            CONTROLLER + "globaltopiccount": 3,
            CONTROLLER + "globalpartitioncount": 4,
            CONTROLLER + "offlinepartitionscount": 0,
            CONTROLLER + "preferredreplicaimbalancecount": 0,
            CONTROLLER + "timedoutbrokerheartbeatcount": 0,
            CONTROLLER + "metadatalag": 0,
            CONTROLLER + "metadatasnapshotoffsetlag": leader["high_watermark"],
            CONTROLLER + "lastappliedrecordlagms": 0,
            CONTROLLER + "metadataerrorcount": 0,
            "kafka_controller_controllerstats_uncleanleaderelections_total": 0,
            "kafka_server_metadataloader_currentcontrollerid": 1,
        },
    )
    assert leader[CONTROLLER + "metadatacommitlatencyms_count"] > 0
    assert 0 <= leader[CONTROLLER + 'timesincelastheartbeatreceivedms{broker="2"}'] < 60_000
    assert leader["kafka_controller_controllereventmanager_eventqueueprocessingtimems_count"] > 0


def _check_applied(node: Node) -> None:
    """How far a node is with the metadata log, on the controller and on the broker.

    A record may be committed while a page is written, so a page is looked for during which none is.
    """
    applied = "kafka_server_broker_metadata_metrics_last_applied_record_"

    def is_told() -> bool:
        page, now_ms = metrics(node), time.time() * 1000
        stable, at_ms = page["high_watermark"], page[applied + "timestamp"]
        found = page[applied + "offset"] == stable - 1 and now_ms - 60_000 < at_ms <= now_ms + 1000
        if CONTROLLER + "activecontrollercount" in page:
            found &= page[CONTROLLER + "lastappliedrecordoffset"] == stable - 1
            found &= page[CONTROLLER + "lastcommittedrecordoffset"] == stable - 1
            found &= page[CONTROLLER + "lastappliedrecordtimestamp"] == at_ms
            found &= page[CONTROLLER + "metadatacommitrate_total"] == stable
        return found and 0 <= page[applied + "lag_ms"] <= now_ms + 1000 - at_ms

    wait_for("a page that tells what was applied", is_told, 30, 0.05)


def _check_node(node: Mapping[str, float]) -> None:
    """What every node exports, a broker without a controller, too."""
    has(
        node,
        {
            "kafka_server_metadataloader_currentcontrollerid": 1,
            "kafka_server_metadataloader_handleloadsnapshotcount": 0,
            "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes": 0,
        },
    )
    version = node["kafka_server_metadataloader_currentmetadataversion"]
    assert version == node['kafka_server_metadataloader_finalizedlevel{featureName="metadata.version"}']
    levels = 'kafka_server_node_metrics_{}_supported_level{{feature_name="metadata-version"}}'
    assert node[levels.format("minimum")] <= version <= node[levels.format("maximum")]
    assert node["process_resident_memory_bytes"] > 10 << 20
    assert 0 < node["process_open_fds"] < node["process_max_fds"]


def _check_groups(*brokers: Mapping[str, float]) -> None:
    active = 'kafka_server_group_coordinator_metrics_num_partitions{state="active"}'
    [coordinator] = [found for found in brokers if found[active] == 1]
    has(
        coordinator,
        {
            GROUPS + "numgroups": 1,
            GROUPS + "numgroupsempty": 1,  # its only member has left
            GROUPS + "numgroupsstable": 0,
            GROUPS + "numoffsets": 1,
            COORDINATOR + "offset_deletion_count": 0,
            COORDINATOR + "offset_expiration_count": 0,
            COORDINATOR + "group_completed_rebalance_count": 1,
            'kafka_server_group_coordinator_metrics_group_count{protocol="classic"}': 1,
        },
    )
    assert coordinator[COORDINATOR + "offset_commit_count"] in (1, 2), (
        "the consumer commits again when it closes"
    )
