"""The settings of the Raft replica, from the configuration of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.raft.config import RaftConfig


def raft_config(
    config: KafkaConfig,
    *,
    cluster_id: str,
    directory_id: bytes,
    endpoints: Iterable[Endpoint],
    start_time_ms: int = 0,
    on_fatal: Callable[[BaseException], None],
) -> RaftConfig:
    """Returns the settings of the replica.

    `endpoints` are the advertised controller listeners, `start_time_ms` is that of the process.
    """
    get = config.get
    segment_bytes = get("internal.metadata.log.segment.bytes") or get("metadata.log.segment.bytes")
    return RaftConfig(
        node_id=config.node_id,
        directory_id=directory_id,
        cluster_id=cluster_id,
        metadata_dir=config.metadata_log_dir,
        listener_name=config.controller_listener_names[0],
        endpoints={e.name: (e.host, e.port) for e in endpoints},
        is_controller=config.is_controller,
        voters=config.quorum_voters or None,
        bootstrap_servers=config.quorum_bootstrap_servers,
        auto_join=get("controller.quorum.auto.join.enable"),
        election_timeout_s=get("controller.quorum.election.timeout.ms") / 1000,
        fetch_timeout_s=get("controller.quorum.fetch.timeout.ms") / 1000,
        election_backoff_max_s=get("controller.quorum.election.backoff.max.ms") / 1000,
        request_timeout_s=get("controller.quorum.request.timeout.ms") / 1000,
        retry_backoff_s=get("controller.quorum.retry.backoff.ms") / 1000,
        append_linger_s=get("controller.quorum.append.linger.ms") / 1000,
        fetch_max_bytes=get("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=get("controller.quorum.fetch.snapshot.max.bytes"),
        segment_bytes=segment_bytes,
        segment_ms=get("metadata.log.segment.ms"),
        retention_bytes=get("metadata.max.retention.bytes"),
        retention_ms=get("metadata.max.retention.ms"),
        file_delete_delay_s=get("internal.metadata.delete.delay.millis") / 1000,
        start_time_ms=start_time_ms,
        on_fatal=on_fatal,
    )
