"""The metadata as a value: `MetadataImage`, its parts, and the difference between two images.

  image             `MetadataImage`, the whole of the parts
  topics            topics, and the indexes from brokers to partitions
  partitions        the state of one partition
  partition_table   the partitions of one topic
  encoded           partitions in the form of their records
  encoded_changes   changes of encoded partitions
  cluster           registered brokers and controllers
  small_images      features, configurations, ACLs, quotas, SCRAM credentials, tokens, producer ids
  builder           replays records onto an image
  topics_builder    replays the records of topics and partitions
  cluster_builder   replays the records of brokers and controllers
  garbage           collects the garbage of replaced images in small steps
  writer            turns an image into records
  delta             the difference between two images

Other packages import the names in `__all__`, and the builder and writer from their modules. The builder
imports the record classes, so that a process that only reads images does not load them.
"""

from __future__ import annotations

from quorate.metadata.image.cluster import BrokerRegistration, ClusterImage, ControllerRegistration, Endpoint
from quorate.metadata.image.delta import MetadataDelta, PartitionChange, TopicDelta
from quorate.metadata.image.image import (
    EMPTY,
    MetadataImage,
    OpenTransaction,
    Provenance,
    last_stable_offset,
    metadata_lag,
)
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
from quorate.metadata.image.small_images import (
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
    "EMPTY",
    "LOST_DIRECTORY",
    "MIGRATING_DIRECTORY",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
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
    "last_stable_offset",
    "metadata_lag",
]
