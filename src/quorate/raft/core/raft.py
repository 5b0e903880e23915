"""Raft as KIP-595, KIP-853 and KIP-996 amend it: a pure state machine. No I/O, no clock, no task.

Everything enters as an event with the time at which it happened; what is to be done comes back as
Effects. Randomness is drawn from the generator given. The rules live in `election` (votes, epochs),
`moves` (between roles), `replication` (the leader), `follower` and `membership` (voter changes); this
file holds the state, the one entrance and the timers.

The driver's duties, for every Effects returned, in this order:

1. `send`: may go at once, even before 2; but what comes back is stepped only after all duties are done.
   Report each answer or failure by step(Replied).
2. `save_quorum_state`: write it durably before doing anything below. A failure is fatal. With
   `save_may_wait` the state is written soon, or with the next one.
3. `truncate_to`: cut the log there, then step(Synced). `start_snapshot`: open a download, an empty one
   or one that was broken off, then step(SnapshotOpened). `snapshot_chunk`: verify its bytes and add
   them, then step(SnapshotWritten); after the last, freeze the snapshot, restart the log behind it and
   step(SnapshotInstalled) instead. What is no snapshot is deleted: step(SnapshotRejected). All this may
   take its time: it runs beside the other duties, in order.
4. `append_fetched`: check and append the bytes; step(Appended) with the control records in them, make
   them durable (a voter or controller), then step(Synced). What cannot be appended:
   step(FetchRejected). `append_control`: append, after all records proposed before, one control batch;
   step(Appended), later step(Synced). Records that the state machine proposes in the leader's epoch are
   appended by the driver itself, then both steps too.
5. `answers`: may go now; bytes named by `read_from` and `read` are read from the log and the snapshot.
   `save_standing`: write it durably, at any time.
6. `role`: tell the listeners. `high_watermark`: deliver what is below it.
7. Call step(Timeout) no later than `wake_at`.

Steps caused by duties run before the next outside event. A step must never be made from within a step.
"""

from __future__ import annotations

import logging
import random

