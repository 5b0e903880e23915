"""Dumps and checks offset indexes, time indexes, transaction indexes and producer snapshots."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.records.batch import BatchHeader, decode_records, iter_batches
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    from quorate.log.partition import producer_snapshots
else:
    producer_snapshots = lazy_module("quorate.log.partition.producer_snapshots")

Write = Callable[[str], object]

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")


@dataclass(slots=True)
class Mismatches:
    """The mismatches between indexes and logs, which are printed at the end, as in Kafka's tool."""

    index: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    log: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamp: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    order: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    missing: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        for name, pairs in self.index.items():
            yield f"Mismatches in :{name}"
            yield from (f"  Index offset: {a}, log offset: {b}" for a, b in reversed(pairs))
        for name, pairs in self.timestamp.items():
            yield f"Found timestamp mismatch in :{name}"
            yield from (f"  Index timestamp: {a}, log timestamp: {b}" for a, b in pairs)
        for name, pairs in self.order.items():
            yield f"Found out of order timestamp in :{name}"
            yield from (f"  Index timestamp: {a}, Previously indexed timestamp: {b}" for a, b in pairs)
        for pairs in self.missing.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {a}, found log offset: {b}" for a, b in pairs)
        for name, pairs in self.log.items():
            yield f"Non-consecutive offsets in {name}"
            yield from (f"  {a} is followed by {b}" for a, b in reversed(pairs))


def _note(kind: dict[str, list[tuple[int, int]]], path: Path, a: int, b: int) -> None:
    kind.setdefault(str(path.absolute()), []).append((a, b))


def base_offset_of(path: Path) -> int:
    """Returns the base offset in the name of a segment file. Raises ToolError if there is none."""
    text = path.name.partition(".")[0]
    if not text.isdigit():
        raise ToolError(f"{path}: its name does not start with the offset of a segment")
    return int(text)


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    """Returns the entries of an index, including the zeros at the end of a preallocated file, as in Kafka."""
    data = path.read_bytes()
    return list(entry.iter_unpack(data[: len(data) - len(data) % entry.size]))


def _log_batches(
    log: bytes, position: int, limit: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    view = memoryview(log)[position : None if limit is None else position + limit]
    return iter_batches(view)


def dump_offset_index(
    path: Path,
    write: Write,
    found: Mismatches,
    *,
    sanity_only: bool,
    verify_only: bool,
    max_message_size: int,
) -> None:
    """Dumps an offset index and compares it with its segment. Raises ToolError if the sanity check fails."""
    base = base_offset_of(path)
    entries = _entries(path, _OFFSET_ENTRY)
    log = path.with_suffix(".log").read_bytes()
    if not entries:
        write(f"{path} is empty.\n")
        return
    if sanity_only:
        last = base + entries[-1][0]
        if last < base:
            raise ToolError(
                f"Corrupt index found, index file {path.absolute()} has non-zero size but the last offset "
                f"is {last} which is less than the base offset {base}"
            )
        _check_multiple(path, "Index file", _OFFSET_ENTRY.size)
        write(f"{path} passed sanity check.\n")
        return
    for number, (relative, position) in enumerate(entries):
        if relative == 0 and number:
            return  # zeros of a preallocated file, left by a crash
        offset = base + relative
        header = next((header for header, _ in _log_batches(log, position, max_message_size)), None)
        last_offset = -1 if header is None else header.last_offset
        if last_offset != offset:
            _note(found.index, path, offset, last_offset)
        if not verify_only:
            write(f"offset: {offset} position: {position}\n")


def dump_time_index(
    path: Path, write: Write, found: Mismatches, *, sanity_only: bool, verify_only: bool
) -> None:
    """Dumps a time index and compares it with its segment. The offset index speeds the search up.

    Raises ToolError if the sanity check fails.
    """
    base = base_offset_of(path)
    entries = _entries(path, _TIME_ENTRY)
    if sanity_only:
        _check_time_index(path, base, entries)
        write(f"{path} passed sanity check.\n")
        return
    log = path.with_suffix(".log").read_bytes()
    offsets = (
        _entries(path.with_suffix(".index"), _OFFSET_ENTRY) if path.with_suffix(".index").exists() else []
    )
    used = next(
        (number for number, (relative, _) in enumerate(offsets) if relative == 0 and number), len(offsets)
    )
    relatives = [relative for relative, _ in offsets[:used]]
    previous = -1
    for number, (timestamp, relative) in enumerate(entries):
        if relative == 0 and number:
            return
        offset = base + relative
        slot = bisect_right(relatives, relative) - 1
        position = offsets[slot][1] if slot >= 0 else 0
        hit = next(((h, b) for h, b in _log_batches(log, position) if h.last_offset >= offset), None)
        if hit is None or hit[0].last_offset != offset:
            _note(found.missing, path, offset, -1 if hit is None else hit[0].last_offset)
        else:
            greatest = max((record.timestamp for record in decode_records(hit[1])), default=-1)
            if greatest != timestamp:
                _note(found.timestamp, path, timestamp, greatest)
            if previous >= timestamp:
                _note(found.order, path, timestamp, previous)
        if not verify_only:
            write(f"timestamp: {timestamp} offset: {offset}\n")
        previous = timestamp


def _check_time_index(path: Path, base: int, entries: list[tuple[int, ...]]) -> None:
    if entries:
        (first, _), (last, relative) = entries[0], entries[-1]
        what = f"Corrupt time index found, time index file ({path.absolute()}) has non-zero size but the last"
        if last < first:
            raise ToolError(f"{what} timestamp is {last} which is less than the first timestamp {first}")
        if relative < 0:
            raise ToolError(f"{what} offset is {base + relative} which is less than the first offset {base}")
    _check_multiple(path, "Time index file", _TIME_ENTRY.size)


def _check_multiple(path: Path, what: str, entry_size: int) -> None:
    size = path.stat().st_size
    if size % entry_size:
        raise ToolError(
            f"{what} {path.absolute()} is corrupt, found {size} bytes which is neither positive nor a "
            f"multiple of {entry_size}"
        )


def dump_producer_snapshot(path: Path, write: Write, write_error: Write) -> None:
    """Dumps a producer snapshot. `write_error` prints the error of a corrupt one."""
    try:
        states = producer_snapshots.decode_snapshot(path.read_bytes())
    except producer_snapshots.CorruptSnapshotError as error:
        write_error(f"{error}\n")
        return
    for state in states:
        first = "OptionalLong.empty"
        if state.current_txn_first_offset >= 0:
            first = f"OptionalLong[{state.current_txn_first_offset}]"
        write(
            f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch} coordinatorEpoch: "
            f"{state.coordinator_epoch} "
            f"currentTxnFirstOffset: {first} lastTimestamp: {state.last_timestamp} "
        )
        for batch in list(state.batches)[:1]:
            write(
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: "
                f"{batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            )
        write("\n")


def dump_transaction_index(path: Path, write: Write) -> None:
    """Dumps a transaction index. Raises ToolError for an entry of an unknown version."""
    for version, producer_id, first, last, stable in _entries(path, _ABORTED):
        if version > 0:
            raise ToolError(
                f"Unexpected aborted transaction version {version} in transaction index {path.absolute()}, "
                "current version is 0"
            )
        write(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}\n"
        )
