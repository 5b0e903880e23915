"""One replica in a simulated world: the real core, its duties performed as `core` numbers them, on a disk in memory."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode
from quorate.raft import messages as m
from quorate.raft.core import Raft
from quorate.raft.membership import reply_endpoints
from quorate.raft.quorum_state import QuorumState
from quorate.raft.types import Address, OffsetEpoch, RaftParams, ReplicaKey, Role
from quorate.raft.voters import VoterSet
from simulation.invariants import InvariantError, Keys, Subject, keys_of
from simulation.memory import BOOTSTRAP, SNAPSHOT_BYTES, MemoryDisk, Snapshot
from simulation.trail import Batch

if TYPE_CHECKING:
    from simulation.world import Call, World

NEVER = float("inf")
TICK_S = 1e-9  # timers are never early, however a skewed clock rounds
LISTENER = "CONTROLLER"
CLUSTER = "world"
MOMENT_S = 1e-6
MAX_WAKINGS = 50  # in a moment: more is a loop that would burn a processor
MAX_BATCHES = 16  # in one Fetch answer
STOP_S = 5.0
LATE_SAVE_S = 0.2  # a state that may wait is written so long after
CHUNK_BYTES = 160  # of a snapshot in one answer: a download takes a few


class Replica:
    """A process that lives, dies and starts again on its directory."""

    def __init__(self, world: World, key: ReplicaKey, *, can_vote: bool, static: VoterSet, boot: VoterSet | None) -> None:
        self.world = world
        self.key = key
        self.id = key.id
        self.can_vote = can_vote
        self.static = static
        self.address = (f"n{key.id}", 9000 + key.id)
        base: Keys = keys_of(boot if boot is not None else static)
        self.subject = Subject(f"n{key.id}", (key.id, key.directory_id), base)
        self.disk = MemoryDisk(self.subject, world.history)
        if boot is not None:
            self.disk.add_snapshot(BOOTSTRAP, Snapshot(0, boot, 1))
        self.core: Raft
        self.alive = False
        self.life = 0  # counts starts and deaths
        self.committed = 0
        self.rate = 1.0  # of its clock
        self.paused_until = 0.0
        self.dies_at_duty: int | None = None  # the next step ends after so many duties
        self.open: dict[Call, None] = {}  # requests of others that wait for an answer
        self.replies: dict[object, m.Reply] = {}  # to `ask`
        self.queue: deque[m.Event] = deque()
        self.stepping = False
        self.proposed: list[Any] = []
        self.syncing = False
        self.cuts = 0
        self.late_state: QuorumState | None = None  # to be written soon
        self.hears = False  # a good Fetch answer from the leader that it follows
        self.download = 0
        self.wake_at = NEVER
        self.woken_at = 0.0
        self.wakings = 0  # since then

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Leads and is not paused."""
        return self.alive and self.core.is_leader and self.paused_until <= self.world.now

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.alive = True
        self.disk.recover()
        self.committed = self.disk.start
        self.subject.hwm = -1
        self.queue.clear()
        self.open.clear()
        self.replies.clear()
        self.proposed = []
        self.late_state = None
        self.stepping = self.syncing = self.hears = False
        self.dies_at_duty = None
        self.wake_at = NEVER
        if self.can_vote:
            self.disk.durable_end = self.disk.end
        endpoints = {LISTENER: self.address} if self.can_vote else {}
        params = RaftParams(
            me=self.key,
            cluster_id=CLUSTER,
            listener_name=LISTENER,
            endpoints=endpoints,
            can_vote=self.can_vote,
            bootstrap=world.bootstrap,
            quick_failover=world.plan.topology.quick_failover,
            auto_join=world.plan.topology.auto_join,
        )
        members = self.disk.membership(self.static)
        rng = random.Random(world.rng.getrandbits(32))
        self.core = Raft(params, self.disk, self.disk.stored, members, rng, self.disk.standing)
        world.note(self, "starts")
        self.stepping = True
        try:
            self.apply(self.core.start(world.now * self.rate))
        finally:
            self.stepping = False
        self.drain()

    def die(self, power: bool) -> None:
        """The process ends here. With the power goes what was not durable, from a random batch on."""
        if not self.alive:
            return
        self.alive = False
        self.life += 1
        if power:
            trail = self.subject.trail
            ends = [self.disk.durable_end, *(b.end for b in trail.between(self.disk.durable_end, 1 << 62))]
            keep = self.world.rng.choice(ends)
            if keep < self.disk.end:
                self.disk.lose(keep)
                self.world.happened["unsynced tails lost"] += 1
        self.world.happened["power failures" if power else "kills"] += 1
        self.world.note(self, "loses power" if power else "is killed")
        self.world.died(self, power)

    # --- the driver's part ------------------------------------------------------------------------------------------

    def step(self, event: m.Event) -> None:
        if self.alive:
            self._stops_hearing(event)
            self.queue.append(event)
            if not self.stepping:
                self.drain()

    def drain(self) -> None:
        if self.stepping:
            return
        self.stepping = True
        queue, world = self.queue, self.world
        try:
            while queue and self.alive:
                fx = self.core.step(queue.popleft(), world.now * self.rate)
                if self.core.complaints.made:  # nobody here forges messages
                    raise InvariantError(f"{self.subject.name} complains: {', '.join(self.core.complaints.made)}")
                self.apply(fx)
                if self.alive:
                    world.history.is_stored(self.subject, self.disk.stored, self.core.epoch)
        except InvariantError:
            raise
        except Exception as e:
            raise InvariantError(f"{self.subject.name}: {type(e).__name__}: {e}") from e
        finally:
            self.stepping = False

    def apply(self, fx: m.Effects) -> None:
        if self.dies_at_duty is not None:
            self._apply_some(fx)
            return
        disk, world = self.disk, self.world
        for out in fx.send:
            world.send(self, out)
        if fx.save_quorum_state is not None:
            self._save(fx.save_quorum_state, fx.save_may_wait)
        if fx.role is not None:
            self._role(fx.role)
        if fx.high_watermark is not None:
            self._commit(min(fx.high_watermark, disk.end))
        if fx.truncate_to is not None:
            self._truncate(fx.truncate_to)
        if fx.start_snapshot is not None:
            self.download = 0
            self.queue.append(m.SnapshotOpened(fx.start_snapshot.snapshot, 0))
        if fx.snapshot_chunk is not None:
            self._chunk(fx.snapshot_chunk)
        if fx.append_fetched is not None:
            self._append_fetched(fx.append_fetched)
        if fx.append_control is not None:
            self._append_control(fx.append_control)
        for answer in fx.answers:
            self._answer(answer.token, answer.reply)
        if fx.save_standing is not None:
            disk.standing = fx.save_standing
        if fx.wake_at < self.wake_at:
            self.wake_at = fx.wake_at
            world.push(max(world.now, fx.wake_at / self.rate) + TICK_S, self.alarm, (self.life, fx.wake_at))

    def _apply_some(self, fx: m.Effects) -> None:
        """Dies after some of the duties: requests gone, the state stored, the log cut, records written, answers gone."""
        duties, self.dies_at_duty = self.dies_at_duty or 0, None
        some = m.Effects(send=fx.send if duties > 0 else fx.send[:1])
        if duties > 1:
            some.save_quorum_state, some.save_may_wait = fx.save_quorum_state, fx.save_may_wait
        if duties > 2:
            some.truncate_to, some.role = fx.truncate_to, fx.role
        if duties > 3:
            some.append_fetched, some.append_control = fx.append_fetched, fx.append_control
        if duties > 4:
            some.answers = fx.answers
        self.apply(some)
        self.world.happened["deaths within a step"] += 1
        self.die(self.world.dies_by_power())

    def alarm(self, what: tuple[int, float]) -> bool:
        """The timer goes off. False when it was set by an earlier life, or another has been set since."""
        life, at = what
        if life != self.life or at != self.wake_at:
            return False
        self.wake_at = NEVER
        if self.world.now - self.woken_at > MOMENT_S:
            self.woken_at, self.wakings = self.world.now, 0
        self.wakings += 1
        if self.wakings > MAX_WAKINGS:
            raise InvariantError(f"{self.subject.name} asks to be woken at once, over and over")
        self.step(m.Timeout())
        return True

    def _stops_hearing(self, event: m.Event) -> None:
        """A leader whose connection was reset, or that has said its farewell, is heard no more."""
        core = self.core
        leader = None if core.leader_id is None else core.address_of(core.leader_id)
        match event:
            case m.PeerLost() | m.Replied(reply=m.Failure.DISCONNECTED):
                where = event.address if isinstance(event, m.PeerLost) else event.to.address
                self.hears = self.hears and where != leader
            case m.Received(request=m.EndEpoch() as end):
                self.hears = self.hears and (end.leader_id, end.epoch) != (core.leader_id, core.epoch)

    # --- duties -----------------------------------------------------------------------------------------------------

    def _save(self, state: QuorumState, may_wait: bool) -> None:
        if may_wait:
            if self.late_state is None:
                self.world.push(self.world.now + LATE_SAVE_S, self._save_late, self.life)
            self.late_state = state
            return
        self.late_state = None
        self.disk.stored = state
        self.world.history.stored(self.subject, state)

    def _save_late(self, life: int) -> bool:
        if life != self.life or self.late_state is None:
            return False
        self._save(self.late_state, False)
        return True

    def _role(self, change: m.RoleChange) -> None:
        core = self.core
        self.hears = False
        if core.is_leader:
            if self.subject.led != core.epoch:
                self.world.history.leads(self.subject, core.epoch)
        else:
            self.proposed = []
        self.world.note(self, f"is {change.role.value} in epoch {change.epoch}")

    def _commit(self, hwm: int) -> None:
        """Noted before anything else: what the core writes in the same step may build on it."""
        world = self.world
        if self.core.leading is not None:
            world.history.reached(self.subject, hwm, world.holds)
        world.history.committed(self.subject, hwm, self.core.epoch)
        if hwm > self.committed:
            self.committed = hwm
            if world.narrator is not None:
                world.note(self, f"commits up to {hwm}")

    def _truncate(self, to: int) -> None:
        self.cuts += 1
        self.world.note(self, f"truncates from {self.disk.end} to {to}")
        self.disk.truncate(to)
        self.queue.append(m.Synced(self.disk.end))

    def _chunk(self, chunk: m.SnapshotChunk) -> None:
        if chunk.position != self.download:
            raise InvariantError(f"{self.subject.name}: a part of {tuple(chunk.snapshot)} that was not asked for")
        self.download += len(chunk.data)
        if not chunk.last:
            self.queue.append(m.SnapshotWritten(chunk.snapshot, self.download))
            return
        self.cuts += 1
        self.world.history.loads_snapshot(self.subject, chunk.snapshot, leads=self.core.is_leader)
        self.world.happened["snapshots loaded"] += 1
        content = self.world.snapshots[chunk.snapshot]
        self.disk.install(chunk.snapshot, content)
        self.world.note(self, f"loads the snapshot {chunk.snapshot.offset}-{chunk.snapshot.epoch}")
        self.queue.append(m.SnapshotInstalled(chunk.snapshot, content.voters, content.kraft_version))

    def _append_fetched(self, records: Any) -> None:
        controls: list[m.ControlRecord] = []
        batches: list[Batch] = records
        for batch in batches:
            self.disk.append(batch, leads=False)
            if batch.controls:
                controls += batch.control_records()
        self.queue.append(m.Appended(controls))
        self.start_sync()

    def _append_control(self, records: list[tuple[int, Any]]) -> None:
        if self.proposed:
            self._write_proposals()
        batch = self._batch((), tuple(records))
        self.disk.append(batch, leads=True)
        self.queue.append(m.Appended(batch.control_records()))
        self.start_sync()

    def _batch(self, values: tuple[Any, ...], controls: tuple[tuple[int, Any], ...]) -> Batch:
        return Batch(self.subject.trail.end_digest, self.disk.end, self.core.epoch, values, controls, self.world.unique())

    def _write_proposals(self) -> None:
        values, self.proposed = tuple(self.proposed), []
        self.disk.append(self._batch(values, ()), leads=True)
        self.queue.append(m.Appended())

    def propose(self, values: list[Any]) -> bool:
        """What the state machine appends; it waits while an fsync is under way."""
        if not self.alive or not self.core.is_leader:
            return False
        self.proposed += values
        if not self.syncing:
            self._write_proposals()
            self.start_sync()
            self.drain()
        return True

    def start_sync(self) -> None:
        """Durable at once, or a little later while other things go on."""
        world = self.world
        if self.syncing:
            return
        if not self.can_vote:  # a broker appends without fsync
            self.queue.append(m.Synced(self.disk.end))
            return
        delay = world.sync_delay(self)
        if delay is None:
            self.disk.durable_end = self.disk.end
            self.queue.append(m.Synced(self.disk.end))
            return
        self.syncing = True
        world.push(world.now + delay, self.synced, (self.life, self.disk.end, self.cuts))

    def synced(self, what: tuple[int, int, int]) -> bool:
        life, end, cuts = what
        if life != self.life:
            return False
        self.syncing = False
        if cuts == self.cuts:
            self.disk.durable_end = max(self.disk.durable_end, end)
            self.queue.append(m.Synced(end))
        self.drain()
        if self.alive and not self.syncing:
            behind = cuts != self.cuts or self.disk.end > end
            if self.proposed and self.core.is_leader:
                self._write_proposals()
                behind = True
            if behind:
                self.start_sync()
                self.drain()
        return True

    # --- requests and answers ---------------------------------------------------------------------------------------

    def _answer(self, token: object, reply: m.Reply) -> None:
        world = self.world
        if isinstance(reply, m.FetchReply):
            if reply.read_from is not None:
                batches = self.disk.read(reply.read_from, MAX_BATCHES)
                reply.records = batches  # type: ignore[assignment]
        elif isinstance(reply, m.SnapshotReply):
            if reply.read:
                reply.data = SNAPSHOT_BYTES[reply.position : reply.position + min(reply.read, CHUNK_BYTES)]
        elif isinstance(reply, m.VoteReply) and reply.granted:
            self._granted(token)
        if reply.leader_id is not None:
            reply.leader_endpoints = reply_endpoints(self.core, LISTENER)
        world.answered(self, token, reply)

    def _granted(self, token: object) -> None:
        request = getattr(getattr(token, "out", None), "request", None)
        if isinstance(request, m.Vote) and request.pre_vote:
            self.world.history.granted_pre_vote(self.subject, self.hears and self.core.role is Role.FOLLOWER)

    def replied(self, out: m.Outgoing, reply: m.Reply | m.Failure) -> None:
        """What becomes of a request of ours."""
        core, request = self.core, out.request
        if isinstance(reply, m.FetchReply) and reply.error == ErrorCode.NONE and isinstance(request, m.Fetch):
            link = core.links.get(out.to.address)
            current = link is not None and link.in_flight.get(m.Fetch) is request
            follows = core.role is Role.FOLLOWER and (core.leader_id, core.epoch) == (reply.leader_id, request.epoch)
            if current and follows:
                self.step(m.Replied(out.to, request, reply))
                self.hears = self.alive and core.role is Role.FOLLOWER
                return
        if reply is m.Failure.DISCONNECTED:
            self.unreachable(out.to.address)
        self.step(m.Replied(out.to, request, reply))

    def unreachable(self, address: Address) -> None:
        """Who cannot reach its leader hears it no longer."""
        if self.core.leader_id is not None and self.core.address_of(self.core.leader_id) == address:
            self.hears = False

    def received(self, request: m.RaftRequest, call: Call) -> None:
        if isinstance(request, m.EndEpoch) and (request.leader_id, request.epoch) == self.core.leader_and_epoch:
            self.hears = False
        self.open[call] = None
        self.step(m.Received(request, call))

    def resign(self) -> None:
        if self.alive:
            self.step(m.Resign(self.core.epoch, "asked"))

    def upgrade(self) -> None:
        if self.alive and self.core.is_leader and self.core.members.kraft_version == 0:
            self.step(m.UpgradeKraftVersion(self.core.epoch, 1, False, ("upgrade", self.world.unique())))

    def pause(self, until: float) -> None:
        self.world.happened["pauses"] += 1
        self.paused_until = max(self.paused_until, until)

    def doom(self, duties: int) -> None:
        """Dies in the midst of its next step."""
        self.dies_at_duty = duties

    def break_disk(self) -> None:
        """To the core that is a crash: the driver stops the node."""
        self.world.happened["failing disks"] += 1
        self.die(power=False)
        self.world.start_later(self)

    def stop(self) -> None:
        """Gracefully: resigned if it led, ended when another leads or time is over. Starts again later."""
        world, life, deadline = self.world, self.life, self.world.now + STOP_S
        self.step(m.Shutdown())

        def stopped(_: None) -> None:
            if self.life != life:
                return
            if self.core.shutdown_complete or world.now >= deadline:
                if self.can_vote:  # a clean stop flushes
                    self.disk.durable_end = self.disk.end
                self.die(power=False)
                world.start_later(self)
            else:
                world.push(world.now + 0.05, stopped, None)

        stopped(None)

    def ask(self, request: m.RaftRequest) -> object:
        """A request from outside; its answer appears in `replies` under the token given back."""
        token = ("ask", self.world.unique())
        self.step(m.Received(request, token))
        return token

    # --- snapshots --------------------------------------------------------------------------------------------------

    def take_snapshot(self, clean: bool = True) -> OffsetEpoch | None:
        """Of everything that this process has committed; `clean`: forget the log before the second oldest."""
        trail, end = self.subject.trail, self.committed
        digest = trail.digest_at(end)
        if end <= trail.start or digest is None:
            return None
        name = OffsetEpoch(end, trail.between(trail.start, end)[-1].epoch)
        members = self.core.members
        kraft = members.kraft_version_at(end - 1)
        content = Snapshot(digest, members.voters_at(end - 1) if kraft else None, kraft if kraft else None)
        known = self.world.snapshots.setdefault(name, content)
        if known != content:
            raise InvariantError(f"applied state: snapshot {tuple(name)} of {self.subject.name} is another than its peers'")
        self.disk.add_snapshot(name, content)
        self.world.happened["snapshots taken"] += 1
        if clean and self.disk.clean():
            members.trim_before(self.disk.start)
        self.world.note(self, f"takes the snapshot {name.offset}-{name.epoch}, its log starts at {self.disk.start}")
        return name
