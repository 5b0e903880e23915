"""What the rules for all responses share: errors, and the leader and epoch that every response names."""

from __future__ import annotations

import logging

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import transitions
from quorate.raft.core.events import Replied
from quorate.raft.core.leader_conflict import accept_claim, names_other_leader
from quorate.raft.core.messages import Reply
from quorate.raft.core.state import RaftState
from quorate.raft.types import Role

logger = logging.getLogger(__name__)


def log_unexpected_error(r: RaftState, event: Replied, reply: Reply, now: float) -> None:
    """Logs an error that no member of the quorum should return."""
    host, port = event.to.address
    name, text = type(event.request).__name__, f": {reply.message}" if reply.message else ""
    r.log_error(
        f"{name} {reply.error.name}", f"{host}:{port} answers {name} with {reply.error.name}{text}", now
    )


def on_top_level_error(r: RaftState, event: Replied, reply: Reply, now: float) -> bool:
    """Logs an error of the request as a whole. Returns False: the sender backs off.

    Apache Kafka's controllers stop on CLUSTER_AUTHORIZATION_FAILED. Here they keep asking, since the
    cause may be corrected and the responder need not be in the cluster.
    """
    if reply.error != ErrorCode.BROKER_NOT_AVAILABLE:
        log_unexpected_error(r, event, reply, now)
    return False


def on_common_reply(r: RaftState, event: Replied, reply: Reply, now: float) -> bool | None:
    """Learns leader and epoch from a response, and handles the errors that all responses share.

    Returns None if the response still has to be handled, and otherwise whether it was good: after one
    that was not, the sender backs off. Kafka's `maybeHandleCommonResponse`.
    """
    endpoints = reply.leader_endpoints
    if not endpoints and reply.leader_id is not None:
        endpoints = r.voters.endpoints(reply.leader_id)
    if reply.epoch < r.epoch or reply.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if r.is_epoch_too_far_ahead(reply.epoch):
        text = f"an answer of {event.to.address} names epoch {reply.epoch}, ours is {r.epoch}"
        r.log_error("epoch", text, now)
        return False
    if reply.leader_id is not None and names_other_leader(r, reply.epoch, reply.leader_id):
        claim = f"{event.to.address[0]}:{event.to.address[1]}, answering {type(event.request).__name__},"
        if not accept_claim(r, claim, event.to.id, reply.leader_id, endpoints, now):
            return False
        transitions.adopt_leader_and_epoch(r, reply.epoch, reply.leader_id, endpoints, now)
        return True
    if reply.epoch > r.epoch or reply.error in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ):
        transitions.adopt_leader_and_epoch(r, reply.epoch, reply.leader_id, endpoints, now)
        return True
    if reply.leader_id is not None and r.role in (Role.UNATTACHED, Role.CANDIDATE, Role.PROSPECTIVE):
        before = r.role
        transitions.adopt_leader_and_epoch(r, reply.epoch, reply.leader_id, endpoints, now)
        if reply.error == ErrorCode.NONE:
            return None
        if r.role is not before:
            return True
    if reply.error == ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    if reply.error == ErrorCode.INVALID_VOTER_KEY:
        if (suffix := r.info_log.due("voter key", now)) is not None:
            logger.info(
                "[Raft id=%d] the voter key sent to %s is not the receiver's%s",
                r.me.id,
                event.to.address,
                suffix,
            )
        return False
    if reply.error == ErrorCode.INVALID_REQUEST:  # Kafka's controllers stop here
        log_unexpected_error(r, event, reply, now)
        return False
    return None
