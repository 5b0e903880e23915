"""All brokers stop at once while an idempotent producer runs. `idempotence_campaign` repeats this for many
rounds."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from tests.e2e.idempotence_campaign import Campaign, cluster
from tests.support.cluster import Node, running


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.timeout(240)
def test_no_record_is_lost_or_repeated_when_all_brokers_stop_at_once(
    tmp_path: Path, how: signal.Signals
) -> None:
    with cluster(tmp_path) as nodes:
        Campaign(nodes, random.Random(20_261_122), [how]).run(3)


def produced(node: Node, producer_id: int | None, sequences: list[int]) -> tuple[int, list[tuple[int, int]]]:
    """Sends one batch of one record for each sequence number. Returns the producer id (a new one for None),
    and the error code and offset of each batch."""

    now_ms = int(time.time() * 1000)  # a producer that wrote long ago is not remembered

    async def ask() -> tuple[int, list[tuple[int, int]]]:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        known = producer_id
        if known is None:
            asks = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            while (
                given := await connection.call(asks, version=4)
            ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.02)  # the broker waits for its first block of producer ids
            assert given.error_code == ErrorCode.NONE, given
            known = int(given.producer_id)
        answers = []
        for sequence in sequences:
            batch = build_batch(
                [(None, b"%d" % sequence, [], now_ms)],
                producer_id=known,
                producer_epoch=0,
                base_sequence=sequence,
            )
            data = ProduceRequest.PartitionProduceData(index=0, records=batch)
            topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            answer = await connection.call(
                ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), version=9
            )
            part = answer.responses[0].partition_responses[0]
            answers.append((part.error_code, part.base_offset))
        connection.close()
        return known, answers

    return asyncio.run(ask())


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.timeout(120)
def test_the_retries_of_five_requests_are_answered_as_before_the_restart(tmp_path: Path, how: str) -> None:
    with running(Node(tmp_path)) as node:
        admin = node.admin()
        admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=20)["t"].result()
        producer_id, answers = produced(node, None, list(range(7)))
        assert answers == [(0, offset) for offset in range(7)]
        getattr(node, how)()
        node.start()
        assert produced(node, producer_id, [2, 3, 4, 5, 6, 7])[1] == [(0, offset) for offset in range(2, 8)]
