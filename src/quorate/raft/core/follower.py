"""The rules of followers and observers: Fetch, truncation and snapshot downloads (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import apply_control_record
from quorate.raft.core.effects import SnapshotChunk, SnapshotStart
from quorate.raft.core.events import (
    ControlRecord,
    Replied,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotRejected,
    SnapshotWritten,
)
from quorate.raft.core.membership import auto_join
from quorate.raft.core.messages import Failure, Fetch, FetchReply, FetchSnapshot, Peer, SnapshotReply
from quorate.raft.core.replies import log_unexpected_error, on_common_reply, on_top_level_error
from quorate.raft.core.role_state import NEVER
from quorate.raft.core.state import RaftState
from quorate.raft.core.voters import Membership
from quorate.raft.types import (
    MAX_SNAPSHOT_BYTES,
    MIN_PART_BYTES,
    Address,
    CommittedBatch,
    LeaderAndEpoch,
    OffsetEpoch,
    RaftError,
    Role,
)
from quorate.records.errors import InvalidRecordError

logger = logging.getLogger(__name__)

# The pause before an invalid snapshot is fetched again. Snapshots may be large, so each attempt is expensive.
REFUSED_SNAPSHOT_S = 1.0
QUICK_FIRST_S = 0.020  # a pre-vote follows a reset connection within this time, at random to avoid collisions


# --- requests -------------------------------------------------------------------------------------


def poll_follower(r: RaftState, now: float) -> None:
    """Sends the next Fetch or FetchSnapshot, and the request to add or remove this replica (`auto_join`)."""
    f = r.following
    if f is None or r.installing is not None:
        return None
    if r.can_start_election and not r.shutting_down:
        r.wake(f.fetch_deadline)
        r.wake(f.quick_pre_vote_at)
        auto_join.poll_update_voter(r, now)
    if not r.is_voter and not r.shutting_down:
        auto_join.poll_auto_join(r, now)
    if r.unsynced or r.shutting_down:
        return None
    if not r.can_start_election and now >= f.fetch_deadline:
        return fetch_from_bootstrap(r, now)
    if fetch_in_flight(r):
        return None
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if r.leader_id is None or address is None:
        return fetch_from_bootstrap(r, now)
    if now < r.link(address).ready_at:
        r.wake(r.link(address).ready_at)
        return fetch_from_bootstrap(r, now)
    if f.snapshot is not None:
        # The next part is fetched while the one before it is being written.
        part = r.snapshot_part_bytes
        if f.opened and f.position - f.written <= part:
            cluster, digest = r.params.cluster_id, f.prefix_digest
            q = FetchSnapshot(r.me, r.epoch, f.snapshot, f.position, part, cluster, digest)
            r.send(Peer(r.leader_id, address), q, now)
            f.requested_at = now
    else:
        r.send(Peer(r.leader_id, address), fetch_request(r), now)
        f.requested_at = now
    if not r.can_start_election:
        r.wake(f.fetch_deadline)
    return None


def fetch_request(r: RaftState) -> Fetch:
    hwm = -1 if r.hwm is None else r.hwm
    end = r.end
    return Fetch(
        r.me,
        r.epoch,
        end.offset,
        end.epoch,
        r.params.fetch_max_wait_ms,
        hwm,
        r.fetch_bytes,
        r.params.cluster_id,
        r.facts,
    )


def fetch_in_flight(r: RaftState) -> bool:
    return any(Fetch in link.in_flight or FetchSnapshot in link.in_flight for link in r.links.values())


def fetch_from_bootstrap(r: RaftState, now: float) -> None:
    """Sends a Fetch to a random bootstrap server or voter, to find the leader. One is in flight at a time."""
    if fetch_in_flight(r) or r.shutting_down or r.unsynced or r.installing is not None:
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


# --- Fetch responses ------------------------------------------------------------------------------


def on_fetch_reply(r: RaftState, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, Fetch)
    if isinstance(reply, Failure):
        if reply is Failure.DISCONNECTED:
            on_leader_unreachable(r, event.to.address, now)
        elif reply is Failure.TIMEOUT:
            halve_parts(r, event.to.address, request)
        return False
    if reply.top_level:
        return on_top_level_error(r, event, reply, now)
    before = (r.role, r.epoch, r.leader_id)
    handled = on_common_reply(r, event, reply, now)
    if handled is not None:
        f = r.following
        if (
            f is not None
            and not r.can_start_election
            and (reply.leader_id, reply.epoch) == (r.leader_id, r.epoch)
        ):
            # The leader is alive, so this observer keeps asking it.
            f.fetch_deadline = max(f.fetch_deadline, now + r.params.fetch_timeout_s)
        # After a response that changed nothing the same Fetch must not be sent again at once.
        return handled and (r.role, r.epoch, r.leader_id) != before
    if reply.error != ErrorCode.NONE:
        log_unexpected_error(r, event, reply, now)
        return False
    f = r.following
    if not isinstance(reply, FetchReply):
        raise RaftError("Fetch was answered by a response of another type")
    end = r.end
    if f is None or not current or request.epoch != r.epoch or reply.leader_id != r.leader_id:
        return True
    r.leader_confirmed_epoch = r.epoch
    if f.snapshot is not None:  # an observer has found the leader again and continues its download
        reset_fetch_timeout(r, now)
        return True
    if (request.offset, request.last_epoch) != (end.offset, end.epoch) or r.unsynced:
        return True
    if reply.diverging is not None:
        if reply.diverging.offset < 0 or reply.diverging.epoch < 0:
            logger.error("[Raft id=%d] the leader sent a negative diverging epoch or offset", r.me.id)
            return False
        truncate(r, reply.diverging)
    elif reply.snapshot is not None:
        if reply.snapshot.offset < 0 or reply.snapshot.epoch < 0:
            logger.error("[Raft id=%d] the leader sent a negative snapshot id", r.me.id)
            return False
        if r.log.snapshot_size(reply.snapshot) is None:
            start_download(r, reply.snapshot)
            logger.info(
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
            r.fetch_bytes = r.params.fetch_max_bytes  # caught up
            advance_high_watermark(r)
    reset_fetch_timeout(r, now)
    return True


def reset_fetch_timeout(r: RaftState, now: float) -> None:
    """Restarts the fetch timeout after a successful response (`resetFetchTimeoutForSuccessfulFetch`)."""
    f = r.following
    if f is not None:
        r.leader_heard_at = now
        f.fetch_deadline = now + r.params.fetch_timeout_s
        f.quick_pre_vote_at = NEVER
        f.has_fetched = True
        r.quick_pre_vote_until = -1.0


def truncate(r: RaftState, diverging: OffsetEpoch) -> None:
    """Truncates the log to the end of the last epoch that it shares with the leader's.

    Raises RaftError if that would remove committed records.
    """
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
    logger.info("[Raft id=%d] truncating from %d to %d (diverging at %s)", r.me.id, end, to, tuple(diverging))
    r.effects.truncate_to = to
    r.members.truncate_from(to)
    r.synced = min(r.synced, to)
    r.awaiting_sync = True


def advance_high_watermark(r: RaftState) -> None:
    """Advances the high watermark to the leader's, as far as the local log goes."""
    hwm = min(r.log.end_offset, r.leader_hwm)
    if hwm >= 0 and (r.hwm is None or hwm > r.hwm):
        r.hwm = hwm
        r.effects.high_watermark = hwm


