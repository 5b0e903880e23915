"""A follower's and an observer's side: fetching, truncation, snapshot downloads (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft import joining
from quorate.raft.election import common_reply, top_level_error
from quorate.raft.messages import (
    Failure,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Peer,
    Replied,
    SnapshotChunk,
    SnapshotInstalled,
    SnapshotReply,
)
from quorate.raft.types import ASK_FETCH_BYTES, ASK_SNAPSHOT_BYTES, OffsetEpoch, RaftError, Role

if TYPE_CHECKING:
    from quorate.raft.core import Raft

log = logging.getLogger(__name__)
NEVER = float("inf")


# --- what to send ---------------------------------------------------------------------------------------------------


def drive_follower(r: Raft, now: float) -> None:
    f = r.following
    if f is None:
        return None
    if r.may_stand and not f.installing and not r.shutting_down:
        r.wake(f.fetch_deadline)
        r.wake(f.quick_at)
        joining.drive_update(r, now)
    if not r.is_voter and not f.installing and not r.shutting_down:
        joining.drive_join(r, now)
    if r.unsynced or f.installing or r.shutting_down:
        return None
    if not r.may_stand and now >= f.fetch_deadline:
        return fetch_from_bootstrap(r, now)
    if fetch_under_way(r):
        return None
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if r.leader_id is None or address is None:
        return fetch_from_bootstrap(r, now)
    if now < r.link(address).ready_at:
        r.wake(r.link(address).ready_at)
        return fetch_from_bootstrap(r, now)
    if f.snapshot is not None:
        q = FetchSnapshot(r.me, r.epoch, f.snapshot, f.position, ASK_SNAPSHOT_BYTES, r.params.cluster_id)
        r.send(Peer(r.leader_id, address), q, now)
    else:
        r.send(Peer(r.leader_id, address), fetch_request(r), now)
    if not r.may_stand:
        r.wake(f.fetch_deadline)
    return None


def fetch_request(r: Raft) -> Fetch:
    hwm = -1 if r.hwm is None else r.hwm
    end = r.end
    return Fetch(r.me, r.epoch, end.offset, end.epoch, r.params.fetch_max_wait_ms, hwm, ASK_FETCH_BYTES, r.params.cluster_id)


def fetch_under_way(r: Raft) -> bool:
    return any(Fetch in link.in_flight or FetchSnapshot in link.in_flight for link in r.links.values())


def fetch_from_bootstrap(r: Raft, now: float) -> None:
    """Asks any server that may know the leader. One Fetch at a time."""
    if fetch_under_way(r) or r.shutting_down or r.unsynced:
        return
    listener = r.params.listener_name
    own = r.params.endpoints.get(listener)
    known = dict.fromkeys(r.params.bootstrap)
    ids = {address: -2 - i for i, address in enumerate(known)}
    for voter in r.voters:
        address = voter.endpoints.get(listener)
        if address is not None and voter.id != r.me.id:
            ids[address] = voter.id
    addresses = [a for a in ids if a != own]
    ready = [a for a in addresses if r.link(a).ready_at <= now]
    if ready:
        chosen = ready[r.rng.randrange(len(ready))]
        r.send(Peer(ids[chosen], chosen), fetch_request(r), now)
    elif addresses:
        r.wake(min(r.link(a).ready_at for a in addresses))


# --- Fetch answers --------------------------------------------------------------------------------------------------


def on_fetch_reply(r: Raft, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, Fetch)
    if isinstance(reply, Failure):
        if reply is Failure.DISCONNECTED:
            r.leader_unreachable(event.to.address, now)
        return False
    if reply.top_level:
        return top_level_error(r, reply, "Fetch")
    before = (r.role, r.epoch, r.leader_id)
    handled = common_reply(r, reply, now)
    if handled is not None:
        f = r.following
        if f is not None and not r.may_stand and (reply.leader_id, reply.epoch) == (r.leader_id, r.epoch):
            f.fetch_deadline = max(f.fetch_deadline, now + r.params.fetch_timeout_s)  # the leader lives: ask it again
        # An answer that teaches nothing must not be asked for again at once.
        return handled and (r.role, r.epoch, r.leader_id) != before
    if reply.error != ErrorCode.NONE:
        log.error("[Raft id=%d] Fetch from %d: unexpected error %s", r.me.id, event.to.id, reply.error.name)
        return False
    f = r.following
    if not isinstance(reply, FetchReply):
        raise RaftError("an answer of another kind to Fetch")
    end = r.end
    if f is None or not current or request.epoch != r.epoch or reply.leader_id != r.leader_id:
        return True
    if f.snapshot is not None:  # an observer that looked for the leader anew: here it is, the download goes on
        heard(r, now)
        return True
    if (request.offset, request.last_epoch) != (end.offset, end.epoch) or r.unsynced:
        return True
    if reply.diverging is not None:
        if reply.diverging.offset < 0 or reply.diverging.epoch < 0:
            log.error("[Raft id=%d] the leader sent a negative diverging epoch or offset", r.me.id)
            return False
        truncate(r, reply.diverging)
    elif reply.snapshot is not None:
        if reply.snapshot.offset < 0 or reply.snapshot.epoch < 0:
            log.error("[Raft id=%d] the leader sent a negative snapshot id", r.me.id)
            return False
        if r.log.snapshot_size(reply.snapshot) is None:
            f.snapshot, f.position = reply.snapshot, 0
            r.fx.start_snapshot = reply.snapshot
            log.info("[Raft id=%d] fetching snapshot %s from leader %d", r.me.id, tuple(reply.snapshot), event.to.id)
        else:
            return False
    else:
        r.leader_hwm = reply.high_watermark
        if len(reply.records):
            r.fx.append_fetched = reply.records
            r.awaiting_sync = True
        else:
            advance_high_watermark(r)
    heard(r, now)
    return True


def heard(r: Raft, now: float) -> None:
    f = r.following
    if f is not None:
        f.fetch_deadline = now + r.params.fetch_timeout_s
        f.quick_at = NEVER
        f.heard = True
        r.quick_until = -1.0


def truncate(r: Raft, diverging: OffsetEpoch) -> None:
    """Cuts the log where it leaves the leader's. Raises RaftError rather than cut what is committed."""
    end = r.log.end_offset
    if diverging.epoch == 0:
        to = min(diverging.offset, end)
    else:
        local = r.log.end_offset_for_epoch(diverging.epoch)
        to = min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
    if to < r.committed:
        raise RaftError(f"the leader asks to truncate to {to}, below the high watermark {r.committed}")
    if to < r.log.start_offset:
        raise RaftError(f"the leader asks to truncate to {to}, below the log start {r.log.start_offset}")
    log.info("[Raft id=%d] truncating from %d to %d (diverging at %s)", r.me.id, end, to, tuple(diverging))
    r.fx.truncate_to = to
    r.members.truncate_from(to)
    r.synced = min(r.synced, to)
    r.awaiting_sync = True


