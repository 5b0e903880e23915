"""Listeners that handle a delivery in several steps, and the work of the event loop between these steps.
Progress is counted in turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.loader import STEP_RECORDS, ImageSteps
from quorate.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from quorate.metadata.shared_replay import SharedReplay
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.runtime import delivery
from quorate.raft.runtime.delivery import Delivery, Steps
from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch
from quorate.records.batch import build_metadata_batch
from tests.raft.nodes import Machine, Network, Node, context, dynamic, format_dynamic
from tests.raft.test_parts import Recorder, Source, batch, fail_test


@pytest.fixture(autouse=True)
def one_step_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLICE_S", 0.0)


class Slow(Recorder):
    """Handles each delivery in the given number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.done = 0
        self.closed = False

    def on_commit(self, batches: list[CommittedBatch]) -> Steps:  # type: ignore[override]
        yield from self._work()
        super().on_commit(batches)

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> Steps:  # type: ignore[override]
        yield from self._work()
        super().on_snapshot(snapshot_id, batches)

    def _work(self) -> Iterator[None]:
        try:
            for _ in range(self.steps):
                self.done += 1
                yield
        except GeneratorExit:
            self.closed = True
            raise


async def turns(listener: Slow, count: int) -> None:
    for _ in range(count):
        before = listener.done
        await asyncio.sleep(0)
        assert listener.done - before <= 1, "one step, then the others' turn"


def test_the_loop_runs_between_the_steps_of_a_load() -> None:
    async def main() -> None:
        source = Source(10)
        source.snapshot = OffsetEpoch(4, 1)
        told, listener = Delivery(source, fail_test), Slow(100)
        told.committed(10)
        told.register(listener)
        await turns(listener, 100)
        assert listener.events == []
        await told.settled()
        assert listener.events[0] == ("snapshot", OffsetEpoch(4, 1), 1)
        assert listener.offsets == [4, 5, 6, 7, 8, 9]

    asyncio.run(main())


def test_batches_that_commit_during_a_load_are_delivered_after_it_in_order() -> None:
    async def main() -> None:
        source = Source(1)
        told, listener = Delivery(source, fail_test), Slow(5)
        told.register(listener)
        told.committed(1)
        await told.settled()
        for i in (1, 2, 3):
            source.batches.append(batch(i))
            told.appended(batch(i))
            told.committed(i + 1)
            await asyncio.sleep(0)
        assert listener.offsets == [0]
        await told.settled()
        assert listener.offsets == [0, 1, 2, 3]
        assert listener.events[-1] == ("hwm", 4)

    asyncio.run(main())


def test_a_listener_learns_of_leadership_after_the_steps_before_it() -> None:
    async def main() -> None:
        source = Source(1)
        told, listener = Delivery(source, fail_test), Slow(5)
        told.register(listener)
        told.committed(1)
        await told.settled()
        source.batches.append(batch(1))
        told.leader_changed(LeaderAndEpoch(1, 7), epoch_start=2)
        told.appended(batch(1))
        told.committed(2)
        await turns(listener, 4)
        assert ("leader", LeaderAndEpoch(1, 7)) not in listener.events
        await told.settled()
        assert listener.events[-1] == ("leader", LeaderAndEpoch(1, 7))

    asyncio.run(main())


@pytest.mark.parametrize("how", ["unregister", "close"])
def test_a_load_stops_when_its_listener_is_unregistered_or_delivery_closes(how: str) -> None:
    async def main() -> None:
        source = Source(1)
        source.snapshot = OffsetEpoch(1, 1)
        told, listener = Delivery(source, fail_test), Slow(1000)
        told.committed(1)
        told.register(listener)
        await turns(listener, 5)
        if how == "unregister":
            told.unregister(listener)
        else:
            told.close()
        await turns(listener, 5)
        assert listener.closed
        assert listener.done < 10
        assert listener.events == []

    asyncio.run(main())


def test_an_error_in_a_step_is_reported() -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        told, listener = Delivery(Source(1), failures.append), Slow(3)

        def broken() -> Iterator[None]:
            yield
            raise ValueError("broken")

        listener._work = broken  # type: ignore[method-assign]
        told.register(listener)
        told.committed(1)
        await told.settled()
        assert [str(f) for f in failures] == ["broken"]
        assert listener.offsets == []

    asyncio.run(main())


class Loader(Machine):
    """Loads the metadata into an image, like a controller."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = SharedReplay()
        self.image: MetadataImage | None = None
        self.steps = 0

    def on_commit(self, batches: list[CommittedBatch]) -> Steps:  # type: ignore[override]
        yield from self._count(self.replay.apply_steps(self.image or EMPTY, batches))
        self.next_offset = batches[-1].last_offset + 1

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> Steps:  # type: ignore[override]
        yield from self._count(self.replay.load_steps(snapshot_id.offset, snapshot_id.epoch, batches))
        self.next_offset = snapshot_id.offset

    def _count(self, steps: ImageSteps) -> Steps:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                self.image = done.value
                return
            self.steps += 1
            yield


def metadata_values(topics: int, partitions: int) -> list[bytes]:
    values = [encode_record(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)]
    for t in range(topics):
        topic_id = t.to_bytes(16, "big")
        values.append(encode_record(TopicRecord(name=f"t{t}", topic_id=topic_id), 0))
        for p in range(partitions):
            record = PartitionRecord(partition_id=p, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
            values.append(encode_record(record, 0))
    return values


@pytest.mark.parametrize("how", ["snapshot", "log"])
def test_requests_are_answered_while_much_metadata_loads(tmp_path: Path, how: str) -> None:
    """5,000 partitions are in one batch, as in a snapshot of Apache Kafka. Requests are answered between the
    slices of this batch."""

    async def main() -> None:
        format_dynamic(tmp_path, dynamic(1))
        node = await Node(Network(), tmp_path, 1).start()
        await node.lead()
        values = metadata_values(100, 50)
        if how == "log":
            await node.commit(*values)
        else:
            await node.commit(b"x")
            whole = build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)
            end = OffsetEpoch(node.client.high_watermark, node.client.epoch)
            assert await node.client.create_snapshot(*end, 1, [whole]) == end
        loader = Loader()
        node.client.register(loader)
        part, topic = DescribeQuorumRequest.PartitionData, DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(topics=[topic(topic_name=METADATA_TOPIC, partitions=[part()])])
        answered = 0
        while loader.next_offset < node.client.high_watermark:
            answer = node.client.handle(context(55, 2), request)
            assert isinstance(answer, DescribeQuorumResponse)
            answered += 1
            await asyncio.sleep(0)
        assert loader.image is not None
        assert loader.steps > 5000 / STEP_RECORDS
        assert answered >= loader.steps
        assert loader.image.topics.partition_count == 5000
        await node.stop()

    asyncio.run(main())
