"""The controller's share of a node's configuration, in the units that it is used in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorate.controller.config_schema import ConfigSchema
from quorate.controller.context import MAX_RECORDS_PER_USER_OP
from quorate.metadata.features import supported_features
from quorate.protocol.schema import Data


@dataclass(slots=True)
class Listener:
    """An end point that this controller registers."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(slots=True)
class ControllerConfig:
    """Kafka's defaults. static: the node's properties as text, only those that are set."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes = bytes(16)
    """Of this process, for its registration."""
    static: Mapping[str, str] = field(default_factory=dict)
    listeners: Sequence[Listener] = ()
    is_broker_too: bool = False
    bootstrap: Sequence[Data] = ()
    """Records of bootstrap.checkpoint, written if the log has no metadata.version yet."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_features)
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_session_timeout_s: float = 9.0
    broker_heartbeat_interval_s: float = 2.0
    max_idle_interval_s: float = 0.5
    """Without a record for so long a NoOpRecord is written; 0 switches it off."""
    leader_imbalance_check_interval_s: float | None = 300.0
    """None: auto.leader.rebalance.enable is false."""
    unclean_election_check_interval_s: float = 300.0
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_s: float = 3600.0
    token_secret: str | None = None
    token_max_lifetime_ms: int = 7 * 24 * 3_600_000
    token_renew_lifetime_ms: int = 24 * 3_600_000
    token_expiry_check_interval_s: float = 3600.0
    max_records_per_batch: int = 10_000
    max_records_per_op: int = MAX_RECORDS_PER_USER_OP
    max_elections_per_run: int = 1_000
    schema: ConfigSchema = field(init=False)
    static_min_isr: int = field(init=False)

    def __post_init__(self) -> None:
        self.schema = ConfigSchema(self.node_id, self.static)
        self.static_min_isr = int(self.static.get("min.insync.replicas", "1"))
