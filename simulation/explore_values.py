"""A canonical, hashable form of what a replica is: two replicas with the same form behave the same from then on.

Time is abstract. The explorer's clock stands at zero, so a time is one of three things: past, pending ("may come now, or
later, or never") or never. What only times depend on is left out; any field added to the core is in the form by itself.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from functools import cache
from math import inf
from typing import Any, cast

from quorate.raft.core import Raft
from quorate.raft.messages import Fetch
from quorate.raft.replication import Leading, Progress
from quorate.raft.types import Address, RaftParams, Role
from quorate.raft.voters import VoterSet
from simulation.trail import Batch

PAST, PENDING, NEVER = "past", "pending", "never"

# Left out: what is the same in every state, what the disk's form says already, and what only decides how long something takes.
LEFT_OUT: dict[type, frozenset[str]] = {
    Raft: frozenset(
        {
            "params",
            "log",  # in the disk's form
            "rng",  # a constant
            "fx",  # empty between steps
            "_stored",  # read at the start alone
            "saved",  # on the disk, or the late state
            "losses",  # how long a candidate backs off
            "elections_started",  # a metric
            "standing",  # nobody joins by itself here
            "noted_upto",
            "gave_way",  # as `may_give_way`
            "links",  # see `links_form`
            "shown",  # whom to believe where two leaders of an epoch are named: a step that comes to that is a failure
            "shown_on_disk",
            "heard_at",  # for a warning
            "complaints",
            "repeats",
        }
    ),
    Progress: frozenset({"last_fetch", "last_caught_up", "leader_end_at_fetch"}),  # when, not where
    Leading: frozenset({"fetched", "latest_by_id"}),  # when check-quorum begins anew; the same objects as in `progress`
}


class Middle(random.Random):
    """Draws the middle of every range, and the first of every choice: timers are branch points, so their lengths are idle."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def randrange(self, *args: Any, **kwargs: Any) -> int:
        return 0


MIDDLE = Middle(0)


def moment(at: float) -> str:
    return NEVER if at == inf else PENDING if at > 0 else PAST


@cache
def field_names(kind: type) -> tuple[str, ...]:
    """Of slots, in the order of their declaration; () for a class with a `__dict__`."""
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        names.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    left_out = LEFT_OUT.get(kind, frozenset())
    return tuple(n for n in names if n not in left_out and n != "__weakref__")


def form(value: Any) -> Any:
    """Of any value that a core, a message or a disk holds."""
    kind = type(value)
    if value is None or kind in (int, str, bytes, bool):
        return value
    if kind is float:
        return moment(value)
    if kind in (tuple, list, deque) or isinstance(value, tuple):
        return tuple(map(form, value))
    if kind is dict:
        return tuple(sorted((form(k), form(v)) for k, v in value.items()))
    if kind in (set, frozenset):
        return tuple(sorted(map(form, value)))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, type):
        return value.__name__
    if kind is Batch:
        return value.digest
    if kind is VoterSet:
        return tuple((v.key.id, v.key.directory_id, form(dict(v.endpoints))) for v in value)
    if kind is RaftParams:
        return None
    return (kind.__name__, *[form(getattr(value, n)) for n in field_names(cast(Any, kind)) or _own_names(value)])


def _own_names(value: Any) -> list[str]:
    left_out = LEFT_OUT.get(type(value), frozenset())
    return sorted(n for n in vars(value) if n not in left_out)


def core_form(core: Raft, again: bool) -> tuple[Any, ...]:
    """`again`: what is said is also said again, so that it matters what has been heard."""
    without: set[str] = set()
    if core.role is not Role.RESIGNED or not again:  # set anew where a leader resigns
        without |= {"unacknowledged", "successors"}
    if core.role is not Role.FOLLOWER:  # set anew where one follows
        without.add("leader_hwm")
    if core.leader_id is not None and not again:  # refuses every other's Vote in this epoch, and each asks once
        without.add("voted")
    return (
        core.gave_way != core.epoch,
        links_form(core, again),
        *[(n, form(getattr(core, n))) for n in _own_names(core) if n not in without],
    )


def links_form(core: Raft, again: bool) -> tuple[Any, ...]:
    """Of links over which something is under way that may be answered."""
    if not again and core.role is not Role.FOLLOWER:
        return ()
    out = []
    for where, link in core.links.items():
        seeks = is_seeking(core, where)
        under_way = tuple(sorted((k.__name__, form(q)) for k, q in link.in_flight.items() if not (seeks and k is Fetch)))
        if under_way:
            out.append((where, under_way))
    return tuple(sorted(out))


def is_seeking(core: Raft, where: Address) -> bool:
    """Whether a Fetch sent there only looks for a leader. It never gets an answer here."""
    return core.role is not Role.FOLLOWER or core.leader_id is None or core.address_of(core.leader_id) != where
