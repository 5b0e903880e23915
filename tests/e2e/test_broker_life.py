"""The state that a broker keeps between a stop and the next start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.cluster import Node, running, wait_for
from tests.support.ledger import QUIET, Ledger, read_partition


def ask(port: int, request, version: int | None = None):  # type: ignore[no-untyped-def]
    """Sends one request to a listener with our own client."""

    async def exchange():  # type: ignore[no-untyped-def]
        connection = await Connection.connect("127.0.0.1", port, client_id="test")
        try:
            return await connection.call(request, 20, version)
        finally:
            connection.close()

    return asyncio.run(exchange())


def test_a_clean_stop_writes_the_broker_epoch_and_a_start_removes_it(tmp_path: Path) -> None:
    marker = tmp_path / "n" / "data" / ".kafka_cleanshutdown"
    with running(Node(tmp_path / "n")) as node:
        assert not marker.exists()
        assert node.stop() == 0
        left = json.loads(marker.read_text())
        assert left["version"] == 0
        assert left["brokerEpoch"] > 0
        node.start()
        assert not marker.exists()
        node.kill()
        assert not marker.exists()


@pytest.mark.parametrize("how", ["a signal", "the end of its patience"])
@pytest.mark.parametrize("before", ["an orderly stop", "a kill"])
def test_a_broker_that_stops_before_a_controller_answered_does_not_change_its_logs(
    tmp_path: Path, before: str, how: str
) -> None:
    """Deleted records stay deleted, and logs that were never recovered do not count as closed cleanly."""
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    broker = Node(
        tmp_path / "b",
        node_id=2,
        roles="broker",
        voters=controller.voters,
        extra={"log.flush.start.offset.checkpoint.interval.ms": 200},
    )
    marker = broker.data / ".kafka_cleanshutdown"
    starts = broker.data / "log-start-offset-checkpoint"
    with running(controller), running(broker):
        ledger = Ledger()
        admin = broker.admin()
        ledger.create(admin, "t")
        ledger.produce(broker.bootstrap, "t", 50, "x")
        (deleted,) = admin.delete_records([TopicPartition("t", 0, 20)]).values()
        assert deleted.result(20).low_watermark == 20
        wait_for(
            "the log start to be on the disk", lambda: starts.exists() and "t 0 20" in starts.read_text(), 20
        )
        if before == "a kill":
            broker.kill()
        else:
            assert broker.stop() == 0
        left = marker.read_text() if marker.exists() else None
        assert (left is None) == (before == "a kill")
        controller.kill()

        broker.extra["initial.broker.registration.timeout.ms"] = 60_000 if how == "a signal" else 1_000
        broker.write_properties()
        broker.start(wait=False)
        assert broker.proc is not None
        if how == "a signal":
            wait_for("the broker to begin", lambda: "is now STARTING" in broker.log_tail(5), 20)
            assert broker.stop() == 0
        else:
            assert broker.proc.wait(30) == 1
        assert (marker.read_text() if marker.exists() else None) == left
        assert "t 0 20" in starts.read_text()

        broker.extra["initial.broker.registration.timeout.ms"] = 60_000
        broker.write_properties()
        controller.start()
        broker.start()
        assert read_partition(broker.bootstrap, "t", 0) == ledger.records["t", 0][20:]


def test_topics_deleted_while_the_broker_was_down_are_removed(tmp_path: Path) -> None:
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    broker = Node(tmp_path / "b", node_id=2, roles="broker", voters=controller.voters)
    with running(controller), running(broker):
        ledger = Ledger()
        for name in ("kept", "gone"):
            ledger.create(broker.admin(), name)
            ledger.produce(broker.bootstrap, name, 50, "x")
        assert broker.stop() == 0
        assert (broker.data / "gone-0").exists()
        answer = ask(
            controller.controller_port,
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="gone")], timeout_ms=10_000
            ),
        )
        assert [r.error_code for r in answer.responses] == [ErrorCode.NONE]
        broker.start()
        assert not (broker.data / "gone-0").exists()
        assert read_partition(broker.bootstrap, "kept", 0) == ledger.records["kept", 0]


@pytest.mark.parametrize("before", ["kill", "stop"])
def test_a_stop_before_the_logs_were_read_changes_nothing_in_their_directory(
    tmp_path: Path, before: str
) -> None:
    """A broker waits for metadata while no controller runs. If it is stopped during this wait, deleted
    records must stay deleted, and logs that a crash has left must still be recovered later."""
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    broker = Node(tmp_path / "b", node_id=2, roles="broker", voters=controller.voters)

    def checkpoints() -> dict[str, bytes]:
        names = [
            *(f"{name}-offset-checkpoint" for name in ("log-start", "recovery-point", "replication")),
            ".kafka_cleanshutdown",
        ]
        return {name: (broker.data / name).read_bytes() for name in names if (broker.data / name).exists()}

    with running(controller), running(broker):
        ledger = Ledger()
        admin = broker.admin()
        ledger.create(admin, "trimmed")
        ledger.produce(broker.bootstrap, "trimmed", 50, "x")
        next(iter(admin.delete_records([TopicPartition("trimmed", 0, 30)]).values())).result(30)
        if before == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        assert controller.stop() == 0
        found = checkpoints()
        assert b"trimmed 0 30" in found["log-start-offset-checkpoint"]
        broker.start(wait=False)
        wait_for(
            "the broker to look for a controller",
            lambda: broker.log_tail(200).count("is now STARTING") == 2,
            30,
        )
        assert broker.stop() == 0
        assert checkpoints() == found
        controller.start()
        broker.start()
        assert read_partition(broker.bootstrap, "trimmed", 0) == ledger.records["trimmed", 0][30:]


def test_a_broker_moves_its_leaderships_before_it_stops(tmp_path: Path) -> None:
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    brokers = [Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters) for i in (2, 3)]
    with running(controller), running(brokers[0]), running(brokers[1]):
        admin = brokers[1].admin()
        topic = NewTopic("t", 1, replica_assignment=[[2, 3]])
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)

        def partition():  # type: ignore[no-untyped-def]
            return admin.list_topics("t", timeout=5).topics["t"].partitions[0]

        wait_for("both replicas to be in sync", lambda: sorted(partition().isrs) == [2, 3])
        assert partition().leader == 2
        everywhere = ",".join(b.bootstrap for b in brokers)
        producer = Producer({"bootstrap.servers": everywhere, "acks": "all", **QUIET})
        failed: list[object] = []
        for i in range(200):
            producer.produce(
                "t", b"%d" % i, on_delivery=lambda error, _m: failed.append(error) if error else None
            )
            if i == 100:
                assert brokers[0].stop() == 0
                assert partition().leader == 3
                assert 2 not in admin.list_topics(timeout=5).brokers
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed
        assert read_partition(brokers[1].bootstrap, "t", 0) == [b"%d" % i for i in range(200)]


def test_a_shutdown_does_not_wait_for_the_regular_heartbeat_of_the_other_brokers(tmp_path: Path) -> None:
    patient = {"broker.heartbeat.interval.ms": 60_000, "broker.session.timeout.ms": 180_000}
    controller = Node(tmp_path / "c", node_id=1, roles="controller", extra=patient)
    brokers = [
        Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters, extra=patient)
        for i in (2, 3, 4)
    ]
    with running(controller), running(brokers[0]), running(brokers[1]), running(brokers[2]):
        admin = brokers[2].admin()
        topics = [NewTopic(f"t{i}", 1, replica_assignment=[[2, 3, 4]]) for i in range(20)]
        for future in admin.create_topics(topics, operation_timeout=20).values():
            future.result(30)

        def partitions():  # type: ignore[no-untyped-def]
            return [topic.partitions[0] for topic in admin.list_topics(timeout=5).topics.values()]

        wait_for("all replicas to be in sync", lambda: all(len(p.isrs) == 3 for p in partitions()))
        assert brokers[0].stop(30) == 0
        assert all(p.leader == 3 for p in partitions())
        assert brokers[1].stop(30) == 0
        assert all(p.leader == 4 for p in partitions())


def test_a_broker_that_was_unregistered_while_it_ran_can_be_stopped(tmp_path: Path) -> None:
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    brokers = [Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters) for i in (2, 3)]
    with running(controller), running(brokers[0]), running(brokers[1]):
        admin = brokers[1].admin()
        topic = NewTopic("t", 1, replica_assignment=[[2, 3]])
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)

        def partition():  # type: ignore[no-untyped-def]
            return admin.list_topics("t", timeout=5).topics["t"].partitions[0]

        wait_for("both replicas to be in sync", lambda: sorted(partition().isrs) == [2, 3])
        answer = ask(controller.controller_port, UnregisterBrokerRequest(broker_id=2))
        assert answer.error_code == ErrorCode.NONE
        wait_for("the other one to lead", lambda: partition().leader == 3)
        assert brokers[0].stop(30) == 0
        assert brokers[1].stop(30) == 0


def test_the_start_time_is_reported_and_changes_with_a_restart(tmp_path: Path) -> None:
    with running(Node(tmp_path / "n")) as node:
        (before,) = ask(node.broker_port, DescribeClusterRequest()).brokers
        node.stop()
        node.start()
        (after,) = ask(node.broker_port, DescribeClusterRequest()).brokers
        assert 0 < before.start_time_ms < after.start_time_ms


def test_requests_for_controllers_are_refused_by_brokers(tmp_path: Path) -> None:
    with running(Node(tmp_path / "n")) as node:

        async def exchange() -> tuple[int, bool]:
            connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
            listed = BrokerHeartbeatRequest.KEY in connection.api_versions
            answer = await connection.call(BrokerHeartbeatRequest(broker_id=1), 10, 1)
            connection.close()
            return answer.error_code, listed

        assert asyncio.run(exchange()) == (ErrorCode.NOT_CONTROLLER, False)


@pytest.mark.parametrize(
    ("allowed", "asked", "error"),
    [
        (True, True, ErrorCode.NONE),
        (True, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_topics_are_created_automatically_if_client_and_broker_allow_it(
    tmp_path: Path, allowed: bool, asked: bool, error: ErrorCode
) -> None:
    with running(Node(tmp_path / "n", extra={"auto.create.topics.enable": str(allowed).lower()})) as node:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=asked
        )
        (topic,) = ask(node.broker_port, request).topics
        assert (topic.name, topic.error_code) == ("new", error)
