"""Decides which of two leaders to believe when messages name both for the same epoch.

Raft elects at most one leader per epoch, so one of the two claims is false: either it was forged, on a
listener that accepts unauthenticated requests, or the sender was misled by a forged message. Such a
message must not stop a node. The claims are weighed as follows:

- A leader that has answered a Fetch of this replica in this epoch is confirmed and keeps its place. The
  same holds if this replica itself is the leader.
- A leader that has only been named gives way to the next one that is named.
- If the disk held the leader's name and records of its epoch at the start, that leader gives way only
  if it names the other leader itself.

None of these rules ever applies in a quorum whose members all follow Raft.
"""

from __future__ import annotations

from quorate.raft.core.state import RaftState
from quorate.raft.types import NO_ENDPOINTS, Endpoints


def names_other_leader(r: RaftState, epoch: int, leader_id: int | None) -> bool:
    """Whether a message names another leader of the current epoch than the one known here."""
    return epoch == r.epoch and leader_id is not None and r.leader_id not in (None, leader_id)


def accept_claim(
    r: RaftState, claim: str, responder: int | None, leader_id: int, endpoints: Endpoints, now: float
) -> bool:
    """Whether to believe a message that names another leader. If so, the leader known so far is forgotten.

    Args:
        claim: Describes the message in the log.
        responder: The replica whose response makes the claim. None for a request, which anybody who
            reaches the listener can send.
    """
    known = r.leader_id
    text = (
        f"{claim} names {leader_id} as the leader of epoch {r.epoch}, which is {known} as far as this "
        "replica knows"
    )
    confirmed = (
        known == r.me.id
        or r.leader_confirmed_epoch == r.epoch
        or (r.leader_confirmed_on_disk == r.epoch and responder != known)
    )
    if confirmed or leader_id == r.me.id or not endpoints:
        r.log_error("refused claim", f"{text}: not believed", now)
        return False
    r.log_error(
        "accepted claim", f"{text}, but {known} has not shown itself as such: following {leader_id}", now
    )
    r.leader_id, r.leader_endpoints = None, NO_ENDPOINTS
    return True
