"""A small deterministic world for the Raft core: replicas with logs in memory, a network that loses and
delays messages, and crashes that lose everything that is not durable. It performs the effects in the order
that `Effects` states, and checks the invariants of Raft."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.control_records import KRAFT_VERSION, KRAFT_VOTERS
from quorate.raft.core.effects import Effects, Outgoing, SnapshotChunk
from quorate.raft.core.events import (
    Appended,
    ControlRecord,
    Event,
    PeerLost,
    Received,
    Replied,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotWritten,
    Synced,
    Timeout,
)
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import Membership, MembershipRecord, Voter, VoterSet
from quorate.raft.types import NO_DIRECTORY, Address, OffsetEpoch, QuorumState, RaftParams, ReplicaKey

LISTENER = "CONTROLLER"
CLUSTER = "world"


def directory(i: int) -> bytes:
    return bytes([i] * 16)


def address(i: int) -> Address:
    return (f"n{i}", 9000 + i)


def voter(i: int) -> Voter:
    return Voter(ReplicaKey(i, directory(i)), {LISTENER: address(i)}, (0, 1))


@dataclass
class Entry:
    epoch: int
    payload: Any  # a value, or (type, control record)

    @property
    def control(self) -> tuple[int, Any] | None:
        return self.payload if isinstance(self.payload, tuple) else None


@dataclass
class MemoryLog:
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    start_epoch: int = 0
    snapshots: dict[OffsetEpoch, bytes] = field(default_factory=dict)

    @property
    def start_offset(self) -> int:
        return self.start

    @property
    def end_offset(self) -> int:
        return self.start + len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else self.start_epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetEpoch:
        if epoch > self.last_epoch:
            return OffsetEpoch(self.end_offset, self.last_epoch)
        found, end = None, self.start
        for i, entry in enumerate(self.entries):
            if entry.epoch <= epoch:
                found, end = entry.epoch, self.start + i + 1
        if found is None:
            snapshot = self.earliest_snapshot()
            if snapshot is not None and snapshot.offset == self.start:
                return OffsetEpoch(self.start, snapshot.epoch)
            return OffsetEpoch(self.start, epoch)
        return OffsetEpoch(end, found)

    def latest_snapshot(self) -> OffsetEpoch | None:
        return max(self.snapshots, default=None)

    def earliest_snapshot(self) -> OffsetEpoch | None:
        return min(self.snapshots, default=None)

    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None:
        found = self.snapshots.get(snapshot)
        return None if found is None else len(found)


class Node:
    def __init__(self, world: World, i: int, static: VoterSet, can_vote: bool = True, kraft: int = 0) -> None:
        self.world = world
        self.id = i
        self.can_vote = can_vote
        self.static = static if kraft == 0 else VoterSet()
        self.boot = static if kraft == 1 else None  # what snapshot 0-0 holds
        self.log = MemoryLog()
        self.durable_end = 0
        self.stored: QuorumState | None = None
        self.directory_id = directory(i)
        self.auto_join = False
        self.membership_record = MembershipRecord.NEVER
        self.committed = 0
        self.committed_entries: list[Entry] = []
        self.alive = False
        self.generation = 0
        self.core: Raft
        self.answers: dict[object, m.Reply] = {}
        self.wake_generation = 0
        self.download: bytearray | None = None

    def boot_up(self) -> None:
        world = self.world
        members = Membership(self.static)
        if self.boot is not None:
            members.reset(self.log.start - 1, self.boot, 1)
        for offset, entry in enumerate(self.log.entries, self.log.start):
            self._apply_history(members, offset, entry)
        params = RaftParams(
            me=ReplicaKey(self.id, self.directory_id),
            cluster_id=CLUSTER,
            listener_name=LISTENER,
            endpoints={LISTENER: address(self.id)} if self.can_vote else {},
            can_vote=self.can_vote,
            bootstrap=tuple(address(i) for i in world.bootstrap),
            auto_join=self.auto_join,
            quick_failover=world.quick,
        )
        self.generation += 1
        self.alive = True
        self.answers = {}
        self.download = None
        self.core = Raft(
            params, self.log, self.stored, members, random.Random(world.rng.random()), self.membership_record
        )
        self.perform(self.core.start(world.now))

    @staticmethod
    def _apply_history(members: Membership, offset: int, entry: Entry) -> None:
        from quorate.raft.core.control_records import voter_set

        if entry.control is not None:
            kind, value = entry.control
            if kind == KRAFT_VOTERS:
                members.add_voters(offset, voter_set(value))
            elif kind == KRAFT_VERSION:
                members.add_kraft_version(offset, value.kraft_version)

    def replace_disk(self, directory_id: bytes) -> None:
        """Gives the node an empty directory with another directory id."""
        self.crash()
        self.log, self.durable_end, self.committed = MemoryLog(), 0, 0
        self.stored, self.membership_record, self.boot, self.directory_id = (
            None,
            MembershipRecord.NEVER,
            None,
            directory_id,
        )

    def crash(self) -> None:
        self.alive = False
        self.generation += 1
        del self.log.entries[self.durable_end - self.log.start :]

    def propose(self, value: object) -> int | None:
        if not self.alive or not self.core.state.is_leader:
            return None
        self.log.entries.append(Entry(self.core.state.epoch, value))
        offset = self.log.end_offset - 1
        self.step(Appended())
        self.sync()
        return offset

    def sync(self) -> None:
        """Makes the log durable after a short delay."""
        generation, end, last = self.generation, self.log.end_offset, self.log.last_epoch

        def done() -> None:
            if generation == self.generation and self.log.end_offset >= end and self.alive:
                at = end - 1 - self.log.start
                if at < 0 or (at < len(self.log.entries) and self.log.entries[at].epoch == last):
                    self.durable_end = max(self.durable_end, end)
                    self.step(Synced(end))
                    return
            if generation == self.generation and self.alive:
                self.sync()

        self.world.after(self.world.rng.uniform(0, self.world.sync_s), done)

    def step(self, event: Event) -> None:
        if self.alive:
            self.perform(self.core.step(event, self.world.now))

    def perform(self, effects: Effects) -> None:
        world, events = self.world, []
        if effects.save_quorum_state is not None:
            self.stored = effects.save_quorum_state
        if effects.save_membership_record is not None:
            self.membership_record = effects.save_membership_record
        if effects.truncate_to is not None:
            assert effects.truncate_to >= self.committed, "a committed record was cut"
            del self.log.entries[effects.truncate_to - self.log.start :]
            self.durable_end = min(self.durable_end, effects.truncate_to)
            events.append(Synced(effects.truncate_to))
        if effects.start_snapshot is not None:
            self.download = bytearray()
            events.append(SnapshotOpened(effects.start_snapshot.snapshot, 0))
        if effects.snapshot_chunk is not None:
            events += self._take_chunk(effects.snapshot_chunk)
        if effects.append_fetched is not None:
            records: list[Entry] = effects.append_fetched  # type: ignore[assignment]
            events.append(self._append(records))
        if effects.append_control is not None:
            events.append(self._append([Entry(self.core.state.epoch, c) for c in effects.append_control]))
        for answer in effects.answers:
            reply = answer.reply
            if isinstance(reply, m.FetchReply) and reply.read_from is not None:
                reply.records = self.log.entries[reply.read_from - self.log.start :]  # type: ignore[assignment]
            if isinstance(reply, m.SnapshotReply) and reply.read:
                data = self.log.snapshots[reply.snapshot]
                reply.data = data[reply.position : reply.position + min(reply.read, world.chunk)]
            self.answers[answer.token] = reply
            world.answered(self, answer.token, reply)
        for out in effects.send:
            world.send(self, out)
        if effects.high_watermark is not None and effects.high_watermark > self.committed:
            self._commit(effects.high_watermark)
        if effects.role is not None and self.core.state.is_leader:
            world.saw_leader(self)
        self.wake_generation += 1
        at_generation, life = self.wake_generation, self.generation
        if effects.wake_at < float("inf"):

            def alarm() -> None:
                if life == self.generation and at_generation == self.wake_generation:
                    self.step(Timeout())

            world.after(max(0.0, effects.wake_at - world.now), alarm)
        for event in events:
            self.step(event)

    def _append(self, entries: list[Entry]) -> Event:
        controls = []
        for entry in entries:
            if entry.control is not None:
                controls.append(ControlRecord(self.log.end_offset, *entry.control))
            self.log.entries.append(entry)
        self.sync()
        return Appended(controls)

    def _commit(self, hwm: int) -> None:
        hwm = min(hwm, self.log.end_offset)
        for offset in range(max(self.committed, self.log.start), hwm):
            self.world.check_committed(offset, self.log.entries[offset - self.log.start], self)
        self.committed = hwm

    def _take_chunk(self, chunk: SnapshotChunk) -> list[Event]:
        assert self.download is not None
        assert len(self.download) == chunk.position
        self.download += chunk.data
        if not chunk.last:
            return [SnapshotWritten(chunk.snapshot, len(self.download))]
        self.log.snapshots = {chunk.snapshot: bytes(self.download)}
        self.log.entries.clear()
        self.log.start, self.log.start_epoch = chunk.snapshot
        self.durable_end = self.committed = chunk.snapshot.offset
        voters, kraft = self.world.snapshot_members[chunk.snapshot]
        self.boot = voters
        return [SnapshotInstalled(chunk.snapshot, voters, kraft)]

    def take_snapshot(self, cut: bool) -> OffsetEpoch | None:
        """Takes a snapshot of all committed records. With `cut`, also deletes the log before it."""
        end = self.committed
        if end <= self.log.start:
            return None
        snapshot = OffsetEpoch(end, self.log.entries[end - 1 - self.log.start].epoch)
        members = self.core.state.members
        voters = members.voters_at(end - 1)
        kraft = members.kraft_version_at(end - 1)
        self.world.snapshot_members[snapshot] = (voters if kraft else None, kraft if kraft else None)
        self.log.snapshots[snapshot] = b"s" * (50 + end)
        if cut and end <= self.durable_end:
            del self.log.entries[: end - self.log.start]
            self.log.start, self.log.start_epoch = snapshot
            self.log.snapshots = {snapshot: self.log.snapshots[snapshot]}
            self.boot = voters if kraft else self.boot
            members.trim_before(end)
        return snapshot


class World:
    def __init__(
        self,
        voters: int,
        seed: int = 0,
        *,
        observers: int = 0,
        kraft: int = 0,
        loss: float = 0.0,
        quick: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = 0.0
        self.loss = loss
        self.quick = quick
        self.sync_s = 0.002
        self.delay_s = 0.005
        self.chunk = 64
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.events = 0
        self.cut_links: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.truth: dict[int, Entry] = {}
        self.snapshot_members: dict[OffsetEpoch, tuple[VoterSet | None, int | None]] = {}
        self.waiting: dict[object, Callable[[m.Reply], None]] = {}
        ids = list(range(1, voters + 1))
        self.bootstrap = ids
        if kraft:
            static = VoterSet.of(voter(i) for i in ids)
        else:
            static = VoterSet.static({i: address(i) for i in ids}, LISTENER)
        self.nodes = {i: Node(self, i, static, kraft=kraft) for i in ids}
        for i in range(voters + 1, voters + observers + 1):
            self.nodes[i] = Node(self, i, VoterSet() if kraft else static, can_vote=False, kraft=0)
        self.kraft = kraft

    # --- time and network -------------------------------------------------------------------------

    def after(self, delay: float, do: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.queue, (self.now + delay, self.sequence, do))

    def run(
        self, seconds: float = 1e9, until: Callable[[], bool] | None = None, events: int = 200_000
    ) -> bool:
        """Runs until the condition holds. Returns False if the time has elapsed or no event is left before
        that."""
        end = self.now + seconds
        while self.queue and self.queue[0][0] <= end and events > 0:
            if until is not None and until():
                return True
            at, _, do = heapq.heappop(self.queue)
            self.now = max(self.now, at)
            events -= 1
            self.events += 1
            do()
        if until is not None:
            return until()
        self.now = max(self.now, min(end, 1e8))
        return False

    def node_at(self, where: Address) -> Node | None:
        return self.nodes.get(where[1] - 9000)

    def blocked(self, a: int, b: int) -> bool:
        return (a, b) in self.cut_links or self.rng.random() < self.loss

    def send(self, sender: Node, out: Outgoing) -> None:
        life, target = sender.generation, self.node_at(out.to.address)
        token = ("net", self.sequence, sender.id, life)
        done = [False]

        def finish(reply: m.Reply | m.Failure) -> None:
            if not done[0] and sender.generation == life and sender.alive:
                done[0] = True
                sender.step(Replied(out.to, out.request, reply))

        def arrive() -> None:
            if target is None or self.blocked(sender.id, target.id):
                return
            if not target.alive:
                self.after(self.delay_s, lambda: finish(m.Failure.DISCONNECTED))
                return
            if isinstance(out.request, m.ProbeVersions):
                self.after(self.delay_s, lambda: finish(m.ProbeReply(kraft_versions=(0, 1))))
                return

            def reply_back(reply: m.Reply) -> None:
                if not self.blocked(target.id, sender.id):
                    self.after(self.rng.uniform(0, self.delay_s), lambda: finish(reply))

            self.waiting[token] = reply_back
            target.step(Received(out.request, token))

        self.after(self.rng.uniform(0, self.delay_s), arrive)
        self.after(2.0, lambda: finish(m.Failure.TIMEOUT))

    def answered(self, node: Node, token: object, reply: m.Reply) -> None:
        back = self.waiting.pop(token, None)
        if back is not None:
            if reply.leader_id is not None:
                reply.leader_endpoints = {LISTENER: address(reply.leader_id)} if self.kraft else {}
            back(reply)

    def ask(self, node: Node, request: m.RaftRequest) -> object:
        """Sends a request from outside of the quorum. Its response appears in `node.answers` under the
        returned token."""
        self.sequence += 1
        token = ("ask", self.sequence)
        node.step(Received(request, token))
        return token

    def kill(self, i: int) -> None:
        """Ends the process and resets its connections."""
        self.nodes[i].crash()
        for other in self.nodes.values():
            if other.alive:
                self.after(0.0005, lambda n=other: n.step(PeerLost(address(i))))  # type: ignore[misc]

    def isolate(self, i: int) -> None:
        for j in self.nodes:
            self.cut_links |= {(i, j), (j, i)}

    def heal(self) -> None:
        self.cut_links.clear()

    # --- invariants -------------------------------------------------------------------------------

    def saw_leader(self, node: Node) -> None:
        known = self.leaders.setdefault(node.core.state.epoch, node.id)
        assert known == node.id, f"seed {self.seed}: {known} and {node.id} lead epoch {node.core.state.epoch}"
        for offset, entry in self.truth.items():
            if offset >= node.log.start:
                assert offset < node.log.end_offset, (
                    f"seed {self.seed}: leader {node.id} lacks committed {offset}"
                )
                assert node.log.entries[offset - node.log.start] == entry, (
                    f"seed {self.seed}: leader differs at {offset}"
                )

    def check_committed(self, offset: int, entry: Entry, node: Node) -> None:
        known = self.truth.setdefault(offset, entry)
        assert known == entry, f"seed {self.seed}: node {node.id} commits {entry} at {offset}, others {known}"

    # --- looking ----------------------------------------------------------------------------------

    @property
    def leader(self) -> Node | None:
        """The leader of the greatest epoch among the running nodes."""
        leaders = [n for n in self.nodes.values() if n.alive and n.core.state.is_leader]
        return max(leaders, key=lambda n: n.core.state.epoch, default=None)

    def boot_all(self) -> None:
        for node in self.nodes.values():
            node.boot_up()

    def elect(self, seconds: float = 30.0) -> Node:
        """Runs until a leader has committed the first record of its epoch. Returns the leader."""
        assert self.run(
            seconds, lambda: self.leader is not None and self.leader.core.state.hwm is not None
        ), self.seed
        assert self.leader is not None
        return self.leader

    def settle(self, value: object, seconds: float = 30.0) -> int:
        """Proposes values until one is committed. Returns its offset on the leader."""
        end = self.now + seconds
        while self.now < end:
            leader = self.leader
            offset = leader.propose(value) if leader is not None else None
            if leader is not None and offset is not None:
                epoch = leader.core.state.epoch

                def decided(n: Node = leader, at: int = offset, epoch: int = epoch) -> bool:
                    return n.committed > at or not n.alive or n.core.state.epoch != epoch

                self.run(1.0, decided)
                if leader.alive and leader.committed > offset:
                    return offset
            else:
                self.run(0.05)
        raise AssertionError(f"seed {self.seed}: nothing commits")


__all__ = ["NO_DIRECTORY", "ErrorCode", "World", "address", "directory", "voter"]
