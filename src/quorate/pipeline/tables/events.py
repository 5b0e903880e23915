"""The table `events`: every record of the log, typed, in the order of the log.

Its columns are those of the data source `quorate_metadata`, without `json`, and with these changes:

  cluster           the name of the cluster
  cluster_id        its id, if it is known
  effective_offset  the offset at which the record takes effect: its own, or that of the record which ends its
                    transaction; null if the transaction was aborted

It has no secrets: credentials are left out, and the values of passwords among the configurations are
`[hidden]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.dataclass import dataclass
from quorate.pipeline.datasource.columns import (
    ATTRIBUTION_COLUMNS,
    COMMITTED,
    ENTITY_COLUMNS,
    LOG_COLUMNS,
    TYPED_COLUMNS,
    select,
    struct_kind,
)
from quorate.pipeline.decoder.arrays import arrow_type
from quorate.pipeline.history.codes import Flags, Numbers, flags

EVENTS: Final = "events"
EFFECTIVE: Final = "effective_offset"
MAX_OFFSET: Final = np.iinfo(np.int64).max
"""Stands for the end of a range of offsets that has none: greater than the offset of any record."""
BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
END: Final = "END_TRANSACTION_RECORD"
ABORT: Final = "ABORT_TRANSACTION_RECORD"
MARKERS: Final = (BEGIN, END, ABORT)
"""The records that begin and end transactions."""
MARKER_COLUMNS: Final = "offset,type,snapshot"
"""The option `columns` of the data source with which they are read."""

QUORUM: Final = ("LEADER_CHANGE", "KRAFT_VOTERS")
"""The records of the quorum itself. They do not expire: there are few of them, and who the voters
and the active controller are at any time is in the last ones before it."""

_SECRETS: Final = frozenset({"salt", "stored_key", "server_key"})
_HIDDEN: Final = "[hidden]"
_PASSWORDS: Final = sorted(
    name for name, known in {**BROKER_CONFIGS, **DYNAMIC_BROKER_CONFIGS}.items() if known.sensitive
)
_IS_PASSWORD: Final = f"(^|[.])({'|'.join([re.escape(name) for name in _PASSWORDS])})$"
"""Names of configurations whose values are passwords, also those of one listener."""


def _source_columns() -> list[str]:
    found = [*LOG_COLUMNS, COMMITTED, *ENTITY_COLUMNS, *ATTRIBUTION_COLUMNS]
    for name, cls in TYPED_COLUMNS.items():
        fields = [known for known, _ in struct_kind(cls, cls).fields]
        found += [f"{name}.{known}" for known in fields if known not in _SECRETS]
    return found


SOURCE_COLUMNS: Final = ",".join(_source_columns())
"""The option `columns` of the data source with which the rows are read."""

_SELECTION: Final = select(SOURCE_COLUMNS)
EVENT_DDL: Final = f"`cluster_id` string, `{EFFECTIVE}` bigint, {_SELECTION.ddl()}"
"""The columns in Spark's notation, without `cluster`."""

EVENT_SCHEMA: Final = pa.schema(
    [
        ("cluster_id", pa.string()),
        (EFFECTIVE, pa.int64()),
        *[(name, arrow_type(_SELECTION.kind(name))) for name in _SELECTION.columns],
    ]
)


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a range of the log, in its order."""

    begin: Numbers
    """The offset at which each one begins."""
    end: Numbers
    """The offset of the marker that follows."""
    applied: Flags
    """Whether that ends it, and does not abort it."""

    @classmethod
    def of(cls, offsets: Numbers, kinds: Sequence[str]) -> Transactions:
        """Those of the markers at some offsets."""
        order = np.argsort(offsets, kind="stable")
        at, found = offsets[order], np.array(kinds, object)[order]
        begins = np.flatnonzero(found[:-1] == BEGIN)
        return cls(at[begins], at[begins + 1], found[begins + 1] == END)

    def effective(self, offsets: Numbers, in_log: Flags) -> pa.Array:
        """The offset at which each record takes effect, of those that are `in_log` and no control records."""
        if not len(self.begin):
            return pa.array(offsets)
        place = np.searchsorted(self.begin, offsets, "left") - 1
        inside = in_log & (place >= 0) & (offsets < self.end[place])
        found = np.where(inside, self.end[place], offsets)
        return pa.array(found, mask=inside & ~self.applied[place])


NO_TRANSACTIONS: Final = Transactions(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))


def to_events(
    rows: pa.RecordBatch, cluster_id: str | None, transactions: Transactions = NO_TRANSACTIONS
) -> pa.RecordBatch:
    """The rows of the data source as rows of this table, without the column `cluster`.

    They must not begin or end inside of a transaction that `transactions` lacks.
    """
    columns = {name: rows.column(place) for place, name in enumerate(rows.schema.names)}
    _hide_passwords(columns)
    in_log = flags(pc.and_(pc.is_null(columns["snapshot"]), pc.invert(columns["control"])))
    columns["cluster_id"] = pa.repeat(pa.scalar(cluster_id, pa.string()), rows.num_rows)
    columns[EFFECTIVE] = transactions.effective(columns["offset"].to_numpy(), in_log)
    return pa.RecordBatch.from_arrays([columns[name] for name in EVENT_SCHEMA.names], schema=EVENT_SCHEMA)


def _hide_passwords(columns: dict[str, pa.Array]) -> None:
    """Replaces the values of configurations that are passwords."""
    configs = pc.equal(columns["type"], "CONFIG_RECORD")
    if not pc.any(configs).as_py():
        return
    hidden = pc.and_(configs, pc.match_substring_regex(pc.if_else(configs, columns["key"], ""), _IS_PASSWORD))
    hidden = pc.and_(pc.fill_null(hidden, False), pc.is_valid(columns["value"]))
    if not pc.any(hidden).as_py():
        return
    columns["value"] = pc.if_else(hidden, _HIDDEN, columns["value"])
    record = columns["config_record"]
    fields = {inner.name: pc.struct_field(record, inner.name) for inner in record.type}
    fields["value"] = pc.if_else(hidden, _HIDDEN, fields["value"])
    columns["config_record"] = pa.StructArray.from_arrays(
        list(fields.values()), fields=list(record.type), mask=pc.is_null(record)
    )
