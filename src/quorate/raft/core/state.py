"""The state of one replica, and the small operations that every rule uses.

The rules are functions of this state, in the modules above: a rule reads and changes a `RaftState` and
adds what the driver must do to `RaftState.effects`. This module imports no rule.
"""

from __future__ import annotations

import logging
import random
from typing import Protocol

from quorate.raft.core.effects import Answer, Effects, Outgoing
from quorate.raft.core.messages import Peer, RaftRequest, ReplicaFacts, Reply, Token
from quorate.raft.core.role_state import NEVER, Election, Following, Leading, Link, ParkedFetch, Progress
from quorate.raft.core.voters import Membership, MembershipRecord, VoterSet
from quorate.raft.types import (
    NO_DIRECTORY,
    NO_ENDPOINTS,
    Address,
    Endpoints,
    LeaderAndEpoch,
    OffsetEpoch,
    QuorumState,
    RaftParams,
    ReplicaKey,
    Role,
)
from quorate.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

MAX_EPOCH_STEP = 1 << 24  # elections that a replica may have missed: 46 hours of a hundred a second


class LogView(Protocol):
    """The core's read-only view of the log and the snapshots."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    def end_offset_for_epoch(self, epoch: int) -> OffsetEpoch: ...
    def latest_snapshot(self) -> OffsetEpoch | None: ...
    def earliest_snapshot(self) -> OffsetEpoch | None: ...
    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None: ...


class RaftState:
    """All that a replica knows, and the effects of the step that is being computed."""

    def __init__(
        self,
        params: RaftParams,
        log: LogView,
        members: Membership,
        rng: random.Random,
        membership_record: MembershipRecord,
    ) -> None:
        self.params = params
        self.me: ReplicaKey = params.me
        self.log = log
        self.members = members
        self.rng = rng
        self.membership_record = membership_record
        self.voter_sets_seen_upto = -2  # the offset of the last voter set that membership_record accounts for
        self.saved: QuorumState | None = None  # the quorum state that this process saved last
        self.role = Role.UNATTACHED
        self.epoch = 0
        self.leader_id: int | None = None
        self.leader_endpoints: Endpoints = NO_ENDPOINTS
        self.voted: ReplicaKey | None = None
        self.leader_heard_at = 0.0  # when a leader last answered, or this replica started
        self.leader_confirmed_epoch = -1  # the epoch whose leader answered a Fetch of this replica
        # The epoch for which the disk has both the leader's name and records from before the start.
        self.leader_confirmed_on_disk = -1
        self.error_log = RateLimitedLog()  # for errors that peers can cause again and again
        self.info_log = RateLimitedLog()  # for ordinary events that repeat
        self.hwm: int | None = None  # high watermark; a new leader does not know it at first
        self.committed = 0  # the greatest high watermark ever known; the log is never truncated below it
        self.synced = 0  # the offset below which the log is durable
        self.awaiting_sync = False  # fetched records are being written
        self.election_deadline = NEVER
        self.election: Election | None = None
        self.not_found_at: dict[int, set[Address]] = {}  # where voters have not answered a Vote
        self.following: Following | None = None
        self.leading: Leading | None = None
        self.unacknowledged: set[int] = set()  # voters that have not answered a resigned leader's EndEpoch
        self.successors: list[ReplicaKey] = []  # named in the EndEpoch of a resigned leader
        self.links: dict[Address, Link] = {}
        self.installing: OffsetEpoch | None = None  # a complete snapshot that is about to replace the log
        self.fetch_bytes = params.fetch_max_bytes  # asked of the leader; less on a slow link
        self.snapshot_part_bytes = params.fetch_snapshot_max_bytes  # the same
        self.leader_hwm = -1  # the high watermark in the leader's last Fetch response
        self.quick_pre_vote_until = -1.0  # a refused quick pre-vote is repeated until then
        self.shutting_down = False
        self.lost_elections = 0  # in a row
        self.deferred_epoch = -1  # the last epoch in which this replica let another nominee go first
        self.deferred_to = -1  # the id of that nominee
        self.fetches_awaiting_leader: list[ParkedFetch] = []  # of observers
        self.effects = Effects()

    # --- queries ----------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        return self.members.current

    @property
    def is_voter(self) -> bool:
        return self.params.can_vote and self.members.current.is_voter(self.me)

    @property
    def can_start_election(self) -> bool:
        """Whether this replica may be elected.

        A voter may, and so may a replica whose removal is in its log but not known to be committed: if
        the remaining voters lack that record, they cannot win an election, and only the removed replica
        can commit it (section 4.2.2 of Ongaro's Raft thesis). Apache Kafka's controllers wait forever in
        this case.
        """
        if self.is_voter:
            return True
        at = self.members.current_offset
        if not self.params.can_vote or at is None or at < self.committed:
            return False
        return self.members.voters_at(at - 1).is_voter(self.me)

    @property
    def unsynced(self) -> bool:
        """Whether the log, or what is being appended to it, is not durable yet.

        A Fetch sent now would acknowledge records that are not durable.
        """
        return self.awaiting_sync or self.synced < self.log.end_offset

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_leaderless(self) -> bool:
        """Whether this replica knows no leader, or believes that the one it knows is gone."""
        if self.role is Role.FOLLOWER:
            return self.following is not None and self.following.quick_pre_vote_at != NEVER
        if self.role is Role.UNATTACHED:
            return self.leader_id is None
        return self.role is not Role.LEADER

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def end(self) -> OffsetEpoch:
        return OffsetEpoch(self.log.end_offset, self.log.last_epoch)

    @property
    def facts(self) -> ReplicaFacts:
        """What this replica reports about itself."""
        latest = self.log.latest_snapshot()
        return ReplicaFacts(-1 if latest is None else latest.offset, self.params.start_time_ms)

    @property
    def shutdown_complete(self) -> bool:
        """Whether a replica that received Shutdown has nothing left to wait for."""
        return (
            not self.is_voter
            or self.voters.is_only_voter(self.me)
            or (self.leader_id is not None and self.leader_id != self.me.id)
        )

    @property
    def has_unreplicated_records(self) -> bool:
        """Whether this leader has uncommitted records, or no other voter has its whole log."""
        if self.leading is None or self.voters.is_only_voter(self.me):
            return False
        end = self.log.end_offset
        behind = all(self.end_of(v.key) < end for v in self.voters if v.id != self.me.id)
        return self.hwm is None or self.hwm < end or behind

    def address_of(self, node_id: int) -> Address | None:
        """The address for requests to a replica. A leader's own endpoints precede those of the voter set."""
        if node_id == self.leader_id and self.params.listener_name in self.leader_endpoints:
            return self.leader_endpoints[self.params.listener_name]
        return self.voters.address(node_id, self.params.listener_name)

    def leader_address(self, listener: str) -> Address | None:
        """The leader's address under a listener name, as responses carry it."""
        if self.leader_id is None:
            return None
        return (self.leader_endpoints or self.voters.endpoints(self.leader_id)).get(listener)

    def is_other_cluster(self, cluster_id: str | None) -> bool:
        """Whether a request names another cluster. A request need not name any."""
        return cluster_id is not None and cluster_id != self.params.cluster_id

    def is_other_replica(self, voter: ReplicaKey | None) -> bool:
        """Whether a request is addressed to another node, or to another directory of this node."""
        if voter is None:
            return False
        return voter.id != self.me.id or voter.directory_id not in (NO_DIRECTORY, self.me.directory_id)

    def is_epoch_too_far_ahead(self, epoch: int) -> bool:
        """Whether this quorum cannot have reached an epoch since this replica last had contact with it.

        Epochs never decrease and end at 2^31 - 1, so a single forged request could use them all up.
        Apache Kafka accepts any epoch.
        """
        return epoch - self.epoch > MAX_EPOCH_STEP

    def progress_of(self, key: ReplicaKey) -> Progress | None:
        """The leader's record of a replica's Fetches. None if it has no record or does not lead."""
        leading = self.leading
        if leading is None:
            return None
        if key.directory_id == NO_DIRECTORY:
            return leading.latest_by_id.get(key.id)
        return leading.progress.get(key)

    def end_of(self, key: ReplicaKey) -> int:
        """The log end offset that a replica has reported to this leader, or -1."""
        progress = self.progress_of(key)
        return progress.end if progress is not None else -1

    # --- effects ----------------------------------------------------------------------------------

    def answer(self, token: Token, reply: Reply) -> None:
        """Answers a request, and names the leader and epoch known now."""
        if not reply.top_level:
            reply.epoch = self.epoch
            reply.leader_id = self.leader_id
        self.effects.answers.append(Answer(token, reply))

    def link(self, address: Address) -> Link:
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = Link()
        return found

    def reset_links(self) -> None:
        self.links.clear()

    def send(self, to: Peer, request: RaftRequest, now: float) -> bool:
        """Sends a request, and returns whether it did.

        Nothing is sent while a request of the same kind to this address is in flight or the address is
        backing off. The core is woken at the end of the back-off.
        """
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
        """Asks for a step at this time, if none is wanted earlier."""
        if at < self.effects.wake_at:
            self.effects.wake_at = at

    def log_error(self, kind: str, text: str, now: float) -> None:
        """Logs an error that a peer can repeat, at a limited rate for each kind."""
        suffix = self.error_log.due(kind, now)
        if suffix is not None:
            logger.error("[Raft id=%d] %s%s", self.me.id, text, suffix)
