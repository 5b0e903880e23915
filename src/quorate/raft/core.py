"""Raft as KIP-595, KIP-853 and KIP-996 amend it: a pure state machine. No I/O, no clock, no task.

Everything enters as an event with the time at which it happened; what is to be done comes back as Effects. Randomness is
drawn from the generator given. The rules live in `election` (votes, epochs), `replication` (the leader), `follower` and
`membership` (voter changes); this file holds the state, the moves between roles and the timers.

The driver's duties, for every Effects returned, in this order:

1. `send`: may go at once, even before 2; but what comes back is stepped only after all duties are done. Report each
   answer or failure by step(Replied).
2. `save_quorum_state`: write it durably before doing anything below. A failure is fatal. With `save_may_wait` the
   state is written soon, or with the next one.
3. `truncate_to`: cut the log there, then step(Synced). `start_snapshot`: open a download, an empty one or one that was
   broken off, then step(SnapshotOpened). `snapshot_chunk`: verify its bytes and add them, then step(SnapshotWritten); after
   the last, freeze the snapshot, restart the log behind it and step(SnapshotInstalled) instead. What is no snapshot is
   deleted: step(SnapshotRejected). All this may take its time: it runs beside the other duties, in order.
4. `append_fetched`: check and append the bytes; step(Appended) with the control records in them, make them durable (a
   voter or controller), then step(Synced). What cannot be appended: step(FetchRejected).
   `append_control`: append, after all records proposed before, one control batch; step(Appended), later step(Synced).
   Records that the state machine proposes in the leader's epoch are appended by the driver itself, then both steps too.
5. `answers`: may go now; bytes named by `read_from` and `read` are read from the log and the snapshot.
   `save_standing`: write it durably, at any time.
6. `role`: tell the listeners. `high_watermark`: deliver what is below it.
7. Call step(Timeout) no later than `wake_at`.

Steps caused by duties run before the next outside event. A step must never be made from within a step.
"""

from __future__ import annotations

import logging
import random

from quorate.raft import changes, election, follower, joining, membership, replication
from quorate.raft.messages import (
    AddVoter,
    Answer,
    Appended,
    BeginEpoch,
    DescribeQuorum,
    Effects,
    EndEpoch,
    Event,
    Fetch,
    FetchRejected,
    FetchSnapshot,
    Outgoing,
    Peer,
    PeerLost,
    ProbeVersions,
    RaftRequest,
    Received,
    RemoveVoter,
    Replied,
    Reply,
    Resign,
    RoleChange,
    Shutdown,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotRejected,
    SnapshotWritten,
    Synced,
    Timeout,
    Token,
    UpdateVoter,
    UpgradeKraftVersion,
    Vote,
)
from quorate.raft.quorum_state import QuorumState
from quorate.raft.roles import NEVER, Election, Following, Link, LogView
from quorate.raft.standing import Standing
from quorate.raft.types import (
    MOVES,
    NO_ENDPOINTS,
    Address,
    Endpoints,
    LeaderAndEpoch,
    OffsetEpoch,
    RaftError,
    RaftParams,
    ReplicaKey,
    Role,
)
from quorate.raft.voters import Membership, VoterSet

log = logging.getLogger(__name__)
QUICK_FIRST_S = 0.020  # after a reset connection: pre-vote within so long, so that two followers rarely collide
QUICK_AGAIN_S = (0.020, 0.050)  # and again while it is refused
QUICK_START_S = (0.05, 0.30)  # a voter that starts and knows no leader asks so soon: a quorum that forms need not wait
SPLIT_VOTE_S = (0.010, 0.050)  # a candidate that has lost stands again after so long, doubled with each loss in a row
GIVE_WAY_S = (0.030, 0.060)  # who has granted a pre-vote leaves its asker so long, once an epoch


