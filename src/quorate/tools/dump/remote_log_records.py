"""Records of `__remote_log_metadata` (KIP-405), for kafka-dump-log only. Nodes do not read or write that
topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import FRAME_VERSION, read_uvarint
from quorate.protocol.errors import DecodeError
from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int8, int32, int64, uuid
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import Record


class RemoteLogSegmentMetadataRecord(Data, key=0, versions="0", flexible="0+"):
    """The copy of a segment to remote storage has started or finished."""

    class TopicIdPartitionEntry(Struct):
        name: str = ""
        id: uuid = ZERO_UUID
        partition: int32 = 0

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry = field(
            default_factory=lambda: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry()  # noqa: PLW0108
        )
        id: uuid = ZERO_UUID

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int32 = 0
        offset: int64 = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: bool = field(default=False, tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Data, key=1, versions="0", flexible="0+"):
    """The state of a remote segment has changed."""

    class TopicIdPartitionEntry(Struct):
        name: str = ""
        id: uuid = ZERO_UUID
        partition: int32 = 0

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry = field(
            default_factory=lambda: (  # noqa: PLW0108 - evaluated later
                RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry()
            )
        )
        id: uuid = ZERO_UUID

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0


class RemotePartitionDeleteMetadataRecord(Data, key=2, versions="0", flexible="0+"):
    """The state of the deletion of a partition's remote segments has changed."""

    class TopicIdPartitionEntry(Struct):
        name: str = ""
        id: uuid = ZERO_UUID
        partition: int32 = 0

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    remote_partition_delete_state: int8 = 0


class RemoteLogSegmentMetadataSnapshotRecord(Data, key=3, versions="0", flexible="0+"):
    """The state of a segment in a snapshot file of the topic's consumer."""

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int32 = 0
        offset: int64 = 0

    segment_id: uuid = ZERO_UUID
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: bool = field(default=False, tag=0)


REMOTE_RECORDS: Final[dict[int, type[Data]]] = {
    cls.KEY: cls
    for cls in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


class RemoteLogParser:
    """Prints a record as Kafka's tool does: the text of its Java object."""

    def parse(self, record: Record) -> tuple[str | None, str | None]:
        try:
            return None, remote_text(record.value or b"")
        except (MetadataError, DecodeError) as error:
            reason = error.reason if isinstance(error, MetadataError) else str(error)
            return None, f"Error at offset {record.offset}, skipping. {reason}"


def remote_text(value: bytes) -> str:
    """Returns the text of a record's value. Raises MetadataError or DecodeError for an invalid one."""
    frame, position = read_uvarint(value, 0, "frame version")
    if frame != FRAME_VERSION:
        raise MetadataError(f"frame version {frame} is unknown: only {FRAME_VERSION} is read here")
    kind, position = read_uvarint(value, position, "record type")
    version, position = read_uvarint(value, position, "record version")
    cls = REMOTE_RECORDS.get(kind)
    if cls is None or version != 0:
        raise MetadataError(f"version {version} of record type {kind} is unknown")
    record: Any = cls.decode(memoryview(value)[position:], version)
    match record:
        case RemotePartitionDeleteMetadataRecord():
            fields = {
                "topicPartition": _partition(record.topic_id_partition),
                "state": _state(_DELETE_STATES, record.remote_partition_delete_state),
                "eventTimestampMs": record.event_timestamp_ms,
                "brokerId": record.broker_id,
            }
        case RemoteLogSegmentMetadataUpdateRecord():
            fields = {
                "remoteLogSegmentId": _segment(record.remote_log_segment_id),
                "customMetadata": _custom(record.custom_metadata),
                "state": _state(_SEGMENT_STATES, record.remote_log_segment_state),
                "eventTimestampMs": record.event_timestamp_ms,
                "brokerId": record.broker_id,
            }
        case RemoteLogSegmentMetadataSnapshotRecord():
            fields = {
                "segmentId": uuid_text(record.segment_id),
                "startOffset": record.start_offset,
                "endOffset": record.end_offset,
                "maxTimestampMs": record.max_timestamp_ms,
                **_tail(record),
            }
        case _:
            fields = {
                "remoteLogSegmentId": _segment(record.remote_log_segment_id),
                "startOffset": record.start_offset,
                "endOffset": record.end_offset,
                "brokerId": record.broker_id,
                "maxTimestampMs": record.max_timestamp_ms,
                "eventTimestampMs": record.event_timestamp_ms,
                **_tail(record),
            }
    name = cls.__name__.removesuffix("Record")
    return f"{name}{{{', '.join([f'{key}={shown}' for key, shown in fields.items()])}}}"


def _tail(record: Any) -> dict[str, Any]:
    epochs = ", ".join([f"{entry.leader_epoch}={entry.offset}" for entry in record.segment_leader_epochs])
    return {
        "segmentLeaderEpochs": f"{{{epochs}}}",
        "segmentSizeInBytes": record.segment_size_in_bytes,
        "customMetadata": _custom(record.custom_metadata),
        "state": _state(_SEGMENT_STATES, record.remote_log_segment_state),
        "txnIdxEmpty": "true" if record.txn_index_empty else "false",
    }


def _partition(entry: Any) -> str:
    return f"{uuid_text(entry.id)}:{entry.name}-{entry.partition}"


def _segment(entry: Any) -> str:
    partition = _partition(entry.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={uuid_text(entry.id)}}}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(names: Sequence[str], code: int) -> str:
    if not 0 <= code < len(names):
        raise MetadataError(f"state {code} is unknown")
    return names[code]
