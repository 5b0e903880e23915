"""A follower's and an observer's side: fetching, truncation, snapshot downloads (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import auto_join as joining
from quorate.raft.core.election import common_reply, top_level_error, unexpected
from quorate.raft.core.leader_conflict import complain
from quorate.raft.core.messages import (
    Failure,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Peer,
    Replied,
    SnapshotChunk,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotRejected,
    SnapshotReply,
    SnapshotStart,
    SnapshotWritten,
)
from quorate.raft.types import (
    ASK_FETCH_BYTES,
    ASK_SNAPSHOT_BYTES,
    MAX_SNAPSHOT_BYTES,
    LeaderAndEpoch,
    OffsetEpoch,
    RaftError,
    Role,
)

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)
NEVER = float("inf")
REFUSED_SNAPSHOT_S = 1.0  # before a snapshot that turned out broken is fetched again: it may be a long one


# --- what to send ---------------------------------------------------------------------------------


def drive_follower(r: Raft, now: float) -> None:
    f = r.following
    if f is None or r.installing is not None:
        return None
    if r.may_stand and not r.shutting_down:
        r.wake(f.fetch_deadline)
        r.wake(f.quick_at)
        joining.drive_update(r, now)
    if not r.is_voter and not r.shutting_down:
        joining.drive_join(r, now)
    if r.unsynced or r.shutting_down:
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
        if (
            f.opened and f.position - f.written <= ASK_SNAPSHOT_BYTES
        ):  # the next part comes while one is being written
            cluster, digest = r.params.cluster_id, f.prefix_digest
            q = FetchSnapshot(r.me, r.epoch, f.snapshot, f.position, ASK_SNAPSHOT_BYTES, cluster, digest)
            r.send(Peer(r.leader_id, address), q, now)
    else:
        r.send(Peer(r.leader_id, address), fetch_request(r), now)
    if not r.may_stand:
        r.wake(f.fetch_deadline)
    return None


def fetch_request(r: Raft) -> Fetch:
    hwm = -1 if r.hwm is None else r.hwm
    end = r.end
    return Fetch(
        r.me,
        r.epoch,
        end.offset,
        end.epoch,
        r.params.fetch_max_wait_ms,
        hwm,
        ASK_FETCH_BYTES,
        r.params.cluster_id,
    )


def fetch_under_way(r: Raft) -> bool:
    return any(Fetch in link.in_flight or FetchSnapshot in link.in_flight for link in r.links.values())


def fetch_from_bootstrap(r: Raft, now: float) -> None:
    """Asks any server that may know the leader. One Fetch at a time."""
    if fetch_under_way(r) or r.shutting_down or r.unsynced or r.installing is not None:
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


# --- Fetch answers --------------------------------------------------------------------------------


def on_fetch_reply(r: Raft, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, Fetch)
    if isinstance(reply, Failure):
        if reply is Failure.DISCONNECTED:
            r.leader_unreachable(event.to.address, now)
        return False
    if reply.top_level:
        return top_level_error(r, event, reply, now)
    before = (r.role, r.epoch, r.leader_id)
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        f = r.following
        if f is not None and not r.may_stand and (reply.leader_id, reply.epoch) == (r.leader_id, r.epoch):
            f.fetch_deadline = max(
                f.fetch_deadline, now + r.params.fetch_timeout_s
            )  # the leader lives: ask it again
        # An answer that teaches nothing must not be asked for again at once.
        return handled and (r.role, r.epoch, r.leader_id) != before
    if reply.error != ErrorCode.NONE:
        unexpected(r, event, reply, now)
        return False
    f = r.following
    if not isinstance(reply, FetchReply):
        raise RaftError("an answer of another kind to Fetch")
    end = r.end
    if f is None or not current or request.epoch != r.epoch or reply.leader_id != r.leader_id:
        return True
    r.leader_confirmed_epoch = r.epoch
    if (
        f.snapshot is not None
    ):  # an observer that looked for the leader anew: here it is, the download goes on
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
            start_download(r, reply.snapshot)
            log.info(
                "[Raft id=%d] fetching snapshot %s from leader %d",
                r.me.id,
                tuple(reply.snapshot),
                event.to.id,
            )
        else:
            return False
    else:
        r.leader_hwm = reply.high_watermark
        if len(reply.records):
            r.effects.append_fetched = reply.records
            r.awaiting_sync = True
        else:
            advance_high_watermark(r)
    heard(r, now)
    return True


def heard(r: Raft, now: float) -> None:
    f = r.following
    if f is not None:
        r.heard_at = now
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
    r.effects.truncate_to = to
    r.members.truncate_from(to)
    r.synced = min(r.synced, to)
    r.awaiting_sync = True


def advance_high_watermark(r: Raft) -> None:
    hwm = min(r.log.end_offset, r.leader_hwm)
    if hwm >= 0 and (r.hwm is None or hwm > r.hwm):
        r.hwm = hwm
        r.effects.high_watermark = hwm


def on_fetch_rejected(r: Raft, reason: str, now: float) -> None:
    complain(r, "fetched records", f"fetched records refused: {reason}", now)
    r.awaiting_sync = False
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if address is not None:
        r.link(address).ready_at = now + r.params.retry_backoff_s


# --- FetchSnapshot answers ------------------------------------------------------------------------


def on_snapshot_reply(r: Raft, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, FetchSnapshot)
    if isinstance(reply, Failure):
        return False
    if reply.top_level:
        return top_level_error(r, event, reply, now)
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    f = r.following
    if f is None or not current or f.snapshot != request.snapshot or request.epoch != r.epoch:
        return True
    if r.installing is not None or not f.opened or request.position != f.position:
        return True  # asked for by a download that has been begun anew meanwhile
    if not isinstance(reply, SnapshotReply):
        raise RaftError("an answer of another kind to FetchSnapshot")
    gone = reply.error == ErrorCode.NONE and (reply.snapshot.offset < 0 or reply.snapshot.epoch < 0)
    if reply.error == ErrorCode.SNAPSHOT_NOT_FOUND or gone:
        log.info("[Raft id=%d] the leader no longer has snapshot %s", r.me.id, tuple(request.snapshot))
        f.snapshot = None
        heard(r, now)
        return False
    if reply.error == ErrorCode.POSITION_OUT_OF_RANGE:
        log.warning(
            "[Raft id=%d] the leader's snapshot %s ends before %d",
            r.me.id,
            tuple(request.snapshot),
            f.position,
        )
        if f.position > 0:
            start_download(r, request.snapshot, fresh=True)
        else:
            f.snapshot = None
        heard(r, now)
        return False
    if reply.error != ErrorCode.NONE:
        unexpected(r, event, reply, now)
        return False
    if reply.snapshot != request.snapshot or reply.position != f.position:
        wanted, got = (tuple(request.snapshot), f.position), (tuple(reply.snapshot), reply.position)
        complain(
            r,
            "other snapshot",
            f"asked for snapshot and position {wanted}, {event.to.address} answers {got}",
            now,
        )
        return False
    size = len(reply.data)
    if not 0 < size <= request.max_bytes or f.position + size > reply.size or reply.size > MAX_SNAPSHOT_BYTES:
        log.error("[Raft id=%d] FetchSnapshot: %d bytes at %d of %d", r.me.id, size, f.position, reply.size)
        return False
    heard(r, now)
    changed = f.size not in (-1, reply.size)
    if changed or (f.prefix_digest is not None and not reply.same_prefix):
        why = (
            f"has {reply.size} bytes instead of {f.size}" if changed else "is another than what is here of it"
        )
        log.info(
            "[Raft id=%d] the leader's snapshot %s %s: from the start", r.me.id, tuple(request.snapshot), why
        )
        start_download(r, request.snapshot, fresh=True)
        return True
    f.size, f.prefix_digest = reply.size, None
    last = f.position + size == reply.size
    r.effects.snapshot_chunk = SnapshotChunk(request.snapshot, f.position, reply.data, last, reply.size)
    f.position += size
    if last:
        r.installing = request.snapshot
    return True


def start_download(r: Raft, snapshot: OffsetEpoch, *, fresh: bool = False) -> None:
    """What the driver has of this snapshot is used, unless it has to be `fresh`."""
    f = r.following
    if f is None or r.leader_id is None:
        raise RaftError("a download without a leader")
    f.snapshot, f.opened, f.position, f.written, f.size, f.prefix_digest = snapshot, False, 0, 0, -1, None
    r.effects.start_snapshot = SnapshotStart(snapshot, LeaderAndEpoch(r.leader_id, r.epoch), fresh)


def on_snapshot_opened(r: Raft, event: SnapshotOpened) -> None:
    f = r.following
    if f is None or f.snapshot != event.snapshot or f.opened:
        return
    if event.leader not in (None, r.leader_and_epoch):
        return  # the leader has changed meanwhile: whether the new one has the same bytes comes with its own
    f.opened, f.position, f.written, f.prefix_digest = (
        True,
        event.position,
        event.position,
        event.prefix_digest,
    )


def on_snapshot_written(r: Raft, event: SnapshotWritten) -> None:
    f = r.following
    if f is not None and f.opened and f.snapshot == event.snapshot and event.position <= f.position:
        f.written = max(f.written, event.position)


def on_snapshot_rejected(r: Raft, event: SnapshotRejected, now: float) -> None:
    """Fetched anew, from whatever the leader then offers, and not at once."""
    log.error("[Raft id=%d] snapshot %s refused: %s", r.me.id, tuple(event.snapshot), event.reason)
    if r.installing == event.snapshot:
        r.installing = None
    f = r.following
    if f is None:
        return
    if f.snapshot == event.snapshot:
        f.snapshot = None
    f.fetch_deadline = max(
        f.fetch_deadline, now + r.params.fetch_timeout_s
    )  # it was the disk's time, not the leader's
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if address is not None:
        r.link(address).ready_at = now + REFUSED_SNAPSHOT_S


def on_snapshot_installed(r: Raft, event: SnapshotInstalled, now: float) -> None:
    """The log starts over behind the snapshot; everything below its end is committed."""
    joining.note_before_install(r, event.snapshot)
    r.members.reset(event.snapshot.offset - 1, event.voters, event.kraft_version)
    r.synced = event.snapshot.offset
    r.hwm = event.snapshot.offset
    r.effects.high_watermark = r.hwm
    r.installing = None
    if r.following is not None and r.role is Role.FOLLOWER:
        r.following.snapshot = None
        heard(r, now)
