"""Records about the metadata log itself."""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import Data, field, int8, int16


class NoOpRecord(Data, key=20, versions="0", flexible="0+"):
    """Changes nothing, and shows that the controller is alive (KIP-835).

    It ends a change: its tagged fields, which are not Kafka's, say who or what caused the records before it,
    from the beginning of the batch or from the NoOpRecord before. A batch can have several changes.
    """

    principal: str | None = field(default=None, tag=our_tags.ATTRIBUTION_PRINCIPAL)
    client_id: str | None = field(default=None, tag=our_tags.ATTRIBUTION_CLIENT_ID)
    address: str | None = field(default=None, tag=our_tags.ATTRIBUTION_ADDRESS)
    api: int16 = field(default=-1, tag=our_tags.ATTRIBUTION_API)
    reason: str | None = field(default=None, tag=our_tags.ATTRIBUTION_REASON)


class BeginTransactionRecord(Data, key=23, versions="0", flexible="0+"):
    """Begins a metadata transaction. The following records take effect when it ends. KIP-868."""

    name: str | None = field(default=None, tag=0)


class EndTransactionRecord(Data, key=24, versions="0", flexible="0+"):
    """Ends the open transaction, so that its records take effect. KIP-868."""


class AbortTransactionRecord(Data, key=25, versions="0", flexible="0+"):
    """Aborts the open transaction, so that its records have no effect. KIP-868."""

    reason: str | None = field(default=None, tag=0)


class ZkMigrationStateRecord(Data, key=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper. Read from old logs, never written."""

    zk_migration_state: int8 = 0
