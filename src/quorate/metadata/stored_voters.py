"""Reads the voters of a quorum from the metadata logs and snapshots of nodes.

`quorate up` compares them with the addresses of the nodes that it is about to start. The pipeline counts the
copies that voters have of a record.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from quorate.metadata.snapshot import parse_name
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.records.batch import control_records, iter_batches
from quorate.records.control import ControlRecordType, VotersRecord


def snapshot_voters(folders: Iterable[Path]) -> VotersRecord | None:
    """Returns the voters of the newest snapshot, or None where no snapshot has voters.

    `folders` are the `__cluster_metadata-0` of several replicas. Reads little, but misses changes that
    are only in a log.
    """
    snapshots = sorted(((p, f) for f in folders for p in _snapshots(f)), reverse=True)
    return next((r for (_, path), _ in snapshots for _, r in _voters(path)), None)


def latest_voters(folders: Iterable[Path]) -> VotersRecord | None:
    """Returns the latest voters in the snapshots and logs, committed or not, or None where there are none.

    Reads each log from its replica's last snapshot on. Skips files that cannot be read.
    """
    found: list[tuple[int, int, VotersRecord]] = []
    for n, folder in enumerate(folders):
        snapshots = _snapshots(folder)
        offset = 0
        if snapshots:
            offset, path = snapshots[-1]
            found += [(offset, n, record) for _, record in _voters(path)]
        segments = sorted(folder.glob("*.log"))
        for segment, following in zip(segments, [*segments[1:], None], strict=False):
            if following is None or int(following.stem) > offset:
                found += [(at, n, record) for at, record in _voters(segment)]
    return max(found, key=lambda f: f[:2])[2] if found else None


def _snapshots(folder: Path) -> list[tuple[int, Path]]:
    named = ((parse_name(path.name), path) for path in folder.glob("*.checkpoint"))
    return sorted((found.offset, path) for found, path in named if found is not None)


def _voters(path: Path) -> Iterator[tuple[int, VotersRecord]]:
    """Yields each VotersRecord of a file with the base offset of its batch, until a batch cannot be
    read.
    """
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for header, batch in iter_batches(memoryview(content)):
            if header.is_control:
                for kind, value in control_records(batch):
                    if kind == ControlRecordType.KRAFT_VOTERS:
                        yield header.base_offset, VotersRecord.decode(value, 0)
    except (OSError, ValueError, KafkaError, DecodeError):  # the node reports the damage when it starts
        return
