"""Writes a snapshot of the state machine: encodes it in slices in the loop, and writes it in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from quorate.raft.storage.snapshots.files import SnapshotWriter
from quorate.threads import in_thread

SLICE_S = 0.002  # of encoding, before the loop may run
WRITE_BYTES = 1 << 20  # written by the thread at a time


async def write_snapshot(writer: SnapshotWriter, parts: Iterator[bytes | bytearray]) -> None:
    """Writes all parts, durably under the final name.

    If that fails, deletes the file, or leaves it to the next start if the disk does not let it. Raises
    OSError, and what `parts` raises.
    """
    try:
        held: list[bytes | bytearray] = []
        size, turn = 0, time.perf_counter()
        for part in parts:
            held.append(part)
            size += len(part)
            if size >= WRITE_BYTES:
                await in_thread(writer.write, b"".join(held))
                held.clear()
                size, turn = 0, time.perf_counter()
            elif time.perf_counter() - turn > SLICE_S:
                await asyncio.sleep(0)
                turn = time.perf_counter()
        if held:
            await in_thread(writer.write, b"".join(held))
        await in_thread(writer.freeze)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error says more than one that follows from it
            writer.abandon()
        raise
