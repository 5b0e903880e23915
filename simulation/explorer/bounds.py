"""The bounds within which an exploration is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T", int, bool)


def _option(default: T, explanation: str) -> T:
    """Declares a bound with the help text of its command-line option."""
    return field(default=default, metadata={"help": explanation})


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is explored. Each field is an option of the command."""

    replicas: int = _option(3, "voters, formatted, with kraft.version 1")
    epochs: int = _option(2, "the greatest epoch")
    entries: int = _option(2, "entries that are appended in all, by any leader, at any time")
    crashes: int = _option(1, "crashes of each replica, at any time")
    down: bool = _option(
        False, "a crashed replica stays down for a while, rather than being started again at once"
    )
    late_messages: int = _option(
        1, "messages that may be late at the same time; others arrive at once or are lost"
    )
    timeouts: int = _option(0, "requests that time out at their senders, in all")
    repeats: int = _option(0, "repetitions of BeginQuorumEpoch to all voters, in all")
    check_quorum: bool = _option(False, "a leader may resign because no majority fetches")
    quick: bool = _option(False, "pre-votes after a reset connection, and giving way")
    slow_disk: bool = _option(False, "an fsync takes time, and a crash loses what it has not covered")
    late_pre_votes: bool = _option(
        False, "pre-votes may be late as well; else each is answered at once or lost"
    )
    symmetric: bool = _option(
        True, "worlds that differ in the names of nodes alone are one (symmetry reduction)"
    )
    mid_step: bool = _option(False, "a replica may also crash between the effects of one step")
