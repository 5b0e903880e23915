"""A broker with tens of thousands of partitions starts and stops. The controller handles other requests
meanwhile.

python -m tests.e2e.test_many_partitions N measures it with N times 9,999 partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from quorate.net.channel import NodeChannel
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from tests.e2e.campaign_quorum import Quorum, running
from tests.support.cluster import CLUSTER_ID

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 9_999
LEAVING, STAYING = 50, 51
PATIENCE_S = 60.0


class Brokers:
    """Two simulated brokers, which only send requests to the active controller."""

    def __init__(self, port: int) -> None:
        self._channels = {
            i: NodeChannel("127.0.0.1", port, client_id=f"broker-{i}") for i in (LEAVING, STAYING)
        }
        self.epochs: dict[int, int] = {}

    async def ask(self, broker_id: int, request: Any) -> Any:
        """Sends a request over its own connection, because the responses on one connection are in the order
        of the requests."""
        response = await self._channels[broker_id].call(request, PATIENCE_S)
        assert getattr(response, "error_code", 0) == ErrorCode.NONE, response
        return response

    async def register(self, broker_id: int) -> None:
        feature, listener = BrokerRegistrationRequest.Feature, BrokerRegistrationRequest.Listener
        registered = await self.ask(
            broker_id,
            BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=broker_id.to_bytes(16),
                listeners=[listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
                features=[
                    feature(name="metadata.version", min_supported_version=7, max_supported_version=33),
                    feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
                    feature(name="group.version", min_supported_version=0, max_supported_version=1),
                    feature(name="transaction.version", min_supported_version=0, max_supported_version=2),
                    feature(name="share.version", min_supported_version=0, max_supported_version=2),
                    feature(name="streams.version", min_supported_version=0, max_supported_version=1),
                    feature(
                        name="eligible.leader.replicas.version",
                        min_supported_version=0,
                        max_supported_version=1,
                    ),
                ],
                log_dirs=[(0xD000 + broker_id).to_bytes(16)],
            ),
        )
        self.epochs[broker_id] = registered.broker_epoch
        await self.beat(broker_id)

    async def beat(self, broker_id: int, **wants: bool) -> Any:
        beat = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=self.epochs[broker_id], current_metadata_offset=1 << 40, **wants
        )
        return await self.ask(broker_id, beat)

    @contextlib.asynccontextmanager
    async def alive(self, *broker_ids: int) -> Any:
        async def go_on() -> None:
            while True:
                await asyncio.sleep(1)
                for broker_id in broker_ids:
                    await self.beat(broker_id)

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            task.cancel()

    async def create(self, name: str, partitions: int, *replicas: int) -> None:
        topic, assignment = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
        assignments = [assignment(partition_index=n, broker_ids=list(replicas)) for n in range(partitions)]
        wanted = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        created = await self.ask(STAYING, CreateTopicsRequest(topics=[wanted], timeout_ms=60_000))
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0].error_message

    async def leave(self, broker_id: int) -> None:
        while not (await self.beat(broker_id, want_shut_down=True)).should_shut_down:
            await asyncio.sleep(0.05)  # as a broker does


async def creations_while_it_leaves(port: int, topics: int) -> list[float]:
    """Creates topics while a broker shuts down. Returns the duration of each creation in seconds."""
    brokers = Brokers(port)
    await brokers.register(LEAVING)
    await brokers.register(STAYING)
    async with brokers.alive(LEAVING, STAYING):
        for number in range(topics):
            await brokers.create(f"many-{number}", PARTITIONS, LEAVING, STAYING)
    took: list[float] = []
    async with brokers.alive(STAYING):
        leaving = asyncio.create_task(brokers.leave(LEAVING))
        while not leaving.done():
            begun = time.perf_counter()
            await brokers.create(f"meanwhile-{len(took)}", 1, STAYING)
            took.append(time.perf_counter() - begun)
        await leaving
    return took


def measured(base: Path, topics: int) -> list[float]:
    with running(Quorum(base)) as quorum:
        leader = quorum.leader()
        before = quorum.controllers[leader].told(5)
        took = asyncio.run(creations_while_it_leaves(quorum.controllers[leader].controller_port, topics))
        after = quorum.controllers[leader].told(5)
        assert before is not None
        assert after is not None
        assert (after.leader, after.epoch) == (before.leader, before.epoch)
    return took


def test_topics_are_created_while_a_broker_of_thirty_thousand_partitions_shuts_down(tmp_path: Path) -> None:
    took = measured(tmp_path, 3)
    assert len(took) > 10
    assert max(took) < 1.0


if __name__ == "__main__":
    topics = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as base:
        took = measured(Path(base), topics)
    figures = f"median {statistics.median(took):.3f} s, worst {max(took):.3f} s"
    print(f"{topics * PARTITIONS:,} partitions; {len(took)} creations meanwhile, {figures}")