def check_fetched(r: RaftState, batches: Sequence[CommittedBatch], controls: Sequence[ControlRecord]) -> None:
    """Raises InvalidRecordError if fetched records must not be appended.

    A batch of a later epoch than the leader's, or a voter set that breaks a rule of KIP-853, would keep
    this node from starting once it is in the log.
    """
    if batches and batches[-1].epoch > r.epoch:
        raise InvalidRecordError(f"a batch of epoch {batches[-1].epoch} from the leader of epoch {r.epoch}")
    trial, voters, level = Membership(), r.members.voters.last(), r.members.kraft.last()
    trial.reset(-1, voters[1] if voters is not None else None, level[1] if level is not None else None)
    try:
        for control in controls:
            apply_control_record(trial, control)
    except RaftError as e:
        raise InvalidRecordError(str(e)) from e


def on_leader_unreachable(r: RaftState, address: Address, now: float) -> None:
    """Reacts to a lost connection to the leader.

    It does not prove that the leader is gone, but a pre-vote is safe in any case: the other voters refuse
    it if they still reach the leader (KIP-996). So a voter requests pre-votes soon, without waiting
    for its fetch timeout. An observer looks for the leader elsewhere.
    """
    f = r.following
    if f is not None and r.leader_id is not None and address == r.address_of(r.leader_id):
        f.has_fetched = False
        if (
            r.can_start_election
            and r.params.quick_failover
            and f.quick_pre_vote_at == NEVER
            and not r.shutting_down
        ):
            f.quick_pre_vote_at = now + r.rng.uniform(0, QUICK_FIRST_S)
            r.quick_pre_vote_until = f.fetch_deadline
        elif not r.can_start_election:
            f.fetch_deadline = min(f.fetch_deadline, now)