def advance_high_watermark(r: Raft) -> None:
    hwm = min(r.log.end_offset, r.leader_hwm)
    if hwm >= 0 and (r.hwm is None or hwm > r.hwm):
        r.hwm = hwm
        r.fx.high_watermark = hwm


def on_fetch_rejected(r: Raft, reason: str, now: float) -> None:
    log.error("[Raft id=%d] fetched records refused: %s", r.me.id, reason)
    r.awaiting_sync = False
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if address is not None:
        r.link(address).ready_at = now + r.params.retry_backoff_s


# --- FetchSnapshot answers ------------------------------------------------------------------------------------------


def on_snapshot_reply(r: Raft, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, FetchSnapshot)
    if isinstance(reply, Failure):
        return False
    if reply.top_level:
        return top_level_error(r, reply, "FetchSnapshot")
    handled = common_reply(r, reply, now)
    if handled is not None:
        return handled
    f = r.following
    if f is None or not current or f.snapshot != request.snapshot or request.epoch != r.epoch or f.installing:
        return True
    if not isinstance(reply, SnapshotReply):
        raise RaftError("an answer of another kind to FetchSnapshot")
    gone = reply.error == ErrorCode.NONE and (reply.snapshot.offset < 0 or reply.snapshot.epoch < 0)
    if reply.error == ErrorCode.SNAPSHOT_NOT_FOUND or gone:
        log.info("[Raft id=%d] the leader no longer has snapshot %s", r.me.id, tuple(request.snapshot))
        f.snapshot = None
        return False
    if reply.error != ErrorCode.NONE:
        log.error("[Raft id=%d] FetchSnapshot: error %s", r.me.id, reply.error.name)
        return False
    if reply.snapshot != request.snapshot or reply.position != f.position:
        raise RaftError(f"asked for snapshot {request.snapshot} at {f.position}, got {reply.snapshot}, {reply.position}")
    size = len(reply.data)
    if f.position + size > reply.size or (size == 0 and f.position < reply.size):
        log.error("[Raft id=%d] FetchSnapshot: %d bytes at %d of %d", r.me.id, size, f.position, reply.size)
        return False
    last = f.position + size == reply.size
    r.fx.snapshot_chunk = SnapshotChunk(request.snapshot, f.position, reply.data, last)
    f.position += size
    f.installing = last
    heard(r, now)
    return True


def on_snapshot_installed(r: Raft, event: SnapshotInstalled, now: float) -> None:
    """The log starts over behind the snapshot; everything below its end is committed."""
    r.members.reset(event.snapshot.offset - 1, event.voters, event.kraft_version)
    r.synced = event.snapshot.offset
    r.hwm = event.snapshot.offset
    r.fx.high_watermark = r.hwm
    if r.following is not None and r.role is Role.FOLLOWER:
        r.following.snapshot, r.following.position, r.following.installing = None, 0, False
        heard(r, now)
