"""The difference between two images. Parts that both images share are recognized by their identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

from immutables import Map

from quorate.metadata.features import METADATA_VERSION
from quorate.metadata.image.cluster import BrokerRegistration, ControllerRegistration
from quorate.metadata.image.image import MetadataImage
from quorate.metadata.image.partitions import PartitionImage
from quorate.metadata.image.topics import TopicImage

K = TypeVar("K")
V = TypeVar("V")


class TopicDelta(NamedTuple):
    """A topic that exists in both images and differs."""

    old: TopicImage
    new: TopicImage

    def partition_changes(self) -> Iterator[tuple[int, PartitionImage | None, PartitionImage | None]]:
        """(partition id, old, new) of each partition that differs. `old` is None for a new partition."""
        return self.new.partitions.changes_since(self.old.partitions)


class PartitionChange(NamedTuple):
    """A partition that was created (`old` is None), changed, or deleted (`new` is None)."""

    topic: TopicImage
    partition: int
    old: PartitionImage | None
    new: PartitionImage | None


class MetadataDelta:
    """The difference between `old` and `new`. Each part is computed on first access, in time
    proportional to the changes."""

    def __init__(self, old: MetadataImage, new: MetadataImage) -> None:
        self.old = old
        self.new = new
        self._touched = new.touched_since(old)

    @property
    def is_empty(self) -> bool:
        """Whether the images have the same metadata. Their provenance may differ."""
        return not (
            self.features_changed
            or self.cluster_changed
            or self.topics_created
            or self.topics_deleted
            or self.topics_changed
            or self.configs_changed
            or self.acls_changed
            or self.client_quotas_changed
            or self.scram_changed
            or self.delegation_tokens_changed
            or self.producer_ids_changed
        )

    # Features

    @property
    def features_changed(self) -> bool:
        """Whether a finalized feature level differs."""
        return _differ(self.old.features, self.new.features)

    @property
    def metadata_version_changed(self) -> bool:
        """Whether the metadata.version differs."""
        return self.old.features.metadata_version != self.new.features.metadata_version

    @cached_property
    def features(self) -> dict[str, tuple[int, int]]:
        """The features whose levels differ, as name -> (old level, new level). Level 0 means that the
        feature is not finalized."""
        return {
            name: (before or 0, after or 0)
            for name, (before, after) in _map_changes(
                self.old.features.finalized, self.new.features.finalized
            ).items()
        }

    # Topics

    @cached_property
    def _topic_steps(
        self,
    ) -> tuple[dict[bytes, TopicImage], dict[bytes, TopicImage], dict[bytes, TopicDelta]]:
        """The created, deleted and changed topics."""
        created: dict[bytes, TopicImage] = {}
        deleted: dict[bytes, TopicImage] = {}
        changed: dict[bytes, TopicDelta] = {}
        before, after = self.old.topics.by_id, self.new.topics.by_id
        if before is after:
            return created, deleted, changed
        ids = self._touched.topics if self._touched is not None else {*before, *after}
        for topic_id in ids:
            old, new = before.get(topic_id), after.get(topic_id)
            if old is new:
                continue
            if old is None:
                assert new is not None
                created[topic_id] = new
            elif new is None:
                deleted[topic_id] = old
            elif old != new:
                changed[topic_id] = TopicDelta(old, new)
        return created, deleted, changed

    @property
    def topics_created(self) -> dict[bytes, TopicImage]:
        """The created topics by id."""
        return self._topic_steps[0]

    @property
    def topics_deleted(self) -> dict[bytes, TopicImage]:
        """The deleted topics by id, in their last state."""
        return self._topic_steps[1]

    @property
    def topics_changed(self) -> dict[bytes, TopicDelta]:
        """The topics that exist in both images and differ, by id."""
        return self._topic_steps[2]

    @property
    def topics_touched(self) -> bool:
        """Whether a topic was created, deleted or changed."""
        return any(self._topic_steps)

    def partition_changes(self) -> Iterator[PartitionChange]:
        """Every partition that differs: first those of deleted topics, then of changed topics, then of
        created topics."""
        for topic in self.topics_deleted.values():
            for partition_id, partition in topic.partitions.items():
                yield PartitionChange(topic, partition_id, partition, None)
        for step in self.topics_changed.values():
            for partition_id, old, new in step.partition_changes():
                yield PartitionChange(step.new, partition_id, old, new)
        for topic in self.topics_created.values():
            for partition_id, partition in topic.partitions.items():
                yield PartitionChange(topic, partition_id, None, partition)

    def partition_changes_of(self, broker_id: int) -> Iterator[PartitionChange]:
        """Yields those of `partition_changes` whose partition has a replica on the broker, before
        or after the change."""
        for topic in self.topics_deleted.values():
            for partition_id, partition in topic.partitions.items_of(broker_id):
                yield PartitionChange(topic, partition_id, partition, None)
        for step in self.topics_changed.values():
            for partition_id, old, new in step.new.partitions.changes_of(step.old.partitions, broker_id):
                yield PartitionChange(step.new, partition_id, old, new)
        for topic in self.topics_created.values():
            for partition_id, partition in topic.partitions.items_of(broker_id):
                yield PartitionChange(topic, partition_id, None, partition)

    # Cluster

    @property
    def cluster_changed(self) -> bool:
        """Whether the registration of a broker or a controller differs."""
        return _differ(self.old.cluster, self.new.cluster)

    @cached_property
    def brokers_changed(self) -> dict[int, tuple[BrokerRegistration | None, BrokerRegistration | None]]:
        """broker id -> (old, new) registration. None means that the broker is not registered."""
        return _map_changes(self.old.cluster.brokers, self.new.cluster.brokers)

    @cached_property
    def controllers_changed(
        self,
    ) -> dict[int, tuple[ControllerRegistration | None, ControllerRegistration | None]]:
        """controller id -> (old, new) registration. None means that the controller is not registered."""
        return _map_changes(self.old.cluster.controllers, self.new.cluster.controllers)

    # Configurations and smaller parts

    @cached_property
    def configs_changed(self) -> dict[tuple[int, str], tuple[Mapping[str, str], Mapping[str, str]]]:
        """(resource type, name) -> (old entries, new entries)."""
        before, after = self.old.configs.resources, self.new.configs.resources
        if before is after:
            return {}
        keys = self._touched.configs if self._touched is not None else {*before, *after}
        nothing: Map[str, str] = Map()
        changes: dict[tuple[int, str], tuple[Mapping[str, str], Mapping[str, str]]] = {}
        for key in keys:
            old, new = before.get(key, nothing), after.get(key, nothing)
            if old is not new and old != new:
                changes[key] = (old, new)
        return changes

    @property
    def acls_changed(self) -> bool:
        """Whether an ACL differs."""
        return _differ(self.old.acls, self.new.acls)

    @property
    def client_quotas_changed(self) -> bool:
        """Whether a client quota differs."""
        return _differ(self.old.client_quotas, self.new.client_quotas)

    @property
    def scram_changed(self) -> bool:
        """Whether a SCRAM credential differs."""
        return _differ(self.old.scram, self.new.scram)

    @property
    def delegation_tokens_changed(self) -> bool:
        """Whether a delegation token differs."""
        return _differ(self.old.delegation_tokens, self.new.delegation_tokens)

    @property
    def producer_ids_changed(self) -> bool:
        """Whether the next producer id differs."""
        return _differ(self.old.producer_ids, self.new.producer_ids)

    def __repr__(self) -> str:
        created, deleted, changed = self._topic_steps
        return (
            f"MetadataDelta({self.old.provenance.offset} -> {self.new.provenance.offset}, topics "
            f"+{len(created)} -{len(deleted)} "
            f"~{len(changed)}, brokers {len(self.brokers_changed)}, configs {len(self.configs_changed)}"
            + (
                f", {METADATA_VERSION} {self.new.features.metadata_version}"
                if self.metadata_version_changed
                else ""
            )
            + ")"
        )


def _differ(old: object, new: object) -> bool:
    return old is not new and old != new


def _map_changes(before: Map[K, V], after: Map[K, V]) -> dict[K, tuple[V | None, V | None]]:
    """key -> (old, new) for each key whose values differ. The time is linear in the size of the maps,
    which are small."""
    changes: dict[K, tuple[V | None, V | None]] = {}
    if before is after:
        return changes
    for key, new in after.items():
        old = before.get(key)
        if old is not new and old != new:
            changes[key] = (old, new)
    for key, old in before.items():
        if key not in after:
            changes[key] = (old, None)
    return changes
