"""Producer state from disk: the newest usable snapshot, the batches behind it, and the last batches of
each producer before it.

Kafka's snapshot format holds one batch of each producer. A producer may have five requests in flight,
and after a restart it sends all of them again whose answers it has not got. A leader that knows only
the last of these batches answers the retry of the first one with OUT_OF_ORDER_SEQUENCE_NUMBER, which
librdkafka takes for a fatal error. So the batches that the snapshot leaves out are read again from the
end of the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from itertools import islice

from quorate.log.files import write_all
from quorate.log.producer_state import (
    EMPTY_SNAPSHOT_BYTES,
    AppendOrigin,
    BatchMetadata,
    CorruptSnapshotError,
    ProducerState,
    ProducerStates,
    ProducerUpdate,
    decode_snapshot,
    encode_snapshot,
)
from quorate.log.segment import SNAPSHOT_SUFFIX, Segment, file_stem
from quorate.log.txn_index import AbortedTransaction
from quorate.protocol.errors import KafkaError
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

RECENT_BATCHES_READ = 1024
"""How many batches at the end of a log are searched for those that a snapshot leaves out: five of 200
producers that write by turns. A few milliseconds for a log that has so many small ones; a producer's
retries are its newest batches."""
_WINDOW_BYTES = (
    8 << 10
)  # of log read at a time, backwards: one read, and all that is wanted where few producers write


class SnapshotStore:
    """The `.snapshot` files of one log, by the offset up to which each holds."""

    __slots__ = ("directory", "sizes")

    def __init__(self, directory: str, sizes: dict[int, int]) -> None:
        self.directory = directory
        self.sizes = sizes

    def path(self, offset: int) -> str:
        return os.path.join(self.directory, file_stem(offset) + SNAPSHOT_SUFFIX)

    def remove(self, doomed: Callable[[int], bool]) -> None:
        """Raises OSError."""
        for offset in [offset for offset in self.sizes if doomed(offset)]:
            del self.sizes[offset]
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(offset))

    def remove_strays(self, segment_bases: Sequence[int]) -> None:
        """Keeps those at the start of a segment, and the newest other one if it lies behind the last
        segment's start."""
        bases = set(segment_bases)
        newest = max((offset for offset in self.sizes if offset not in bases), default=-1)
        self.remove(lambda offset: offset not in bases and (offset != newest or offset < segment_bases[-1]))

    def load_latest(self, states: ProducerStates, at_most: int, above: int, now_ms: int) -> int | None:
        """Loads the newest readable snapshot of an offset in (above, at_most] into empty `states`; its
        offset. Raises OSError."""
        for offset in sorted(self.sizes, reverse=True):
            if not above < offset <= at_most:
                continue
            if self.sizes[offset] == EMPTY_SNAPSHOT_BYTES:
                return offset
            try:
                with open(self.path(offset), "rb") as file:
                    entries = decode_snapshot(file.read())
            except (CorruptSnapshotError, FileNotFoundError) as e:
                logger.warning("Failed to load producer snapshot from %s: %s", self.path(offset), e)
                self.remove(lambda candidate, bad=offset: candidate == bad)  # type: ignore[misc]
                continue
            states.load(entries, now_ms)
            return offset
        return None

    def take(self, states: ProducerStates) -> str | None:
        """Writes a snapshot of `states` at their offset, unless there is one; the path if it was
        written. Raises OSError."""
        offset = states.map_end_offset
        if offset in self.sizes:
            return None
        data = encode_snapshot(states.producers.values())
        path = self.path(offset)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, [data], 0)
        finally:
            os.close(fd)
        self.sizes[offset] = len(data)
        return path


