"""The coordinator's settings, read out of a broker's configuration."""

from __future__ import annotations

from typing import Protocol

from quorate.broker.coordinators.model import GroupConfig
from quorate.broker.coordinators.partitioning import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC


class Settings(Protocol):
    """A parsed broker configuration; returns are of the key's type."""

    def get(self, name: str) -> object: ...


def group_config(settings: Settings) -> GroupConfig:
    """The group coordinator's part of a broker's configuration."""

    def number(name: str) -> int:
        value = settings.get(name)
        assert isinstance(value, int), f"{name} is not a number: {value!r}"
        return value

    return GroupConfig(
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        max_size=number("group.max.size"),
        offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
        offsets_topic_partitions=number("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=number("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=number("offsets.topic.segment.bytes"),
        offsets_commit_timeout_ms=number("offsets.commit.timeout.ms"),
        transaction_topic_partitions=number("transaction.state.log.num.partitions"),
        transaction_topic_replication_factor=number("transaction.state.log.replication.factor"),
        transaction_topic_segment_bytes=number("transaction.state.log.segment.bytes"),
        transaction_topic_min_isr=number("transaction.state.log.min.isr"),
    )


def internal_topic(config: GroupConfig, name: str) -> tuple[int, int, dict[str, str]]:
    """(partitions, replication factor, configs) with which the coordinators' own topics are created. KeyError for another
    topic.
    """
    common = {"cleanup.policy": "compact", "compression.type": "producer"}
    if name == GROUP_METADATA_TOPIC:
        configs = common | {"segment.bytes": str(config.offsets_topic_segment_bytes)}
        return config.offsets_topic_partitions, config.offsets_topic_replication_factor, configs
    if name == TRANSACTION_STATE_TOPIC:
        configs = common | {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_topic_min_isr),
            "segment.bytes": str(config.transaction_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return config.transaction_topic_partitions, config.transaction_topic_replication_factor, configs
    raise KeyError(name)
