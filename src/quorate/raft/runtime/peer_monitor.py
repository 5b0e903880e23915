"""Keeps connections to the other voters open, and logs why there is no leader.

Also warns if this controller or another voter cannot be reached under the addresses in the voter set.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.raft.core.membership.voter_changes import shared_address_message
from quorate.raft.core.voters import Voter
from quorate.raft.types import Address
from quorate.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from quorate.raft.core.state import RaftState
    from quorate.raft.runtime.interfaces import Transport
    from quorate.raft.runtime.reachability import Reachability

logger = logging.getLogger(__name__)
LOST_S = 15.0  # without a leader; an election takes one or two seconds, even if candidates collide


NO_LEADER_S = 2.5  # without a leader until it is logged; the first election takes one or two seconds
AGAIN_S = 60.0  # until the same message is logged again
CHANGED_S = 10.0  # until it is logged again if the reachability of other nodes has changed
MAX_SHOWN = 10  # addresses in one message


class PeerMonitor:
    """Opens connections to the other voters, and warns if there is no leader or an address is wrong."""

    def __init__(self, reachability: Reachability) -> None:
        self._reachability = reachability
        self._warnings = RateLimitedLog(60.0)
        self._led_at = 0.0
        self._logged_at = float("-inf")
        self._logged_situation: tuple[object, ...] = ()

    def check(self, r: RaftState, transport: Transport, now: float) -> None:
        """Opens missing connections and logs problems. Called every few seconds."""
        self._log_missing_leader(r, now)
        if not r.is_voter:
            return
        listener = r.params.listener_name
        others = [v.endpoints[listener] for v in r.voters if v.id != r.me.id and listener in v.endpoints]
        transport.warm(others)  # so that an election and the first Fetch need not wait for them
        if r.members.kraft_version >= 1:
            self._warn_if_listener_differs(r, now)
            self._warn_if_address_shared(r, now)
        if r.is_leader:
            self._led_at = now
        else:
            self._warn_if_moved(r, now)

    def no_leader_reason(self, r: RaftState, now: float) -> str | None:
        """Since when there is no leader, and which nodes that could elect or name one can be reached.

        Returns None if this node leads, or its leader answers.
        """
        f = r.following
        if r.is_leader or r.shutting_down or (f is not None and f.has_fetched and now < f.fetch_deadline):
            return None
        silent_s = max(0.0, now - max(r.leader_heard_at, self._led_at))
        head = f"no leader for {silent_s:.0f} s"
        if f is not None:
            head = f"leader {r.leader_id} has not been heard for {silent_s:.0f} s"
        others = self._others(r)
        if r.is_voter:
            needed = f"{r.voters.majority} of the {len(r.voters)} voters"
            head += f" in epoch {r.epoch}: {needed} are needed to elect one"
        elif others:
            head += ": this node is no voter and asks the others for it"
        else:
            head += ": this node is no voter, and controller.quorum.bootstrap.servers names no other"
        unnamed = "has no endpoint for this listener"
        shown = [
            f"{name} {unnamed if where is None else self._reachability.describe(where)}"
            for name, where in others[:MAX_SHOWN]
        ]
        more = [f"and {len(others) - MAX_SHOWN} more"] if len(others) > MAX_SHOWN else []
        return "; ".join([head, *shown, *more])

    def _others(self, r: RaftState) -> list[tuple[str, Address | None]]:
        """Name and address of the nodes that this one queries for the leader.

        These are the other voters, and for a node that is not a voter the bootstrap servers as well.
        """
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

    def _log_missing_leader(self, r: RaftState, now: float) -> None:
        """Logs a missing leader: as information while the other voters may be starting, then as a warning."""
        silent_s = now - max(r.leader_heard_at, self._led_at)
        text = self.no_leader_reason(r, now) if silent_s >= NO_LEADER_S else None
        if text is None:
            self._logged_at, self._logged_situation = float("-inf"), ()
            return
        late = silent_s >= LOST_S
        situation = (
            late,
            *((name, self._reachability.cause(where) if where else None) for name, where in self._others(r)),
        )
        if now - self._logged_at < (AGAIN_S if situation == self._logged_situation else CHANGED_S):
            return
        self._logged_at, self._logged_situation = now, situation
        logger.log(logging.WARNING if late else logging.INFO, "[Raft id=%d] %s", r.me.id, text)

    def _warn_if_listener_differs(self, r: RaftState, now: float) -> None:
        """Warns if other voters have no endpoint under the name of this controller's listener."""
        listener = r.params.listener_name
        unnamed = [v for v in r.voters if v.id != r.me.id and listener not in v.endpoints]
        if not unnamed or self._warnings.due("renamed", now) is None:
            return
        names = sorted({name for v in unnamed for name in v.endpoints})
        logger.warning(
            "[Raft id=%d] voter %s cannot be reached: this controller's listener for the quorum is %s "
            "(the first of controller.listener.names), and in the voter set they have %s. Set the old "
            "name again; to change it, give every controller both names first, one controller at a time"
            ' (docs/runbooks/membership.md, "The controllers\' listener gets another name")',
            r.me.id, ", ".join(str(v.id) for v in unnamed), listener, ", ".join(names) or "no endpoint",
        )  # fmt: skip

    def _warn_if_address_shared(self, r: RaftState, now: float) -> None:
        shared = shared_address_message(r.voters, Voter(r.me, r.params.endpoints))
        if shared is not None and self._warnings.due("shared", now) is not None:
            logger.warning("[Raft id=%d] %s", r.me.id, shared)

    def _warn_if_moved(self, r: RaftState, now: float) -> None:
        """Warns if this controller has another address than in the voter set, and there is no leader.

        Votes go to the addresses in the voter set, which only a leader can change. So if all controllers
        move at once, none of them can be elected.
        """
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
        suffix = self._warnings.due("moved", now)
        if suffix is None:
            return
        needed = r.voters.majority - 1
        logger.warning(
            "[Raft id=%d] no leader for %d s: this controller is at %s, but the voter set says %s, where the "
            "others look for it."
            " If they have moved as well, none finds a majority: start %d of them with the old listeners and"
            " advertised.listeners once more; when the rest has a leader, move those too, one at a time"
            ' (docs/runbooks/membership.md, "All controllers have moved at once")',
            r.me.id, silent_s, _text(own), _text(known), needed,
        )  # fmt: skip


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
