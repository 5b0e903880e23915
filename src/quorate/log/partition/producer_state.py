"""The state of idempotent and transactional producers in one log (KIP-98, KIP-360). Does no I/O.

`ProducerStates.prepare` checks a batch and notes its changes in an update, without changing the state.
The log calls `apply` with the update after it has written the batch.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import field

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import MAX_INT32, BatchHeader, control_records

BATCHES_TO_RETAIN = 5
"""The largest max.in.flight.requests.per.connection of an idempotent producer: older batches cannot be
retried."""

ABORT, COMMIT = 0, 1


class AppendOrigin(enum.Enum):
    """The source of an append, on which its validation depends (Kafka's AppendOrigin)."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT = 3


@dataclass(slots=True, frozen=True)
class BatchMetadata:
    """The sequence numbers and offsets of one batch that its producer may retry."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMetadata:
        return cls(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """The state of one producer id (Kafka's ProducerStateEntry). `current_txn_first_offset` is -1
    outside of transactions."""

    producer_id: int
    producer_epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def may_lack_batches(self) -> bool:
        """Whether the log may hold more batches of this producer that should be retained.

        True after a snapshot was loaded, because a snapshot holds one batch of each producer. No batch
        precedes sequence number 0, unless the numbers have wrapped after 2^31 records.
        """
        if not 0 < len(self.batches) < BATCHES_TO_RETAIN:
            return False
        first = self.batches[0]
        return first.first_sequence != 0 or first.first_offset >= MAX_INT32

    def restore_batch(self, header: BatchHeader) -> bool:
        """Adds a batch from the log in front of the retained ones if it directly precedes them.

        Called with the batches of this producer from the newest to the oldest. Returns whether more
        batches are needed.
        """
        first = self.batches[0]
        if header.producer_epoch != self.producer_epoch:
            return False
        if header.is_control or header.base_offset >= first.first_offset:
            return True
        if header.base_sequence < 0 or (header.last_sequence + 1) & MAX_INT32 != first.first_sequence:
            return False
        self.batches.appendleft(BatchMetadata.of(header))
        return self.may_lack_batches()

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch with the same sequence numbers, of which this batch is a retry."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch
        return None


@dataclass(slots=True)
class CompletedTransaction:
    """A transaction that a marker has committed or aborted (Kafka's CompletedTxn)."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class _Transaction:
    """An open transaction, or one whose marker is above the high watermark (Kafka's TxnMetadata)."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


@dataclass(slots=True)
class ProducerUpdate:
    """The changes that appended batches make to one producer (Kafka's ProducerAppendInfo)."""

    state: ProducerState
    started: list[int] = field(default_factory=list)
    completed: list[CompletedTransaction] = field(default_factory=list)


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_name", "_ongoing", "_unreplicated", "expiration_ms", "map_end_offset", "producers")

    def __init__(self, name: str, expiration_ms: int) -> None:
        self._name = name
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerState] = {}
        self._ongoing: dict[int, _Transaction] = {}  # by first offset, ascending
        self._unreplicated: dict[int, _Transaction] = {}  # completed; the marker is above the high watermark
        self.map_end_offset = 0
        """The log offset at which this state holds."""

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is not replicated yet."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min(min(self._ongoing, default=1 << 63), min(self._unreplicated, default=1 << 63))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forgets completed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            done = [
                k
                for k, t in self._unreplicated.items()
                if t.last_offset is not None and t.last_offset < high_watermark
            ]
            for k in done:
                del self._unreplicated[k]

    # --- appending --------------------------------------------------------------------------------

    def prepare(
        self, header: BatchHeader, batch: memoryview, origin: AppendOrigin, pending: dict[int, ProducerUpdate]
    ) -> BatchMetadata | None:
        """Checks a batch that has a producer id and its final offsets, and adds its changes to `pending`.

        Returns the retained batch of which this one is a retry, else None. Raises KafkaError:
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED.
        """
        producer_id = header.producer_id
        current = self.producers.get(producer_id)
        if origin is AppendOrigin.CLIENT and current is not None:
            duplicate = current.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        update = pending.get(producer_id)
        if update is None:
            state = ProducerState(producer_id)
            if current is not None:
                state.producer_epoch = current.producer_epoch
                state.coordinator_epoch = current.coordinator_epoch
                state.last_timestamp = current.last_timestamp
                state.current_txn_first_offset = current.current_txn_first_offset
            update = pending[producer_id] = ProducerUpdate(state)
        if header.is_control:
            self._append_marker(header, batch, origin, update)
        else:
            self._append_data(header, origin, update, current)
        return None

    def _append_data(
        self, header: BatchHeader, origin: AppendOrigin, update: ProducerUpdate, current: ProducerState | None
    ) -> None:
        state = update.state
        self._check_epoch(header, origin, state)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(header, state, current)
        if state.producer_epoch != header.producer_epoch:
            state.batches.clear()
            state.producer_epoch = header.producer_epoch
        state.batches.append(
            BatchMetadata(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
        )
        state.last_timestamp = header.max_timestamp
        if state.current_txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset "
                f"{header.base_offset} in {self._name}",
            )
        if state.current_txn_first_offset < 0 and header.is_transactional:
            state.current_txn_first_offset = header.base_offset
            update.started.append(header.base_offset)

    def _check_epoch(self, header: BatchHeader, origin: AppendOrigin, state: ProducerState) -> None:
        if header.producer_epoch < state.producer_epoch and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} at offset {header.base_offset} in {self._name} is "
                f"{header.producer_epoch}, which is smaller than the last seen epoch {state.producer_epoch}",
            )

    def _check_sequence(
        self, header: BatchHeader, state: ProducerState, current: ProducerState | None
    ) -> None:
        first = header.base_sequence
        if header.producer_epoch != state.producer_epoch:
            if first != 0 and state.producer_epoch != -1:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id} at offset "
                    f"{header.base_offset} in {self._name}: {header.producer_epoch} (request epoch), "
                    f"{first} (seq. number), {state.producer_epoch} (current producer epoch)",
                )
            return
        if state.batches:
            last = state.last_sequence
        elif current is not None and current.producer_epoch == header.producer_epoch:
            last = current.last_sequence
        else:
            last = -1
        if current is None or current.producer_epoch == -1:
            return  # retention has removed all records of the producer: any number is accepted
        if first != last + 1 and not (first == 0 and last == MAX_INT32):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset "
                f"{header.base_offset} in {self._name}: "
                f"{first} (incoming seq. number), {last} (current end sequence number)",
            )

    def _append_marker(
        self, header: BatchHeader, batch: memoryview, origin: AppendOrigin, update: ProducerUpdate
    ) -> None:
        if header.count == 0:
            return  # compaction has removed the complete transaction
        kind, value = next(control_records(batch))
        if kind not in (ABORT, COMMIT) or len(value) < 6:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"Control record of type {kind} at offset {header.base_offset} in {self._name} ends no "
                "transaction",
            )
        coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
        state = update.state
        self._check_epoch(header, origin, state)
        if state.coordinator_epoch > coordinator_epoch and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {header.producer_id} at offset "
                f"{header.base_offset} in {self._name}: "
                f"{coordinator_epoch} (zombie), {state.coordinator_epoch} (current)",
            )
        if state.current_txn_first_offset >= 0:
            update.completed.append(
                CompletedTransaction(
                    header.producer_id, state.current_txn_first_offset, header.base_offset, kind == ABORT
                )
            )
        if state.producer_epoch != header.producer_epoch:
            state.batches.clear()
            state.producer_epoch = header.producer_epoch
        state.coordinator_epoch = coordinator_epoch
        state.current_txn_first_offset = -1
        state.last_timestamp = header.max_timestamp

    def apply(self, updates: Iterable[ProducerUpdate]) -> None:
        """Applies the updates of `prepare`. The caller then ends the completed transactions one by one
        with `complete`."""
        for update in updates:
            new = update.state
            current = self.producers.get(new.producer_id)
            if current is None:
                self.producers[new.producer_id] = new
            else:
                if current.producer_epoch != new.producer_epoch:
                    current.batches.clear()
                    current.producer_epoch = new.producer_epoch
                current.batches.extend(new.batches)
                current.coordinator_epoch = new.coordinator_epoch
                current.current_txn_first_offset = new.current_txn_first_offset
                current.last_timestamp = new.last_timestamp
            for first_offset in update.started:
                self._ongoing[first_offset] = _Transaction(new.producer_id, first_offset)

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset after this transaction has ended, for the transaction index.

        A follower appends several batches at once: transactions that began after the marker do not count.
        (Kafka counts them. Readers are then not told of aborted transactions that began in between.)
        """
        others = [t.first_offset for t in self._ongoing.values() if t.producer_id != completed.producer_id]
        return min([completed.last_offset + 1, *others])

    def complete(self, completed: CompletedTransaction) -> None:
        """Ends a transaction. It holds back the last stable offset until its marker is replicated."""
        transaction = self._ongoing.pop(completed.first_offset, None)
        if transaction is not None:
            transaction.last_offset = completed.last_offset
            self._unreplicated[completed.first_offset] = transaction

    # --- truncation, expiration, loading ----------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether any producer is or was transactional."""
        return bool(self._ongoing or self._unreplicated) or any(
            state.coordinator_epoch >= 0 or state.current_txn_first_offset >= 0
            for state in self.producers.values()
        )

    def truncate(self, offset: int) -> set[int]:
        """Removes the batches from `offset` on. Forgets and returns the producers without a remaining
        batch, whose earlier batches must be found in the log. Not to be used with transactions, as
        their markers are not retained."""
        lost = set()
        for state in list(self.producers.values()):
            if state.last_offset < offset:
                continue
            while state.batches and state.batches[-1].last_offset >= offset:
                state.batches.pop()
            if state.batches:
                state.last_timestamp = state.batches[-1].timestamp
            else:
                del self.producers[state.producer_id]
                lost.add(state.producer_id)
        return lost

    def clear(self, map_end_offset: int) -> None:
        """Forgets all producers. The state then holds at `map_end_offset`."""
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.map_end_offset = map_end_offset

    def remove_expired(self, now_ms: int) -> None:
        """Forgets producers without an open transaction whose last batch is older than the expiration
        time."""
        if not self.producers:
            return
        for state in [s for s in self.producers.values() if self._expired(s, now_ms)]:
            del self.producers[state.producer_id]

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        return state.current_txn_first_offset < 0 and now_ms - state.last_timestamp >= self.expiration_ms

    def load(self, entries: Iterable[ProducerState], now_ms: int) -> None:
        """Adds the producers of a snapshot that have not expired."""
        for state in entries:
            if not self._expired(state, now_ms):
                self.producers[state.producer_id] = state
        open_ones = [
            (s.current_txn_first_offset, s.producer_id)
            for s in self.producers.values()
            if s.current_txn_first_offset >= 0
        ]
        for first_offset, producer_id in sorted(open_ones):
            self._ongoing[first_offset] = _Transaction(producer_id, first_offset)
