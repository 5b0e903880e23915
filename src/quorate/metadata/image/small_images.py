"""The smaller parts of the image: features, configurations, ACLs, quotas, SCRAM credentials, delegation
tokens and producer ids.

Entities without rules of their own are stored as their records, so that an image keeps all of their
fields. Such a record must never be modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from immutables import Map

from quorate.dataclass import dataclass
from quorate.metadata.features import METADATA_VERSION
from quorate.protocol.config_resource import ConfigResourceType

if TYPE_CHECKING:
    from quorate.metadata.records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

_NONE: Map[Any, Any] = Map()


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """The finalized feature levels, including metadata.version. Features at level 0 are absent.

    `epoch` is the offset of the last change, or -1 before the first.
    """

    finalized: Map[str, int] = _NONE
    epoch: int = field(default=-1, compare=False)

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version, or 0 before its first record."""
        return self.finalized.get(METADATA_VERSION, 0)

    def level(self, feature: str) -> int:
        """The finalized level of a feature, or 0."""
        return self.finalized.get(feature, 0)


ConfigKey = tuple[int, str]
"""(resource type, resource name). (BROKER, '') stands for the default of all brokers."""

_NO_CONFIGS: Map[str, str] = Map()


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configurations by resource. A resource without entries is absent."""

    resources: Map[ConfigKey, Map[str, str]] = _NONE

    def get(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The entries of a resource itself. The mapping is empty if it has none."""
        return self.resources.get((resource_type, name), _NO_CONFIGS)

    def topic(self, name: str) -> Mapping[str, str]:
        """The entries of a topic."""
        return self.get(ConfigResourceType.TOPIC, name)

    def broker(self, broker_id: int) -> Mapping[str, str]:
        """The entries of one broker, without the default of all brokers."""
        return self.get(ConfigResourceType.BROKER, str(broker_id))

    def cluster_default(self) -> Mapping[str, str]:
        """The default entries of all brokers."""
        return self.get(ConfigResourceType.BROKER, "")


@dataclass(frozen=True, slots=True)
class AclsImage:
    """Access control entries by their id."""

    by_id: Map[bytes, AccessControlEntryRecord] = _NONE


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type and entity name, sorted by type. The name None stands for the default entity."""


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """Client quotas: entity -> quota key -> value."""

    entities: Map[QuotaEntity, Map[str, float]] = _NONE


@dataclass(frozen=True, slots=True)
class ScramImage:
    """SCRAM credentials by (mechanism code, user name)."""

    credentials: Map[tuple[int, str], UserScramCredentialRecord] = _NONE

    def get(self, mechanism: int, user: str) -> UserScramCredentialRecord | None:
        """The credential, or None if the user has none for this mechanism (1 is SCRAM-SHA-256, 2 is
        SCRAM-SHA-512)."""
        return self.credentials.get((mechanism, user))


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    """Delegation tokens by token id."""

    tokens: Map[str, DelegationTokenRecord] = _NONE


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """The first producer id of the next block, or -1 before the first block."""

    next_producer_id: int = -1
