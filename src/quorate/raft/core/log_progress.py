"""What follows when records are appended to the local log, and when they are durable.

Voter sets and kraft.version take effect when their record is appended, committed or not (KIP-853). The
log counts for the high watermark and for Fetches only as far as it is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quorate.raft.core import follower, leader, transitions
from quorate.raft.core.control_records import KRAFT_VOTERS, apply_control_record
from quorate.raft.core.membership import voter_changes
from quorate.raft.core.messages import ControlRecord
from quorate.raft.core.state import RaftState
from quorate.raft.types import Role

logger = logging.getLogger(__name__)


def on_appended(r: RaftState, controls: Sequence[ControlRecord], now: float) -> None:
    """Applies the control records that were appended, and answers the Fetches that wait for records."""
    for control in controls:
        _apply_control(r, control)
    if r.leading is not None and controls:
        r.leading.appending_control_records = False
    if r.leading is not None and r.leading.parked:
        leader.wake_parked(r, now)


def on_synced(r: RaftState, offset: int, now: float) -> None:
    """Notes that the log is durable below `offset`, which may advance the high watermark."""
    r.synced = max(r.synced, offset)
    if offset >= r.log.end_offset:  # an fsync that began before the last append does not cover it
        r.awaiting_sync = False
    if r.leading is not None:
        leader.advance_high_watermark(r, now)
    elif r.role is Role.FOLLOWER:
        follower.advance_high_watermark(r)


def _apply_control(r: RaftState, control: ControlRecord) -> None:
    """Puts a voter set or a kraft.version into force. Raises RaftError if it breaks a rule of KIP-853."""
    before = r.members.kraft_version
    apply_control_record(r.members, control)
    if control.type == KRAFT_VOTERS:
        logger.info(
            "[Raft id=%d] voters at offset %d: %s", r.me.id, control.offset, [str(v.key) for v in r.voters]
        )
        voter_changes.on_appended(r, control.offset)
    elif before != r.members.kraft_version:
        transitions.persist(r, again=True)  # the version of the file quorum-state follows kraft.version
