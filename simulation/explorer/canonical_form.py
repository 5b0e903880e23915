"""The canonical form of a replica, a hashable value: replicas with equal forms behave the same from then on.

Time is abstract. The clock of the explorer is always zero, so a time is past, pending (it may come now,
later or not at all) or never. Fields that only decide how long something takes are left out. Any other
field of the core is included, also one that is added to it later.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from functools import cache
from math import inf
from typing import Any, cast

from quorate.raft.core.messages import Fetch
from quorate.raft.core.role_state import Leading, Progress
from quorate.raft.core.state import RaftState
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import Address, RaftParams, Role
from simulation.checker.log_model import Batch

PAST, PENDING, NEVER = "past", "pending", "never"

# Fields that are the same in every state, are in the form of the disk, or only decide how long things take.
EXCLUDED_FIELDS: dict[type, frozenset[str]] = {
    RaftState: frozenset(
        {
            "params",
            "log",  # in the form of the disk
            "rng",  # a constant
            "effects",  # empty between steps
            "saved",  # on the disk, or the deferred state
            "lost_elections",  # how long a candidate backs off
            "membership_record",  # no replica joins by itself here
            "voter_sets_seen_upto",
            "deferred_epoch",  # compared with the epoch, see `canonical_core`
            "deferred_to",  # part of the form only while it counts, see `canonical_core`
            "links",  # see `canonical_links`
            # They decide between two leaders of one epoch, which are a violation already.
            "leader_confirmed_epoch",
            "leader_confirmed_on_disk",
            "leader_heard_at",  # for a warning
            "error_log",
            "info_log",
        }
    ),
    Progress: frozenset({"last_fetch", "last_caught_up", "leader_end_at_fetch"}),  # times, not offsets
    # Times of the check of the quorum; the same objects as in `progress`.
    Leading: frozenset({"fetched_voters", "latest_by_id"}),
}


class MidpointRandom(random.Random):
    """Draws the middle of every range and the first of all choices.

    The explorer tries all orders of timers, whatever they draw.
    """

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def randrange(self, *args: Any, **kwargs: Any) -> int:
        return 0


MIDPOINT_RANDOM = MidpointRandom(0)


def abstract_time(at: float) -> str:
    """Returns which of the three times this is."""
    return NEVER if at == inf else PENDING if at > 0 else PAST


@cache
def field_names(kind: type) -> tuple[str, ...]:
    """Returns the slots of a class in the order of their declaration, or () for a class with a `__dict__`."""
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        names.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    left_out = EXCLUDED_FIELDS.get(kind, frozenset())
    return tuple(n for n in names if n not in left_out and n != "__weakref__")


def canonical_form(value: Any) -> Any:
    """Returns the form of any value that a core, a message or a disk holds."""
    kind = type(value)
    if value is None or kind in (int, str, bytes, bool):
        return value
    if kind is float:
        return abstract_time(value)
    if kind in (tuple, list, deque) or isinstance(value, tuple):
        return tuple(map(canonical_form, value))
    if kind is dict:
        return tuple(sorted((canonical_form(k), canonical_form(v)) for k, v in value.items()))
    if kind in (set, frozenset):
        return tuple(sorted(map(canonical_form, value)))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, type):
        return value.__name__
    if kind is Batch:
        return value.digest
    if kind is VoterSet:
        return tuple((v.key.id, v.key.directory_id, canonical_form(dict(v.endpoints))) for v in value)
    if kind is RaftParams:
        return None
    return (
        kind.__name__,
        *[canonical_form(getattr(value, n)) for n in field_names(cast(Any, kind)) or _own_names(value)],
    )


def _own_names(value: Any) -> list[str]:
    left_out = EXCLUDED_FIELDS.get(type(value), frozenset())
    return sorted(n for n in vars(value) if n not in left_out)


def canonical_core(r: RaftState, repeats: bool) -> tuple[Any, ...]:
    """Returns the form of a core. With `repeats` requests are repeated, so it matters which were answered."""
    without: set[str] = set()
    if r.role is not Role.RESIGNED or not repeats:  # set when a leader resigns
        without |= {"unacknowledged", "successors"}
    if r.role is not Role.FOLLOWER:  # set when a replica becomes follower
        without.add("leader_hwm")
    # It refuses all other Votes of this epoch, and each candidate sends one.
    if r.leader_id is not None and not repeats:
        without.add("voted")
    return (
        r.deferred_to if r.deferred_epoch == r.epoch else None,
        canonical_links(r, repeats),
        *[(n, canonical_form(getattr(r, n))) for n in _own_names(r) if n not in without],
    )


def canonical_links(r: RaftState, repeats: bool) -> tuple[Any, ...]:
    """Returns the form of the links with requests in flight that may be answered."""
    if not repeats and r.role is not Role.FOLLOWER:
        return ()
    out = []
    for where, link in r.links.items():
        seeks = is_leader_search(r, where)
        in_flight = tuple(
            sorted(
                (k.__name__, canonical_form(q))
                for k, q in link.in_flight.items()
                if not (seeks and k is Fetch)
            )
        )
        if in_flight:
            out.append((where, in_flight))
    return tuple(sorted(out))


def is_leader_search(r: RaftState, where: Address) -> bool:
    """Returns whether a Fetch sent there only looks for a leader. The explorer never answers such a Fetch."""
    return r.role is not Role.FOLLOWER or r.leader_id is None or r.address_of(r.leader_id) != where