def on_fetch_rejected(r: RaftState, reason: str, now: float) -> None:
    """Backs off after fetched records that could not be appended."""
    r.log_error("fetched records", f"fetched records refused: {reason}", now)
    r.awaiting_sync = False
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if address is not None:
        r.link(address).ready_at = now + r.params.retry_backoff_s


# --- FetchSnapshot responses ----------------------------------------------------------------------


def on_snapshot_reply(r: RaftState, event: Replied, current: bool, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, FetchSnapshot)
    if isinstance(reply, Failure):
        if reply is Failure.TIMEOUT:
            halve_parts(r, event.to.address, request)
        return False
    if reply.top_level:
        return on_top_level_error(r, event, reply, now)
    handled = on_common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    f = r.following
    if f is None or not current or f.snapshot != request.snapshot or request.epoch != r.epoch:
        return True
    if r.installing is not None or not f.opened or request.position != f.position:
        return True  # the download has started over since this was requested
    if not isinstance(reply, SnapshotReply):
        raise RaftError("FetchSnapshot was answered by a response of another type")
    gone = reply.error == ErrorCode.NONE and (reply.snapshot.offset < 0 or reply.snapshot.epoch < 0)
    if reply.error == ErrorCode.SNAPSHOT_NOT_FOUND or gone:
        logger.info("[Raft id=%d] the leader no longer has snapshot %s", r.me.id, tuple(request.snapshot))
        f.snapshot = None
        reset_fetch_timeout(r, now)
        return False
    if reply.error == ErrorCode.POSITION_OUT_OF_RANGE:
        logger.warning(
            "[Raft id=%d] the leader's snapshot %s ends before %d",
            r.me.id,
            tuple(request.snapshot),
            f.position,
        )
        if f.position > 0:
            start_download(r, request.snapshot, fresh=True)
        else:
            f.snapshot = None
        reset_fetch_timeout(r, now)
        return False
    if reply.error != ErrorCode.NONE:
        log_unexpected_error(r, event, reply, now)
        return False
    if reply.snapshot != request.snapshot or reply.position != f.position:
        wanted, got = (tuple(request.snapshot), f.position), (tuple(reply.snapshot), reply.position)
        r.log_error(
            "other snapshot",
            f"asked for snapshot and position {wanted}, {event.to.address} answers {got}",
            now,
        )
        return False
    size = len(reply.data)
    if not 0 < size <= request.max_bytes or f.position + size > reply.size or reply.size > MAX_SNAPSHOT_BYTES:
        logger.error(
            "[Raft id=%d] invalid FetchSnapshot response: %d bytes at position %d of a snapshot of %d bytes",
            r.me.id,
            size,
            f.position,
            reply.size,
        )
        return False
    reset_fetch_timeout(r, now)
    changed = f.size not in (-1, reply.size)
    if changed or (f.prefix_digest is not None and not reply.same_prefix):
        why = (
            f"has {reply.size} bytes instead of {f.size}" if changed else "differs from the part on this disk"
        )
        logger.info(
            "[Raft id=%d] the leader's snapshot %s %s: fetching it from the start",
            r.me.id,
            tuple(request.snapshot),
            why,
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


def halve_parts(r: RaftState, asked: Address, late: Fetch | FetchSnapshot) -> None:
    """Halves the size of later requests for parts of the log or of a snapshot after one that the leader did
    not answer completely in time.

    A slow link cannot carry a large part within the request timeout, or between two Fetches that the leader
    counts on. A batch is never divided, so the response may still be larger (`on_receiving`).
    """
    smaller = max(late.max_bytes // 2, MIN_PART_BYTES)
    if isinstance(late, Fetch):
        of_leader = r.leader_id is not None and asked == r.address_of(r.leader_id)
        if of_leader and smaller < min(r.fetch_bytes, late.max_bytes):
            r.fetch_bytes = smaller
            logger.info("[Raft id=%d] fetching the log in parts of %d bytes", r.me.id, smaller)
    elif smaller < min(r.snapshot_part_bytes, late.max_bytes):
        r.snapshot_part_bytes = smaller
        logger.info("[Raft id=%d] fetching snapshots in parts of %d bytes", r.me.id, smaller)


def on_fetch_timeout(r: RaftState) -> None:
    """Called when the fetch timeout expires, which may be before the request timeout. So a request that is
    still in flight counts as one that was not answered in time."""
    for asked, link in r.links.items():
        for kind in (Fetch, FetchSnapshot):
            late = link.in_flight.get(kind)
            if isinstance(late, Fetch | FetchSnapshot):
                halve_parts(r, asked, late)


def on_receiving(r: RaftState, address: Address, now: float) -> None:
    """Restarts the fetch timeout while the response of the leader arrives.

    A slow link may need longer than this timeout for one response: a batch is never divided, and a leader of
    Apache Kafka sends up to 8 MiB of the log whatever was asked for. If the response takes longer than the
    timeout, later requests ask for smaller parts, because the leader counts on a Fetch within 1.5 times
    the timeout (check quorum). From then on this replica also grants pre-votes: what arrives may be the last
    bytes of a leader that has died.
    """
    f = r.following
    if f is None or r.leader_id is None or address != r.address_of(r.leader_id):
        return
    waiting = r.link(address).in_flight
    request = waiting.get(FetchSnapshot) or waiting.get(Fetch)
    if not isinstance(request, Fetch | FetchSnapshot) or request.epoch != r.epoch:
        return
    if now - f.requested_at >= r.params.fetch_timeout_s:
        halve_parts(r, address, request)
        f.has_fetched = False
    r.leader_heard_at = now
    f.fetch_deadline = max(f.fetch_deadline, now + r.params.fetch_timeout_s)


def start_download(r: RaftState, snapshot: OffsetEpoch, *, fresh: bool = False) -> None:
    """Starts the download of a snapshot. An interrupted download of the same snapshot is continued, unless
    `fresh` is set."""
    f = r.following
    if f is None or r.leader_id is None:
        raise RaftError("a download without a leader")
    f.snapshot, f.opened, f.position, f.written, f.size, f.prefix_digest = snapshot, False, 0, 0, -1, None
    r.effects.start_snapshot = SnapshotStart(snapshot, LeaderAndEpoch(r.leader_id, r.epoch), fresh)


def on_snapshot_opened(r: RaftState, event: SnapshotOpened) -> None:
    f = r.following
    if f is None or f.snapshot != event.snapshot or f.opened:
        return
    if event.leader not in (None, r.leader_and_epoch):
        # The download was opened for an earlier leader. It is opened again for the current leader, which then
        # compares the bytes on this disk with its own snapshot.
        return
    f.opened, f.position, f.written, f.prefix_digest = (
        True,
        event.position,
        event.position,
        event.prefix_digest,
    )


def on_snapshot_written(r: RaftState, event: SnapshotWritten) -> None:
    f = r.following
    if f is not None and f.opened and f.snapshot == event.snapshot and event.position <= f.position:
        f.written = max(f.written, event.position)


def on_snapshot_rejected(r: RaftState, event: SnapshotRejected, now: float) -> None:
    """Discards a download that is not a valid snapshot. After a delay it is requested again."""
    logger.error("[Raft id=%d] snapshot %s refused: %s", r.me.id, tuple(event.snapshot), event.reason)
    if r.installing == event.snapshot:
        r.installing = None
    f = r.following
    if f is None:
        return
    if f.snapshot == event.snapshot:
        f.snapshot = None
    # The verification took time on the local disk. The leader was not silent during it.
    f.fetch_deadline = max(f.fetch_deadline, now + r.params.fetch_timeout_s)
    address = r.address_of(r.leader_id) if r.leader_id is not None else None
    if address is not None:
        r.link(address).ready_at = now + REFUSED_SNAPSHOT_S


def on_snapshot_installed(r: RaftState, event: SnapshotInstalled, now: float) -> None:
    """Continues from a snapshot that has replaced the log. Everything below its end is committed."""
    auto_join.record_before_install(r, event.snapshot)
    r.members.reset(event.snapshot.offset - 1, event.voters, event.kraft_version)
    r.synced = event.snapshot.offset
    r.hwm = event.snapshot.offset
    r.effects.high_watermark = r.hwm
    r.installing = None
    r.snapshot_part_bytes = r.params.fetch_snapshot_max_bytes
    if r.following is not None and r.role is Role.FOLLOWER:
        r.following.snapshot = None
        reset_fetch_timeout(r, now)
