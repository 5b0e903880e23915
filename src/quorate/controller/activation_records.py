"""The first records of a new active controller (KIP-868).

A log without a metadata.version gets the bootstrap records. They are written in a metadata transaction
if the metadata.version supports transactions, since they may not fit into one batch, and otherwise in
one batch. An open transaction of a previous controller is aborted. Source: Kafka's
ActivationRecordsGenerator.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.controller.context import MIN_ISR
from quorate.metadata.features import ELR_VERSION, FIRST_TRANSACTIONS, METADATA_VERSION
from quorate.metadata.image import MetadataImage
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data


class ActivationError(Exception):
    """No controller can become active with the current log."""


def activation_records(
    image: MetadataImage, bootstrap: Sequence[Data], static_min_isr: int
) -> tuple[list[Data], bool, str]:
    """The records, whether they are atomic, and a description for the log. Raises ActivationError."""
    opened = image.transaction
    level = image.features.metadata_version
    empty = level == 0
    if empty:
        level = _bootstrap_level(bootstrap, METADATA_VERSION)
        if level == 0:
            raise ActivationError("The bootstrap records name no metadata.version.")
    transactions = level >= FIRST_TRANSACTIONS
    records: list[Data] = []
    doing: list[str] = []
    if opened is not None:
        if not transactions:
            raise ActivationError(
                f"A transaction is open since offset {opened.offset}, but metadata.version {level} has none."
            )
        doing.append(f"Aborting the transaction that is open since offset {opened.offset}.")
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if not empty:
        return records, True, " ".join(doing)
    doing.append(f"Writing {len(bootstrap)} bootstrap record(s) at metadata.version {level}.")
    if transactions:
        records.append(BeginTransactionRecord(name="Bootstrap records"))
    records += bootstrap
    if _bootstrap_level(bootstrap, ELR_VERSION) > 0:
        records.append(
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                name=MIN_ISR,
                value=str(static_min_isr),
            )
        )
    if transactions:
        records.append(EndTransactionRecord())
    return records, not transactions, " ".join(doing)


def _bootstrap_level(bootstrap: Sequence[Data], feature: str) -> int:
    """The level of a feature in the bootstrap records, or 0."""
    level = 0
    for record in bootstrap:
        if isinstance(record, FeatureLevelRecord) and record.name == feature:
            level = record.feature_level
    return level
