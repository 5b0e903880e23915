"""The controller on a real Raft replica and real files: commits, restarts, snapshots."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from quorate.controller.driver import QuorumController
from quorate.metadata.image import MetadataImage
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.schema import Request
from quorate.raft.config import RaftConfig
from quorate.raft.runtime.client import RaftClient

from .requests import registration, run, topics
from .support import CLUSTER, Harness, make_config, uid


class NoNetwork:
    """The network of a quorum of one, which sends nothing."""

    on_lost = None

    async def call(self, *args: Any) -> Any:
        raise ConnectionError("there is nobody")

    def post(self, *args: Any) -> None:
        return None

    def warm(self, addresses: Any) -> None:
        assert not addresses

    def close(self) -> None:
        pass


class Single:
    """A controller in a directory."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.raft = RaftClient(
            RaftConfig(
                node_id=1,
                directory_id=uid(0xE1),
                cluster_id=CLUSTER,
                metadata_dir=directory,
                listener_name="CONTROLLER",
                endpoints={"CONTROLLER": ("localhost", 9093)},
                voters={1: ("localhost", 9093)},
            ),
            NoNetwork(),  # type: ignore[arg-type]
        )
        incarnation_id = os.urandom(16)  # a process has its own
        self.controller = QuorumController(
            make_config(is_broker_too=True, incarnation_id=incarnation_id, **config), self.raft
        )
        self._activated = asyncio.Event()
        self.controller.add_image_listener(self._see)

    def _see(self, image: MetadataImage) -> None:
        registered = image.cluster.controllers.get(1)
        if (
            registered is not None
            and registered.incarnation_id == self.controller.state.config.incarnation_id
        ):
            self._activated.set()

    async def start(self) -> None:
        await self.raft.start()
        await self.controller.start()
        await asyncio.wait_for(self._activated.wait(), 10)  # its own registration is committed

    async def call(self, request: Request) -> Any:
        outcome = Harness.send(self, request)  # type: ignore[arg-type]
        return await asyncio.wait_for(outcome, 10) if asyncio.isfuture(outcome) else outcome

    async def broker(self) -> int:
        epoch: int = (await self.call(registration(incarnation=self.controller.state.epoch))).broker_epoch
        beat = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=epoch, current_metadata_offset=self.raft.log_end_offset
        )
        assert not (await self.call(beat)).is_fenced
        return epoch

    async def stop(self) -> None:
        await self.controller.close()
        await self.raft.shutdown(0.1)


def test_answered_changes_survive_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        names = [f"t{index}" for index in range(100)]
        node = Single(tmp_path)
        await node.start()
        await node.broker()
        answers = await asyncio.gather(*[node.call(topics(name)) for name in names])
        assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.NONE}
        image = node.controller.state.image
        assert set(image.topics.by_name) == set(names)
        await node.stop()

        again = Single(tmp_path)
        await again.start()
        assert again.controller.state.image.topics == image.topics
        assert again.controller.state.epoch == 2
        first = image.cluster.brokers[1].epoch
        assert await again.broker() > first
        await again.stop()

    run(test())


def test_topics_in_flight_share_batches(tmp_path: Path) -> None:
    async def test() -> None:
        node = Single(tmp_path)
        await node.start()
        await node.broker()
        batches = 0

        def count(_: MetadataImage) -> None:
            nonlocal batches
            batches += 1

        node.controller.add_image_listener(count)
        await asyncio.gather(*[node.call(topics(f"t{index}")) for index in range(200)])
        assert batches < 20
        await node.stop()

    run(test())


def test_a_restart_begins_at_the_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        node = Single(tmp_path, snapshot_bytes=3000)
        await node.start()
        await node.broker()
        for index in range(60):
            await node.call(topics(f"t{index}"))
            await node.controller.snapshots.settled()
        assert node.controller.snapshots.written >= 2
        latest = node.raft.latest_snapshot()
        assert latest is not None
        assert latest.offset == node.controller.snapshots.end_offset
        image = node.controller.state.image
        await node.stop()

        again = Single(tmp_path)
        loaded: list[int] = []
        on_snapshot = again.controller.on_snapshot

        def see(snapshot_id: Any, batches: Any) -> Any:
            yield from on_snapshot(snapshot_id, batches)
            loaded.append(snapshot_id.offset)

        again.controller.on_snapshot = see  # type: ignore[method-assign]
        await again.start()
        assert loaded == [latest.offset]
        assert again.controller.state.image.topics == image.topics
        await again.stop()

    run(test())
