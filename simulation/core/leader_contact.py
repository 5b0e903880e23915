"""Whether a simulated replica is in contact with its leader.

The invariant: such a replica grants no pre-vote.
"""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.events import Event, PeerLost, Received, Replied
from quorate.raft.core.state import RaftState
from quorate.raft.types import Address, Role


class LeaderContact:
    """Whether the last contact with the leader that a replica follows was a successful Fetch."""

    def __init__(self) -> None:
        self.hears_leader = False

    def before_event(self, r: RaftState, event: Event) -> None:
        """Notes that the leader is gone: its connection was reset, or it has sent EndQuorumEpoch."""
        match event:
            case PeerLost():
                self.unreachable(r, event.address)
            case Replied(reply=m.Failure.DISCONNECTED):
                self.unreachable(r, event.to.address)
            case Received(request=m.EndEpoch() as end):
                if (end.leader_id, end.epoch) == r.leader_and_epoch:
                    self.hears_leader = False

    def unreachable(self, r: RaftState, address: Address) -> None:
        """Notes that the connection to this address was refused or reset."""
        if r.leader_id is not None and r.address_of(r.leader_id) == address:
            self.hears_leader = False


def is_fetch_response_of_leader(r: RaftState, out: Outgoing, reply: m.Reply | m.Failure) -> bool:
    """Returns whether this is a successful response of the leader to the follower's current Fetch."""
    request = out.request
    if (
        not isinstance(reply, m.FetchReply)
        or reply.error != ErrorCode.NONE
        or not isinstance(request, m.Fetch)
    ):
        return False
    link = r.links.get(out.to.address)
    current = link is not None and link.in_flight.get(m.Fetch) is request
    return current and r.role is Role.FOLLOWER and (r.leader_id, r.epoch) == (reply.leader_id, request.epoch)
