"""ISR changes and the answers of the controller: no change is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from quorate.broker.controller_channel import ControllerChannel
from quorate.broker.replication.alter_partition import AlterPartitionManager
from quorate.broker.replication.partition import Partition
from quorate.controller.handlers.alter_partition import alter_partition
from quorate.log.errors import LogDirFailure
from quorate.log.partition.producer_state import AppendOrigin
from quorate.net.errors import RequestTimedOut
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import EncodeError, ErrorCode
from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from ..controller.support import Cluster
from .controllers import Leader, ScriptedController, run
from .fakes import broker, registration
from .world import Broker, batch_of, image_of, topic_id_of

FROM_THE_FUTURE = 30_000
"""An error code that this version does not know."""


def granted(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return answered(request, lambda _part: 0)


def answered(request: AlterPartitionRequest, code: Callable[[int], int]) -> AlterPartitionResponse:
    """Each partition with the error that `code` gives for its index."""
    Response = AlterPartitionResponse  # noqa: N806
    return Response(
        topics=[
            Response.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    Response.PartitionData(
                        partition_index=part.partition_index,
                        error_code=code(part.partition_index),
                        leader_id=1,
                        leader_epoch=part.leader_epoch,
                        isr=[state.broker_id for state in part.new_isr_with_epochs] or list(part.new_isr),
                        partition_epoch=part.partition_epoch + 1,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class World:
    """A leader of `count` partitions whose follower is caught up, and a scripted controller."""

    def __init__(
        self,
        tmp_path: Path,
        *script: Callable[[AlterPartitionRequest], AlterPartitionResponse],
        count: int = 1,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.script = list(script)
        lonely = registration(replicas=(1, 2), isr=(1,))
        image = image_of(
            {"t": dict.fromkeys(range(count), lonely)}, brokers=(broker(1, epoch=7), broker(2, epoch=8))
        )
        self.broker = Broker(tmp_path, image, loop=loop)
        self.controller = ScriptedController({ApiKey.ALTER_PARTITION: self._answer})
        self.leader = Leader(loop)
        self.channel = ControllerChannel("alter-partition", self.leader.locator, client_id="1", loop=loop)
        self.sender = AlterPartitionManager(1, self.channel, lambda: 7, loop)
        self.broker.replicas.isr_sender = self.sender

    def _answer(self, _context: Any, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return (self.script.pop(0) if self.script else granted)(request)

    def partition(self, index: int = 0) -> Partition:
        return self.broker.replicas.partitions["t", index]

    async def start(self) -> None:
        self.leader.set((1, "127.0.0.1", await self.controller.start()))

    def follow(self) -> None:
        """The follower reads at the end of each log, and the leader asks for its addition to the ISR."""
        for partition in self.broker.replicas.partitions.values():
            partition.follower_fetched(2, 8, 0, 0, 0, self.broker.clock.now())
            assert partition.pending_isr is not None

    async def until_in_sync(self, *indexes: int) -> None:
        while any(self.partition(index).isr != (1, 2) for index in indexes or (0,)):
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.sender.close()
        self.channel.close()
        await self.controller.close()
        self.broker.logs.close()


def top_level(code: int) -> Callable[[AlterPartitionRequest], AlterPartitionResponse]:
    return lambda _request: AlterPartitionResponse(error_code=code)


def each(code: int) -> Callable[[AlterPartitionRequest], AlterPartitionResponse]:
    return lambda request: answered(request, lambda _index: code)


@pytest.mark.parametrize(
    "answer", [top_level(FROM_THE_FUTURE), each(FROM_THE_FUTURE)], ids=["request", "partition"]
)
def test_an_unknown_error_code_is_retried(tmp_path: Path, answer: Any) -> None:
    async def body() -> None:
        world = World(tmp_path, answer)
        await world.start()
        world.follow()
        await world.until_in_sync()
        assert world.partition().pending_isr is None
        await world.close()

    run(body)


def test_a_change_that_could_not_be_sent_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next active controller has an older version of the API."""

    async def body() -> None:
        world = World(tmp_path)
        await world.start()
        send, failures = (
            world.channel.send,
            [EncodeError("no such field in version 2"), RuntimeError("unforeseen")],
        )

        async def failing(*args: Any, **kwargs: Any) -> Any:
            if failures:
                raise failures.pop()
            return await send(*args, **kwargs)

        monkeypatch.setattr(world.channel, "send", failing)
        world.follow()
        await world.until_in_sync()
        assert failures == []
        await world.close()

    run(body)


