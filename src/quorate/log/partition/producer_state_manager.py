"""The producer state of one log, its snapshots, and its recovery from both snapshots and batches.

A snapshot in Kafka's format holds one batch of each producer. A producer may have five requests in
flight and, after a restart of the broker, sends all of them again that were not answered. A leader that
knows only the last of these batches answers the retry of the first one with
OUT_OF_ORDER_SEQUENCE_NUMBER, which librdkafka treats as a fatal error. The batches that the snapshot
leaves out are therefore read again from the end of the log.

A follower truncates in the event loop, and after transactions only a replay from a snapshot finds the state
at the new log end. Therefore snapshots are not only taken at the base offsets of segments: in the two newest
segments they are at most `SNAPSHOT_INTERVAL_BATCHES` apart. A roll removes those inside of older segments,
and a start those inside of all segments but the last.
(Kafka takes none inside of a segment, but truncates in a fetcher thread. If it opens the log, it removes
them.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

from quorate.log.errors import CorruptIndexError
from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.producer_snapshots import ProducerSnapshots
from quorate.log.partition.producer_state import (
    AppendOrigin,
    BatchMetadata,
    ProducerState,
    ProducerStates,
    ProducerUpdate,
)
from quorate.log.segment.segment import Segment
from quorate.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from quorate.protocol.errors import KafkaError
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

RECENT_BATCHES_READ = 1024
"""How many batches at the end of a log are searched for those that a snapshot leaves out: five batches
each of 200 producers that write in turn. A log with this many small batches takes a few milliseconds. A
producer's retries are its newest batches."""

SNAPSHOT_INTERVAL_BATCHES = 50_000
"""The batches between two snapshots of a log with producers.

With more producers than this, their number is the interval, so that the bytes of snapshots for each batch
stay bounded. The replay of an interval takes about 0.25 s, and that of a segment of a gigabyte with
batches of 68 bytes over a minute.
"""

_WINDOW_BYTES = 8 << 10
"""Bytes of log that the backward search reads at once: sufficient in one read if few producers write."""


class ProducerStateManager:
    """Joins the producers of a log, the snapshot files and the transaction indexes of its segments."""

    __slots__ = ("_batches_since_snapshot", "_log", "snapshots", "states")

    def __init__(self, log: LocalLog, expiration_ms: int) -> None:
        self._log = log
        self.states = ProducerStates(log.name, expiration_ms)
        self.snapshots = ProducerSnapshots(log.directory, {})
        self._batches_since_snapshot = 0

    # --- snapshots --------------------------------------------------------------------------------

    def take_snapshot(self, offset: int) -> str | None:
        """Writes a snapshot at the log end `offset`, without fsync. Returns its path, None if there is
        one already. Raises OSError."""
        self._batches_since_snapshot = 0
        self.states.map_end_offset = offset
        return self.snapshots.take(self.states)

    def apply(
        self, pending: dict[int, ProducerUpdate], segment: Segment, batches: int, end_offset: int
    ) -> None:
        """Applies the updates of appended batches, which end before `end_offset`. Raises OSError."""
        apply_updates(self.states, pending, segment)
        self._note_batches(batches, end_offset)

    def _note_batches(self, count: int, end_offset: int) -> None:
        """Takes a snapshot at `end_offset`, the end of `count` more batches, if the last one is too far
        behind. Raises OSError."""
        self._batches_since_snapshot += count
        if self._batches_since_snapshot >= max(SNAPSHOT_INTERVAL_BATCHES, len(self.states.producers)):
            self.take_snapshot(end_offset)

    # --- recovery ---------------------------------------------------------------------------------

    def rebuild(
        self,
        log_start: int,
        snapshot_at_most: int,
        now_ms: int,
        *,
        txn_from: int | None = None,
        skip_from: int | None = None,
    ) -> None:
        """Rebuilds the state at the log end from the newest snapshot not above `snapshot_at_most` and
        the batches after it. See `replay` for the options. Raises OSError, CorruptRecordError."""
        log, states = self._log, self.states
        states.clear(log_start)
        start = self.snapshots.load_latest(states, snapshot_at_most, log_start, now_ms)
        self._batches_since_snapshot = 0
        replay(
            log.segments,
            states,
            log_start if start is None else start,
            log.end_offset,
            txn_from=txn_from,
            skip_from=skip_from,
            on_batch=self._note_batches,
        )
        restore_recent_batches(log.segments, states, log_start)

    def truncate(self, offset: int, log_start: int, high_watermark: int) -> None:
        """Changes the state to that at `offset`, where the log was truncated. `high_watermark` is the one
        after the truncation. Raises OSError, CorruptRecordError."""
        self.snapshots.remove(lambda snapshot: snapshot > offset)
        # The distance to the newest one that is left is not known. So the next batch is followed by one,
        # unless there are more producers than the interval has batches.
        self._batches_since_snapshot = SNAPSHOT_INTERVAL_BATCHES
        if self.states.producers:
            segments = self._log.segments
            if truncate_producers(segments, self.states, offset, log_start):
                restore_recent_batches(segments, self.states, log_start)
            else:
                self.rebuild(log_start, offset, 0)
                # After the replay, all completed transactions count as not replicated. They would hold back
                # the last stable offset until the high watermark moves.
                self.states.on_high_watermark(high_watermark)
        self.states.map_end_offset = offset

    # --- aborted transactions ---------------------------------------------------------------------

    def txn_index(self, segment: Segment) -> TransactionIndex:
        """The transaction index of a segment, rebuilt from the log if its file is corrupt or missing.
        Raises OSError, CorruptRecordError."""
        try:
            return segment.txn_index()
        except (CorruptIndexError, FileNotFoundError) as e:
            logger.warning("[PartitionLog %s] Rebuilding a transaction index: %s", self._log.name, e)
            self._rebuild_txn_index(segment)
            return segment.txn_index()

    def _rebuild_txn_index(self, segment: Segment) -> None:
        log = self._log
        states = ProducerStates(log.name, self.states.expiration_ms)
        start = self.snapshots.load_latest(states, segment.base_offset, -1, 0)
        segment.reset_txn_index()
        number = log.segments.index(segment)
        replay(
            log.segments[: number + 1],
            states,
            log.bases[0] if start is None else start,
            log.segment_end(number),
            txn_from=segment.base_offset,
        )

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap [from_offset, to_offset).
        Raises OSError, CorruptRecordError."""
        found: list[tuple[int, int]] = []
        for segment in self._log.segments_from(from_offset):
            if not segment.has_txn_index:
                continue
            entries, complete = self.txn_index(segment).collect(from_offset, to_offset)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        return found


def replay(
    segments: Sequence[Segment],
    states: ProducerStates,
    start: int,
    end: int,
    *,
    txn_from: int | None = None,
    skip_from: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> None:
    """Applies the batches of producers in [start, end) to `states`.

    Aborted transactions are added to the transaction index of segments from base offset `txn_from` on.
    Segments from `skip_from` on are skipped, as they are known to have no batches of producers. `on_batch` is
    called with 1 and the offset after each batch of a producer. Raises OSError, CorruptRecordError.
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
            first = segment.find(start)
            if first is None:
                continue
            position = first.position
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
            apply_updates(
                states, pending, segment if txn_from is not None and segment.base_offset >= txn_from else None
            )
            if on_batch is not None:
                on_batch(1, header.next_offset)
    states.map_end_offset = end


