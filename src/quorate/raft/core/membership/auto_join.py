"""What a controller requests from the leader for itself (KIP-853): its entry and its place in the voter set.

A voter reports its endpoints and its range of kraft.version in UpdateRaftVoter.

With `controller.quorum.auto.join.enable`, a controller that is not a voter removes the voter with its
id on another disk, if there is one, and then adds itself. It does not do so after it was removed: it
would undo what an operator did. Therefore each replica remembers durably, for its directory id, whether it
is or was a voter (`MembershipRecord`). Every committed voter set that the replica sees counts, including
that of the formatted snapshot. It does not see a voter set that a snapshot from the leader has skipped.
"""

from __future__ import annotations

import logging

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import needs_voter_update
from quorate.raft.core.events import Replied
from quorate.raft.core.messages import AddVoter, Failure, Peer, RemoveVoter, UpdateVoter
from quorate.raft.core.replies import on_common_reply
from quorate.raft.core.role_state import NEVER
from quorate.raft.core.state import RaftState
from quorate.raft.core.voters import MembershipRecord, Voter
from quorate.raft.types import OffsetEpoch

logger = logging.getLogger(__name__)

PUT_OFF_S = (
    10.0  # a longer delay is logged; at the first start the voters' updates follow within milliseconds
)
JOIN_TIMEOUT_MS = 30_000  # in which this replica has to catch up


def record_at_start(r: RaftState) -> None:
    """Records membership from the latest snapshot, unless the disk already has a record.

    The voter sets of snapshots, including the formatted one, are committed. The record on disk is newer.
    """
    if r.membership_record is MembershipRecord.NEVER:
        latest = r.log.latest_snapshot()
        _record_voter_sets(r, (latest.offset if latest is not None else 0) - 1)


def record_committed_voters(r: RaftState) -> None:
    """Records membership when a committed voter set adds or removes this replica."""
    _record_voter_sets(r, r.committed - 1)


def record_before_install(r: RaftState, snapshot: OffsetEpoch) -> None:
    """Records membership before a snapshot replaces the log.

    Some voter sets in the log are not known to be committed, and after this it is not possible to find
    out. If one of them contains this replica, it counts as a voter. That is the safe error: a replica
    that wrongly does not join by itself can still be added by an operator.
    """
    if any(
        voters.is_voter(r.me)
        for _, voters in r.members.voters.between(r.voter_sets_seen_upto, r.log.end_offset)
    ):
        _record_voter_sets(r, r.log.end_offset)
    r.voter_sets_seen_upto = snapshot.offset - 2  # the snapshot's own voter set is at offset - 1


def _record_voter_sets(r: RaftState, upto: int) -> None:
    """Records membership from the voter sets that were not seen yet, up to the offset `upto`."""
    if not r.params.can_vote or r.members.kraft_version < 1 or upto <= r.voter_sets_seen_upto:
        return
    record = r.membership_record
    for offset, voters in r.members.voters.between(r.voter_sets_seen_upto, upto):
        record = record.after(voters, r.me)
        at, entry = offset, voters.by_id.get(r.me.id)
    r.voter_sets_seen_upto = upto
    if record is r.membership_record:
        return
    match record:
        case MembershipRecord.VOTER:
            what = f"{r.me} is a voter now"
        case MembershipRecord.UNNAMED:
            what = f"node {r.me.id} is a voter, whose directory id is not known yet"
        case MembershipRecord.REMOVED:
            what = f"{r.me} was a voter and has been removed; it does not join by itself"
        case MembershipRecord.NEVER:
            what = f"{r.me} has never been a voter: the voter is {entry.key if entry is not None else None}"
    logger.info("[Raft id=%d] %s, by the voter set at offset %d", r.me.id, what, at)
    r.membership_record = r.effects.save_membership_record = record


