"""The configuration of a topic's logs (LogConfig), with the names and defaults of Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.records.batch import TimestampType
from quorate.records.compression import Compression

if TYPE_CHECKING:
    from quorate import java_numbers
else:
    java_numbers = lazy_module("quorate.java_numbers")

LONG_MAX = 0x7FFFFFFFFFFFFFFF
MAX_RECORD_BYTES = 2147483639
"""The default of max.decompressed.message.bytes, the largest array in Java: no limit."""


@dataclass(slots=True, frozen=True)
class LogConfig:
    """Times are in ms, sizes in bytes. A retention of -1 is unlimited."""

    segment_bytes: int = 1073741824
    segment_ms: int = 604800000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10485760
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 604800000
    max_message_bytes: int = 1048588
    max_decompressed_message_bytes: int = MAX_RECORD_BYTES
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86400000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600000
    preallocate: bool = False
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = 86400000
    """How long a producer without an open transaction is remembered after its last batch. A setting of
    the broker, not of a topic."""
    is_metadata_log: bool = False
    """For the metadata log: recovery fails if the log has gaps or is damaged before its tail. Kafka
    cuts such a log at the damage."""

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    def target_compression(self, source: Compression) -> Compression:
        """The codec in which a batch is stored that was produced with `source`."""
        if self.compression_type == "producer":
            return source
        if self.compression_type == "uncompressed":
            return Compression.NONE
        return Compression[self.compression_type.upper()]

    def compression_level(self, codec: Compression) -> int | None:
        match codec:
            case Compression.GZIP:
                return self.compression_gzip_level
            case Compression.LZ4:
                return self.compression_lz4_level
            case Compression.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    def with_overrides(
        self, values: Mapping[str, Any], on_invalid: Callable[[ValueError], None] | None = None
    ) -> LogConfig:
        """A copy with the given topic configs, by their Kafka names, as text or parsed. Unknown names
        are ignored, and white space around a text, as in Kafka. Raises ValueError naming the key and the
        value. With `on_invalid`, calls it with this error instead, and ignores the key."""
        changes: dict[str, Any] = {}
        for name, value in values.items():
            reader = _READERS.get(name)
            if reader is None or value is None:
                continue
            try:
                changes[name.replace(".", "_")] = reader(value.strip() if isinstance(value, str) else value)
            except (ValueError, KeyError):
                error = ValueError(f"Invalid value {value!r} for topic config {name}")
                if on_invalid is None:
                    raise error from None
                on_invalid(error)
        return replace(self, **changes) if changes else self


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).strip().lower()]


def _names(value: Any) -> frozenset[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return frozenset(part.strip() for part in parts if part.strip())


def _timestamp_type(value: Any) -> TimestampType:
    if isinstance(value, TimestampType):
        return value
    return {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}[
        str(value)
    ]


_READERS: dict[str, Callable[[Any], Any]] = {
    "cleanup.policy": _names,
    "compression.type": str,
    "message.timestamp.type": _timestamp_type,
    "min.cleanable.dirty.ratio": lambda value: java_numbers.parse_double(str(value)),
    "preallocate": _boolean,
    "unclean.leader.election.enable": _boolean,
}
_READERS.update(
    (name, int)
    for name in (
        "segment.bytes",
        "segment.ms",
        "segment.jitter.ms",
        "segment.index.bytes",
        "flush.messages",
        "flush.ms",
        "retention.bytes",
        "retention.ms",
        "max.message.bytes",
        "max.decompressed.message.bytes",
        "index.interval.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "file.delete.delay.ms",
        "min.insync.replicas",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    )
)
