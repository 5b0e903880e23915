"""UpdateRaftVoter on the leader: a voter reports its endpoints and its range of kraft.version (KIP-853).

At kraft.version 1 the report becomes a new voter set. It takes effect when it is appended, and the
request is answered at once. At kraft.version 0 the leader only remembers the report, for the upgrade.
"""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import KRAFT_VOTERS, voters_record
from quorate.raft.core.leader_checks import leader_error, update_check_quorum
from quorate.raft.core.membership.voter_changes import missing_endpoint_message, shared_address_message
from quorate.raft.core.messages import Token, UpdateVoter, VoterReply
from quorate.raft.core.state import RaftState
from quorate.raft.core.transitions import refuse
from quorate.raft.types import NO_DIRECTORY


def on_update_voter(r: RaftState, q: UpdateVoter, token: Token, now: float) -> None:
    if r.is_other_cluster(q.cluster_id):
        return refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID)
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return refuse(r, token, error)
    key, (low, high), listener = q.voter.key, q.voter.kraft_versions, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY or not 0 <= low <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    if listener not in q.voter.endpoints:
        if r.voters.is_voter(key):
            text = missing_endpoint_message(listener, q.voter.endpoints)
            r.log_error("no endpoint", f"UpdateRaftVoter of {key} is refused: {text}", now)
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    leading, at, level = r.leading, r.members.current_offset, r.members.kraft_version
    assert leading is not None
    if level >= 1 and (leading.appending_control_records or r.hwm is None or at is None or at >= r.hwm):
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if leading.upgrade_tokens:  # the upgrade has already read the reports
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if not low <= level <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    if not r.voters.is_voter(key):
        return refuse(r, token, ErrorCode.VOTER_NOT_FOUND)
    if level == 0:
        leading.reported_voters[key.id] = q.voter
    else:
        shared = shared_address_message(r.voters, q.voter, leading.reported_voters)
        if shared is not None:
            # Two voters that exchange addresses have both reported in the end. Until then the answer is
            # not INVALID_REQUEST, which would stop a voter of Apache Kafka.
            r.log_error("shared address", f"UpdateRaftVoter of {key} is refused: {shared}", now)
            leading.reported_voters[key.id] = q.voter
            return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
        leading.reported_voters.pop(key.id, None)
        new = r.voters.updated(key.id, q.voter.endpoints, q.voter.kraft_versions, key.directory_id)
        if new != r.voters:
            leading.appending_control_records = True
            r.effects.append_control = [(KRAFT_VOTERS, voters_record(new))]
    update_check_quorum(r, key, now)
    return r.answer(token, VoterReply())
