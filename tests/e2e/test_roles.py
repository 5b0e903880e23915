"""One process for each role: a controller without a broker, a broker without a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from tests.support.cluster import Node, wait_for
from tests.support.ledger import Ledger, read_partition


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    controller = Node(tmp_path / "controller", node_id=1, roles="controller")
    broker = Node(tmp_path / "broker", node_id=101, roles="broker", voters={1: controller.controller_port})
    controller.format()
    broker.format()
    try:
        yield controller, broker
    except BaseException:
        print(controller.log_tail(), broker.log_tail())
        raise
    finally:
        broker.kill()
        controller.kill()


def serve(broker: Node, ledger: Ledger, tag: str) -> None:
    admin = broker.admin()
    ledger.create(admin, f"topic-{tag}", 2)
    ledger.produce(broker.bootstrap, f"topic-{tag}", 50, tag, "zstd")
    ledger.commit(broker.bootstrap, "readers", f"topic-{tag}", 50)
    ledger.verify(admin, broker.bootstrap)


def test_a_broker_beside_a_controller_serves_clients(pair: tuple[Node, Node]) -> None:
    controller, broker = pair
    ledger = Ledger()
    controller.start()
    broker.start()
    serve(broker, ledger, "a")
    assert broker.stop() == 0
    broker.start()
    ledger.verify(broker.admin(), broker.bootstrap)
    assert broker.stop() == 0
    assert controller.stop() == 0


def test_a_broker_waits_for_its_controller(pair: tuple[Node, Node]) -> None:
    controller, broker = pair
    broker.start(wait=False)
    wait_for("the broker to begin", lambda: "STARTING" in broker.log_tail(), 10)
    controller.start()
    broker.wait_ready()
    serve(broker, Ledger(), "b")


def test_a_broker_outlives_a_restart_of_its_controller(pair: tuple[Node, Node]) -> None:
    controller, broker = pair
    ledger = Ledger()
    controller.start()
    broker.start()
    serve(broker, ledger, "c")
    controller.kill()
    ledger.produce(broker.bootstrap, "topic-c", 20, "alone")
    controller.start()
    serve(broker, ledger, "d")
    assert broker.stop() == 0


def first_answers(port: int, topics: list[str]) -> dict[str, set[int]]:
    """The error codes in the first answers of a broker that starts, by API.

    The requests wait in the socket until the broker serves.
    """

    async def ask() -> dict[str, set[int]]:
        while True:
            try:
                connection = await Connection.connect("127.0.0.1", port, client_id="early")
                break
            except OSError:
                await asyncio.sleep(0.005)  # the process has not bound its port yet
        produce = ProduceRequest(
            acks=1,
            timeout_ms=10_000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(
                            index=0, records=build_batch([(b"k", b"v", (), 1)])
                        )
                    ],
                )
                for topic in topics
            ],
        )
        metadata = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        end = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        offsets = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[end]) for topic in topics],
        )
        fetched = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(
            max_wait_ms=0,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[fetched]) for topic in topics],
        )
        try:
            described = await connection.call(metadata)
            listed = await connection.call(offsets)
            read = await connection.call(fetch, version=12)
            written = await connection.call(produce, version=12)
        finally:
            connection.close()
        return {
            "Metadata": {t.error_code for t in described.topics},
            "ListOffsets": {p.error_code for t in listed.topics for p in t.partitions},
            "Fetch": {p.error_code for t in read.responses for p in t.partitions},
            "Produce": {p.error_code for t in written.responses for p in t.partition_responses},
        }

    return asyncio.run(asyncio.wait_for(ask(), 60))


def test_the_first_answers_after_kill_9_know_all_topics(pair: tuple[Node, Node]) -> None:
    """A broker serves only when it has replayed the metadata up to its own registration."""
    controller, broker = pair
    controller.start()
    broker.start()
    topics = [f"topic-{i}" for i in range(100)]
    admin = broker.admin()
    created = admin.create_topics([NewTopic(t, 1, 1) for t in topics], operation_timeout=30)
    for future in created.values():
        future.result(30)
    for _ in range(4):
        broker.kill()
        broker.start(wait=False)
        errors = first_answers(broker.broker_port, topics)
        assert errors == {api: {ErrorCode.NONE} for api in ("Metadata", "ListOffsets", "Fetch", "Produce")}


def test_a_broker_that_stops_without_a_controller_accepts_no_more_records(pair: tuple[Node, Node]) -> None:
    """Without a controller its leaderships cannot be moved. Records that it still accepted might be lost
    when another replica leads after the restart."""
    controller, broker = pair
    controller.start()
    broker.start()
    Ledger().create(broker.admin(), "t")
    controller.kill()

    async def produce_until_refused() -> tuple[int, int]:
        """Returns (the number of accepted batches, the error of the next one)."""
        connection = await Connection.connect("127.0.0.1", broker.broker_port, client_id="test")
        record = [(b"k", b"v", [], 1)]
        data = ProduceRequest.PartitionProduceData(index=0, records=build_batch(record))
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
        )
        answer = await connection.call(request, version=12)
        taken = 0
        assert broker.proc is not None
        broker.proc.terminate()
        while (code := answer.responses[0].partition_responses[0].error_code) == ErrorCode.NONE:
            taken += 1
            answer = await connection.call(request, version=12)
        connection.close()
        return taken, code

    taken, code = asyncio.run(produce_until_refused())
    assert (taken > 0, code) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert broker.proc is not None and broker.proc.wait(30) == 0
    controller.start()
    broker.start()
    assert len(read_partition(broker.bootstrap, "t", 0)) == taken


def test_a_stopped_broker_leaves_the_metadata_at_once(pair: tuple[Node, Node], tmp_path: Path) -> None:
    controller, broker = pair
    other = Node(tmp_path / "other", node_id=102, roles="broker", voters={1: controller.controller_port})
    other.format()
    controller.start()
    broker.start()
    try:
        other.start()
        admin = broker.admin()
        wait_for("both brokers", lambda: set(admin.list_topics(timeout=5).brokers) == {101, 102})
        assert other.stop() == 0
        wait_for("one broker", lambda: set(admin.list_topics(timeout=5).brokers) == {101}, 3)
    finally:
        other.kill()
