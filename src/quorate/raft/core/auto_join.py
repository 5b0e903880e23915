"""What a controller asks of the leader for itself (KIP-853): its entry in the voter set kept true, or a
place in it.

A voter tells its endpoints and range of kraft.version (UpdateRaftVoter). With
`controller.quorum.auto.join.enable` a controller that is no voter first removes the voter of its id on
another disk, then adds itself; but not after it was removed: that is remembered durably, for this
directory id, until somebody adds it. Every committed voter set that it sees counts, that of its
formatting too. What it never sees is a set that a snapshot from the leader has passed over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.membership import needs_update
from quorate.raft.core.messages import AddVoter, Failure, Peer, RemoveVoter, Replied, UpdateVoter
from quorate.raft.core.role_state import NEVER
from quorate.raft.core.voters import Voter
from quorate.raft.storage.membership_record import MembershipRecord
from quorate.raft.types import OffsetEpoch

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)
PUT_OFF_S = 10.0  # at a quorum's first start each voter's update waits for the one before it: milliseconds
JOIN_TIMEOUT_MS = 30_000  # how long the leader may wait for this replica to catch up


def note_at_start(r: Raft) -> None:
    """The sets of snapshots, that of the formatting too, are committed whatever the high watermark is.
    What was noted before is newer than they are."""
    if r.standing is MembershipRecord.NEVER:
        latest = r.log.latest_snapshot()
        _judge(r, (latest.offset if latest is not None else 0) - 1)


def note_membership(r: Raft) -> None:
    """Has it written down when a committed voter set has this replica for the first time, or not any more."""
    _judge(r, r.committed - 1)


def note_before_install(r: Raft, snapshot: OffsetEpoch) -> None:
    """A snapshot is about to replace the log. Whether the sets in it that are not known to be committed
    were, is not to be told any more: a voter by one of them counts as one, for whoever wrongly does not
    join by itself can be added."""
    if any(voters.is_voter(r.me) for _, voters in r.members.voters.between(r.noted_upto, r.log.end_offset)):
        _judge(r, r.log.end_offset)
    r.noted_upto = snapshot.offset - 2  # its own set comes next, however long the log was


def _judge(r: Raft, upto: int) -> None:
    """By the voter sets that were not judged yet, up to the one at this offset."""
    if not r.params.can_vote or r.members.kraft_version < 1 or upto <= r.noted_upto:
        return
    standing = r.standing
    for offset, voters in r.members.voters.between(r.noted_upto, upto):
        standing = standing.after(voters, r.me)
        at, entry = offset, voters.by_id.get(r.me.id)
    r.noted_upto = upto
    if standing is r.standing:
        return
    match standing:
        case MembershipRecord.VOTER:
            what = f"{r.me} is a voter now"
        case MembershipRecord.UNNAMED:
            what = f"node {r.me.id} is a voter, whose directory id is not known yet"
        case MembershipRecord.REMOVED:
            what = f"{r.me} was a voter and has been removed; it does not join by itself"
        case MembershipRecord.NEVER:
            what = f"{r.me} has never been a voter: the voter is {entry.key if entry is not None else None}"
    log.info("[Raft id=%d] %s, by the voter set at offset %d", r.me.id, what, at)
    r.standing = r.effects.save_standing = standing


def drive_update(r: Raft, now: float) -> None:
    """A following voter tells the leader its endpoints and range when they are not what the voter set
    says."""
    f = r.following
    if f is None or r.leader_id is None:
        return
    if now >= f.update_voter_at:
        wanted = needs_update(r) if r.members.kraft_version >= 1 else not f.updated_leader
        if wanted and _voters_pending(r):
            return  # the leader would refuse it; the answer that tells of the commit brings us here again
        address = r.address_of(r.leader_id)
        if not wanted or address is None:
            f.update_voter_at = now + r.params.update_voter_period_s
        else:
            entry = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
            if r.send(Peer(r.leader_id, address), UpdateVoter(entry, r.epoch, r.params.cluster_id), now):
                f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's own alarm or the answer under way comes first
        r.wake(f.update_voter_at)


def _voters_pending(r: Raft) -> bool:
    """Whether the voter set is not known to be committed: the leader takes no other one until it is."""
    at = r.members.current_offset
    return r.members.kraft_version >= 1 and at is not None and (r.hwm is None or at >= r.hwm)


def on_update_reply(r: Raft, event: Replied, now: float) -> bool:
    from quorate.raft.core.election import common_reply

    reply = event.reply
    if isinstance(reply, Failure):
        return reply is Failure.UNSUPPORTED_VERSION  # an older leader does without
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    f = r.following
    if reply.error == ErrorCode.REQUEST_TIMED_OUT:  # another change is under way: soon again
        if f is None:
            return False
        f.update_voter_at = now + r.params.begin_epoch_period_s
        f.update_put_off_at = min(f.update_put_off_at, now)
        if (
            now - f.update_put_off_at >= PUT_OFF_S
            and (more := r.repeats.due("UpdateVoter put off", now)) is not None
        ):
            log.info(
                "[Raft id=%d] the leader has not taken this voter's endpoints for %.0f s, since another "
                "change of the voters"
                " is not committed; trying again%s",
                r.me.id, now - f.update_put_off_at, more,
            )  # fmt: skip
        return True
    if reply.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        if (more := r.repeats.due(f"UpdateVoter {reply.error.name}", now)) is not None:
            log.info("[Raft id=%d] UpdateRaftVoter: %s%s", r.me.id, reply.error.name, more)
        return False
    if f is not None and reply.leader_id == r.leader_id and reply.epoch == r.epoch:
        f.updated_leader, f.update_put_off_at = True, NEVER
        f.fetch_deadline = now + r.params.fetch_timeout_s
    return True


def drive_join(r: Raft, now: float) -> None:
    """A controller outside of the voter set asks for its place in it, if it may."""
    f = r.following
    if f is None or r.leader_id is None or not r.params.auto_join or not r.params.can_vote or r.is_voter:
        return
    if r.hwm is None or r.members.kraft_version < 1 or r.standing is not MembershipRecord.NEVER:
        return
    address = r.address_of(r.leader_id)
    if now >= f.update_voter_at and address is not None:
        old = r.voters.by_id.get(r.me.id)
        request: AddVoter | RemoveVoter
        if old is not None:
            request = RemoveVoter(old.key, r.params.cluster_id)
        else:
            request = AddVoter(
                Voter(r.me, r.params.endpoints, r.params.kraft_versions), r.params.cluster_id, JOIN_TIMEOUT_MS
            )
        if AddVoter in r.link(address).in_flight or r.send(Peer(r.leader_id, address), request, now):
            f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's own alarm comes first
        r.wake(f.update_voter_at)


def on_join_reply(r: Raft, event: Replied, now: float) -> bool:
    reply, f = event.reply, r.following
    what = "add" if isinstance(event.request, AddVoter) else "remove"
    if isinstance(reply, Failure):
        log.info("[Raft id=%d] asked the leader to %s a voter: %s", r.me.id, what, reply.value)
        return False
    log.info(
        "[Raft id=%d] asked the leader to %s a voter: %s %s",
        r.me.id,
        what,
        reply.error.name,
        reply.message or "",
    )
    if what == "remove" and f is not None and reply.error in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
        f.update_voter_at = now  # the place is free
    return True
