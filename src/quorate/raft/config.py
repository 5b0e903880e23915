"""The configuration of a replica.

Times are in seconds and sizes in bytes. The defaults are those of Kafka's `QuorumConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.raft.types import (
    ASK_FETCH_BYTES,
    ASK_SNAPSHOT_BYTES,
    Address,
    Endpoints,
    RaftParams,
    ReplicaKey,
)


@dataclass(slots=True)
class RaftConfig:
    """The settings of one replica."""

    node_id: int
    directory_id: bytes  # of the metadata directory, 16 bytes
    cluster_id: str
    metadata_dir: Path  # metadata.log.dir, which contains __cluster_metadata-0
    listener_name: str  # the first of controller.listener.names
    endpoints: Endpoints = field(default_factory=dict)  # advertised by this controller; empty for a broker
    is_controller: bool = True
    voters: Mapping[int, Address] | None = None  # controller.quorum.voters
    bootstrap_servers: tuple[Address, ...] = ()  # controller.quorum.bootstrap.servers
    election_timeout_s: float = 1.0
    fetch_timeout_s: float = 2.0
    election_backoff_max_s: float = 1.0
    request_timeout_s: float = 2.0
    retry_backoff_s: float = 0.02
    append_linger_s: float = 0.0  # Kafka waits 25 ms; group commit batches without waiting
    fetch_max_wait_s: float = 0.5
    fetch_max_bytes: int = ASK_FETCH_BYTES
    fetch_snapshot_max_bytes: int = ASK_SNAPSHOT_BYTES
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 << 20  # metadata.max.retention.bytes
    retention_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_s: float = 60.0
    clean_interval_s: float = 60.0
    inline_fsync_s: float = 0.001  # fsync in the loop while the recent p99 is below this
    kraft_versions: tuple[int, int] = (0, 1)
    auto_join: bool = False  # controller.quorum.auto.join.enable
    start_time_ms: int = 0  # of the process, in ms since 1970; 0 not known
    quick_failover: bool = True
    # Called when the metadata directory has failed. It must stop the node.
    on_fatal: Callable[[BaseException], None] | None = None

    def params(self) -> RaftParams:
        bootstrap = self.bootstrap_servers or tuple((self.voters or {}).values())
        return RaftParams(
            me=ReplicaKey(self.node_id, self.directory_id),
            cluster_id=self.cluster_id,
            listener_name=self.listener_name,
            endpoints=self.endpoints if self.is_controller else {},
            can_vote=self.is_controller,
            bootstrap=bootstrap,
            election_timeout_s=self.election_timeout_s,
            fetch_timeout_s=self.fetch_timeout_s,
            backoff_max_s=self.election_backoff_max_s,
            retry_backoff_s=self.retry_backoff_s,
            fetch_max_wait_ms=int(min(self.fetch_max_wait_s, self.fetch_timeout_s / 2) * 1000),
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_snapshot_max_bytes=self.fetch_snapshot_max_bytes,
            kraft_versions=self.kraft_versions,
            auto_join=self.auto_join,
            quick_failover=self.quick_failover,
            start_time_ms=self.start_time_ms,
        )
