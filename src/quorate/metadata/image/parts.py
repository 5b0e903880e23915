"""The smaller parts of the image: features, configs, ACLs, quotas, SCRAM credentials, delegation
tokens, producer ids.

What has no rules of its own is kept as its records, so that nothing of it is lost on the way through an
image; such a record must never be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from immutables import Map

from quorate.metadata.features import METADATA_VERSION
from quorate.protocol.config_resource import ConfigResourceType

if TYPE_CHECKING:
    from quorate.metadata.records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

_NONE: Map[Any, Any] = Map()

TOPIC_RESOURCE = ConfigResourceType.TOPIC
BROKER_RESOURCE = ConfigResourceType.BROKER
BROKER_LOGGER_RESOURCE = ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS_RESOURCE = ConfigResourceType.CLIENT_METRICS
GROUP_RESOURCE = ConfigResourceType.GROUP


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalised levels, metadata.version among them; features at level 0 are absent.

    `epoch`: offset of the last change, -1 before the first.
    """

    finalized: Map[str, int] = _NONE
    epoch: int = field(default=-1, compare=False)

    @property
    def metadata_version(self) -> int:
        """The finalised metadata.version, 0 before the first record of it."""
        return self.finalized.get(METADATA_VERSION, 0)

    def level(self, feature: str) -> int:
        """The feature's finalised level, 0 when it has none."""
        return self.finalized.get(feature, 0)


ConfigKey = tuple[int, str]
"""(resource type, resource name); ('BROKER', '') is the cluster-wide default."""

_NO_CONFIGS: Map[str, str] = Map()


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configurations by resource. A resource without a key is absent."""

    resources: Map[ConfigKey, Map[str, str]] = _NONE

    def get(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The resource's own entries, empty when it has none."""
        return self.resources.get((resource_type, name), _NO_CONFIGS)

    def topic(self, name: str) -> Mapping[str, str]:
        """The entries of a topic."""
        return self.get(ConfigResourceType.TOPIC, name)

    def broker(self, broker_id: int) -> Mapping[str, str]:
        """The entries of one broker, without the cluster-wide ones."""
        return self.get(ConfigResourceType.BROKER, str(broker_id))

    def cluster_default(self) -> Mapping[str, str]:
        """The cluster-wide default entries of all brokers."""
        return self.get(ConfigResourceType.BROKER, "")


@dataclass(frozen=True, slots=True)
class AclsImage:
    """Access control entries by their id."""

    by_id: Map[bytes, AccessControlEntryRecord] = _NONE


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs (entity type, name; None is the default), sorted by type."""


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """Client quotas: entity -> quota key -> value."""

    entities: Map[QuotaEntity, Map[str, float]] = _NONE


@dataclass(frozen=True, slots=True)
class ScramImage:
    """SCRAM credentials by (mechanism code, user name)."""

    credentials: Map[tuple[int, str], UserScramCredentialRecord] = _NONE

    def get(self, mechanism: int, user: str) -> UserScramCredentialRecord | None:
        """The credential, None when the user has none of that mechanism (1 SHA-256, 2 SHA-512)."""
        return self.credentials.get((mechanism, user))


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    """Delegation tokens by token id."""

    tokens: Map[str, DelegationTokenRecord] = _NONE


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """The first producer id that no block handed out yet; -1 before the first block."""

    next_producer_id: int = -1
