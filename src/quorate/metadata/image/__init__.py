"""The metadata as a value: `MetadataImage`, the builder that replays records onto it, and the delta
between two of them.

The record classes are loaded with the builder, on the first replay.
"""

from __future__ import annotations

from quorate.metadata.image.cluster import BrokerRegistration, ClusterImage, ControllerRegistration, Endpoint
from quorate.metadata.image.delta import MetadataDelta, PartitionChange, TopicDelta
from quorate.metadata.image.image import EMPTY, MetadataImage, OpenTransaction, Provenance
from quorate.metadata.image.partition_table import PartitionTable
from quorate.metadata.image.partitions import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)
from quorate.metadata.image.parts import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AclsImage,
    ClientQuotasImage,
    ConfigsImage,
    DelegationTokensImage,
    FeaturesImage,
    ProducerIdsImage,
    ScramImage,
)
from quorate.metadata.image.topics import TopicImage, TopicsImage

__all__ = [
    "BROKER_LOGGER_RESOURCE",
    "BROKER_RESOURCE",
    "CLIENT_METRICS_RESOURCE",
    "EMPTY",
    "GROUP_RESOURCE",
    "LOST_DIRECTORY",
    "MIGRATING_DIRECTORY",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "TOPIC_RESOURCE",
    "UNASSIGNED_DIRECTORY",
    "AclsImage",
    "BrokerRegistration",
    "ClientQuotasImage",
    "ClusterImage",
    "ConfigsImage",
    "ControllerRegistration",
    "DelegationTokensImage",
    "Endpoint",
    "FeaturesImage",
    "MetadataDelta",
    "MetadataImage",
    "OpenTransaction",
    "PartitionChange",
    "PartitionImage",
    "PartitionTable",
    "ProducerIdsImage",
    "Provenance",
    "ScramImage",
    "TopicDelta",
    "TopicImage",
    "TopicsImage",
]
