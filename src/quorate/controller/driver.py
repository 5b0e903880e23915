"""Joins the controller's state, requests and periodic tasks to Raft: one for each node with the
controller role.

The rules are elsewhere. `state` holds the images and writes records, `requests` runs the handlers, and
`periodic_tasks` runs what is due. This module receives Raft's callbacks, begins and ends terms, and sets
the timer.

A response is released when the log is stable up to the records that it depends on: the records that its
handler wrote, or, if the handler wrote none, all records that were written when the handler read the
state. Stable records are committed and outside of an open transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.clock import NEVER, Clock, LoopClock
from quorate.config.dynamic_configs import NO_DYNAMIC_CONFIGS
from quorate.controller.activation_records import ActivationError, activation_records
from quorate.controller.brokers.connections import BrokerConnections
from quorate.controller.brokers.probes import BrokerProbes
from quorate.controller.config import ControllerConfig
from quorate.controller.controller_registrar import ControllerRegistrar
from quorate.controller.periodic_tasks import PeriodicTasks
from quorate.controller.requests.reads import read_routes
from quorate.controller.requests.routes import WRITES
from quorate.controller.requests.writes import WriteRequests
from quorate.controller.standby_preload import StandbyPreload
from quorate.controller.state import ControllerState
from quorate.lazy import lazy_module
from quorate.metadata.errors import MetadataError
from quorate.metadata.features import KRAFT_VERSION
from quorate.metadata.image import MetadataImage
from quorate.metadata.shared_replay import SharedReplay, too_many_at_once
from quorate.metadata.snapshot_generator import SnapshotGenerator
from quorate.net.dispatch import FeatureLevel, FeatureRange, FeatureState
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch

if TYPE_CHECKING:
    from quorate.config.dynamic_configs import DynamicConfigs
    from quorate.controller.requests import envelope
    from quorate.metadata.image.cluster import ClusterImage
    from quorate.net.dispatch import Handler, RequestContext
    from quorate.raft.runtime.client import RaftClient
    from quorate.raft.runtime.delivery import Steps
else:
    envelope = lazy_module("quorate.controller.requests.envelope")

STALL_S = 0.5
"""A timer that fires so late shows that the process was stopped or its event loop was blocked. In that
time it received no heartbeat."""

DRAIN_S = 0.25
"""A controller that closes waits this long for its last records to commit, so that their clients need not
send the requests again."""


class QuorumController:
    """A controller, active or standby. It is a listener of Raft, and its `routes` belong to the
    dispatcher of the controller listener.

    `on_fatal` is called with an error that this node cannot recover from, such as a record that cannot
    be replayed. It is expected to stop the process. An unexpected error of a handler is answered and
    logged: a handler has no state that it could damage.
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
        self.state = ControllerState(config, raft, clock or LoopClock(), rng or Random(), on_fatal)
        self.tasks = PeriodicTasks(self.state)
        self.snapshots = SnapshotGenerator(
            raft,
            config.node_id,
            max_bytes=config.snapshot_bytes,
            interval_s=config.snapshot_interval_s,
            now_ms=self.state.clock.now_ms,
        )
        self._replay = replay or SharedReplay()
        self._connections = BrokerConnections(self.state, self.connection_lost, self._fetch_connection_lost)
        self._probes = BrokerProbes(
            config.node_id, self.state.clock, self._connections.is_connected, self.broker_ended
        )
        self._cluster: ClusterImage | None = None
        self._requests = WriteRequests(self.state, self._connections)
        self._registrar = ControllerRegistrar(self.state)
        self._standby_preload = StandbyPreload(lambda: self.state.is_active)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._loop: asyncio.AbstractEventLoop | None = None
        self.new_active_controllers = 0
        """Elections of a controller that this node has seen."""
        self._image_listeners: list[Callable[[MetadataImage], None]] = []
        self.routes: dict[int, Handler] = {int(key): self._requests.submit for key in WRITES}
        self.routes[ApiKey.ENVELOPE] = self._envelope
        self.routes.update(read_routes(self.state, self._requests.submit))
        if config.probe_brokers:
            self.routes[ApiKey.FETCH] = self._fetch

    # -- start and close

    async def start(self, *, timers: bool = True) -> None:
        """Begins to follow the log. Without `timers` the caller has to call `run_due`."""
        if timers:
            self._loop = asyncio.get_running_loop()
            self.state.audit.write_later(self._loop)
            self._standby_preload.begin()
            if self.state.config.probe_brokers:
                self._probes.start()
        self.state.raft.register(self)
        self._arm()

    async def close(self) -> None:
        """Accepts no more requests, waits for a moment until written records are committed, fails the
        remaining requests with NOT_CONTROLLER and stops the timer. The owner of Raft shuts it down."""
        state = self.state
        state.closed = True
        self._standby_preload.close()
        self._probes.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if state.pending and state.is_active:
            await state.pending.emptied(DRAIN_S)
        state.end_term()
        state.audit.close()
        await self._registrar.close()
        await self.snapshots.close()

    def features(self) -> FeatureState:
        """The features of an ApiVersions response on the controller listener: the ranges that this node
        supports, the finalized levels, and the offset as of which they are finalized."""
        state = self.state
        finalized = [FeatureLevel(name, level) for name, level in state.image.features.finalized.items()]
        if state.raft.kraft_version_finalised > 0:
            finalized.append(FeatureLevel(KRAFT_VERSION, state.raft.kraft_version_finalised))
        return FeatureState(
            [FeatureRange(name, low, high) for name, (low, high) in state.config.features.items()],
            finalized,
            state.committed_offset,
        )

    def add_image_listener(self, listener: Callable[[MetadataImage], None]) -> None:
        """Calls the listener with each new committed image."""
        self._image_listeners.append(listener)

    def add_config_listener(self, listener: Callable[[DynamicConfigs], None]) -> None:
        """Calls the listener with the dynamic configurations that this node applies, after each change of
        them."""
        known = NO_DYNAMIC_CONFIGS

        def changed(image: MetadataImage) -> None:
            nonlocal known
            applied = self.state.config.schema.dynamic(image.configs)
            if applied is not known:
                known = applied
                listener(applied)

        self.add_image_listener(changed)
        changed(self.state.image)

    # -- Raft's callbacks

    def on_commit(self, batches: Sequence[CommittedBatch]) -> Steps | None:
        """Applies committed batches. A standby applies very many of them in steps."""
        state = self.state
        if not batches or state.failed:
            return None
        if state.is_active:
            before = state.image
            if state.commit_up_to(batches[-1]):
                self._replay.offer(state.image)
            else:
                # The last batch ends within a write. This controller may be a standby when the rest of the
                # write arrives, and then continues from this image.
                state.image = self._replay.apply(before, batches)
        elif too_many_at_once(batches):
            return self._apply_in_steps(batches)
        else:
            try:
                state.image = self._replay.apply(state.image, batches)
            except MetadataError as error:
                state.fail(error)
                return None
        self._applied(batches)
        return None

    def _apply_in_steps(self, batches: Sequence[CommittedBatch]) -> Steps:
        try:
            self.state.image = yield from self._replay.apply_steps(self.state.image, batches)
        except MetadataError as error:
            self.state.fail(error)
            return
        self._applied(batches)

    def _applied(self, batches: Sequence[CommittedBatch]) -> None:
        state = self.state
        state.committed_offset = batches[-1].last_offset
        self._publish()
        size = sum(batch.size_bytes for batch in batches)
        self.snapshots.committed(state.image, state.committed_offset, size, state.clock.now())

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[Any]) -> Steps:
        """Replaces the image by the contents of a snapshot."""
        state = self.state
        if state.failed:
            return
        try:
            state.image = yield from self._replay.load_steps(snapshot_id.offset, snapshot_id.epoch, batches)
        except MetadataError as error:
            state.fail(error)
            return
        state.committed_offset = snapshot_id.offset - 1
        self.snapshots.loaded(snapshot_id.offset)
        self._publish()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Begins or ends this controller's term."""
        state = self.state
        is_self = leader.leader_id == state.config.node_id
        self.new_active_controllers += leader.leader_id is not None
        if state.is_active and (not is_self or leader.epoch != state.epoch):
            state.log_info(
                "Renouncing the leadership of epoch %d: in epoch %d the leader is %s.",
                state.epoch,
                leader.epoch,
                "(none)" if leader.leader_id is None else leader.leader_id,
            )
            state.end_term()
        if not state.is_active:
            self._probes.term_ended()
        if is_self and not state.is_active and not state.closed and not state.failed:
            self._claim(leader.epoch)
        self._requests.release_deferred()
        self._registrar.leader_changed()
        self._arm()

    def on_high_watermark(self, hwm: int) -> None:
        """Does nothing: commits are delivered with their batches."""

    def _publish(self) -> None:
        self.state.release_responses()
        for listener in self._image_listeners:
            listener(self.state.image)
        cluster = self.state.image.cluster
        if cluster is not self._cluster:
            self._cluster = cluster
            self._probes.registrations_changed(cluster.brokers.values())
        self._registrar.check()

    def _claim(self, epoch: int) -> None:
        """Begins a term: writes the activation records (KIP-868) and starts the periodic tasks."""
        state = self.state
        now = state.clock.now()
        self.tasks.deactivate()
        state.begin_term(epoch, now)
        try:
            records, atomic, doing = activation_records(
                state.image, state.config.bootstrap, state.config.static_min_isr
            )
            if doing:
                state.log_info("Performing controller activation. %s", doing)
            if records:
                state.write_own(records, doing, atomic=atomic)
        except (ActivationError, MetadataError) as error:
            state.fail(error)
            return
        except KafkaError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                state.fail(error)
                return
            state.log_info("The leadership of epoch %d ended before its activation: %s", epoch, error)
            return
        if state.is_active:
            state.last_write = now
            self.tasks.activate(now)
            self._probes.term_began()

    # -- connections and forwarded requests

    def connection_lost(self, session: tuple[int, int]) -> None:
        """Shortens a broker session whose connection was closed."""
        state = self.state
        if state.is_active:
            now = state.clock.now()
            self._detect_stall(now)
            state.broker_sessions.connection_lost(*session, now, state.config.lost_connection_grace_s)
            self.tasks.reschedule_fencing(now)
            self._arm()
            self._probes.connection_lost(session[0])

    def _fetch_connection_lost(self, broker_id: int) -> None:
        if self.state.is_active:
            self._probes.connection_lost(broker_id)

    def broker_ended(self, session: tuple[int, int]) -> None:
        """Fences a broker whose process has ended, without waiting for the end of its session."""
        state = self.state
        if state.is_active:
            now = state.clock.now()
            self._detect_stall(now)
            state.log_info(
                "Broker %d at epoch %d has closed its connections, and its host refuses connections to it.",
                *session,
            )
            state.broker_sessions.end(*session, now)
            self.tasks.reschedule_fencing(now)
            try:
                self.run_due()
            finally:
                self._arm()

    def _fetch(self, ctx: RequestContext, request: Any) -> Any:
        """Records the connection of the Fetch, which Raft answers."""
        self._connections.fetch(ctx, request)
        return self.state.raft.handle(ctx, request)

    def _envelope(self, ctx: RequestContext, request: Any) -> Any:
        return envelope.open_envelope(self.state.raft, self._requests.submit, ctx, request)

    # -- the timer

    def run_due(self) -> None:
        """Runs the periodic tasks that are due."""
        self.tasks.run_due(self.state.clock.now())

    def _arm(self) -> None:
        """Sets the timer for the next task. The time of a task becomes later only when it runs or when
        a term begins or ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is None or self.state.closed:
            return
        due, now = self.tasks.next_due(), self.state.clock.now()
        if due != NEVER:
            self._timer_due = max(now, due)
            self._timer = self._loop.call_later(self._timer_due - now, self._on_timer)

    def _on_timer(self) -> None:
        self._detect_stall(self.state.clock.now())
        self._timer = None
        try:
            self.run_due()
        finally:
            self._arm()

    def _detect_stall(self, now: float) -> None:
        """Extends the broker sessions if the timer is late, because no heartbeat was received meanwhile.

        Called before the timer is set anew, which would hide that it is late.
        """
        late_s = now - self._timer_due
        if self._timer is not None and late_s > STALL_S:
            self.state.log_info(
                "The event loop was stalled for %.1f s: broker sessions are extended by this time.", late_s
            )
            self.state.broker_sessions.extend_all(late_s, now)
            self._timer_due = now
