"""The upgrade of kraft.version from 0 to 1 on the leader (KIP-853)."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import KRAFT_VERSION, KRAFT_VOTERS, kraft_version_record, voters_record
from quorate.raft.core.events import UpgradeKraftVersion
from quorate.raft.core.messages import VoterReply
from quorate.raft.core.state import RaftState
from quorate.raft.core.transitions import refuse
from quorate.raft.core.voters import Voter, VoterSet


def on_upgrade(r: RaftState, q: UpgradeKraftVersion, now: float) -> None:
    """Appends KRaftVersion and Voters, and answers when they are committed.

    Every voter must have reported its directory id and its range of kraft.version in UpdateRaftVoter.
    """
    leading = r.leading
    if leading is None or q.epoch != r.epoch:
        return refuse(r, q.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    level = r.members.kraft_version
    if level == q.level and not leading.upgrade_tokens:
        return r.answer(q.token, VoterReply())
    if leading.upgrade_tokens:
        leading.upgrade_tokens.append(q.token)
        return None
    if q.level < level or not r.params.kraft_versions[0] <= q.level <= r.params.kraft_versions[1]:
        return refuse(
            r, q.token, ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version cannot go from {level} to {q.level}"
        )
    me = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
    known = {**leading.reported_voters, r.me.id: me}
    blockers = []
    for voter in r.voters:
        if voter.id not in known:
            blockers.append(f"voter {voter.id} has not told its directory id and kraft.version range yet")
            continue
        low, high = known[voter.id].kraft_versions
        if not low <= q.level <= high:
            blockers.append(f"voter {voter.id} supports kraft.version {low} to {high}")
    if blockers:
        text = "; ".join(blockers) + ". Each voter must run, with a release that supports the level."
        return refuse(r, q.token, ErrorCode.INVALID_UPDATE_VERSION, text)
    if q.validate_only:
        return r.answer(q.token, VoterReply())
    leading.upgrade_tokens.append(q.token)
    voters = VoterSet.of(known[v.id] for v in r.voters)
    r.effects.append_control = [
        (KRAFT_VERSION, kraft_version_record(q.level)),
        (KRAFT_VOTERS, voters_record(voters)),
    ]
    return None


def on_high_watermark(r: RaftState) -> None:
    """Answers the requests for an upgrade that has committed."""
    leading = r.leading
    if leading is None or r.hwm is None:
        return
    if leading.upgrade_tokens and r.members.kraft_version_at(r.hwm - 1) >= 1:
        tokens, leading.upgrade_tokens = leading.upgrade_tokens, []
        for token in tokens:
            r.answer(token, VoterReply())
