"""WriteTxnMarkers: the markers of a coordinator of Apache Kafka end transactions in logs that this broker leads."""

from __future__ import annotations

import pytest

from quorate.broker.coordinators.group.model import OffsetAndMetadata, OffsetRecord
from quorate.broker.coordinators.group.record_serde import encode_record
from quorate.log.partition.producer_state import AppendOrigin
from quorate.metadata.image import MetadataDelta
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from quorate.records.batch import build_batch, parse_header
from tests.broker.coordinators.client import fetch_request, fetched, in_loop, versions
from tests.broker.coordinators.fakes import OFFSETS, World
from tests.broker.fakes import registration
from tests.broker.world import image_of

E = ErrorCode
PRODUCER, EPOCH = 7, 3
OPEN_RECORD = (b"key", b"value", (), 1_700_000_000_000)


def transactional(record: tuple[bytes, bytes | None, tuple[()], int] = OPEN_RECORD) -> bytes:
    return build_batch(
        [record], producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, is_transactional=True
    )


def lead_data(w: World) -> None:
    """Makes this broker the only replica of t-0."""
    replicas = w.replicas
    old = replicas.metadata.image
    replicas.metadata.image = image_of({OFFSETS: replicas._image, "t": {0: registration((1,))}})
    replicas.apply_delta(MetadataDelta(old, replicas.metadata.image))


async def markers(
    w: World, *partitions: tuple[str, int], committed: bool, version: int = 1, epoch: int = EPOCH
) -> list[ErrorCode]:
    """Sends a marker for each of these partitions. Returns their errors."""
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=PRODUCER,
                producer_epoch=epoch,
                transaction_result=committed,
                coordinator_epoch=5,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
                    for topic, index in partitions
                ],
            )
        ]
    )
    answer = await w.call(ApiKey.WRITE_TXN_MARKERS, request, version)
    assert [marker.producer_id for marker in answer.markers] == [PRODUCER]
    found = [
        (t.name, p.partition_index, p.error_code) for t in answer.markers[0].topics for p in t.partitions
    ]
    assert [(name, index) for name, index, _ in found] == list(partitions)
    return [ErrorCode(code) for _, _, code in found]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
@in_loop
async def test_a_marker_ends_the_transaction_of_a_partition(version: int, committed: bool) -> None:
    async with World() as w:
        lead_data(w)
        partition = w.replicas.partition("t", 0)
        partition.append(transactional(), -1, w.clock.now_ms(), AppendOrigin.COORDINATOR)
        log = partition.log
        assert (log.high_watermark, log.last_stable_offset) == (1, 0)
        assert await markers(w, ("t", 0), committed=committed, version=version) == [E.NONE]
        assert (log.high_watermark, log.last_stable_offset) == (2, 2)
        assert log.aborted_transactions(0, 2) == ([] if committed else [(PRODUCER, 0)])
        header = parse_header(log.read_bytes(1, 1 << 20))
        assert (header.is_control, header.is_transactional) == (True, True)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, EPOCH, -1)
        assert [state.coordinator_epoch for state in log.active_producers()] == [5]


@in_loop
async def test_each_partition_has_its_own_error() -> None:
    async with World() as w:
        w.replicas.lead(2, None)
        lead_data(w)
        partitions = ("t", 0), ("t", 1), (OFFSETS, 2), ("u", 0), (OFFSETS, 1)
        assert await markers(w, *partitions, committed=True) == [
            E.NONE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.NOT_LEADER_OR_FOLLOWER,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.NONE,
        ]


@in_loop
async def test_a_marker_of_an_older_epoch_is_refused() -> None:
    async with World() as w:
        lead_data(w)
        w.replicas.partition("t", 0).append(transactional(), -1, w.clock.now_ms(), AppendOrigin.COORDINATOR)
        assert await markers(w, ("t", 0), committed=True, epoch=EPOCH - 1) == [E.INVALID_PRODUCER_EPOCH]


@in_loop
async def test_an_unexpected_error_is_tried_again_by_the_transaction_coordinator() -> None:
    async with World() as w:
        lead_data(w)
        w.replicas.fail_with = RuntimeError("a bug")
        assert await markers(w, ("t", 0), committed=True) == [E.NOT_LEADER_OR_FOLLOWER]
        w.replicas.fail_with = KafkaError(E.NOT_ENOUGH_REPLICAS)
        assert await markers(w, ("t", 0), committed=True) == [E.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize(("committed", "offset"), [(True, 42), (False, -1)])
@in_loop
async def test_a_marker_ends_the_pending_offsets_of_a_group(committed: bool, offset: int) -> None:
    """They were committed under another broker's lead."""
    async with World() as w:
        partition = w.service.groups.partition_for("g")
        value = OffsetAndMetadata(42, commit_timestamp_ms=w.clock.now_ms())
        key, encoded = encode_record(OffsetRecord("g", "t", 0, value))
        w.replicas.append_internal(OFFSETS, partition, transactional((key, encoded, (), w.clock.now_ms())))
        await w.restart()
        topics = [("t", [0])]
        stable = await w.call(ApiKey.OFFSET_FETCH, fetch_request(7, topics=topics, stable=True), 7)
        assert stable.topics[0].partitions[0].error_code == E.UNSTABLE_OFFSET_COMMIT
        assert await markers(w, (OFFSETS, partition), committed=committed) == [E.NONE]
        stable = await w.call(ApiKey.OFFSET_FETCH, fetch_request(7, topics=topics, stable=True), 7)
        assert fetched(stable, 7) == {("t", 0): offset}
        await w.restart()
        stable = await w.call(ApiKey.OFFSET_FETCH, fetch_request(7, topics=topics, stable=True), 7)
        assert fetched(stable, 7) == {("t", 0): offset}


@in_loop
async def test_a_group_that_is_being_loaded_is_tried_again() -> None:
    async with World() as w:
        await w.service.close()
        assert await markers(w, (OFFSETS, 0), committed=True) == [E.NOT_LEADER_OR_FOLLOWER]