def poll_update_voter(r: RaftState, now: float) -> None:
    """Sends UpdateVoter if the entry of this voter in the voter set differs from its configuration."""
    f = r.following
    if f is None or r.leader_id is None:
        return
    if now >= f.update_voter_at:
        wanted = needs_voter_update(r) if r.members.kraft_version >= 1 else not f.updated_leader
        if wanted and _voters_pending(r):
            return  # the leader would refuse it; the Fetch response with the commit leads here again
        address = r.address_of(r.leader_id)
        if not wanted or address is None:
            f.update_voter_at = now + r.params.update_voter_period_s
        else:
            entry = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
            if r.send(Peer(r.leader_id, address), UpdateVoter(entry, r.epoch, r.params.cluster_id), now):
                f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's back-off or the pending response comes first
        r.wake(f.update_voter_at)


def _voters_pending(r: RaftState) -> bool:
    """Whether the voter set is not known to be committed. Until then the leader accepts no other one."""
    at = r.members.current_offset
    return r.members.kraft_version >= 1 and at is not None and (r.hwm is None or at >= r.hwm)


def on_update_reply(r: RaftState, event: Replied, now: float) -> bool:
    reply = event.reply
    if isinstance(reply, Failure):
        return reply is Failure.UNSUPPORTED_VERSION  # an older leader does not need it
    handled = on_common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    f = r.following
    if reply.error == ErrorCode.REQUEST_TIMED_OUT:  # another change is in progress
        if f is None:
            return False
        f.update_voter_at = now + r.params.begin_epoch_period_s
        f.update_put_off_at = min(f.update_put_off_at, now)
        if (
            now - f.update_put_off_at >= PUT_OFF_S
            and (suffix := r.info_log.due("UpdateVoter put off", now)) is not None
        ):
            logger.info(
                "[Raft id=%d] the leader has not taken this voter's endpoints for %.0f s, since another "
                "change of the voters is not committed; trying again%s",
                r.me.id, now - f.update_put_off_at, suffix,
            )  # fmt: skip
        return True
    if reply.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        if (suffix := r.info_log.due(f"UpdateVoter {reply.error.name}", now)) is not None:
            logger.info("[Raft id=%d] UpdateRaftVoter: %s%s", r.me.id, reply.error.name, suffix)
        return False
    if f is not None and reply.leader_id == r.leader_id and reply.epoch == r.epoch:
        f.updated_leader, f.update_put_off_at = True, NEVER
        f.fetch_deadline = now + r.params.fetch_timeout_s
    return True


def poll_auto_join(r: RaftState, now: float) -> None:
    """Sends AddVoter or RemoveVoter if this controller may join the voter set by itself."""
    f = r.following
    if f is None or r.leader_id is None or not r.params.auto_join or not r.params.can_vote or r.is_voter:
        return
    if r.hwm is None or r.members.kraft_version < 1 or r.membership_record is not MembershipRecord.NEVER:
        return
    address = r.address_of(r.leader_id)
    old = r.voters.by_id.get(r.me.id)
    if f.removed_voter is not None and (old is None or old.key != f.removed_voter):
        f.removed_voter, f.update_voter_at = None, now  # the voter set without it has arrived
    if now >= f.update_voter_at and address is not None:
        request: AddVoter | RemoveVoter
        if old is not None:
            request = RemoveVoter(old.key, r.params.cluster_id)
        else:
            request = AddVoter(
                Voter(r.me, r.params.endpoints, r.params.kraft_versions), r.params.cluster_id, JOIN_TIMEOUT_MS
            )
        if AddVoter in r.link(address).in_flight or r.send(Peer(r.leader_id, address), request, now):
            f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's back-off comes first
        r.wake(f.update_voter_at)


def on_join_reply(r: RaftState, event: Replied, now: float) -> bool:
    reply, f = event.reply, r.following
    what = "add" if isinstance(event.request, AddVoter) else "remove"
    if isinstance(reply, Failure):
        logger.info("[Raft id=%d] asked the leader to %s a voter: %s", r.me.id, what, reply.value)
        return False
    logger.info(
        "[Raft id=%d] asked the leader to %s a voter: %s %s",
        r.me.id,
        what,
        reply.error.name,
        reply.message or "",
    )
    removed = reply.error in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)
    if f is not None and removed and isinstance(event.request, RemoveVoter):
        # The id is free now. The request is not sent again while this replica still fetches the voter set.
        f.removed_voter = event.request.key
    return True
