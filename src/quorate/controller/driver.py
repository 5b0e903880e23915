"""Joins the pure handlers to Raft: one per node with the controller role.

The active controller keeps two images. `image` is what is committed: it is what standbys, snapshots and
readers see. `_next` is where everything written so far leads to; handlers see only that one. Between
the two lies a chain with one image per write, so that a commit costs no replay and losing the
leadership means dropping a reference.

An answer is given once the log is stable up to the records that it depends on: those that its handler
wrote, or, if it wrote none, whatever was already written when it looked. Stable: committed and not
inside an open transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.controller.activation import ActivationError, activation_records
from quorate.controller.broker_connections import BrokerConnections
from quorate.controller.broker_sessions import BrokerSessions
from quorate.controller.clock import Clock, LoopClock
from quorate.controller.config import ControllerConfig
from quorate.controller.context import View
from quorate.controller.periodic_tasks import NEVER, PeriodicTasks
from quorate.controller.purgatory import ResponsePurgatory
from quorate.controller.reads import read_routes
from quorate.controller.record_versions import level_in, version_of
from quorate.controller.registration import ControllerRegistrar
from quorate.controller.requests import Requests
from quorate.controller.routes import WRITES
from quorate.controller.warm_up import WarmUp
from quorate.metadata.errors import MetadataError
from quorate.metadata.features import KRAFT_VERSION
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage, Provenance
from quorate.metadata.image.builder import apply_records
from quorate.metadata.shared_replay import SharedReplay, too_many_at_once
from quorate.metadata.snapshot_emitter import SnapshotEmitter
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data
from quorate.raft.types import CommittedBatch, LeaderAndEpoch, NotLeaderError, OffsetEpoch

if TYPE_CHECKING:
    from quorate.net.dispatch import FeatureState, Handler, RequestContext
    from quorate.raft.runtime.client import RaftClient
    from quorate.raft.runtime.delivery import Steps

log = logging.getLogger(__name__)

NO_EPOCH = -1
STALLED_S = (
    0.5  # a timer that comes so late: the process was stopped, or the loop was held up, and heard nobody
)
DRAIN_S = 0.25  # a controller that closes waits so long for its last changes to commit: their clients need not ask again


class QuorumController:
    """A controller, active or standby. A Raft listener; its `routes` go to the controller listener's
    dispatcher.

    on_fatal: told of what this node cannot go on from (a record that cannot be replayed); it is
    expected to stop the process. Errors of a handler that it did not foresee are answered and logged: a
    handler has no state to damage.
    """

    def __init__(
        self,
        config: ControllerConfig,
        raft: RaftClient,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        replay: SharedReplay | None = None,
    ) -> None:
        self.config = config
        self.raft = raft
        self.clock = clock or LoopClock()
        self.requests = Requests(self, rng or Random())
        self._on_fatal = on_fatal
        self._replay = replay or SharedReplay()
        self.broker_sessions = BrokerSessions(config.broker_session_timeout_s)
        self.pending = ResponsePurgatory()
        self.image: MetadataImage = EMPTY
        """Committed metadata."""
        self._next: MetadataImage | None = None
        self._chain: deque[tuple[int, int, MetadataImage]] = deque()
        """(first offset, last offset, image after it) of each write that is not committed yet."""
        self._epoch = NO_EPOCH
        self._committed = -1
        self.next_offset = 0
        self.last_write = 0.0
        self.failed = False
        self.tasks = PeriodicTasks(self)
        self.snapshots = SnapshotEmitter(
            raft,
            config.node_id,
            max_bytes=config.snapshot_bytes,
            interval_s=config.snapshot_interval_s,
            now_ms=self.clock.now_ms,
        )
        self._registrar = ControllerRegistrar(self)
        self._preparation = WarmUp()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self.contacts = BrokerConnections(self)
        self._image_listeners: list[Callable[[MetadataImage], None]] = []
        self.routes: dict[int, Handler] = {int(key): self.requests.submit for key in WRITES}
        self.routes[ApiKey.ENVELOPE] = self._envelope
        self.routes.update(read_routes(self))

    # -- life

    async def start(self, *, timers: bool = True) -> None:
        """Begins to follow the log. timers: False leaves the clock's work to the caller (`run_due`)."""
        if timers:
            self._loop = asyncio.get_running_loop()
            self._preparation.begin()
        self.raft.register(self)
        self._arm()

    async def close(self) -> None:
        """Takes on nothing more, lets what is written commit for a moment, answers the rest with
        NOT_CONTROLLER and stops the clock; Raft is shut down by its owner."""
        self.closed = True
        self._preparation.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.pending and self.is_active:
            await self.pending.emptied(DRAIN_S)
        self._drop_term()
        await self._registrar.close()
        await self.snapshots.close()

    @property
    def is_active(self) -> bool:
        return self._epoch != NO_EPOCH

    @property
    def epoch(self) -> int:
        """The epoch in which this controller is active, -1 if it is not."""
        return self._epoch

    @property
    def next_image(self) -> MetadataImage:
        """Committed metadata and everything written since; only on the active controller."""
        return self.image if self._next is None else self._next

    @property
    def last_written(self) -> int:
        """The offset of the newest change that is not committed yet, -1 without one."""
        return self._chain[-1][1] if self._chain else -1

    @property
    def committed_offset(self) -> int:
        """The last offset below the high watermark that was delivered."""
        return self._committed

    def features(self) -> FeatureState:
        """What ApiVersions tells on the controller listener: this node's ranges, the finalised levels,
        as of an offset."""
        from quorate.net.dispatch import FeatureLevel, FeatureRange, FeatureState

        finalized = [FeatureLevel(name, level) for name, level in self.image.features.finalized.items()]
        if self.raft.kraft_version_finalised > 0:
            finalized.append(FeatureLevel(KRAFT_VERSION, self.raft.kraft_version_finalised))
        return FeatureState(
            [FeatureRange(name, low, high) for name, (low, high) in self.config.features.items()],
            finalized,
            self._committed,
        )

    def add_image_listener(self, listener: Callable[[MetadataImage], None]) -> None:
        """Told of each new committed image."""
        self._image_listeners.append(listener)

    def log_info(self, text: str, *values: object) -> None:
        log.info("[QuorumController id=%d] " + text, self.config.node_id, *values)

    # -- Raft's side

    def on_commit(self, batches: Sequence[CommittedBatch]) -> Steps | None:
        if not batches or self.failed:
            return None
        if not self.is_active and too_many_at_once(batches):
            return self._take_in_steps(batches)
        if self.is_active:
            self._advance(batches[-1])
        else:
            try:
                self.image = self._replay.apply(self.image, batches)
            except MetadataError as error:
                self._fatal(error)
                return None
        self._taken(batches)
        return None

    def _take_in_steps(self, batches: Sequence[CommittedBatch]) -> Steps:
        try:
            self.image = yield from self._replay.apply_steps(self.image, batches)
        except MetadataError as error:
            self._fatal(error)
            return
        self._taken(batches)

    def _taken(self, batches: Sequence[CommittedBatch]) -> None:
        self._committed = batches[-1].last_offset
        self._published()
        size = sum(batch.size_bytes for batch in batches)
        self.snapshots.committed(self.image, self._committed, size, self.clock.now())

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[Any]) -> Steps:
        if self.failed:
            return
        try:
            self.image = yield from self._replay.load_steps(snapshot_id.offset, snapshot_id.epoch, batches)
        except MetadataError as error:
            self._fatal(error)
            return
        self._committed = snapshot_id.offset - 1
        self.snapshots.loaded(snapshot_id.offset)
        self._published()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        mine = leader.leader_id == self.config.node_id
        if self.is_active and (not mine or leader.epoch != self._epoch):
            self.log_info(
                "Renouncing the leadership of epoch %d: in epoch %d the leader is %s.",
                self._epoch,
                leader.epoch,
                "(none)" if leader.leader_id is None else leader.leader_id,
            )
            self._drop_term()
        if mine and not self.is_active and not self.closed and not self.failed:
            self._claim(leader.epoch)
        self.requests.release_held()
        self._registrar.leader_changed()
        self._arm()

    def on_high_watermark(self, hwm: int) -> None:
        """Nothing to do: commits are delivered with their batches."""

    def _advance(self, last: CommittedBatch) -> None:
        """Moves the committed image along the chain of writes."""
        chain = self._chain
        committed: MetadataImage | None = None
        end = last.last_offset
        while chain and chain[0][1] <= last.last_offset:
            _, end, committed = chain.popleft()
        if not chain or chain[0][0] > last.last_offset:
            end = (
                last.last_offset
            )  # nothing of the next write is in the batch: the image stands at its very end
        elif committed is None:
            return  # the batch is the first part of a write that takes several
        base = self.image if committed is None else committed
        self.image = base.with_provenance(Provenance(end, last.epoch, last.timestamp_ms))
        if end == last.last_offset:
            self._replay.offer(self.image)

    def _published(self) -> None:
        opened = self.image.transaction
        stable = self._committed if opened is None else opened.offset - 1
        if self.pending:
            self.pending.release(stable)
        for listener in self._image_listeners:
            listener(self.image)
        self._registrar.check()

    def _fatal(self, error: BaseException) -> None:
        self.failed = True
        log.critical("[QuorumController id=%d] %s", self.config.node_id, error)
        if self.is_active:
            epoch = self._epoch
            self._drop_term()
            self.raft.resign(epoch)
        if self._on_fatal is None:
            raise error
        self._on_fatal(error)

    # -- terms

    def _claim(self, epoch: int) -> None:
        self._epoch = epoch
        self._next = self.image
        self.next_offset = self.raft.log_end_offset
        self.log_info(
            "Becoming the active controller at epoch %d, next write offset %d.", epoch, self.next_offset
        )
        now = self.clock.now()
        own = self.config.node_id if self.config.is_broker_too else None
        self.broker_sessions.activate(self.image.cluster.brokers.values(), now, own)
        try:
            records, atomic, doing = activation_records(
                self.image, self.config.bootstrap, self.config.static_min_isr
            )
            if doing:
                self.log_info("Performing controller activation. %s", doing)
            if records:
                self.write(records, atomic=atomic)
        except (ActivationError, MetadataError) as error:
            self._fatal(error)
            return
        except KafkaError as error:
            self.log_info("The leadership of epoch %d is over before it began: %s", epoch, error)
            return
        if self.is_active:
            self.last_write = now
            self.tasks.activate(now)

    def _drop_term(self) -> None:
        """Back to standby: what was written and not committed may or may not come back through the log."""
        self._epoch = NO_EPOCH
        self._next = None
        self._chain.clear()
        self.tasks.deactivate()
        self.pending.fail_all(self.not_controller)

    def not_controller(self) -> KafkaError:
        leader = self.raft.leader_and_epoch.leader_id
        if leader is None or leader == self.config.node_id:
            return KafkaError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader}.")

    # -- writing

    def view(self) -> View:
        """What a handler sees now. Only on the active controller."""
        raft = self.raft
        return View(
            self.next_image,
            self.broker_sessions,
            self.config,
            max(self.next_offset, raft.log_end_offset),
            kraft_version=raft.kraft_version,
            voter_ids=tuple(raft.voters.ids),
        )

    def write(self, records: list[Data], *, atomic: bool = False) -> int:
        """Appends records and replays them on the newest image at once; returns the offset of the last.

        Without `atomic`, Raft cuts them into as many batches as their size takes. Either way all
        records are accepted or none: whatever this raises, nothing has been written. Raises
        NOT_CONTROLLER; RECORD_LIST_TOO_LARGE for an atomic write, or a single record, that fits no
        batch; MetadataError for a record that cannot be replayed.
        """
        image = self._next
        assert image is not None
        level = image.features.metadata_version or level_in(records)
        values = [encode_record(record, version_of(record, level)) for record in records]
        first = max(self.next_offset, self.raft.log_end_offset)
        now_ms = self.clock.now_ms()
        # Replayed before it is appended: what cannot be replayed must never get into the log.
        last_offset = first + len(records) - 1
        after = apply_records(
            image, records, offset=last_offset, epoch=self._epoch, timestamp_ms=now_ms, encoded=values
        )
        self._next = after
        self._chain.append((first, last_offset, after))
        try:
            last = self.raft.append(self._epoch, values, atomic=atomic)
        except BaseException as error:
            if self._chain and self._chain[-1][2] is after:
                self._chain.pop()
                self._next = image
            if isinstance(error, NotLeaderError):
                self._drop_term()
                raise self.not_controller() from error
            raise
        if last != last_offset:
            self._fatal(MetadataError(f"Raft appended up to offset {last}, where {last_offset} was expected"))
        self.next_offset = last + 1
        self.last_write = self.clock.now()
        return last

    def register_self(self, request: Any) -> None:
        """Writes this active controller's own registration."""
        from quorate.controller.handlers.register_controller import register_controller

        try:
            self.write(register_controller(self.view(), request, self.requests.context()).records)
        except KafkaError as error:
            self.log_info("Registering this controller failed: %s", error)

    # -- what comes from outside

    def connection_lost(self, session: tuple[int, int]) -> None:
        """The connection over which this broker session was last heard of is gone."""
        if self.is_active:
            self._look_for_stall(self.clock.now())
            self.broker_sessions.connection_lost(
                *session, self.clock.now(), self.config.lost_connection_grace_s
            )
            self.tasks.look_for_stale(self.clock.now())
            self._arm()

    def _envelope(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.controller.envelope import open_envelope

        return open_envelope(self, ctx, request)

    # -- the clock

    def run_due(self) -> None:
        """Does everything whose time has come."""
        self.tasks.run_due(self.clock.now())

    def _arm(self) -> None:
        """Sets the timer for the next task. A task's time only ever moves on when it runs or a term
        begins or ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is None or self.closed:
            return
        due, now = self.tasks.next_due(), self.clock.now()
        if due != NEVER:
            self._timer_due = max(now, due)
            self._timer = self._loop.call_later(self._timer_due - now, self._on_timer)

    def _on_timer(self) -> None:
        self._look_for_stall(self.clock.now())
        self._timer = None
        try:
            self.run_due()
        finally:
            self._arm()

    def _look_for_stall(self, now: float) -> None:
        """Before anything that sets the timer anew: a timer that is late tells of a stall only once."""
        late_s = now - self._timer_due
        if self._timer is not None and late_s > STALLED_S:
            self.log_info("Nothing ran for %.1f s: brokers have that much longer to be heard of.", late_s)
            self.broker_sessions.stalled(late_s, now)
            self._timer_due = now