def test_a_partition_that_fails_to_apply_its_answer_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        world = World(tmp_path, count=3)
        await world.start()
        world.follow()
        broken, advance = world.partition(1), Partition.maybe_increment_high_watermark

        def maybe_increment_high_watermark(self: Partition, log: Any = None) -> bool:
            if self is broken:
                raise LogDirFailure(str(tmp_path), "Input/output error")
            return advance(self, log)

        monkeypatch.setattr(Partition, "maybe_increment_high_watermark", maybe_increment_high_watermark)
        await world.until_in_sync(0, 1, 2)
        assert all(world.partition(index).pending_isr is None for index in range(3))
        await world.close()

    run(body)


def test_a_rejected_change_is_repeated_after_a_pause(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, *[each(ErrorCode.NOT_CONTROLLER)] * 10_000)
        await world.start()
        world.follow()
        await asyncio.sleep(0.3)
        assert 1 <= len(world.controller.asked) <= 10
        world.script.clear()
        await world.until_in_sync()
        await world.close()

    run(body)


def test_a_partition_missing_in_the_answer_is_requested_again(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, lambda _request: AlterPartitionResponse())
        await world.start()
        world.follow()
        await world.until_in_sync()
        assert [topic.topic_id for request in world.controller.asked for topic in request.topics] == [
            topic_id_of("t")
        ] * 2
        await world.close()

    run(body)


class TwoConnections:
    """A channel to a real AlterPartition handler. The first request times out and stays in the network."""

    api_versions = None

    def __init__(self, controller: Cluster) -> None:
        self.controller = controller
        self.delayed: AlterPartitionRequest | None = None

    async def send(
        self, request: AlterPartitionRequest, _deadline: float | None = None
    ) -> AlterPartitionResponse:
        encoded = AlterPartitionRequest.decode(request.encode(3), 3)
        if self.delayed is None:
            self.delayed = encoded
            raise RequestTimedOut("no response")
        return self.handle(encoded)

    def handle(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = self.controller.run(alter_partition, request, 3).response
        return response


def test_a_delayed_request_does_not_add_a_follower_that_was_fenced_meanwhile(tmp_path: Path) -> None:
    """The repetition of the request is refused, so the high watermark stops waiting for the follower."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        controller = Cluster().brokers(1, 2, 3)
        controller.topic("t", [1, 2, 3], isr=[1, 3])
        leader = Broker(tmp_path, controller.image, loop=loop)
        channel = TwoConnections(controller)
        sender = AlterPartitionManager(1, cast("ControllerChannel", channel), lambda: 101, loop)
        leader.replicas.isr_sender = sender
        partition = leader.replicas.partitions["t", 0]
        now = leader.clock.now()
        partition.follower_fetched(2, 102, 0, 0, 0, now)
        controller.fence(2)
        while partition.pending_isr is not None:
            await asyncio.sleep(0.001)
        leader.publish(controller.image)
        partition.append(batch_of(b"x"), -1, 0, AppendOrigin.CLIENT)
        partition.follower_fetched(3, 103, 1, 0, 1, now)
        assert partition.log.high_watermark == 1
        controller.fence(2, fenced=False)
        assert channel.delayed is not None
        late = channel.handle(channel.delayed)
        assert late.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
        assert controller.partition("t").isr == (1, 3)

        leader.publish(controller.image)
        partition.follower_fetched(2, 102, 1, 0, 1, now)
        while partition.pending_isr is not None:
            await asyncio.sleep(0.001)
        assert controller.partition("t").isr == (1, 3, 2)
        await sender.close()
        leader.logs.close()

    run(body)