class Raft:
    """One replica of the metadata log. See the module's text for the caller's duties."""

    def __init__(
        self,
        params: RaftParams,
        view: LogView,
        stored: QuorumState | None,
        members: Membership,
        rng: random.Random,
        standing: Standing = Standing.NEVER,
    ) -> None:
        self.params = params
        self.me: ReplicaKey = params.me
        self.log = view
        self.members = members
        self.rng = rng
        self.standing = standing
        self.noted_set: VoterSet | None = None  # the committed one by which standing was judged last
        self._stored = stored
        self._saved: QuorumState | None = None  # what this process has had written
        self.role = Role.UNATTACHED
        self.epoch = 0
        self.leader_id: int | None = None
        self.leader_endpoints: Endpoints = NO_ENDPOINTS
        self.voted: ReplicaKey | None = None
        self.hwm: int | None = None  # as known in this epoch; a new leader does not know it
        self.committed = 0  # the greatest high watermark ever known: nothing below it is ever cut
        self.synced = 0
        self.election_deadline = NEVER
        self.election: Election | None = None
        self.following: Following | None = None
        self.leading: replication.Leading | None = None
        self.unacknowledged: set[int] = set()  # voters that have not answered a resigned leader's EndEpoch
        self.successors: list[ReplicaKey] = []
        self.links: dict[Address, Link] = {}
        self.awaiting_sync = False  # fetched records are being written
        self.installing: OffsetEpoch | None = None  # a whole snapshot is about to replace the log
        self.leader_hwm = -1
        self.quick_until = -1.0  # a refused quick pre-vote is repeated until then
        self.shutting_down = False
        self.losses = 0  # elections lost in a row
        self.gave_way = -1  # the epoch in which another nominee was let go first
        self.leaderless: list[replication.Parked] = []  # observers' Fetches that wait to hear of a leader
        self.elections_started: float | None = None
        self.fx = Effects()

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        return self.members.current

    @property
    def is_voter(self) -> bool:
        return self.params.can_vote and self.members.current.is_voter(self.me)

    @property
    def may_stand(self) -> bool:
        """Whether it may be elected: a voter, or a replica whose removal stands in its log and is not known to be committed.

        Where the voters that remain lack that record, they cannot win and only such a replica can commit it (Raft's thesis,
        4.2.2). Kafka's controllers wait there for ever.
        """
        if self.is_voter:
            return True
        at = self.members.current_offset
        if not self.params.can_vote or at is None or at < self.committed:
            return False
        return self.members.voters_at(at - 1).is_voter(self.me)

    @property
    def unsynced(self) -> bool:
        """Whether the log, or what is being added to it, is not durable yet: a Fetch now would acknowledge too much."""
        return self.awaiting_sync or self.synced < self.log.end_offset

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def end(self) -> OffsetEpoch:
        return OffsetEpoch(self.log.end_offset, self.log.last_epoch)

    @property
    def shutdown_complete(self) -> bool:
        """Whether nothing is left to wait for after Shutdown."""
        return (
            not self.is_voter
            or self.voters.is_only_voter(self.me)
            or (self.leader_id is not None and self.leader_id != self.me.id)
        )

    @property
    def has_unsettled(self) -> bool:
        """Whether a leader has records that are not committed, or no other voter has all that it has."""
        if self.leading is None or self.voters.is_only_voter(self.me):
            return False
        end = self.log.end_offset
        behind = all(replication.end_of(self, v.key) < end for v in self.voters if v.id != self.me.id)
        return self.hwm is None or self.hwm < end or behind

    def address_of(self, node_id: int) -> Address | None:
        """Where requests to this replica go: the leader's own word first, then the voter set's."""
        if node_id == self.leader_id and self.params.listener_name in self.leader_endpoints:
            return self.leader_endpoints[self.params.listener_name]
        return self.voters.address(node_id, self.params.listener_name)

    # --- the one entrance -------------------------------------------------------------------------------------------

    def start(self, now: float) -> Effects:
        """The first step: takes up the role that disk and voter set call for."""
        self.fx = Effects()
        stored = self._stored if self._stored is not None else QuorumState()
        end = self.end
        self.synced = end.offset
        if stored.epoch < end.epoch:
            log.warning("[Raft id=%d] quorum-state has epoch %d, the log has %d", self.me.id, stored.epoch, end.epoch)
            stored = QuorumState(end.epoch)
        self.epoch, self.voted = stored.epoch, stored.voted
        if stored.leader_id == self.me.id and self.params.can_vote:
            self.role, self.leader_id = Role.RESIGNED, self.me.id
            self.unacknowledged = {i for i in self.voters.ids if i != self.me.id}
            self.election_deadline = self.draw_election_deadline(now)
        elif (
            stored.leader_id is None
            and stored.voted is not None
            and self._voted_self(stored.voted)
            and end.epoch < stored.epoch  # else another has led the epoch, and its name was not written in time
        ):
            self.role = Role.CANDIDATE
            self._hold_election(now)
        elif stored.leader_id is not None and self.voters.endpoints(stored.leader_id):
            self.leader_id = stored.leader_id
            self.leader_endpoints = self.voters.endpoints(stored.leader_id)
            self._follow(now)
        else:
            self.leader_id = stored.leader_id
            self.election_deadline = self.draw_election_deadline(now) if self.may_stand else NEVER
            if self.may_stand and self.params.quick_failover:
                self.election_deadline = now + self.rng.uniform(*QUICK_START_S)
        self.fx.role = RoleChange(self.role, self.epoch, self.leader_id)
        if self.voters.is_only_voter(self.me) and self.params.can_vote:
            if self.role is Role.CANDIDATE:
                self.forward_if_won(now)
            else:
                self.become_prospective(now)
        self.persist()
        return self._finish(now)

    def step(self, event: Event, now: float) -> Effects:
        """One event. Raises RaftError where a rule of Raft is broken: the caller must stop the node."""
        self.fx = Effects()
        match event:
            case Synced():
                replication.on_synced(self, event.offset, now)
            case Appended():
                replication.on_appended(self, event.controls, now)
            case Received():
                self._on_request(event.request, event.token, now)
            case Replied():
                self._on_reply(event, now)
            case PeerLost():
                self._on_peer_lost(event.address, now)
            case FetchRejected():
                follower.on_fetch_rejected(self, event.reason, now)
            case SnapshotOpened():
                follower.on_snapshot_opened(self, event)
            case SnapshotWritten():
                follower.on_snapshot_written(self, event)
            case SnapshotRejected():
                follower.on_snapshot_rejected(self, event, now)
            case SnapshotInstalled():
                follower.on_snapshot_installed(self, event, now)
            case Resign():
                if self.is_leader and event.epoch == self.epoch:
                    log.info("[Raft id=%d] resigning from epoch %d: %s", self.me.id, self.epoch, event.reason)
                    self.become_resigned(now)
            case Shutdown():
                self.shutting_down = True
                if self.is_leader and not self.voters.is_only_voter(self.me):
                    self.become_resigned(now)
            case UpgradeKraftVersion():
                membership.on_upgrade(self, event, now)
            case Timeout():
                pass
        return self._finish(now)

    def answer(self, token: Token, reply: Reply) -> None:
        """Answers, naming leader and epoch as known now."""
        if not reply.top_level:
            reply.epoch = self.epoch
            reply.leader_id = self.leader_id
        self.fx.answers.append(Answer(token, reply))

    def _on_request(self, request: RaftRequest, token: Token, now: float) -> None:
        match request:
            case Fetch():
                replication.on_fetch(self, request, token, now)
            case Vote():
                election.on_vote(self, request, token, now)
            case BeginEpoch():
                election.on_begin_epoch(self, request, token, now)
            case EndEpoch():
                election.on_end_epoch(self, request, token, now)
            case FetchSnapshot():
                replication.on_fetch_snapshot(self, request, token, now)
            case DescribeQuorum():
                replication.on_describe(self, token, now)
            case AddVoter():
                changes.on_add_voter(self, request, token, now)
            case RemoveVoter():
                changes.on_remove_voter(self, request, token, now)
            case UpdateVoter():
                membership.on_update_voter(self, request, token, now)
            case ProbeVersions():
                raise RaftError("a probe is only ever sent")

    def _on_reply(self, event: Replied, now: float) -> None:
        link = self.link(event.to.address)
        kind = type(event.request)
        current = link.in_flight.get(kind) is event.request
        if current:
            del link.in_flight[kind]
        match event.request:
            case Vote():
                good = election.on_vote_reply(self, event, now)
            case BeginEpoch() | EndEpoch():
                good = election.on_epoch_reply(self, event, now)
            case Fetch():
                good = follower.on_fetch_reply(self, event, current, now)
            case FetchSnapshot():
                good = follower.on_snapshot_reply(self, event, current, now)
            case UpdateVoter():
                good = joining.on_update_reply(self, event, now)
            case AddVoter() | RemoveVoter():
                good = joining.on_join_reply(self, event, now)
            case ProbeVersions():
                good = changes.on_probe_reply(self, event, now)
            case _:
                raise RaftError(f"a reply to {kind.__name__}, which is never sent")
        if not good and current:
            link.ready_at = now + self.params.retry_backoff_s

    def _on_peer_lost(self, address: Address, now: float) -> None:
        """A reset connection of the leader is a hint: the safe thing to do with a hint is a pre-vote."""
        link = self.link(address)
        link.in_flight.clear()
        link.ready_at = max(link.ready_at, now + self.params.retry_backoff_s)
        self.leader_unreachable(address, now)

    def leader_unreachable(self, address: Address, now: float) -> None:
        f = self.following
        if f is not None and self.leader_id is not None and address == self.address_of(self.leader_id):
            f.heard = False
            if self.may_stand and self.params.quick_failover and f.quick_at == NEVER and not self.shutting_down:
                f.quick_at = now + self.rng.uniform(0, QUICK_FIRST_S)
                self.quick_until = f.fetch_deadline
            elif not self.may_stand:
                f.fetch_deadline = min(f.fetch_deadline, now)

    # --- moves between roles ----------------------------------------------------------------------------------------

    def _move(self, role: Role) -> None:
        if role not in MOVES[self.role]:
            raise RaftError(f"illegal move from {self.role.value} to {role.value} in epoch {self.epoch}")
        if self.leading is not None and role is not Role.LEADER:
            replication.stop_leading(self)
        log.info(
            "[Raft id=%d] %s -> %s epoch=%d leader=%s voted=%s",
            self.me.id, self.role.value, role.value, self.epoch, self.leader_id, self.voted,
        )  # fmt: skip
        self.role = role
        if role not in (Role.CANDIDATE, Role.PROSPECTIVE):
            self.election = None
        if role is not Role.FOLLOWER:
            self.following = None
        self.fx.role = RoleChange(role, self.epoch, self.leader_id)

    def persist(self, again: bool = False) -> None:
        """Has the state written unless it is (again: in any case). Only the name of another leader may wait: whoever
        forgets it knows the epoch and its vote still."""
        voted = None if self.leader_id == self.me.id and self.params.can_vote else self.voted  # as Kafka writes a leader
        state, saved, fx = QuorumState(self.epoch, self.leader_id, voted), self._saved, self.fx
        if state == saved and not again:
            return
        only_leader = saved is not None and (saved.epoch, saved.voted) == (state.epoch, state.voted)
        may_wait = only_leader and state.leader_id not in (None, self.me.id) and not again
        fx.save_may_wait = may_wait and (fx.save_quorum_state is None or fx.save_may_wait)
        fx.save_quorum_state = self._saved = state

    def draw_election_deadline(self, now: float) -> float:
        return now + self.params.election_timeout_s * (1 + self.rng.random())

    def _new_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise RaftError(f"epoch falls from {self.epoch} to {epoch}")
        if epoch > self.epoch:
            self.epoch, self.voted, self.leader_id, self.leader_endpoints = epoch, None, None, NO_ENDPOINTS

    def become_unattached(self, epoch: int, leader_id: int | None, now: float) -> None:
        """A greater epoch without a reachable leader, or the end of a pre-vote or resignation."""
        keeps_timer = self.role in (Role.CANDIDATE, Role.UNATTACHED, Role.RESIGNED) or (
            self.role is Role.PROSPECTIVE and self.election is not None and not self.election.hopeless()
        )
        self._new_epoch(epoch)
        self.leader_id = leader_id
        if not self.may_stand:
            self.election_deadline = NEVER
        elif not keeps_timer or self.election_deadline == NEVER:
            self.election_deadline = self.draw_election_deadline(now)
        self._move(Role.UNATTACHED)
        self.persist()
        self.reset_links()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now: float) -> None:
        if leader_id == self.me.id and self.is_voter:
            raise RaftError(f"told to follow itself in epoch {epoch}")
        self._new_epoch(epoch)
        self.leader_id, self.leader_endpoints = leader_id, dict(endpoints)
        self._move(Role.FOLLOWER)
        self._follow(now)
        self.losses = 0
        self.persist()
        self.reset_links()

    def _follow(self, now: float) -> None:
        self.role = Role.FOLLOWER
        self.election_deadline = NEVER
        self.leader_hwm = -1
        self.following = Following(now + self.params.fetch_timeout_s, now)

    def become_prospective(self, now: float) -> None:
        if not self.may_stand:
            raise RaftError("an observer cannot be elected")
        self._move(Role.PROSPECTIVE)
        self._hold_election(now)
        self.forward_if_won(now)

    def become_candidate(self, now: float) -> None:
        if not self.may_stand:
            raise RaftError("an observer cannot be elected")
        self._new_epoch(self.epoch + 1)
        self.voted = self.me
        self._move(Role.CANDIDATE)
        self.quick_until = -1.0
        self._hold_election(now)
        self.persist()
        self.forward_if_won(now)

    def _hold_election(self, now: float) -> None:
        self.election_deadline = self.draw_election_deadline(now)
        self.election = Election(self.voters, {i: True if i == self.me.id else None for i in self.voters.ids})
        if self.elections_started is None:
            self.elections_started = now
        self.reset_links()

    def forward_if_won(self, now: float) -> None:
        """Prospective with a majority becomes candidate, candidate with one becomes leader."""
        if self.election is None or not self.election.granted():
            return
        if self.role is Role.PROSPECTIVE and now < self.election.not_before:
            self.wake(self.election.not_before)
        elif self.role is Role.PROSPECTIVE:
            self.become_candidate(now)
        elif self.role is Role.CANDIDATE:
            granting = sorted(i for i, v in self.election.votes.items() if v)
            self.leader_id, self.leader_endpoints = self.me.id, dict(self.params.endpoints)
            self._move(Role.LEADER)
            self.election_deadline = NEVER
            self.elections_started = None
            self.losses = 0
            self.hwm = None
            self.persist()
            self.reset_links()
            replication.start_leading(self, granting, now)

    def lose_election(self, now: float) -> None:
        """A pre-vote that failed: back to the leader still known, else unattached; epoch and vote stay."""
        if self.leader_id is not None and self.leader_endpoints:
            deadline = self.quick_until
            self.become_follower(self.epoch, self.leader_id, self.leader_endpoints, now)
            if now < deadline and self.following is not None:  # a quick pre-vote was refused: the leader may live
                self.following.fetch_deadline = deadline
                self.following.quick_at = now + self.rng.uniform(*QUICK_AGAIN_S)
        else:
            self.become_unattached(self.epoch, self.leader_id, now)

    def give_way(self, other: ReplicaKey, last: OffsetEpoch, now: float) -> None:
        """A pre-vote was granted: its asker goes first, or both would stand and split the votes. Of two that ask at the
        same time the one with the longer log goes first, then the one with the lower id."""
        if not self.params.quick_failover or self.gave_way == self.epoch:
            return
        until = now + self.rng.uniform(*GIVE_WAY_S)
        f, election = self.following, self.election
        if f is not None and f.quick_at < until:
            f.quick_at = until
        elif self.role is Role.UNATTACHED and self.election_deadline < until:
            self.election_deadline = until
        elif (
            self.role is Role.PROSPECTIVE
            and election is not None
            and (last.log_order, -other.id) > (self.end.log_order, -self.me.id)
        ):
            election.not_before = until
        else:
            return
        self.gave_way = self.epoch

    def stand_soon(self, now: float) -> None:
        """A candidate was refused for want of records that we have: our own chance is better."""
        if self.is_voter and self.params.quick_failover and not self.shutting_down:
            self.election_deadline = min(self.election_deadline, now + self.rng.uniform(*QUICK_AGAIN_S))

    def back_off(self, now: float) -> None:
        """A candidate that cannot win any more: random and doubling, so that two of them part company."""
        if self.election is None or self.election.backed_off:
            return
        self.election.backed_off = True
        wait = self.rng.uniform(*SPLIT_VOTE_S) * (1 << min(self.losses, 10))
        self.losses += 1
        self.election_deadline = min(self.election_deadline, now + min(wait, self.params.backoff_max_s))

    def become_resigned(self, now: float) -> None:
        leading = self.leading
        if leading is None:
            raise RaftError("only a leader resigns")
        self.successors = replication.successors(self)
        self.unacknowledged = {i for i in self.voters.ids if i != self.me.id}
        self._move(Role.RESIGNED)
        self.election_deadline = self.draw_election_deadline(now)
        self.reset_links()

    def adopt(self, epoch: int, leader_id: int | None, endpoints: Endpoints, now: float) -> None:
        """What another replica says of leader and epoch, for an epoch not below our own."""
        if leader_id is not None and not endpoints:
            endpoints = self.voters.endpoints(leader_id)
        if epoch == self.epoch and leader_id is not None and self.leader_id not in (None, leader_id):
            raise RaftError(f"two leaders in epoch {epoch}: {self.leader_id} and {leader_id}")
        if leader_id == self.me.id:
            if epoch > self.epoch:  # our own past life under another directory id, or a lost quorum-state
                self.become_unattached(epoch, None, now)
            return
        if epoch > self.epoch:
            if leader_id is not None and endpoints:
                self.become_follower(epoch, leader_id, endpoints, now)
            else:
                self.become_unattached(epoch, leader_id, now)
        elif leader_id is not None and self.role is not Role.LEADER:
            more = len(endpoints) > len(self.leader_endpoints)
            if endpoints and (self.leader_id is None or more or self.role is not Role.FOLLOWER):
                if self.role is Role.PROSPECTIVE and not more and self.leader_id is not None:
                    return  # a pre-vote for want of that very leader goes on
                self.become_follower(epoch, leader_id, endpoints, now)
            elif self.leader_id is None:
                self.leader_id = leader_id
                self.persist()

    # --- links and timers -------------------------------------------------------------------------------------------

    def link(self, address: Address) -> Link:
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = Link()
        return found

    def reset_links(self) -> None:
        self.links.clear()

    def send(self, to: Peer, request: RaftRequest, now: float) -> bool:
        """Sends unless one of this kind is under way there or the address is backing off; then sets the alarm."""
        link = self.link(to.address)
        if now < link.ready_at:
            self.wake(link.ready_at)
            return False
        if type(request) in link.in_flight:
            return False
        link.in_flight[type(request)] = request
        self.fx.send.append(Outgoing(to, request))
        return True

    def wake(self, at: float) -> None:
        if at < self.fx.wake_at:
            self.fx.wake_at = at

    def _finish(self, now: float) -> Effects:
        """Deadlines that have passed, requests that the role wants sent, and the next alarm."""
        while self._expired(now):
            pass
        if self.role is Role.PROSPECTIVE:
            self.forward_if_won(now)
        if self.leaderless:
            replication.answer_leaderless(self, now)
        if self.election_deadline > now:
            self.wake(self.election_deadline)
        if self.fx.high_watermark is not None and self.fx.high_watermark > self.committed:
            self.committed = self.fx.high_watermark
            joining.note_standing(self)
        match self.role:
            case Role.LEADER:
                replication.drive_leader(self, now)
            case Role.FOLLOWER:
                follower.drive_follower(self, now)
            case Role.UNATTACHED:
                follower.fetch_from_bootstrap(self, now)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                election.drive_nominee(self, now)
            case Role.RESIGNED:
                election.drive_resigned(self, now)
        return self.fx

    def _expired(self, now: float) -> bool:
        """Takes the one move that a passed deadline calls for; whether it did."""
        f = self.following
        if self.installing is not None:  # a log that is about to be replaced is no ground to stand on
            return False
        if f is not None:
            if not self.may_stand or self.shutting_down:
                return False
            if now >= f.fetch_deadline or now >= f.quick_at:
                quick = now < f.fetch_deadline
                self.quick_until = f.fetch_deadline if quick else -1.0
                log.info("[Raft id=%d] lost leader %s: %s", self.me.id, self.leader_id, "reset" if quick else "timeout")
                self.become_prospective(now)
                return True
            return False
        if now < self.election_deadline:
            return False
        match self.role:
            case Role.UNATTACHED if self.may_stand and not self.shutting_down:
                self.become_prospective(now)
            case Role.UNATTACHED:
                self.election_deadline = NEVER
            case Role.CANDIDATE if self.may_stand:
                self.become_prospective(now)
            case Role.CANDIDATE:
                self.become_unattached(self.epoch, None, now)
            case Role.PROSPECTIVE:
                self.lose_election(now)
            case Role.RESIGNED if not self.shutting_down:
                self.become_unattached(self.epoch + 1, None, now)
            case _:
                return False
        return True

    def _voted_self(self, voted: ReplicaKey) -> bool:
        return voted.id == self.me.id and voted.directory_id in (bytes(16), self.me.directory_id)
