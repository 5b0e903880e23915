"""Raft as a pure state machine, with the changes of KIP-595, KIP-853 and KIP-996.

The core does no I/O, starts no task and reads no clock. An event and its time go in, and `Effects` come
out: what the driver must do, in the order that `Effects` states. Random numbers come from a generator
that is passed in. This module dispatches events to the rules and handles deadlines; the rules are in
the modules below it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.raft.core import election, follower, leader, transitions
from quorate.raft.core.control_records import KRAFT_VOTERS, apply_control_record
from quorate.raft.core.effects import Effects, RoleChange
from quorate.raft.core.events import (
    Abandoned,
    Appended,
    ControlRecord,
    Event,
    FetchRejected,
    PeerLost,
    Received,
    Receiving,
    Replied,
    Resign,
    Shutdown,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotRejected,
    SnapshotWritten,
    Synced,
    Timeout,
    UpgradeKraftVersion,
)
from quorate.raft.core.membership import auto_join, kraft_version, voter_changes
from quorate.raft.core.messages import (
    AddVoter,
    BeginEpoch,
    DescribeQuorum,
    EndEpoch,
    Fetch,
    FetchSnapshot,
    ProbeVersions,
    RaftRequest,
    RemoveVoter,
    Token,
    UpdateVoter,
    Vote,
)
from quorate.raft.core.role_state import NEVER
from quorate.raft.core.state import LogView, RaftState
from quorate.raft.core.voters import Membership, MembershipRecord
from quorate.raft.types import (
    NO_DIRECTORY,
    Address,
    QuorumState,
    RaftError,
    RaftParams,
    ReplicaKey,
    Role,
)

if TYPE_CHECKING:
    from quorate.raft.core.membership import update_voter
else:  # only when another voter has moved or has other features
    update_voter = lazy_module("quorate.raft.core.membership.update_voter")

logger = logging.getLogger(__name__)

QUICK_START_S = (0.05, 0.30)  # a voter that starts and knows no leader requests pre-votes within this time


class Raft:
    """One replica of the metadata log."""

    def __init__(
        self,
        params: RaftParams,
        log: LogView,
        stored: QuorumState | None,
        members: Membership,
        rng: random.Random,
        membership_record: MembershipRecord = MembershipRecord.NEVER,
    ) -> None:
        self.state = RaftState(params, log, members, rng, membership_record)
        self._stored = stored

    def start(self, now: float) -> Effects:
        """The first step: takes up the role that follows from the quorum state on disk and the voter set."""
        r = self.state
        r.effects, r.leader_heard_at = Effects(), now
        stored = self._stored if self._stored is not None else QuorumState()
        end = r.end
        r.synced = end.offset
        if stored.epoch < end.epoch:
            logger.warning(
                "[Raft id=%d] quorum-state has epoch %d, the log has %d", r.me.id, stored.epoch, end.epoch
            )
            stored = QuorumState(end.epoch)
        r.epoch, r.voted = stored.epoch, stored.voted
        if stored.leader_id is not None and end.epoch == stored.epoch:
            r.leader_confirmed_on_disk = stored.epoch
        if stored.leader_id == r.me.id and r.params.can_vote:
            r.role, r.leader_id = Role.RESIGNED, r.me.id
            r.unacknowledged = {i for i in r.voters.ids if i != r.me.id}
            r.election_deadline = transitions.draw_election_deadline(r, now)
        elif (
            stored.leader_id is None
            and stored.voted is not None
            and _voted_for_itself(r, stored.voted)
            and end.epoch
            < stored.epoch  # otherwise another led the epoch, and its name was not saved in time
        ):
            r.role = Role.CANDIDATE
            transitions.start_election(r, now)
        elif stored.leader_id is not None and r.voters.endpoints(stored.leader_id):
            r.leader_id = stored.leader_id
            r.leader_endpoints = r.voters.endpoints(stored.leader_id)
            transitions.start_following(r, now)
        else:
            r.leader_id = stored.leader_id
            r.election_deadline = (
                transitions.draw_election_deadline(r, now) if r.can_start_election else NEVER
            )
            if r.can_start_election and r.params.quick_failover:
                r.election_deadline = now + r.rng.uniform(*QUICK_START_S)
        r.effects.role = RoleChange(r.role, r.epoch, r.leader_id)
        auto_join.record_at_start(r)
        if r.voters.is_only_voter(r.me) and r.params.can_vote:
            if r.role is Role.CANDIDATE:
                transitions.promote_if_elected(r, now)
            else:
                transitions.become_prospective(r, now)
        transitions.persist(r)
        return _finish(r, now)

    def step(self, event: Event, now: float) -> Effects:
        """Handles one event. Raises RaftError if a rule of Raft is broken: the caller must stop the node.

        A step must not be made while another one is in progress.
        """
        r = self.state
        r.effects = Effects()
        match event:
            case Synced():
                _on_synced(r, event.offset, now)
            case Appended():
                _on_appended(r, event.controls, now)
            case Received():
                _on_request(r, event.request, event.token, now)
            case Replied():
                _on_reply(r, event, now)
            case PeerLost():
                _on_peer_lost(r, event.address, now)
            case Receiving():
                follower.on_receiving(r, event.address, now)
            case FetchRejected():
                follower.on_fetch_rejected(r, event.reason, now)
            case SnapshotOpened():
                follower.on_snapshot_opened(r, event)
            case SnapshotWritten():
                follower.on_snapshot_written(r, event)
            case SnapshotRejected():
                follower.on_snapshot_rejected(r, event, now)
            case SnapshotInstalled():
                follower.on_snapshot_installed(r, event, now)
            case Resign():
                if r.is_leader and event.epoch == r.epoch:
                    logger.info("[Raft id=%d] resigning from epoch %d: %s", r.me.id, r.epoch, event.reason)
                    transitions.become_resigned(r, now)
            case Shutdown():
                r.shutting_down = True
                if r.is_leader and not r.voters.is_only_voter(r.me):
                    transitions.become_resigned(r, now)
            case UpgradeKraftVersion():
                kraft_version.on_upgrade(r, event, now)
            case Abandoned():
                voter_changes.on_abandoned(r, event.token)
            case Timeout():
                pass
        return _finish(r, now)


def _on_appended(r: RaftState, controls: Sequence[ControlRecord], now: float) -> None:
    """Applies the control records that were appended, and answers the Fetches that wait for records."""
    for control in controls:
        _apply_control(r, control)
    if r.leading is not None and controls:
        r.leading.appending_control_records = False
        leader.advance_high_watermark(r, now)  # an fsync may have ended before this was reported
    if r.leading is not None and r.leading.parked:
        leader.wake_parked(r, now)


def _on_synced(r: RaftState, offset: int, now: float) -> None:
    """Notes that the log is durable below `offset`, which may advance the high watermark.

    The log counts for the high watermark and for Fetches only as far as it is durable.
    """
    r.synced = max(r.synced, offset)
    if offset >= r.log.end_offset:  # an fsync that began before the last append does not cover it
        r.awaiting_sync = False
    if r.leading is not None:
        leader.advance_high_watermark(r, now)
    elif r.role is Role.FOLLOWER:
        follower.advance_high_watermark(r)


def _apply_control(r: RaftState, control: ControlRecord) -> None:
    """Puts a voter set or a kraft.version into force, committed or not (KIP-853).

    Raises RaftError if it breaks a rule of KIP-853.
    """
    before = r.members.kraft_version
    apply_control_record(r.members, control)
    if control.type == KRAFT_VOTERS:
        logger.info(
            "[Raft id=%d] voters at offset %d: %s", r.me.id, control.offset, [str(v.key) for v in r.voters]
        )
        voter_changes.on_appended(r, control.offset)
    elif before != r.members.kraft_version:
        transitions.persist(r, again=True)  # the version of the file quorum-state follows kraft.version


def _on_request(r: RaftState, request: RaftRequest, token: Token, now: float) -> None:
    match request:
        case Fetch():
            leader.on_fetch(r, request, token, now)
        case Vote():
            election.on_vote(r, request, token, now)
        case BeginEpoch():
            election.on_begin_epoch(r, request, token, now)
        case EndEpoch():
            election.on_end_epoch(r, request, token, now)
        case FetchSnapshot():
            leader.on_fetch_snapshot(r, request, token, now)
        case DescribeQuorum():
            leader.on_describe(r, token, now)
        case AddVoter():
            voter_changes.on_add_voter(r, request, token, now)
        case RemoveVoter():
            voter_changes.on_remove_voter(r, request, token, now)
        case UpdateVoter():
            update_voter.on_update_voter(r, request, token, now)
        case ProbeVersions():
            raise RaftError("a probe is only ever sent")


def _on_reply(r: RaftState, event: Replied, now: float) -> None:
    link = r.link(event.to.address)
    kind = type(event.request)
    current = link.in_flight.get(kind) is event.request
    if current:
        del link.in_flight[kind]
    match event.request:
        case Vote():
            good = election.on_vote_reply(r, event, now)
        case BeginEpoch() | EndEpoch():
            good = election.on_epoch_reply(r, event, now)
        case Fetch():
            good = follower.on_fetch_reply(r, event, current, now)
        case FetchSnapshot():
            good = follower.on_snapshot_reply(r, event, current, now)
        case UpdateVoter():
            good = auto_join.on_update_reply(r, event, now)
        case AddVoter() | RemoveVoter():
            good = auto_join.on_join_reply(r, event, now)
        case ProbeVersions():
            good = voter_changes.on_probe_reply(r, event, now)
        case _:
            raise RaftError(f"a reply to {kind.__name__}, which is never sent")
    if not good and current:
        link.ready_at = now + r.params.retry_backoff_s


def _on_peer_lost(r: RaftState, address: Address, now: float) -> None:
    link = r.link(address)
    link.in_flight.clear()
    link.ready_at, link.lost_at = max(link.ready_at, now + r.params.retry_backoff_s), now
    follower.on_leader_unreachable(r, address, now)
    transitions.end_deferral(r, address, now)


def _finish(r: RaftState, now: float) -> Effects:
    """Ends a step: handles deadlines, sends the requests of the role and sets the time of the next step."""
    while _handle_deadline(r, now):
        pass
    if r.role is Role.PROSPECTIVE:
        transitions.promote_if_elected(r, now)
    if r.fetches_awaiting_leader:
        leader.answer_fetches_awaiting_leader(r, now)
    if r.election_deadline > now:
        r.wake(r.election_deadline)
    if r.effects.high_watermark is not None and r.effects.high_watermark > r.committed:
        r.committed = r.effects.high_watermark
        auto_join.record_committed_voters(r)
    match r.role:
        case Role.LEADER:
            leader.poll_leader(r, now)
        case Role.FOLLOWER:
            follower.poll_follower(r, now)
        case Role.UNATTACHED:
            follower.fetch_from_bootstrap(r, now)
        case Role.PROSPECTIVE | Role.CANDIDATE:
            election.send_vote_requests(r, now)
        case Role.RESIGNED:
            election.send_end_quorum_epoch(r, now)
    return r.effects


def _handle_deadline(r: RaftState, now: float) -> bool:
    """Makes the transition that a passed deadline demands. Returns whether there was one."""
    f = r.following
    if r.installing is not None:  # no election on a log that is about to be replaced
        return False
    if f is not None:
        if not r.can_start_election or r.shutting_down:
            return False
        if now >= f.fetch_deadline or now >= f.quick_pre_vote_at:
            quick = now < f.fetch_deadline
            r.quick_pre_vote_until = f.fetch_deadline if quick else -1.0
            logger.info(
                "[Raft id=%d] lost leader %s: %s", r.me.id, r.leader_id, "reset" if quick else "timeout"
            )
            if not quick:
                follower.on_fetch_timeout(r)
            transitions.become_prospective(r, now)
            return True
        return False
    if now < r.election_deadline:
        return False
    match r.role:
        case Role.UNATTACHED if r.can_start_election and not r.shutting_down:
            transitions.become_prospective(r, now)
        case Role.UNATTACHED:
            r.election_deadline = NEVER
        case Role.CANDIDATE if r.can_start_election:
            transitions.become_prospective(r, now)
        case Role.CANDIDATE:
            transitions.become_unattached(r, r.epoch, None, now)
        case Role.PROSPECTIVE:
            transitions.lose_pre_vote(r, now)
        case Role.RESIGNED if not r.shutting_down:
            transitions.become_unattached(r, r.epoch + 1, None, now)
        case _:
            return False
    return True


def _voted_for_itself(r: RaftState, voted: ReplicaKey) -> bool:
    return voted.id == r.me.id and voted.directory_id in (NO_DIRECTORY, r.me.directory_id)
