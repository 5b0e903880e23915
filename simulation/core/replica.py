"""One replica of a simulated quorum: the real Raft core, and a driver that performs its effects on a disk
in memory.

The driver performs the effects in the order that `Effects` states, except that the checker learns of a new
role and a new high watermark before anything is truncated or appended.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from quorate.raft.core import events
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Effects, Outgoing, RoleChange, SnapshotChunk
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import Address, OffsetEpoch, QuorumState, RaftParams, ReplicaKey, Role
from simulation.checker.invariants import InvariantError, Keys, ReplicaModel, keys_of
from simulation.checker.log_model import Batch
from simulation.core.environment import Environment
from simulation.core.interrupted_step import first_duties
from simulation.core.leader_contact import LeaderContact, is_fetch_response_of_leader
from simulation.core.memory_disk import MemoryDisk, Snapshot
from simulation.core.wakeup_limit import WakeupLimit
from simulation.identifiers import BOOTSTRAP_SNAPSHOT, CLUSTER_ID, LISTENER, address

NEVER = float("inf")
TICK_S = 1e-9  # added to each timer, because rounding in a skewed clock must not make it fire too early
STOP_TIMEOUT_S = 5.0
DEFERRED_SAVE_DELAY_S = 0.2  # how long a save of the quorum state that may wait is delayed


class Replica:
    """A replica on one metadata directory, through all incarnations of its process."""

    def __init__(
        self,
        world: Environment[Replica],
        key: ReplicaKey,
        *,
        can_vote: bool,
        static_voters: VoterSet,
        bootstrap_voters: VoterSet | None,
    ) -> None:
        self.world = world
        self.key = key
        self.id = key.id
        self.can_vote = can_vote
        self.static_voters = static_voters
        self.address = address(key.id)
        base: Keys = keys_of(bootstrap_voters if bootstrap_voters is not None else static_voters)
        self.model = ReplicaModel(f"n{key.id}", (key.id, key.directory_id), base)
        self.disk = MemoryDisk(self.model, world.checker)
        if bootstrap_voters is not None:
            self.disk.add_snapshot(BOOTSTRAP_SNAPSHOT, Snapshot(0, bootstrap_voters, 1))
        self.core: Raft
        self.alive = False
        self.incarnation = 0  # incremented at each start and each crash: timers of an earlier one are void
        self.committed = 0
        self.rate = 1.0  # of its clock
        self.paused_until = 0.0
        # The process ends within the next step, after this many effects.
        self.crash_after_duties: int | None = None
        self.unanswered: dict[object, None] = {}  # tokens of requests that this replica has not answered yet
        self.replies: dict[object, m.Reply] = {}  # to requests made by `request_from_outside`
        self.queue: deque[events.Event] = deque()
        self.stepping = False
        self.proposed: list[Any] = []
        self.syncing = False
        # Incremented when the log is truncated or replaced: a running fsync then proves nothing.
        self.log_generation = 0
        self.deferred_state: QuorumState | None = None  # the quorum state whose save is scheduled
        self.contact = LeaderContact()
        self.downloaded_bytes = 0  # of the snapshot being fetched
        self.wake_at = NEVER
        self.wakeup_limit = WakeupLimit()

    # --- incarnations -----------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether the replica believes that it leads, and is not paused."""
        return self.alive and self.core.state.is_leader and self.paused_until <= self.world.now

    @property
    def hears_leader(self) -> bool:
        return self.contact.hears_leader

    def start(self) -> None:
        world = self.world
        self.incarnation += 1
        self.alive = True
        self.disk.recover()
        self.committed = self.disk.start
        self.model.hwm = -1
        self.queue.clear()
        self.unanswered.clear()
        self.replies.clear()
        self.proposed = []
        self.deferred_state = None
        self.stepping = self.syncing = self.contact.hears_leader = False
        self.crash_after_duties = None
        self.wake_at = NEVER
        if self.can_vote:
            self.disk.durable_end = self.disk.end
        endpoints = {LISTENER: self.address} if self.can_vote else {}
        params = RaftParams(
            me=self.key,
            cluster_id=CLUSTER_ID,
            listener_name=LISTENER,
            endpoints=endpoints,
            can_vote=self.can_vote,
            bootstrap=world.bootstrap_servers,
            quick_failover=world.config.topology.quick_failover,
            auto_join=world.config.topology.auto_join,
        )
        members = self.disk.membership(self.static_voters)
        rng = world.new_rng()
        self.core = Raft(params, self.disk, self.disk.stored, members, rng, self.disk.membership_record)
        world.trace(self, "starts")
        self.stepping = True
        try:
            self.perform(self.core.start(world.now * self.rate))
        finally:
            self.stepping = False
        self.drain()

    def crash(self, lose_power: bool) -> None:
        """Ends the process at once.

        With `lose_power` the log keeps only its durable part and a random number of the batches after it.
        """
        if not self.alive:
            return
        self.alive = False
        self.incarnation += 1
        if lose_power:
            log = self.model.log
            ends = [self.disk.durable_end, *(b.end for b in log.between(self.disk.durable_end, 1 << 62))]
            keep = self.world.rng.choice(ends)
            if keep < self.disk.end:
                self.disk.lose_from(keep)
                self.world.coverage["unsynced tails lost"] += 1
        self.world.coverage["power failures" if lose_power else "kills"] += 1
        self.world.trace(self, "loses power" if lose_power else "is killed")
        self.world.died(self, lose_power)

    # --- driver -----------------------------------------------------------------------------------

    def step(self, event: events.Event) -> None:
        """Hands an event to the core and performs the effects, after those of earlier events."""
        if self.alive:
            self.contact.before_event(self.core.state, event)
            self.queue.append(event)
            if not self.stepping:
                self.drain()

    def drain(self) -> None:
        """Handles the queued events, unless a call of this method already does."""
        if self.stepping:
            return
        self.stepping = True
        queue, world = self.queue, self.world
        try:
            while queue and self.alive:
                effects = self.core.step(queue.popleft(), world.now * self.rate)
                if self.core.state.error_log.logged_kinds:  # simulated replicas never send invalid messages
                    raise InvariantError(
                        f"{self.model.name} complains: {', '.join(self.core.state.error_log.logged_kinds)}"
                    )
                self.perform(effects)
                if self.alive:
                    world.checker.check_epoch(self.model, self.disk.stored, self.core.state.epoch)
        except InvariantError:
            raise
        except Exception as e:
            raise InvariantError(f"{self.model.name}: {type(e).__name__}: {e}") from e
        finally:
            self.stepping = False

    def perform(self, effects: Effects) -> None:
        """Performs all effects, or some of them if the process is to end within this step."""
        if self.crash_after_duties is not None:
            self._perform_some(effects)
            return
        disk, world = self.disk, self.world
        for out in effects.send:
            world.send(self, out)
        if effects.save_quorum_state is not None:
            self._save(effects.save_quorum_state, effects.save_may_wait)
        if effects.role is not None:
            self._role(effects.role)
        if effects.high_watermark is not None:
            self._commit(min(effects.high_watermark, disk.end))
        if effects.truncate_to is not None:
            self._truncate(effects.truncate_to)
        if effects.start_snapshot is not None:
            self.downloaded_bytes = 0
            self.queue.append(events.SnapshotOpened(effects.start_snapshot.snapshot, 0))
        if effects.snapshot_chunk is not None:
            self._on_snapshot_chunk(effects.snapshot_chunk)
        if effects.append_fetched is not None:
            self._append_fetched(effects.append_fetched)
        if effects.append_control is not None:
            self._append_control(effects.append_control)
        for answer in effects.answers:
            self._answer(answer.token, answer.reply)
        if effects.save_membership_record is not None:
            disk.membership_record = effects.save_membership_record
        if effects.wake_at < self.wake_at:
            self.wake_at = effects.wake_at
            world.schedule(
                max(world.now, effects.wake_at / self.rate) + TICK_S,
                self.on_timer,
                (self.incarnation, effects.wake_at),
            )

    def _perform_some(self, effects: Effects) -> None:
        """Performs the first few effects and then ends the process."""
        duties, self.crash_after_duties = self.crash_after_duties or 0, None
        self.perform(first_duties(effects, duties))
        self.world.coverage["deaths within a step"] += 1
        self.crash(self.world.crash_loses_power())

    def on_timer(self, what: tuple[int, float]) -> bool:
        """Handles the timer.

        Returns False if an earlier incarnation set it, or if another has been set since.
        """
        incarnation, at = what
        if incarnation != self.incarnation or at != self.wake_at:
            return False
        self.wake_at = NEVER
        if not self.wakeup_limit.admits(self.world.now):
            raise InvariantError(f"{self.model.name} asks to be woken again and again at the same time")
        self.step(events.Timeout())
        return True

    # --- effects ----------------------------------------------------------------------------------

    def _save(self, state: QuorumState, may_wait: bool) -> None:
        """Saves a quorum state durably, or schedules the save."""
        if may_wait:
            if self.deferred_state is None:
                self.world.schedule(
                    self.world.now + DEFERRED_SAVE_DELAY_S, self._save_deferred, self.incarnation
                )
            self.deferred_state = state
            return
        self.deferred_state = None
        self.disk.stored = state
        self.world.checker.stored(self.model, state)

    def _save_deferred(self, incarnation: int) -> bool:
        if incarnation != self.incarnation or self.deferred_state is None:
            return False
        self._save(self.deferred_state, False)
        return True

    def _role(self, change: RoleChange) -> None:
        """Handles a change of role, of which the checker must know before the first batch is written."""
        r = self.core.state
        self.contact.hears_leader = False
        if r.is_leader:
            if self.model.led != r.epoch:
                self.world.checker.became_leader(self.model, r.epoch)
        else:
            self.proposed = []
        self.world.trace(self, f"is {change.role.value} in epoch {change.epoch}")

    def _commit(self, hwm: int) -> None:
        """Reports the new high watermark to the checker before later effects, which may depend on it."""
        world = self.world
        if self.core.state.leading is not None:
            world.checker.high_watermark_advanced(self.model, hwm, world.holds)
        world.checker.committed(self.model, hwm, self.core.state.epoch)
        if hwm > self.committed:
            self.committed = hwm
            if world.trace_sink is not None:
                world.trace(self, f"commits up to {hwm}")

    def _truncate(self, to: int) -> None:
        self.log_generation += 1
        self.world.trace(self, f"truncates from {self.disk.end} to {to}")
        self.disk.truncate(to)
        self.queue.append(events.Synced(self.disk.end))

    def _on_snapshot_chunk(self, chunk: SnapshotChunk) -> None:
        """Takes a part of a snapshot, and loads the snapshot when it is complete."""
        if chunk.position != self.downloaded_bytes:
            raise InvariantError(
                f"{self.model.name}: a part of {tuple(chunk.snapshot)} that was not requested"
            )
        self.downloaded_bytes += len(chunk.data)
        if not chunk.last:
            self.queue.append(events.SnapshotWritten(chunk.snapshot, self.downloaded_bytes))
            return
        self.log_generation += 1
        self.world.checker.snapshot_loaded(self.model, chunk.snapshot, leads=self.core.state.is_leader)
        self.world.coverage["snapshots loaded"] += 1
        content = self.world.snapshots[chunk.snapshot]
        self.disk.install(chunk.snapshot, content)
        self.world.trace(self, f"loads the snapshot {chunk.snapshot.offset}-{chunk.snapshot.epoch}")
        self.queue.append(events.SnapshotInstalled(chunk.snapshot, content.voters, content.kraft_version))

    def _append_fetched(self, records: Any) -> None:
        controls: list[events.ControlRecord] = []
        batches: list[Batch] = records
        for batch in batches:
            self.disk.append(batch, leads=False)
            if batch.controls:
                controls += batch.control_records()
        self.queue.append(events.Appended(controls))
        self.start_sync()

    def _append_control(self, records: list[tuple[int, Any]]) -> None:
        if self.proposed:
            self._write_proposals()
        batch = self._batch((), tuple(records))
        self.disk.append(batch, leads=True)
        self.queue.append(events.Appended(batch.control_records()))
        self.start_sync()

    def _batch(self, values: tuple[Any, ...], controls: tuple[tuple[int, Any], ...]) -> Batch:
        return Batch(
            self.model.log.end_digest,
            self.disk.end,
            self.core.state.epoch,
            values,
            controls,
            self.world.unique_number(),
        )

    def _write_proposals(self) -> None:
        values, self.proposed = tuple(self.proposed), []
        self.disk.append(self._batch(values, ()), leads=True)
        self.queue.append(events.Appended())

    def propose(self, values: list[Any]) -> bool:
        """Appends records of the state machine, after the running fsync if there is one.

        Returns False if the replica does not lead.
        """
        if not self.alive or not self.core.state.is_leader:
            return False
        self.proposed += values
        if not self.syncing:
            self._write_proposals()
            self.start_sync()
            self.drain()
        return True

    def start_sync(self) -> None:
        """Starts an fsync unless one is running. It ends at once, or a little later."""
        world = self.world
        if self.syncing:
            return
        if not self.can_vote:  # an observer appends without fsync
            self.queue.append(events.Synced(self.disk.end))
            return
        delay = world.sync_delay(self)
        if delay is None:
            self.disk.durable_end = self.disk.end
            self.queue.append(events.Synced(self.disk.end))
            return
        self.syncing = True
        world.schedule(world.now + delay, self.synced, (self.incarnation, self.disk.end, self.log_generation))

    def synced(self, what: tuple[int, int, int]) -> bool:
        """Handles the end of an fsync, and starts the next if more was written meanwhile."""
        incarnation, end, log_generation = what
        if incarnation != self.incarnation:
            return False
        self.syncing = False
        if log_generation == self.log_generation:
            self.disk.durable_end = max(self.disk.durable_end, end)
            self.queue.append(events.Synced(end))
        self.drain()
        if self.alive and not self.syncing:
            behind = log_generation != self.log_generation or self.disk.end > end
            if self.proposed and self.core.state.is_leader:
                self._write_proposals()
                behind = True
            if behind:
                self.start_sync()
                self.drain()
        return True

    # --- requests and responses -------------------------------------------------------------------

    def _answer(self, token: object, reply: m.Reply) -> None:
        world = self.world
        self.disk.read_into(reply)
        if isinstance(reply, m.VoteReply) and reply.granted:
            self._granted(token)
        if reply.leader_id is not None:
            leader = self.core.state.leader_address(LISTENER)
            reply.leader_endpoints = {} if leader is None else {LISTENER: leader}
        world.answered(self, token, reply)

    def _granted(self, token: object) -> None:
        request = getattr(getattr(token, "out", None), "request", None)
        if isinstance(request, m.Vote) and request.pre_vote:
            hears_leader = self.hears_leader and self.core.state.role is Role.FOLLOWER
            self.world.checker.granted_pre_vote(self.model, hears_leader)

    def replied(self, out: Outgoing, reply: m.Reply | m.Failure) -> None:
        """Handles the outcome of a request that this replica sent."""
        heard = is_fetch_response_of_leader(self.core.state, out, reply)
        self.step(events.Replied(out.to, out.request, reply))
        if heard:
            self.contact.hears_leader = self.alive and self.core.state.role is Role.FOLLOWER

    def unreachable(self, address: Address) -> None:
        """Notes that the connection to this address was refused or reset."""
        self.contact.unreachable(self.core.state, address)

    def received(self, request: m.RaftRequest, token: object) -> None:
        """Handles a request. Its response is given to `Environment.answered` with the token."""
        self.unanswered[token] = None
        self.step(events.Received(request, token))

    def resign(self) -> None:
        if self.alive:
            self.step(events.Resign(self.core.state.epoch, "asked"))

    def upgrade(self) -> None:
        if self.alive and self.core.state.is_leader and self.core.state.members.kraft_version == 0:
            token = ("upgrade", self.world.unique_number())
            self.step(events.UpgradeKraftVersion(self.core.state.epoch, 1, False, token))

    def pause(self, until: float) -> None:
        self.world.coverage["pauses"] += 1
        self.paused_until = max(self.paused_until, until)

    def crash_mid_step(self, duties: int) -> None:
        """Ends the process within its next step, after this many effects."""
        self.crash_after_duties = duties

    def break_disk(self) -> None:
        """Simulates a failing disk. A real driver stops the node, which the core sees as a crash."""
        self.world.coverage["failing disks"] += 1
        self.crash(lose_power=False)
        self.world.schedule_restart(self)

    def stop(self) -> None:
        """Shuts the process down gracefully, and schedules its restart.

        The process ends when the core has finished its shutdown, at the latest after STOP_TIMEOUT_S.
        """
        world, incarnation, deadline = self.world, self.incarnation, self.world.now + STOP_TIMEOUT_S
        self.step(events.Shutdown())

        def stopped(_: None) -> None:
            if self.incarnation != incarnation:
                return
            if self.core.state.shutdown_complete or world.now >= deadline:
                if self.can_vote:  # a graceful shutdown flushes the log
                    self.disk.durable_end = self.disk.end
                self.crash(lose_power=False)
                world.schedule_restart(self)
            else:
                world.schedule(world.now + 0.05, stopped, None)

        stopped(None)

    def request_from_outside(self, request: m.RaftRequest) -> object:
        """Makes a request whose response appears in `replies` under the returned token."""
        token = ("ask", self.world.unique_number())
        self.step(events.Received(request, token))
        return token

    # --- snapshots --------------------------------------------------------------------------------

    def take_snapshot(self, clean: bool = True) -> OffsetEpoch | None:
        """Takes a snapshot of all that this process knows to be committed.

        With `clean` the log is then deleted up to the second oldest snapshot.
        """
        members = self.core.state.members
        snapshot = self.disk.snapshot_at(self.committed, members)
        if snapshot is None:
            return None
        name, content = snapshot
        known = self.world.snapshots.setdefault(name, content)
        if known != content:
            raise InvariantError(
                f"applied state: snapshot {tuple(name)} of {self.model.name} differs from its peers'"
            )
        self.disk.add_snapshot(name, content)
        self.world.coverage["snapshots taken"] += 1
        if clean and self.disk.clean():
            members.trim_before(self.disk.start)
        self.world.trace(
            self, f"takes the snapshot {name.offset}-{name.epoch}, its log starts at {self.disk.start}"
        )
        return name
