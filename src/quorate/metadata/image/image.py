"""The metadata of a cluster at one offset, as an immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from immutables import Map

from quorate.metadata.image.cluster import ClusterImage, UnknownTags
from quorate.metadata.image.parts import (
    AclsImage,
    ClientQuotasImage,
    ConfigsImage,
    DelegationTokensImage,
    FeaturesImage,
    ProducerIdsImage,
    ScramImage,
)
from quorate.metadata.image.topics import TopicsImage

if TYPE_CHECKING:
    from quorate.metadata.image.delta import MetadataDelta
    from quorate.protocol.schema import Data


class Provenance(NamedTuple):
    """Where an image stands: its last record, the leader epoch and append time of its batch; -1 before the first."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, repr=False)
class Touched:
    """What a replay may have changed: enough for a delta to look nowhere else."""

    topics: frozenset[bytes] = frozenset()
    configs: frozenset[tuple[int, str]] = frozenset()

    def union(self, other: Touched) -> Touched:
        return Touched(self.topics | other.topics, self.configs | other.configs)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A metadata transaction (KIP-868) that has begun and not ended: `pending` is what the image becomes if it ends now."""

    name: str | None
    offset: int
    pending: MetadataImage
    touched: Touched = field(compare=False)


JOURNAL_STEPS = 16
"""How many replays an image remembers. A reader further behind compares all topics by identity: 1 ms for 10,000."""


_NO_PROVENANCE = Provenance()
_NO_FEATURES = FeaturesImage()
_NO_CLUSTER = ClusterImage()
_NO_TOPICS = TopicsImage()
_NO_CONFIGS = ConfigsImage()
_NO_CLIENT_QUOTAS = ClientQuotasImage()
_NO_PRODUCER_IDS = ProducerIdsImage()
_NO_ACLS = AclsImage()
_NO_SCRAM = ScramImage()
_NO_DELEGATION_TOKENS = DelegationTokensImage()
_NO_TAGS: Map[tuple[Any, ...], UnknownTags] = Map()


@dataclass(frozen=True, slots=True, repr=False)
class MetadataImage:
    """All metadata after `provenance.offset`. Equal images hold equal state: what makes deltas quick is no part of it.

    Records inside an open transaction show only in `transaction.pending` until it ends.
    """

    provenance: Provenance = _NO_PROVENANCE
    features: FeaturesImage = _NO_FEATURES
    cluster: ClusterImage = _NO_CLUSTER
    topics: TopicsImage = _NO_TOPICS
    configs: ConfigsImage = _NO_CONFIGS
    client_quotas: ClientQuotasImage = _NO_CLIENT_QUOTAS
    producer_ids: ProducerIdsImage = _NO_PRODUCER_IDS
    acls: AclsImage = _NO_ACLS
    scram: ScramImage = _NO_SCRAM
    delegation_tokens: DelegationTokensImage = _NO_DELEGATION_TOKENS
    unknown_tags: Map[tuple[Any, ...], UnknownTags] = _NO_TAGS
    """Unknown tagged fields of records not kept as a whole: ('topic', id), ('partition', id, n), ('config', ...), ..."""
    transaction: OpenTransaction | None = None
    token: object = field(default_factory=object, compare=False)
    journal: tuple[tuple[object, Touched], ...] = field(default=(), compare=False)

    def apply(
        self, values: Iterable[Data], *, offset: int, epoch: int, timestamp_ms: int, encoded: Sequence[bytes] | None = None
    ) -> MetadataImage:
        """The image after one batch of records, `offset` being that of the last one.

        encoded: the same records as they stand in the batch, for who has them: what can be kept so need not be replayed.
        MetadataError, with offset and record, when one of them cannot be replayed.
        """
        from quorate.metadata.image.builder import ImageBuilder

        records = values if isinstance(values, list | tuple) else list(values)
        builder = ImageBuilder(self)
        for at, record in enumerate(records):
            if encoded is None or not builder.take_encoded(encoded[at]):
                builder.replay(record, offset - len(records) + 1 + at)
        return builder.finish(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def delta_to(self, newer: MetadataImage) -> MetadataDelta:
        """The changes from this image to a newer one (any other one, in fact)."""
        from quorate.metadata.image.delta import MetadataDelta

        return MetadataDelta(self, newer)

    def to_records(self) -> Iterator[Data]:
        """The least records that make this image, in the order in which Kafka writes them.

        MetadataError when a transaction is open, or when the metadata.version has no room for something that the image holds.
        """
        from quorate.metadata.image.writer import image_records

        return image_records(self)

    def to_values(self) -> Iterator[bytes]:
        """The same records as they stand in a batch, frame included; what is held encoded is not decoded for it."""
        from quorate.metadata.image.writer import image_values

        return image_values(self)

    def with_provenance(self, provenance: Provenance) -> MetadataImage:
        """The same metadata, said to be that of another offset."""
        return replace(self, provenance=provenance, token=self.token, journal=self.journal)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever replayed into it."""
        return self.provenance.offset < 0

    def touched_since(self, older: MetadataImage) -> Touched | None:
        """What may differ from an older image, None when this one does not remember it."""
        for position, (token, _) in enumerate(self.journal):
            if token is older.token:
                result = Touched()
                for _, touched in self.journal[position:]:
                    result = result.union(touched)
                return result
        return None

    def __repr__(self) -> str:
        return (
            f"MetadataImage(offset={self.provenance.offset}, epoch={self.provenance.epoch}, brokers={len(self.cluster.brokers)}, "
            f"topics={len(self.topics.by_id)}, partitions={self.topics.partition_count})"
        )


EMPTY = MetadataImage()
