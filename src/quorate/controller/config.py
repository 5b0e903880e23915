"""The controller's part of a node's configuration, in the units of its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.controller.config_schema import ConfigSchema
from quorate.dataclass import dataclass
from quorate.metadata.features import supported_features
from quorate.protocol.schema import Data

MAX_RECORDS_PER_USER_OP = 10_000
"""The number of records that one user's request may write in one batch. A larger change takes a metadata
transaction. Source: Kafka's QuorumController.MAX_RECORDS_PER_USER_OP."""


@dataclass(slots=True)
class ControllerConfig:
    """The configuration of a controller, with Kafka's defaults. `static` are the node's properties as
    text, only those that are set."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes = bytes(16)
    """The id of this process, for its registration."""
    static: Mapping[str, str] = field(default_factory=dict)
    listeners: Sequence[Endpoint] = ()
    """The addresses of this controller for its registration."""
    is_broker_too: bool = False
    bootstrap: Sequence[Data] = ()
    """The records of bootstrap.checkpoint, which are written if the log has no metadata.version yet."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_features)
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_session_timeout_s: float = 9.0
    lost_connection_grace_s: float = 3.0
    """The shortest time that a broker has to reconnect after its connection was closed.

    It reconnects only for its next heartbeat, after up to broker.heartbeat.interval.ms (2 s) and a
    backoff. The intervals of other brokers may differ from this node's, so the observed intervals count,
    too (`BrokerSessions.connection_lost`). Without a closed connection, a session lasts for its whole
    timeout.
    """
    probe_brokers: bool = False
    """Whether the controller connects to the listeners of brokers, to fence a broker whose process has ended
    before its session expires."""
    max_idle_interval_s: float = 0.5
    """The time without a record after which a NoOpRecord is written. 0 disables it."""
    leader_imbalance_check_interval_s: float | None = 300.0
    """None if auto.leader.rebalance.enable is false."""
    unclean_election_check_interval_s: float = 300.0
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_s: float = 3600.0
    authorizer: bool = False
    """Whether ACLs are enforced. Requests that create ACLs are rejected if they are not."""
    token_secret: str | None = None
    token_max_lifetime_ms: int = 7 * 24 * 3_600_000
    token_renew_lifetime_ms: int = 24 * 3_600_000
    token_expiry_check_interval_s: float = 3600.0
    max_records_per_op: int = MAX_RECORDS_PER_USER_OP
    """The number of records that one user's request may write at most. With more than
    MAX_RECORDS_PER_USER_OP, large changes are written in metadata transactions."""
    attribution: bool = False
    """Whether each change has a record of who made it. Kafka has no such record."""
    max_elections_per_run: int = 1_000
    schema: ConfigSchema = field(init=False)
    static_min_isr: int = field(init=False)

    def __post_init__(self) -> None:
        # On a combined node the broker warns about dynamic configurations without an effect.
        self.schema = ConfigSchema(self.node_id, self.static, warns=not self.is_broker_too)
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
        """The controller's part of a node's configuration. `listeners` have the actual ports, which the
        configuration may leave open; the default are the advertised listeners."""
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
            probe_brokers=get("quorate.broker.probe.enable"),
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
            max_records_per_op=get("quorate.max.records.per.user.op"),
            attribution=get("quorate.metadata.attribution.enable"),
        )
