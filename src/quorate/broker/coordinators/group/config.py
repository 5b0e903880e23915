"""The settings of the group coordinator (`GroupCoordinatorConfig` in Kafka)."""

from __future__ import annotations

from typing import Protocol

from quorate.dataclass import dataclass


class Settings(Protocol):
    """A parsed broker configuration."""

    def get(self, name: str) -> object:
        """The value of a key, of the type of the key."""
        ...


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """The settings, with Kafka's names and defaults."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    """How long the JoinGroup of a new member may wait. Not configurable in Kafka either."""
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_partitions: int = 50
    offsets_compression: int = 0
    """The compression codec of batches in `__consumer_offsets`, by number."""
    offsets_commit_timeout_ms: int = 5_000


def group_config(settings: Settings) -> GroupCoordinatorConfig:
    """Reads the group coordinator's settings from a broker's configuration. Raises ValueError with the name
    of a key whose value is invalid."""

    def number(name: str) -> int:
        value = settings.get(name)
        assert isinstance(value, int), f"{name} is not a number: {value!r}"
        return value

    codec = number("offsets.topic.compression.codec")
    if not 0 <= codec <= 4:
        raise ValueError(
            f"offsets.topic.compression.codec is {codec}: it is 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 "
            "(zstd)"
        )
    return GroupCoordinatorConfig(
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        max_size=number("group.max.size"),
        offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
        offsets_topic_partitions=number("offsets.topic.num.partitions"),
        offsets_compression=codec,
        offsets_commit_timeout_ms=number("offsets.commit.timeout.ms"),
    )
