"""Who the voters are, by the files of nodes that do not run: before a start by which they would not find one another."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from quorate.metadata.snapshot import parse_name
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.records.batch import control_records, iter_batches
from quorate.records.control import ControlRecordType, VotersRecord


def snapshot_voters(folders: Iterable[Path]) -> VotersRecord | None:
    """Those of the newest snapshot of several replicas' `__cluster_metadata-0`: quickly read, but a later change may be in a
    log. None where there is no snapshot with voters."""
    snapshots = sorted(((p, f) for f in folders for p in _snapshots(f)), reverse=True)
    return next((r for (_, path), _ in snapshots for _, r in _voters(path)), None)


def latest_voters(folders: Iterable[Path]) -> VotersRecord | None:
    """The latest set in snapshots and logs of several replicas, committed or not. Reads what a log has after its replica's
    last snapshot. Whatever cannot be read is left out."""
    found: list[tuple[int, int, VotersRecord]] = []
    for n, folder in enumerate(folders):
        snapshots = _snapshots(folder)
        offset = 0
        if snapshots:
            offset, path = snapshots[-1]
            found += [(offset, n, record) for _, record in _voters(path)]
        segments = sorted(folder.glob("*.log"))
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is None or int(following.stem) > offset:
                found += [(at, n, record) for at, record in _voters(segment)]
    return max(found, key=lambda f: f[:2])[2] if found else None


def _snapshots(folder: Path) -> list[tuple[int, Path]]:
    named = ((parse_name(path.name), path) for path in folder.glob("*.checkpoint"))
    return sorted((found.offset, path) for found, path in named if found is not None)


def _voters(path: Path) -> Iterator[tuple[int, VotersRecord]]:
    """(offset of the batch, set) of each that a file holds, up to where it cannot be read."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for header, batch in iter_batches(memoryview(content)):
            if header.is_control:
                for kind, value in control_records(batch):
                    if kind == ControlRecordType.KRAFT_VOTERS:
                        yield header.base_offset, VotersRecord.decode(value, 0)
    except (OSError, ValueError, KafkaError, DecodeError):  # a node says better than this what is the matter with it
        return