from quorate.raft.core import auto_join as joining
from quorate.raft.core import election, follower, membership
from quorate.raft.core import leader as replication
from quorate.raft.core import transitions as moves
from quorate.raft.core import voter_changes as changes
from quorate.raft.core.messages import (
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
from quorate.raft.core.role_state import NEVER, Election, Following, Link, LogView
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.runtime.rate_limited_log import RateLimitedLog
from quorate.raft.storage.membership_record import MembershipRecord
from quorate.raft.storage.quorum_state import QuorumState
from quorate.raft.types import (
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

log = logging.getLogger(__name__)
QUICK_FIRST_S = (
    0.020  # after a reset connection: pre-vote within so long, so that two followers rarely collide
)
QUICK_START_S = (
    0.05,
    0.30,
)  # a voter that starts and knows no leader asks so soon: a quorum that forms need not wait


class Raft:
    """One replica of the metadata log. See the module's text for the caller's duties."""

    def __init__(
        self,
        params: RaftParams,
        view: LogView,
        stored: QuorumState | None,
        members: Membership,
        rng: random.Random,
        standing: MembershipRecord = MembershipRecord.NEVER,
    ) -> None:
        self.params = params
        self.me: ReplicaKey = params.me
        self.log = view
        self.members = members
        self.rng = rng
        self.standing = standing
        self.noted_upto = -2  # the offset up to which voter sets were judged for it
        self._stored = stored
        self.saved: QuorumState | None = None  # what this process has had written
        self.role = Role.UNATTACHED
        self.epoch = 0
        self.leader_id: int | None = None
        self.leader_endpoints: Endpoints = NO_ENDPOINTS
        self.voted: ReplicaKey | None = None
        self.heard_at = 0.0  # a leader's answer, or the start
        self.leader_confirmed_epoch = -1  # the epoch whose leader has answered us as such
        self.leader_confirmed_on_disk = (
            -1
        )  # the epoch of which the disk has both the leader's name and records
        self.error_log = RateLimitedLog()
        self.repeats = RateLimitedLog()  # what is in order, and comes again and again
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
        self.deferred_epoch = -1  # the epoch in which another nominee was let go first
        self.leaderless: list[replication.Parked] = []  # observers' Fetches that wait to hear of a leader
        self.elections_started: float | None = None
        self.effects = Effects()

    # --- questions --------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        return self.members.current

    @property
    def is_voter(self) -> bool:
        return self.params.can_vote and self.members.current.is_voter(self.me)

    @property
    def may_stand(self) -> bool:
        """Whether it may be elected: a voter, or a replica whose removal stands in its log and is not
        known to be committed.

        Where the voters that remain lack that record, they cannot win and only such a replica can
        commit it (Raft's thesis, 4.2.2). Kafka's controllers wait there for ever.
        """
        if self.is_voter:
            return True
        at = self.members.current_offset
        if not self.params.can_vote or at is None or at < self.committed:
            return False
        return self.members.voters_at(at - 1).is_voter(self.me)

    @property
    def unsynced(self) -> bool:
        """Whether the log, or what is being added to it, is not durable yet: a Fetch now would
        acknowledge too much."""
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

    # --- the one entrance -------------------------------------------------------------------------

    def start(self, now: float) -> Effects:
        """The first step: takes up the role that disk and voter set call for."""
        self.effects, self.heard_at = Effects(), now
        stored = self._stored if self._stored is not None else QuorumState()
        end = self.end
        self.synced = end.offset
        if stored.epoch < end.epoch:
            log.warning(
                "[Raft id=%d] quorum-state has epoch %d, the log has %d", self.me.id, stored.epoch, end.epoch
            )
            stored = QuorumState(end.epoch)
        self.epoch, self.voted = stored.epoch, stored.voted
        if stored.leader_id is not None and end.epoch == stored.epoch:
            self.leader_confirmed_on_disk = stored.epoch
        if stored.leader_id == self.me.id and self.params.can_vote:
            self.role, self.leader_id = Role.RESIGNED, self.me.id
            self.unacknowledged = {i for i in self.voters.ids if i != self.me.id}
            self.election_deadline = self.draw_election_deadline(now)
        elif (
            stored.leader_id is None
            and stored.voted is not None
            and self._voted_self(stored.voted)
            and end.epoch
            < stored.epoch  # else another has led the epoch, and its name was not written in time
        ):
            self.role = Role.CANDIDATE
            moves.hold_election(self, now)
        elif stored.leader_id is not None and self.voters.endpoints(stored.leader_id):
            self.leader_id = stored.leader_id
            self.leader_endpoints = self.voters.endpoints(stored.leader_id)
            moves.start_following(self, now)
        else:
            self.leader_id = stored.leader_id
            self.election_deadline = self.draw_election_deadline(now) if self.may_stand else NEVER
            if self.may_stand and self.params.quick_failover:
                self.election_deadline = now + self.rng.uniform(*QUICK_START_S)
        self.effects.role = RoleChange(self.role, self.epoch, self.leader_id)
        joining.note_at_start(self)
        if self.voters.is_only_voter(self.me) and self.params.can_vote:
            if self.role is Role.CANDIDATE:
                self.forward_if_won(now)
            else:
                self.become_prospective(now)
        self.persist()
        return self._finish(now)

    def step(self, event: Event, now: float) -> Effects:
        """One event. Raises RaftError where a rule of Raft is broken: the caller must stop the node."""
        self.effects = Effects()
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
        self.effects.answers.append(Answer(token, reply))

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
        link.ready_at, link.lost_at = max(link.ready_at, now + self.params.retry_backoff_s), now
        self.leader_unreachable(address, now)

    def leader_unreachable(self, address: Address, now: float) -> None:
        f = self.following
        if f is not None and self.leader_id is not None and address == self.address_of(self.leader_id):
            f.heard = False
            if (
                self.may_stand
                and self.params.quick_failover
                and f.quick_at == NEVER
                and not self.shutting_down
            ):
                f.quick_at = now + self.rng.uniform(0, QUICK_FIRST_S)
                self.quick_until = f.fetch_deadline
            elif not self.may_stand:
                f.fetch_deadline = min(f.fetch_deadline, now)

    # --- moves between roles: in `moves` ----------------------------------------------------------

    persist = moves.persist
    draw_election_deadline = moves.draw_election_deadline
    become_unattached = moves.become_unattached
    become_follower = moves.become_follower
    become_prospective = moves.become_prospective
    become_candidate = moves.become_candidate
    forward_if_won = moves.forward_if_won
    lose_election = moves.lose_election
    become_resigned = moves.become_resigned
    adopt = moves.adopt
    defer_to = moves.defer_to
    request_votes_soon = moves.request_votes_soon
    back_off = moves.back_off

    # --- links and timers -------------------------------------------------------------------------

    def link(self, address: Address) -> Link:
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = Link()
        return found

    def reset_links(self) -> None:
        self.links.clear()

    def send(self, to: Peer, request: RaftRequest, now: float) -> bool:
        """Sends unless one of this kind is under way there or the address is backing off; then sets the
        alarm."""
        link = self.link(to.address)
        if now < link.ready_at:
            self.wake(link.ready_at)
            return False
        if type(request) in link.in_flight:
            return False
        link.in_flight[type(request)] = request
        self.effects.send.append(Outgoing(to, request))
        return True

    def wake(self, at: float) -> None:
        if at < self.effects.wake_at:
            self.effects.wake_at = at

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
        if self.effects.high_watermark is not None and self.effects.high_watermark > self.committed:
            self.committed = self.effects.high_watermark
            joining.note_membership(self)
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
        return self.effects

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
                log.info(
                    "[Raft id=%d] lost leader %s: %s",
                    self.me.id,
                    self.leader_id,
                    "reset" if quick else "timeout",
                )
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
