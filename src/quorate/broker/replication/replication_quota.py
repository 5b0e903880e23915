"""The throttle of replication: limits the rate at which this broker sends and fetches the data of throttled
replicas (`ReplicationQuotaManager` in Kafka, KIP-73).

Pure: the time is an argument, in monotonic seconds. Fetches ask before they read, and record after they
have read. So a rate is exceeded by one Fetch at most, and the next ones pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quorate.config.dynamic_configs import valid_values
from quorate.net.sampled_rate import SampledRate
from quorate.protocol.config_resource import ConfigResourceType

if TYPE_CHECKING:
    from quorate.config.kafka_config import KafkaConfig
    from quorate.metadata.image import MetadataDelta

UNLIMITED = (1 << 63) - 1
_MAX_DIGITS = 4_000
"""Python raises ValueError for a number of more than 4,300 digits."""
LEADER_RATE, LEADER_REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
FOLLOWER_RATE, FOLLOWER_REPLICAS = (
    "follower.replication.throttled.rate",
    "follower.replication.throttled.replicas",
)
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_ALL = frozenset({-1})
"""The partitions of a topic all of whose replicas are throttled (`*`)."""


class ReplicationQuota:
    """The limit for one direction, and the partitions to which it applies."""

    __slots__ = ("_bytes_per_s", "_rate", "_throttled", "is_active")

    def __init__(self, samples: int = 11, window_s: float = 1.0) -> None:
        self._bytes_per_s = UNLIMITED
        self._rate = SampledRate(samples, window_s)
        self._throttled: dict[str, frozenset[int]] = {}
        self.is_active = False
        """Whether any partition is throttled. Fetches ask nothing else as long as none is."""

    @property
    def limit(self) -> int:
        """The limit in bytes per second."""
        return self._bytes_per_s

    def set_limit(self, bytes_per_s: int) -> None:
        """Changes the limit. What was recorded before still counts."""
        self._bytes_per_s = bytes_per_s

    def set_throttled(self, topic: str, partitions: frozenset[int]) -> None:
        """Replaces the throttled partitions of a topic."""
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)
        self.is_active = bool(self._throttled)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the limit applies to this partition."""
        partitions = self._throttled.get(topic)
        return partitions is not None and (partitions is _ALL or partition in partitions)

    def record(self, size: int, now: float) -> None:
        """Counts bytes of throttled partitions, also of replicas that are in sync and are not held back."""
        self._rate.record(size, now)

    def rate(self, now: float) -> float:
        """The bytes per second of throttled partitions."""
        return self._rate.measure(now)

    def is_exceeded(self, now: float) -> bool:
        """Whether throttled partitions are held back now."""
        return self._bytes_per_s < UNLIMITED and self._rate.measure(now) > self._bytes_per_s

    def delay_s(self, now: float) -> float:
        """The time until the limit is no longer exceeded."""
        return self._rate.seconds_until(self._bytes_per_s, now)

    def holds_back(self, topic: str, partition: int, now: float) -> bool:
        """Whether the data of a replica that is not in sync must wait."""
        return self.is_throttled(topic, partition) and self.is_exceeded(now)


class ReplicationQuotas:
    """The throttles of a broker: for what it sends as leader, for what it fetches as follower, and for what
    it copies between its log directories (KIP-113)."""

    __slots__ = ("_node_id", "alter_log_dirs", "follower", "leader")

    def __init__(self, node_id: int, config: KafkaConfig | None = None) -> None:
        self._node_id = node_id
        samples = moves = 11, 1
        if config is not None:
            samples = (
                config.get("replication.quota.window.num"),
                config.get("replication.quota.window.size.seconds"),
            )
            moves = (
                config.get("alter.log.dirs.replication.quota.window.num"),
                config.get("alter.log.dirs.replication.quota.window.size.seconds"),
            )
        self.leader = ReplicationQuota(*samples)
        self.follower = ReplicationQuota(*samples)
        self.alter_log_dirs = ReplicationQuota(*moves)
        """Limits all moves between directories, without a list of replicas."""

    def apply_delta(self, delta: MetadataDelta) -> None:
        """Applies the limits of this broker and the throttled replicas of topics that have changed."""
        changed = delta.configs_changed
        for (kind, name), (_, entries) in changed.items():
            if kind == ConfigResourceType.TOPIC:
                for quota, key in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
                    quota.set_throttled(name, throttled_partitions(entries.get(key, ""), self._node_id))
        broker = ConfigResourceType.BROKER
        if (broker, "") in changed or (broker, str(self._node_id)) in changed:
            configs = delta.new.configs
            layers = (
                valid_values(configs.broker(self._node_id), per_broker=True),
                valid_values(configs.cluster_default(), per_broker=False),
            )
            for quota, key in (
                (self.leader, LEADER_RATE),
                (self.follower, FOLLOWER_RATE),
                (self.alter_log_dirs, LOG_DIR_RATE),
            ):
                quota.set_limit(_limit(key, *layers))


def throttled_partitions(replicas: str, node_id: int) -> frozenset[int]:
    """The throttled partitions of a topic on this broker.

    `replicas` is `*`, or `partition:broker` pairs. Numbers of any length are valid; those that no
    partition or broker has are ignored.
    """
    items = [item.strip() for item in replicas.split(",")]
    if "*" in items:
        return _ALL
    pairs = [item.split(":") for item in items if item]
    return frozenset(
        int(partition)
        for partition, broker in pairs
        if max(len(partition), len(broker)) <= _MAX_DIGITS and int(broker) == node_id
    )


def _limit(key: str, *layers: Mapping[str, str]) -> int:
    return next((int(entries[key]) for entries in layers if key in entries), UNLIMITED)
