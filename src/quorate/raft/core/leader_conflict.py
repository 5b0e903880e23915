"""Who leads an epoch, when two messages name two.

An epoch has one leader, so one of two such claims is false: forged, on a listener that lets anybody in,
or of a replica that was told so. No message stops a node for it. A leader that has answered a Fetch of
ours as the leader of this epoch has shown itself, and is kept, as is our own leadership. One that was
only named gives way to the next that is named, which then has to show itself in its turn. Where the
disk has its name and records of its epoch from before a restart, it gives way only if it says itself
that another one leads.

None of this moves in a quorum whose members all keep to Raft's rules.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.raft.types import NO_ENDPOINTS, Endpoints

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)


def complain(r: Raft, kind: str, text: str, now: float) -> None:
    more = r.error_log.due(kind, now)
    if more is not None:
        log.error("[Raft id=%d] %s%s", r.me.id, text, more)


def contradicts(r: Raft, epoch: int, leader_id: int | None) -> bool:
    """Whether this names another leader of our epoch than we know."""
    return epoch == r.epoch and leader_id is not None and r.leader_id not in (None, leader_id)


def accepted(
    r: Raft, what: str, teller: int | None, leader_id: int, endpoints: Endpoints, now: float
) -> bool:
    """Whether a claim that contradicts is acted on: the leader known so far is then forgotten.

    what: the message, for the log. teller: who has answered a request of ours so; None where it was a
    request, which whoever reaches the listener can send.
    """
    known = r.leader_id
    text = f"{what} names {leader_id} as the leader of epoch {r.epoch}, which is {known} as far as this replica knows"
    firm = (
        known == r.me.id
        or r.leader_confirmed_epoch == r.epoch
        or (r.leader_confirmed_on_disk == r.epoch and teller != known)
    )
    if firm or leader_id == r.me.id or not endpoints:
        complain(r, "refused claim", f"{text}: not believed", now)
        return False
    complain(
        r, "accepted claim", f"{text}, but {known} has not shown itself as such: following {leader_id}", now
    )
    r.leader_id, r.leader_endpoints = None, NO_ENDPOINTS
    return True
