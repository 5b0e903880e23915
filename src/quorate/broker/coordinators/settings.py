"""The coordinator's settings, read out of a broker's configuration."""

from __future__ import annotations

from typing import Protocol

from quorate.broker.coordinators.model import GroupConfig


class Settings(Protocol):
    """A parsed broker configuration; returns are of the key's type."""

    def get(self, name: str) -> object: ...


def group_config(settings: Settings) -> GroupConfig:
    """The group coordinator's part of a broker's configuration. Raises ValueError naming a key whose
    value makes no sense."""

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
    return GroupConfig(
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
