"""The version in which the active controller writes each record."""

from __future__ import annotations

from collections.abc import Iterable

from quorate.metadata.features import METADATA_VERSION, record_version
from quorate.metadata.records import BrokerRegistrationChangeRecord, FeatureLevelRecord
from quorate.protocol.schema import Data


def version_of(record: Data, metadata_version: int) -> int:
    """The version of a record.

    A registration change is written in the lowest version that has its fields, as in Kafka.
    """
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    return record_version(record.KEY, metadata_version)


def level_in(records: Iterable[Data]) -> int:
    """The metadata.version that these records set, or 0."""
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return 0
