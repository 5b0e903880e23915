"""Keeps voters connected to one another, and tells why there is no leader or this voter cannot be found."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.raft.core.membership.voter_changes import shared_address_message
from quorate.raft.core.voters import Voter
from quorate.raft.rate_limited_log import RateLimitedLog
from quorate.raft.types import Address

if TYPE_CHECKING:
    from quorate.raft.core.state import RaftState
    from quorate.raft.runtime.ports import Transport
    from quorate.raft.runtime.reachability import Reachability

logger = logging.getLogger(__name__)
LOST_S = 15.0  # without a leader: an election takes one or two, also where its candidates collide


NO_LEADER_S = (
    2.5  # after this a missing leader is told, since an election at the start takes one or two seconds
)
AGAIN_S = 60.0  # how often it is told again while nothing changes
CHANGED_S = 10.0  # how soon it is told again when other nodes can be reached, or for another reason not
MAX_SHOWN = 10  # addresses in one message


class PeerMonitor:
    """`look` is called every few seconds."""

    def __init__(self, reachability: Reachability) -> None:
        self._reachability = reachability
        self._complaints = RateLimitedLog(60.0)
        self._led_at = 0.0
        self._told_at = float("-inf")
        self._told: tuple[object, ...] = ()

    def check(self, r: RaftState, transport: Transport, now: float) -> None:
        self._tell_no_leader(r, now)
        if not r.is_voter:
            return
        listener = r.params.listener_name
        others = [v.endpoints[listener] for v in r.voters if v.id != r.me.id and listener in v.endpoints]
        transport.warm(others)  # an election, and the first Fetch after it, need not make connections first
        if r.members.kraft_version >= 1:
            self._warn_if_renamed(r, now)
            self._warn_if_shared(r, now)
        if r.is_leader:
            self._led_at = now
        else:
            self._warn_if_lost(r, now)

    def no_leader_reason(self, r: RaftState, now: float) -> str | None:
        """Since when there is no leader, and who of those that could elect or name one can be reached.
        None where this node leads or hears its leader."""
        f = r.following
        if r.is_leader or r.shutting_down or (f is not None and f.has_fetched and now < f.fetch_deadline):
            return None
        silent_s = max(0.0, now - max(r.leader_heard_at, self._led_at))
        head = f"no leader for {silent_s:.0f} s"
        if f is not None:
            head = f"leader {r.leader_id} has not been heard for {silent_s:.0f} s"
        others = self._others(r)
        if r.is_voter:
            head += f" in epoch {r.epoch}: {r.voters.majority} of the {len(r.voters)} voters are needed to elect one"
        elif others:
            head += ": this node is no voter and asks the others for it"
        else:
            head += ": this node is no voter, and controller.quorum.bootstrap.servers names no other"
        shown = [
            f"{name} {self._reachability.describe(where) if where is not None else 'has no endpoint for this listener'}"
            for name, where in others[:MAX_SHOWN]
        ]
        more = [f"and {len(others) - MAX_SHOWN} more"] if len(others) > MAX_SHOWN else []
        return "; ".join([head, *shown, *more])

    def _others(self, r: RaftState) -> list[tuple[str, Address | None]]:
        """Name and address of each node that this one asks: the other voters; for a node that is none
        also the bootstrap servers."""
        listener = r.params.listener_name
        own = r.params.endpoints.get(listener)
        found: list[tuple[str, Address | None]] = []
        for voter in r.voters:
            where = voter.endpoints.get(listener)
            if voter.id != r.me.id:
                found.append(
                    (f"voter {voter.id}" + (f" at {_text(where)}" if where is not None else ""), where)
                )
        if not r.is_voter:
            known = {where for _, where in found}
            found += [
                (_text(where), where) for where in r.params.bootstrap if where != own and where not in known
            ]
        return found

    def _tell_no_leader(self, r: RaftState, now: float) -> None:
        """At first as information, for the other voters may just be starting too, later as a warning."""
        silent_s = now - max(r.leader_heard_at, self._led_at)
        text = self.no_leader_reason(r, now) if silent_s >= NO_LEADER_S else None
        if text is None:
            self._told_at, self._told = float("-inf"), ()
            return
        late = silent_s >= LOST_S
        state = (
            late,
            *((name, self._reachability.cause(where) if where else None) for name, where in self._others(r)),
        )
        if now - self._told_at < (AGAIN_S if state == self._told else CHANGED_S):
            return
        self._told_at, self._told = now, state
        logger.log(logging.WARNING if late else logging.INFO, "[Raft id=%d] %s", r.me.id, text)

    def _warn_if_renamed(self, r: RaftState, now: float) -> None:
        """Requests to a voter go to its endpoint under the name of our own listener."""
        listener = r.params.listener_name
        unnamed = [v for v in r.voters if v.id != r.me.id and listener not in v.endpoints]
        if not unnamed or self._complaints.due("renamed", now) is None:
            return
        names = sorted({name for v in unnamed for name in v.endpoints})
        logger.warning(
            "[Raft id=%d] voter %s cannot be reached: this controller's listener for the quorum is %s (the "
            "first of"
            " controller.listener.names), and in the voter set they have %s. Set the old name again; to "
            "change it, give every"
            " controller both names first, one controller at a time"
            ' (docs/membership.md, "The controllers\' listener gets another name")',
            r.me.id, ", ".join(str(v.id) for v in unnamed), listener, ", ".join(names) or "no endpoint",
        )  # fmt: skip

    def _warn_if_shared(self, r: RaftState, now: float) -> None:
        shared = shared_address_message(r.voters, Voter(r.me, r.params.endpoints))
        if shared is not None and self._complaints.due("shared", now) is not None:
            logger.warning("[Raft id=%d] %s", r.me.id, shared)

    def _warn_if_lost(self, r: RaftState, now: float) -> None:
        """All controllers that move at once are where nobody looks for them: votes go to the addresses
        in the voter set, and only a leader can write others into it."""
        listener, silent_s = (
            r.params.listener_name,
            now - max(r.leader_heard_at, self._led_at),
        )
        known, own = (
            r.voters.address(r.me.id, listener),
            r.params.endpoints.get(listener),
        )
        if r.members.kraft_version < 1 or known is None or own is None or known == own or silent_s < LOST_S:
            return
        more = self._complaints.due("moved", now)
        if more is None:
            return
        needed = r.voters.majority - 1
        logger.warning(
            "[Raft id=%d] no leader for %d s: this controller is at %s, but the voter set says %s, where the "
            "others look for it."
            " If they have moved as well, none finds a majority: start %d of them with the old listeners and"
            " advertised.listeners once more; when the rest has a leader, move those too, one at a time"
            ' (docs/membership.md, "All controllers have moved at once")',
            r.me.id, silent_s, _text(own), _text(known), needed,
        )  # fmt: skip


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
