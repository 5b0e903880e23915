"""Replays metadata records onto an image, with one method for each type of record.

The active controller, a standby and a broker all use this module, so that the same records give the same
image. The methods correspond to the `replay` methods of Kafka's control managers and of `MetadataDelta`.
A record that contradicts the state before it raises MetadataError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from immutables import Map

from quorate.metadata.errors import MetadataError, shorten
from quorate.metadata.features import KRAFT_VERSION, METADATA_VERSION, metadata_version
from quorate.metadata.image.cluster_builder import ClusterBuilder
from quorate.metadata.image.encoded import FRAMES
from quorate.metadata.image.garbage import count_replaced
from quorate.metadata.image.image import JOURNAL_STEPS, MetadataImage, OpenTransaction, Provenance, Touched
from quorate.metadata.image.small_images import (
    AclsImage,
    ClientQuotasImage,
    ConfigsImage,
    DelegationTokensImage,
    FeaturesImage,
    ProducerIdsImage,
    QuotaEntity,
    ScramImage,
)
from quorate.metadata.image.topics_builder import TopicsBuilder
from quorate.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data

_SCRAM_MECHANISMS = (1, 2)
_CHANGE = bytes([PartitionChangeRecord.KEY])


def apply_records(
    image: MetadataImage,
    records: Iterable[Data],
    *,
    offset: int,
    epoch: int,
    timestamp_ms: int,
    encoded: Sequence[bytes] | None = None,
) -> MetadataImage:
    """The image after one batch of records. `offset` is the offset of the last one.

    `encoded` are the values of the same records in the batch, if the caller has them. The image then
    stores a partition record of the usual form as these bytes, without a replay. Raises MetadataError
    with offset and record if a record cannot be replayed.
    """
    batch = records if isinstance(records, list | tuple) else list(records)
    builder = ImageBuilder(image)
    following = 0
    for at, record in enumerate(batch):
        if encoded is not None:
            if at < following:
                continue
            value = encoded[at]
            if value[1:2] == _CHANGE:
                following = builder.take_encoded_changes(encoded, at)
                if following > at:
                    continue
            elif builder.take_encoded(value):
                continue
        builder.replay(record, offset - len(batch) + 1 + at)
    return builder.finish(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


class ImageBuilder:
    """Replays the records of one batch, of many batches, or of a snapshot onto a base image. The base of
    a snapshot is EMPTY."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._configs_touched: set[tuple[int, str]] = set()
        self._topics_touched: set[bytes] = set()
        self._visible: MetadataImage | None = None
        self._transaction: tuple[str | None, int] | None = None
        self._carried: tuple[Touched, ...] = ()
        if base.transaction is not None:
            self._visible = base
            self._transaction = (base.transaction.name, base.transaction.offset)
            self._carried = base.transaction.touched
            base = base.transaction.pending
        self._load(base)

    def _load(self, image: MetadataImage) -> None:
        self._from = image
        self._topics_builder: TopicsBuilder | None = None
        self._features = image.features
        self._cluster_builder = ClusterBuilder(image.cluster)
        self._resources: dict[tuple[int, str], dict[str, str]] = {}
        self._quotas = image.client_quotas.entities
        self._producer_ids = image.producer_ids
        self._acls = image.acls.by_id
        self._credentials = image.scram.credentials
        self._delegation_tokens = image.delegation_tokens.tokens
        self._tags = image.unknown_tags

    def replay(self, record: object, offset: int) -> None:
        """Replays one record. Raises MetadataError with offset, record and reason; the builder must not
        be used afterwards."""
        kind = type(record)
        handler = _HANDLERS.get(kind) or _HANDLERS.get(kind.__mro__[1])  # of a record that is decoded later
        if handler is None:
            raise MetadataError(
                "its type has no place in the image", offset=offset, record=shorten(repr(record))
            )
        try:
            handler(self, record, offset)
        except MetadataError as error:
            raise error.at(offset, record) from None

    def take_encoded(self, value: bytes) -> bool:
        """Replays the value of a PartitionRecord without decoding it, and returns True.

        Returns False and changes nothing if the value is another record, has an unusual form, or
        belongs to a topic that does not exist. The caller then uses `replay`.
        """
        if self._topics_builder is None and value[:3] not in FRAMES:
            return False
        return not self._tags and self._topics.replay_encoded_partition(value)

    def take_encoded_changes(self, values: Sequence[bytes | memoryview], at: int) -> int:
        """Replays the values of PartitionChangeRecords from position `at` on. Returns the position of the
        first value that the caller must replay by other means."""
        if at == len(values) or values[at][1:2] != _CHANGE:
            return at
        return self._topics.replay_encoded_changes(values, at)

    def take_encoded_run(self, values: Sequence[bytes | memoryview]) -> bool:
        """Does the same for the values of PartitionRecords of one length."""
        return not self._tags and self._topics.replay_encoded_run(values)

    def finish(self, *, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image after all replayed records. Its provenance is the given offset, epoch and time."""
        provenance = Provenance(offset, epoch, timestamp_ms)
        working = self._freeze(provenance)
        touched = Touched(frozenset(self._topics_touched), frozenset(self._configs_touched))
        journal = (*self._base.journal[1 - JOURNAL_STEPS :], (self._base.token, touched))
        if self._transaction is None:
            return _with(working, journal=journal)
        assert self._visible is not None
        name, begun_at = self._transaction
        pending = OpenTransaction(name, begun_at, working, (*self._carried, touched))
        return _with(self._visible, provenance=provenance, transaction=pending, journal=journal)

    def _freeze(self, provenance: Provenance) -> MetadataImage:
        """The records replayed since `_load` as an image without transaction and journal."""
        image = self._from
        topics = image.topics
        self._note_touched()
        if self._topics_builder is not None:
            topics = self._topics_builder.finish()
            count_replaced(len(self._topics_touched))
        configs = image.configs
        if self._resources:
            resources = configs.resources.mutate()
            for key, entries in self._resources.items():
                if entries:
                    resources[key] = Map(entries)
                elif key in resources:
                    del resources[key]
            configs = ConfigsImage(resources.finish())
        return MetadataImage(
            provenance=provenance,
            features=self._features,
            cluster=self._cluster_builder.finish(),
            topics=topics,
            configs=configs,
            client_quotas=_same(
                image.client_quotas, image.client_quotas.entities, self._quotas, ClientQuotasImage
            ),
            producer_ids=self._producer_ids,
            acls=_same(image.acls, image.acls.by_id, self._acls, AclsImage),
            scram=_same(image.scram, image.scram.credentials, self._credentials, ScramImage),
            delegation_tokens=_same(
                image.delegation_tokens,
                image.delegation_tokens.tokens,
                self._delegation_tokens,
                DelegationTokensImage,
            ),
            unknown_tags=self._tags,
        )

    def _note_touched(self) -> None:
        self._configs_touched.update(self._resources)
        if self._topics_builder is not None:
            self._topics_touched.update(self._topics_builder.touched)

    # Transactions

    def _begin(self, record: BeginTransactionRecord, offset: int) -> None:
        if self._transaction is not None:
            raise MetadataError(f"the transaction begun at offset {self._transaction[1]} is still open")
        self._visible = self._freeze(self._from.provenance)
        self._transaction = (record.name, offset)
        self._load(self._visible)

    def _end(self, record: EndTransactionRecord, offset: int) -> None:
        if self._transaction is None:
            raise MetadataError("no transaction is open")
        self._topics_touched.update(*[touched.topics for touched in self._carried])
        self._configs_touched.update(*[touched.configs for touched in self._carried])
        self._visible = self._transaction = None
        self._carried = ()

    def _abort(self, record: AbortTransactionRecord, offset: int) -> None:
        if self._transaction is None:
            raise MetadataError("no transaction is open")
        assert self._visible is not None
        self._note_touched()
        visible = _with(self._visible, transaction=None)
        self._visible = self._transaction = None
        self._carried = ()
        self._load(visible)

    # Topics

    @property
    def _topics(self) -> TopicsBuilder:
        if self._topics_builder is None:
            self._topics_builder = TopicsBuilder(self._from.topics)
        return self._topics_builder

    def _topic(self, record: TopicRecord, offset: int) -> None:
        self._topics.replay_topic(record)
        if record.unknown_tags:
            self._keep_tags(record, "topic", record.topic_id)

    def _partition(self, record: PartitionRecord, offset: int) -> None:
        self._topics.replay_partition(record)
        if record.unknown_tags or self._tags:
            self._keep_tags(record, "partition", record.topic_id, record.partition_id)

    def _partition_change(self, record: PartitionChangeRecord, offset: int) -> None:
        # Unknown tags of a PartitionChangeRecord are dropped: their numbers have another meaning in a
        # PartitionRecord.
        self._topics.replay_partition_change(record)

    def _remove_topic(self, record: RemoveTopicRecord, offset: int) -> None:
        topic = self._topics.remove(record.topic_id)
        key = (ConfigResourceType.TOPIC, topic.name)
        if key in self._resources or key in self._from.configs.resources:
            self._resources[key] = {}
        if self._tags:
            gone = [k for k in self._tags if k[0] in ("topic", "partition") and k[1] == record.topic_id]
            gone += [k for k in self._tags if k[:3] == ("config", *key)]
            for tag_key in gone:
                self._tags = self._tags.delete(tag_key)

    def _clear_elr(self, record: ClearElrRecord, offset: int) -> None:
        self._topics.clear_elr(record.topic_name)

    # Configurations, quotas, security

    def _config(self, record: ConfigRecord, offset: int) -> None:
        key = (record.resource_type, record.resource_name)
        entries = self._resources.get(key)
        if entries is None:
            entries = self._resources[key] = dict(self._from.configs.resources.get(key, {}))
        if record.value is None:
            entries.pop(record.name, None)
        else:
            entries[record.name] = record.value
        if record.unknown_tags or self._tags:
            self._keep_tags(None if record.value is None else record, "config", *key, record.name)

    def _feature_level(self, record: FeatureLevelRecord, offset: int) -> None:
        name, level = record.name, record.feature_level
        if name == KRAFT_VERSION:
            return  # control records hold this level; Kafka ignores such a record, too
        if name == METADATA_VERSION:
            metadata_version(level)
        finalized = self._features.finalized
        if level != 0:
            finalized = finalized.set(name, level)
        elif name in finalized:
            finalized = finalized.delete(name)
        self._features = FeaturesImage(finalized, offset)
        if record.unknown_tags or self._tags:
            self._keep_tags(record if level != 0 else None, "feature", name)

    def _client_quota(self, record: ClientQuotaRecord, offset: int) -> None:
        entity: QuotaEntity = tuple(
            sorted([(e.entity_type, e.entity_name) for e in record.entity], key=lambda pair: pair[0])
        )
        values = self._quotas.get(entity, _NO_QUOTAS)
        if not record.remove:
            values = values.set(record.key, record.value)
        elif record.key in values:
            values = values.delete(record.key)
        if len(values):
            self._quotas = self._quotas.set(entity, values)
        elif entity in self._quotas:
            self._quotas = self._quotas.delete(entity)
        if record.unknown_tags or self._tags:
            self._keep_tags(None if record.remove else record, "quota", entity, record.key)

    def _next_producer_ids(self, record: ProducerIdsRecord, offset: int) -> None:
        self._producer_ids = ProducerIdsImage(record.next_producer_id)
        if record.unknown_tags or self._tags:
            self._keep_tags(record, "producer ids")

    def _acl(self, record: AccessControlEntryRecord, offset: int) -> None:
        self._acls = self._acls.set(record.id, record)

    def _remove_acl(self, record: RemoveAccessControlEntryRecord, offset: int) -> None:
        if record.id not in self._acls:
            raise MetadataError("there is no access control entry of that id")
        self._acls = self._acls.delete(record.id)

    def _scram(self, record: UserScramCredentialRecord, offset: int) -> None:
        if record.mechanism not in _SCRAM_MECHANISMS:
            raise MetadataError(f"SCRAM mechanism {record.mechanism} is unknown")
        self._credentials = self._credentials.set((record.mechanism, record.name), record)

    def _remove_scram(self, record: RemoveUserScramCredentialRecord, offset: int) -> None:
        if record.mechanism not in _SCRAM_MECHANISMS:
            raise MetadataError(f"SCRAM mechanism {record.mechanism} is unknown")
        if (record.mechanism, record.name) in self._credentials:
            self._credentials = self._credentials.delete((record.mechanism, record.name))

    def _token(self, record: DelegationTokenRecord, offset: int) -> None:
        self._delegation_tokens = self._delegation_tokens.set(record.token_id, record)

    def _remove_token(self, record: RemoveDelegationTokenRecord, offset: int) -> None:
        if record.token_id in self._delegation_tokens:
            self._delegation_tokens = self._delegation_tokens.delete(record.token_id)

    def _nothing(self, record: object, offset: int) -> None:
        """Replays NoOpRecord and ZkMigrationStateRecord, which have no state since Kafka 4.0."""

    def _keep_tags(self, record: Any, *key: Any) -> None:
        """Stores the unknown tags of a record under a key, or removes them if the record has none or is
        None."""
        if record is not None and record.unknown_tags:
            self._tags = self._tags.set(key, tuple(sorted(record.unknown_tags.items())))
        elif key in self._tags:
            self._tags = self._tags.delete(key)


_NO_QUOTAS: Map[str, float] = Map()


def _same(part: Any, before: object, after: Any, make: Callable[[Any], Any]) -> Any:
    """The unchanged part if its map did not change, so that a delta can compare parts by identity."""
    return part if after is before else make(after)


def _with(image: MetadataImage, **changes: Any) -> MetadataImage:
    """A copy of the image with a new token and some other fields."""
    fields = {name: getattr(image, name) for name in _IMAGE_FIELDS}
    fields.update(changes)
    return MetadataImage(**fields)


_IMAGE_FIELDS = tuple(
    [name for name in MetadataImage.__dataclass_fields__ if name not in ("token", "journal")]
)


def _on_cluster(
    handler: Callable[[ClusterBuilder, Any, int], None],
) -> Callable[[ImageBuilder, Any, int], None]:
    """A handler of the cluster builder, called with the builder of the whole image."""
    return lambda builder, record, offset: handler(builder._cluster_builder, record, offset)


_HANDLERS: dict[type, Callable[[ImageBuilder, Any, int], None]] = {
    RegisterBrokerRecord: _on_cluster(ClusterBuilder.register_broker),
    UnregisterBrokerRecord: _on_cluster(ClusterBuilder.unregister_broker),
    TopicRecord: ImageBuilder._topic,
    PartitionRecord: ImageBuilder._partition,
    ConfigRecord: ImageBuilder._config,
    PartitionChangeRecord: ImageBuilder._partition_change,
    FenceBrokerRecord: _on_cluster(ClusterBuilder.fence),
    UnfenceBrokerRecord: _on_cluster(ClusterBuilder.unfence),
    RemoveTopicRecord: ImageBuilder._remove_topic,
    DelegationTokenRecord: ImageBuilder._token,
    UserScramCredentialRecord: ImageBuilder._scram,
    FeatureLevelRecord: ImageBuilder._feature_level,
    ClientQuotaRecord: ImageBuilder._client_quota,
    ProducerIdsRecord: ImageBuilder._next_producer_ids,
    BrokerRegistrationChangeRecord: _on_cluster(ClusterBuilder.change_broker),
    AccessControlEntryRecord: ImageBuilder._acl,
    RemoveAccessControlEntryRecord: ImageBuilder._remove_acl,
    NoOpRecord: ImageBuilder._nothing,
    ZkMigrationStateRecord: ImageBuilder._nothing,
    RemoveUserScramCredentialRecord: ImageBuilder._remove_scram,
    BeginTransactionRecord: ImageBuilder._begin,
    EndTransactionRecord: ImageBuilder._end,
    AbortTransactionRecord: ImageBuilder._abort,
    RemoveDelegationTokenRecord: ImageBuilder._remove_token,
    RegisterControllerRecord: _on_cluster(ClusterBuilder.register_controller),
    UnregisterControllerRecord: _on_cluster(ClusterBuilder.unregister_controller),
    ClearElrRecord: ImageBuilder._clear_elr,
}
