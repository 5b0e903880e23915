"""Voters in reach of one another: connections made ahead, and a word where nobody can find this one, or it the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.raft.changes import shared_address
from quorate.raft.complaints import Complaints
from quorate.raft.types import Address
from quorate.raft.voters import Voter

if TYPE_CHECKING:
    from quorate.raft.core import Raft
    from quorate.raft.ports import Transport

log = logging.getLogger(__name__)
LOST_S = 15.0  # without a leader: an election takes one or two, also where its candidates collide


class Reaching:
    """Looks every few seconds."""

    def __init__(self) -> None:
        self._complaints = Complaints(60.0)
        self._led_at = 0.0

    def look(self, core: Raft, transport: Transport, now: float) -> None:
        if not core.is_voter:
            return
        listener = core.params.listener_name
        others = [v.endpoints[listener] for v in core.voters if v.id != core.me.id and listener in v.endpoints]
        transport.warm(others)  # an election, and the first Fetch after it, need not make connections first
        if core.members.kraft_version >= 1:
            self._warn_if_renamed(core, now)
            self._warn_if_shared(core, now)
        if core.is_leader:
            self._led_at = now
        else:
            self._warn_if_lost(core, now)

    def _warn_if_renamed(self, core: Raft, now: float) -> None:
        """Requests to a voter go to its endpoint under the name of our own listener."""
        listener = core.params.listener_name
        unnamed = [v for v in core.voters if v.id != core.me.id and listener not in v.endpoints]
        if not unnamed or self._complaints.due("renamed", now) is None:
            return
        names = sorted({name for v in unnamed for name in v.endpoints})
        log.warning(
            "[Raft id=%d] voter %s cannot be reached: this controller's listener for the quorum is %s (the first of"
            " controller.listener.names), and in the voter set they have %s. Set the old name again; to change it, give every"
            " controller both names first, one controller at a time"
            ' (docs/membership.md, "The controllers\' listener gets another name")',
            core.me.id, ", ".join(str(v.id) for v in unnamed), listener, ", ".join(names) or "no endpoint",
        )  # fmt: skip

    def _warn_if_shared(self, core: Raft, now: float) -> None:
        shared = shared_address(core.voters, Voter(core.me, core.params.endpoints))
        if shared is not None and self._complaints.due("shared", now) is not None:
            log.warning("[Raft id=%d] %s", core.me.id, shared)

    def _warn_if_lost(self, core: Raft, now: float) -> None:
        """All controllers that move at once are where nobody looks for them: votes go to the addresses in the voter set, and
        only a leader can write others into it."""
        listener, silent_s = core.params.listener_name, now - max(core.heard_at, self._led_at)
        known, own = core.voters.address(core.me.id, listener), core.params.endpoints.get(listener)
        if core.members.kraft_version < 1 or known is None or own is None or known == own or silent_s < LOST_S:
            return
        more = self._complaints.due("moved", now)
        if more is None:
            return
        needed = core.voters.majority - 1
        log.warning(
            "[Raft id=%d] no leader for %d s: this controller is at %s, but the voter set says %s, where the others look for it."
            " If they have moved as well, none finds a majority: start %d of them with the old listeners and"
            " advertised.listeners once more; when the rest has a leader, move those too, one at a time"
            ' (docs/membership.md, "All controllers have moved at once")',
            core.me.id, silent_s, _text(own), _text(known), needed,
        )  # fmt: skip


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
