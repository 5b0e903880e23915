"""The state of one controller: its metadata images, its term, and the way to write records.

The active controller keeps two images. `image` is committed; standbys, snapshots and readers use it.
`next_image` includes every record written so far; handlers use only this one. Between the two there is
a chain with one image for each write, so that a commit needs no replay, and a controller that loses the
leadership returns to the committed image by dropping the chain.

Periodic tasks, requests and the registration of this controller receive this object instead of the whole
`QuorumController`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from quorate.clock import Clock
from quorate.controller.brokers.sessions import BrokerSessions
from quorate.controller.changes.attribution import Attribution, AttributionRecords
from quorate.controller.changes.audit import AuditLog
from quorate.controller.changes.purgatory import ResponsePurgatory
from quorate.controller.changes.record_versions import level_in
from quorate.controller.config import ControllerConfig
from quorate.controller.context import Context, View
from quorate.controller.replication.encoded_records import value_of
from quorate.metadata.errors import MetadataError
from quorate.metadata.image import EMPTY, MetadataImage, Provenance
from quorate.metadata.image.builder import ImageBuilder, apply_records
from quorate.metadata.loader import replay_value
from quorate.metadata.records import AbortTransactionRecord, NoOpRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data
from quorate.raft.types import CommittedBatch, NotLeaderError

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext
    from quorate.raft.runtime.client import RaftClient

logger = logging.getLogger(__name__)

NO_EPOCH = -1

_ATTRIBUTION = NoOpRecord()
"""Stands for the record with the attribution when the records of a write are replayed: neither changes the
image."""


class ControllerState:
    """Images, epoch and broker sessions of one controller.

    Attributes:
        image: The committed metadata.
        epoch: The epoch in which this controller is active, or NO_EPOCH if it is a standby.
        committed_offset: The last offset below the high watermark that was delivered.
        next_offset: The offset after the last record that this controller wrote, or the log end at the
            beginning of its term. Control records may follow.
        last_write: The monotonic time of the last write.
        pending: Responses whose records are not stable yet.
        written: The parts of an open metadata transaction that are not committed yet.
        audit: The lines of the audit log.
        exclusive: Whether only one change may write records. It is in a metadata transaction, or is
            about to begin one. All other writes wait, since their records would belong to it.
        failed: Whether an error that it cannot recover from has stopped this controller. It applies
            nothing more.
        closed: Whether the controller is shutting down.
    """

    def __init__(
        self,
        config: ControllerConfig,
        raft: RaftClient,
        clock: Clock,
        rng: Random,
        on_fatal: Callable[[BaseException], None] | None,
    ) -> None:
        self.config = config
        self.raft = raft
        self.clock = clock
        self._rng = rng
        self._on_fatal = on_fatal
        self.broker_sessions = BrokerSessions(config.broker_session_timeout_s)
        self.pending = ResponsePurgatory()
        self.written = ResponsePurgatory()
        self.audit = AuditLog(config.node_id)
        self.exclusive = False
        self.image: MetadataImage = EMPTY
        self.epoch = NO_EPOCH
        self.committed_offset = -1
        self.next_offset = 0
        self.last_write = 0.0
        self.failed = False
        self.closed = False
        self._attributions = AttributionRecords()
        self._next: MetadataImage | None = None
        self._chain: deque[tuple[int, int, MetadataImage]] = deque()
        """(first offset, last offset, image after it) of each write that is not committed yet."""

    @property
    def is_active(self) -> bool:
        """Whether this controller is the active one."""
        return self.epoch != NO_EPOCH

    @property
    def next_image(self) -> MetadataImage:
        """The metadata with every record written so far. On a standby, the committed metadata."""
        return self.image if self._next is None else self._next

    @property
    def last_written(self) -> int:
        """The offset of the newest record that is not committed yet and that handlers can see, or -1.
        They cannot see the records of an open transaction."""
        for _, last_offset, image in reversed(self._chain):
            if image.transaction is None:
                return last_offset
        return -1

    def log_info(self, text: str, *values: object) -> None:
        """Logs a line under the name of this controller."""
        logger.info("[QuorumController id=%d] " + text, self.config.node_id, *values)

    # -- handlers

    def view(self) -> View:
        """The state for one call of a handler. Only on the active controller."""
        raft = self.raft
        return View(
            self.next_image,
            self.broker_sessions,
            self.config,
            max(self.next_offset, raft.log_end_offset),
            kraft_version=raft.kraft_version,
            voter_ids=tuple(raft.voters.ids),
        )

    def context(self, ctx: RequestContext | None = None) -> Context:
        """The context of one handler call, at the current time. `ctx` is None for a write that this
        controller makes by itself."""
        clock = self.clock
        if ctx is None:
            return Context(now_ms=clock.now_ms(), now=clock.now(), rng=self._rng)
        return Context(
            now_ms=clock.now_ms(),
            now=clock.now(),
            rng=self._rng,
            api_version=ctx.api_version,
            principal=ctx.principal,
            client_id=ctx.client_id,
            client_host=ctx.client_host,
            listener=ctx.listener,
            forwarded=ctx.forwarded,
            request_id=ctx.request_id,
            unanswered_attempts=ctx.unanswered_attempts,
        )

    def write_own(self, records: list[Data], reason: str, *, atomic: bool = False) -> int:
        """Appends the records of a change that this controller makes by itself, as `write` does."""
        offset = self.write(records, Attribution(reason=reason), atomic=atomic)
        self.audit.own_written(reason, records, offset)
        return offset

    def write(self, records: list[Data], cause: Attribution | None = None, *, atomic: bool = False) -> int:
        """Appends records and replays them on the newest image at once. Returns the last offset.

        With a `cause` another record, the last one, says who made the change. An AbortTransactionRecord
        has its own reason and must be the last record of its write: if another record follows in the same
        delivery, Kafka's MetadataBatchLoader applies what was aborted.

        Without `atomic`, Raft divides the records into as many batches as their size requires. Either
        all records are accepted or none: nothing has been written when this method raises.

        Raises:
            KafkaError: NOT_CONTROLLER, or RECORD_LIST_TOO_LARGE for an atomic write or a single record
                that does not fit into one batch.
            MetadataError: A record cannot be replayed.
        """
        image = self._next
        assert image is not None
        assert not self.exclusive
        level = image.features.metadata_version or level_in(records)
        values = [value_of(record, level) for record in records]
        if cause is not None and self.config.attribution and type(records[-1]) is not AbortTransactionRecord:
            records = [*records, _ATTRIBUTION]
            values.append(self._attributions.value(cause))
        first, now_ms = self._next_append()
        # Replay precedes the append: a record that cannot be replayed must never get into the log.
        after = apply_records(
            image,
            records,
            offset=first + len(records) - 1,
            epoch=self.epoch,
            timestamp_ms=now_ms,
            encoded=values,
        )
        return self._append(first, values, after, atomic)

    def write_part(
        self, values: list[bytes], cause: Attribution | None = None, *, atomic: bool = False
    ) -> int:
        """Appends the values of records, which may be a part of a metadata transaction, and the record of
        their `cause`. Returns the last offset.

        Only for the change that has set `exclusive`. Raises as `write` does.
        """
        image = self._next
        assert image is not None
        assert self.exclusive
        if cause is not None and self.config.attribution:
            values = [*values, self._attributions.value(cause)]
        first, now_ms = self._next_append()
        builder = ImageBuilder(image)
        for offset, value in enumerate(values, first):
            replay_value(builder, value, offset)
        after = builder.finish(offset=first + len(values) - 1, epoch=self.epoch, timestamp_ms=now_ms)
        return self._append(first, values, after, atomic)

    def _next_append(self) -> tuple[int, int]:
        """The offset and the timestamp of the next record."""
        return max(self.next_offset, self.raft.log_end_offset), self.clock.now_ms()

    def _append(self, first: int, values: list[bytes], after: MetadataImage, atomic: bool) -> int:
        """Appends records whose replay gives the image `after`. Nothing has changed when this raises."""
        before, last_offset = self._next, first + len(values) - 1
        self._next = after
        self._chain.append((first, last_offset, after))
        try:
            last = self.raft.append(self.epoch, values, atomic=atomic)
        except BaseException as error:
            if self._chain and self._chain[-1][2] is after:
                self._chain.pop()
                self._next = before
            if isinstance(error, NotLeaderError):
                self.end_term()
                raise self.not_controller() from error
            raise
        if last != last_offset:
            self.fail(MetadataError(f"Raft appended up to offset {last}, where {last_offset} was expected"))
        self.next_offset = last + 1
        self.last_write = self.clock.now()
        return last

    def not_controller(self) -> KafkaError:
        """The error for a request that only the active controller can handle."""
        leader = self.raft.leader_and_epoch.leader_id
        if leader is None or leader == self.config.node_id:
            return KafkaError(
                ErrorCode.NOT_CONTROLLER,
                "No controller appears to be active.",
                remedy="kafka-metadata-quorum describe --status shows the voters and which of them fetch.",
            )
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader}.")

    # -- terms and commits

    def begin_term(self, epoch: int, now: float) -> None:
        """Makes this controller the active one of an epoch."""
        self.epoch = epoch
        self.exclusive = False
        self._next = self.image
        self.next_offset = self.raft.log_end_offset
        self.log_info(
            "Becoming the active controller at epoch %d, next write offset %d.", epoch, self.next_offset
        )
        own = self.config.node_id if self.config.is_broker_too else None
        self.broker_sessions.activate(self.image.cluster.brokers.values(), now, own)

    def end_term(self) -> None:
        """Makes this controller a standby. Records that were written but not committed may still be
        committed by the next leader, and then arrive through the log."""
        self.epoch = NO_EPOCH
        self.exclusive = False
        self._next = None
        self._chain.clear()
        self.written.fail_all(self.not_controller)
        self.pending.fail_all(self.not_controller)
        self.audit.term_ended()

    def commit_up_to(self, last: CommittedBatch) -> bool:
        """Moves the committed image of the active controller along the chain of writes. Returns whether
        the image now has exactly the records up to the end of this batch. If not, the batch ends within a
        write, and the caller has to replay the committed batches on the image of before."""
        chain = self._chain
        committed: MetadataImage | None = None
        end = last.last_offset
        while chain and chain[0][1] <= last.last_offset:
            _, end, committed = chain.popleft()
        if not chain or chain[0][0] > last.last_offset:
            end = last.last_offset  # no record of the next write is in the batch
        elif committed is None:
            return False  # the batch is the first part of a write that consists of several batches
        base = self.image if committed is None else committed
        self.image = base.with_provenance(Provenance(end, last.epoch, last.timestamp_ms))
        return end == last.last_offset

    def release_responses(self) -> None:
        """Releases the responses whose records are stable: committed, and outside of an open
        metadata transaction (KIP-868)."""
        self.written.release(self.committed_offset)
        if self.pending:
            open_transaction = self.image.transaction
            self.pending.release(
                self.committed_offset if open_transaction is None else open_transaction.offset - 1
            )
        self.audit.committed(self.committed_offset)

    def fail(self, error: BaseException) -> None:
        """Stops this controller after an error that it cannot recover from. Calls `on_fatal`, or raises
        the error if there is none."""
        self.failed = True
        logger.critical("[QuorumController id=%d] %s", self.config.node_id, error)
        if self.is_active:
            epoch = self.epoch
            self.end_term()
            self.raft.resign(epoch)
        if self._on_fatal is None:
            raise error
        self._on_fatal(error)