def replay(
    segments: Sequence[Segment],
    states: ProducerStates,
    start: int,
    end: int,
    *,
    txn_from: int | None = None,
    skip_from: int | None = None,
) -> None:
    """Feeds the batches of producers in [start, end) to `states`.

    Aborted transactions go into the transaction index of segments from base offset `txn_from` on;
    segments from `skip_from` on are known to have no producers. Raises OSError, CorruptRecordError.
    """
    for i, segment in enumerate(segments):
        after = segments[i + 1].base_offset if i + 1 < len(segments) else end
        if (
            after <= start
            or segment.base_offset >= end
            or (skip_from is not None and segment.base_offset >= skip_from)
        ):
            continue
        position = 0
        if start > segment.base_offset:
            place = segment.find(start)
            if place is None:
                continue
            position = place.position
        for header, at in segment.headers(position, segment.size):
            if header.base_offset >= end:
                break
            if header.producer_id < 0 or header.last_offset < start:
                continue
            batch = segment.read(at, header.size_bytes) if header.is_control else b""
            pending: dict[int, ProducerUpdate] = {}
            try:
                states.prepare(header, memoryview(batch), AppendOrigin.REPLICATION, pending)
            except KafkaError as e:
                logger.warning(
                    "[Segment %s] Producer state at offset %d: %s", segment.log_path, header.base_offset, e
                )
                continue
            complete(
                states, pending, segment if txn_from is not None and segment.base_offset >= txn_from else None
            )
    states.map_end_offset = end


def restore_recent_batches(segments: Sequence[Segment], states: ProducerStates, log_start: int) -> None:
    """Completes the retained batches of each producer from the last `RECENT_BATCHES_READ` batches of the log.

    Damage ends the search: what is known without it is what Kafka knows. Raises OSError.
    """
    wanted = {state.producer_id: state for state in states.producers.values() if state.may_lack_batches()}

    def look(header: BatchHeader) -> bool:
        state = wanted.get(header.producer_id)
        if state is not None and not state.restore_batch(header):
            del wanted[header.producer_id]
        return bool(wanted)

    if wanted:
        _look_back(segments, log_start, look)


def truncate_producers(
    segments: Sequence[Segment], states: ProducerStates, offset: int, log_start: int
) -> bool:
    """Makes the states those at `offset`, where the log was truncated, from what they hold and from its
    last batches.

    Reading on from the last snapshot, as after a restart, may take minutes where the active segment
    holds millions of batches. Returns false, with the states undefined, where nothing else leads to
    them: for transactions, and for producers that have written before but not among the last batches.
    Raises OSError.
    """
    if states.has_transactions:
        return False
    lost = states.truncate(offset)

    def look(header: BatchHeader) -> bool:
        if header.producer_id in lost:
            if header.is_control:
                return False
            lost.discard(header.producer_id)
            state = ProducerState(
                header.producer_id, header.producer_epoch, last_timestamp=header.max_timestamp
            )
            state.batches.append(
                BatchMetadata(
                    header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
                )
            )
            states.producers[header.producer_id] = state
        return bool(lost)

    if lost:
        _look_back(segments, log_start, look)
    return not lost


def _look_back(segments: Sequence[Segment], log_start: int, look: Callable[[BatchHeader], bool]) -> None:
    """Calls `look` with the headers of the last `RECENT_BATCHES_READ` batches of the log, the newest first.

    Ends when `look` returns false, and at damage. Raises OSError.
    """
    left = RECENT_BATCHES_READ
    for segment in reversed(segments):
        end = segment.size
        while end > 0:
            try:
                start = segment.batch_start_before(max(end - _WINDOW_BYTES, 0))
                window = [header for header, _ in islice(segment.headers(start, end), left + 1)]
            except CorruptRecordError as e:
                logger.warning(
                    "[Segment %s] Not searching further back for batches of producers: %s",
                    segment.log_path,
                    e,
                )
                return
            left -= len(window)
            if left < 0:
                return
            for header in reversed(window):
                if header.last_offset < log_start or not look(header):
                    return
            end = start


def complete(states: ProducerStates, pending: dict[int, ProducerUpdate], txn_segment: Segment | None) -> None:
    """Makes prepared updates the state; aborted transactions are written to the segment's index. Raises
    OSError."""
    states.apply(pending.values())
    for update in pending.values():
        for completed in update.completed:
            if completed.is_aborted and txn_segment is not None:
                txn_segment.append_aborted(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        states.stable_offset_after(completed),
                    )
                )
            states.complete(completed)