def apply_updates(
    states: ProducerStates, pending: dict[int, ProducerUpdate], txn_segment: Segment | None
) -> None:
    """Applies prepared updates, completes transactions, and adds aborted ones to the transaction index
    of a segment. Raises OSError."""
    states.apply(pending.values())
    ended = [completed for update in pending.values() for completed in update.completed]
    if len(ended) > 1:  # the index is ordered by the markers, also those of several producers
        ended.sort(key=lambda completed: completed.last_offset)
    for completed in ended:
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


def restore_recent_batches(segments: Sequence[Segment], states: ProducerStates, log_start: int) -> None:
    """Completes the retained batches of each producer from the last `RECENT_BATCHES_READ` batches of the log.

    Damage ends the search; the state is then what Kafka has after loading a snapshot. Raises OSError.
    """
    wanted = {state.producer_id: state for state in states.producers.values() if state.may_lack_batches()}

    def visit(header: BatchHeader) -> bool:
        state = wanted.get(header.producer_id)
        if state is not None and not state.restore_batch(header):
            del wanted[header.producer_id]
        return bool(wanted)

    if wanted:
        _visit_backwards(segments, log_start, visit)


def truncate_producers(
    segments: Sequence[Segment], states: ProducerStates, offset: int, log_start: int
) -> bool:
    """Changes the states to those at `offset`, where the log was truncated, using only the states and
    the last batches of the log.

    A replay from the last snapshot could take minutes if the active segment holds millions of batches.
    Returns False, and leaves the states undefined, if only a replay can find them: for transactions,
    and for producers that have written before but not among the last batches. Raises OSError.
    """
    if states.has_transactions:
        return False
    lost = states.truncate(offset)

    def visit(header: BatchHeader) -> bool:
        if header.producer_id in lost:
            if header.is_control:
                return False
            lost.discard(header.producer_id)
            state = ProducerState(
                header.producer_id, header.producer_epoch, last_timestamp=header.max_timestamp
            )
            state.batches.append(BatchMetadata.of(header))
            states.producers[header.producer_id] = state
        return bool(lost)

    if lost:
        _visit_backwards(segments, log_start, visit)
    return not lost


def _visit_backwards(
    segments: Sequence[Segment], log_start: int, visit: Callable[[BatchHeader], bool]
) -> None:
    """Calls `visit` with the headers of the last `RECENT_BATCHES_READ` batches of the log, the newest first.

    Ends when `visit` returns False, and at damage. Raises OSError.
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
                if header.last_offset < log_start or not visit(header):
                    return
            end = start
