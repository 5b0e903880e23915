"""The controller's share of a node's configuration, in the units that it is used in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.controller.config_schema import ConfigSchema
from quorate.metadata.features import supported_features
from quorate.protocol.schema import Data

MAX_RECORDS_PER_USER_OP = 10_000
"""The number of records that one user's request may write, because an atomic change must fit into one
batch. Source: Kafka's QuorumController.MAX_RECORDS_PER_USER_OP."""


@dataclass(slots=True)
class ControllerConfig:
    """Kafka's defaults. static: the node's properties as text, only those that are set."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes = bytes(16)
    """Of this process, for its registration."""
    static: Mapping[str, str] = field(default_factory=dict)
    listeners: Sequence[Endpoint] = ()
    """Under which this controller is reached, as it registers them."""
    is_broker_too: bool = False
    bootstrap: Sequence[Data] = ()
    """Records of bootstrap.checkpoint, written if the log has no metadata.version yet."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_features)
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_session_timeout_s: float = 9.0
    lost_connection_grace_s: float = 3.0
    """Time that a broker has to come back when its connection breaks, at least: it reconnects only for
    its next heartbeat, and needs up to broker.heartbeat.interval.ms (2 s) and a back-off. Brokers may
    have other intervals than this node's, so that those that are seen count too
    (`Liveness.connection_lost`). Silence without that sign lasts the session."""
    max_idle_interval_s: float = 0.5
    """Without a record for so long a NoOpRecord is written; 0 switches it off."""
    leader_imbalance_check_interval_s: float | None = 300.0
    """None: auto.leader.rebalance.enable is false."""
    unclean_election_check_interval_s: float = 300.0
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_s: float = 3600.0
    authorizer: bool = False
    """Whether ACLs are enforced; while they are not, none are taken."""
    token_secret: str | None = None
    token_max_lifetime_ms: int = 7 * 24 * 3_600_000
    token_renew_lifetime_ms: int = 24 * 3_600_000
    token_expiry_check_interval_s: float = 3600.0
    max_records_per_op: int = MAX_RECORDS_PER_USER_OP
    max_elections_per_run: int = 1_000
    schema: ConfigSchema = field(init=False)
    static_min_isr: int = field(init=False)

    def __post_init__(self) -> None:
        self.schema = ConfigSchema(self.node_id, self.static)
        self.static_min_isr = int(self.static.get("min.insync.replicas", "1"))

    @classmethod
    def from_kafka_config(
        cls,
        config: KafkaConfig,
        *,
        cluster_id: str,
        incarnation_id: bytes,
        bootstrap: Sequence[Data],
        listeners: Sequence[Endpoint] | None = None,
    ) -> ControllerConfig:
        """listeners: with their real ports, where the configuration leaves those open; else the
        advertised ones."""
        get = config.get
        rebalances = get("auto.leader.rebalance.enable")
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            static=config.originals,
            listeners=config.advertised_controller_listeners if listeners is None else listeners,
            is_broker_too=config.is_broker,
            bootstrap=bootstrap,
            num_partitions=get("num.partitions"),
            default_replication_factor=get("default.replication.factor"),
            delete_topic_enable=get("delete.topic.enable"),
            broker_session_timeout_s=get("broker.session.timeout.ms") / 1000,
            lost_connection_grace_s=max(3.0, 1.5 * get("broker.heartbeat.interval.ms") / 1000),
            max_idle_interval_s=get("metadata.max.idle.interval.ms") / 1000,
            leader_imbalance_check_interval_s=float(get("leader.imbalance.check.interval.seconds"))
            if rebalances
            else None,
            unclean_election_check_interval_s=get("unclean.leader.election.interval.ms") / 1000,
            snapshot_bytes=get("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_s=get("metadata.log.max.snapshot.interval.ms") / 1000,
            authorizer=bool(get("authorizer.class.name")),
            token_secret=get("delegation.token.secret.key"),
            token_max_lifetime_ms=get("delegation.token.max.lifetime.ms"),
            token_renew_lifetime_ms=get("delegation.token.expiry.time.ms"),
            token_expiry_check_interval_s=get("delegation.token.expiry.check.interval.ms") / 1000,
        )
