"""What a controller asks of the leader for itself (KIP-853): its entry in the voter set kept true, or a place in it.

A voter tells its endpoints and range of kraft.version (UpdateRaftVoter). With `controller.quorum.auto.join.enable` a
controller that is no voter first removes the voter of its id on another disk, then adds itself; but not after it was
removed: that is remembered durably, for this directory id, until somebody adds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.membership import needs_update
from quorate.raft.messages import AddVoter, Failure, Peer, RemoveVoter, Replied, UpdateVoter
from quorate.raft.standing import Standing
from quorate.raft.voters import Voter

if TYPE_CHECKING:
    from quorate.raft.core import Raft

log = logging.getLogger(__name__)
JOIN_TIMEOUT_MS = 30_000  # how long the leader may wait for this replica to catch up


def note_standing(r: Raft) -> None:
    """Has it written down when a committed voter set has this replica for the first time, or not any more."""
    if not r.params.can_vote or r.members.kraft_version < 1:
        return
    found = r.members.voters.at(r.committed - 1)
    if found is None or found[1] is r.noted_set:
        return
    r.noted_set = found[1]
    if found[1].is_voter(r.me):
        standing = Standing.VOTER
    elif r.standing is Standing.VOTER:
        standing = Standing.REMOVED
    else:
        return
    if standing is not r.standing:
        log.info("[Raft id=%d] %s is now %s, by the voter set at offset %d", r.me.id, r.me, standing.value, found[0])
        r.standing = r.fx.save_standing = standing


def drive_update(r: Raft, now: float) -> None:
    """A following voter tells the leader its endpoints and range when they are not what the voter set says."""
    f = r.following
    if f is None or r.leader_id is None:
        return
    if now >= f.update_voter_at:
        wanted = needs_update(r) if r.members.kraft_version >= 1 else not f.updated_leader
        address = r.address_of(r.leader_id)
        if not wanted or address is None:
            f.update_voter_at = now + r.params.update_voter_period_s
        else:
            entry = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
            if r.send(Peer(r.leader_id, address), UpdateVoter(entry, r.epoch, r.params.cluster_id), now):
                f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's own alarm or the answer under way comes first
        r.wake(f.update_voter_at)


def on_update_reply(r: Raft, event: Replied, now: float) -> bool:
    from quorate.raft.election import common_reply

    reply = event.reply
    if isinstance(reply, Failure):
        return reply is Failure.UNSUPPORTED_VERSION  # an older leader does without
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    if reply.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        log.info("[Raft id=%d] UpdateRaftVoter: %s", r.me.id, reply.error.name)
        if r.following is not None and reply.error == ErrorCode.REQUEST_TIMED_OUT:  # a change is pending: soon again
            r.following.update_voter_at = now + r.params.begin_epoch_period_s
            return True
        return False
    f = r.following
    if f is not None and reply.leader_id == r.leader_id and reply.epoch == r.epoch:
        f.updated_leader = True
        f.fetch_deadline = now + r.params.fetch_timeout_s
    return True


def drive_join(r: Raft, now: float) -> None:
    """A controller outside of the voter set asks for its place in it, if it may."""
    f = r.following
    if f is None or r.leader_id is None or not r.params.auto_join or not r.params.can_vote or r.is_voter:
        return
    if r.hwm is None or r.members.kraft_version < 1 or r.standing is not Standing.NEVER:
        return
    address = r.address_of(r.leader_id)
    if now >= f.update_voter_at and address is not None:
        old = r.voters.by_id.get(r.me.id)
        request: AddVoter | RemoveVoter
        if old is not None:
            request = RemoveVoter(old.key, r.params.cluster_id)
        else:
            request = AddVoter(Voter(r.me, r.params.endpoints, r.params.kraft_versions), r.params.cluster_id, JOIN_TIMEOUT_MS)
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
    log.info("[Raft id=%d] asked the leader to %s a voter: %s %s", r.me.id, what, reply.error.name, reply.message or "")
    if what == "remove" and f is not None and reply.error in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
        f.update_voter_at = now  # the place is free
    return True
