"""The schedule of faults.

It depends on the seed alone; the times at which faults occur depend on the machine.

There is one series of faults for the controllers and one for the brokers. Each has at most one fault at a
time, and the next one waits until the cluster has recovered. So two of three voters and two of three replicas
are always there: what replication factor 3 and `min.insync.replicas` 2 tolerate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    CONTROLLERS = "controllers"
    BROKERS = "brokers"


class Kind(StrEnum):
    KILL = "kill"
    """SIGKILL"""
    FREEZE = "freeze"
    """SIGSTOP, later SIGCONT"""
    STOP = "stop"
    """SIGTERM: a controlled shutdown"""
    CUT = "cut"
    """the link to one other node"""
    ISOLATE = "isolate"
    """the links to all other nodes"""
    FULL_DISK = "full-disk"
    """writes fail with ENOSPC after some bytes"""
    FAILING_DISK = "failing-disk"
    """reads, writes and fsyncs fail with EIO"""
    SLOW_DISK = "slow-disk"
    """each fsync and each read that misses the page cache takes longer"""
    FAILING_DIRECTORY = "failing-directory"
    """reads, writes and fsyncs in the second log directory of a broker fail with EIO"""


ONLY_WIDE = (Kind.FAILING_DIRECTORY,)
"""Kinds that need a cluster whose brokers have two log directories."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The random numbers of one fault. Shares are from 0 to 1."""

    number: int
    lane: Lane
    kind: Kind
    pause_s: float
    """before the fault, without one in this lane"""
    lasts_s: float
    on_leader: bool
    """of the metadata quorum; for controllers"""
    victim_share: float
    peer_share: float
    """selects the other end of a cut link"""
    severity: float
    """of a slow disk: the delay; of a full disk: how much can still be written"""
    again: bool
    """whether a killed node is killed once more while it starts"""


def schedule(seed: int, lane: Lane, kinds: Sequence[Kind]) -> Iterator[Fault]:
    """Yields the faults of a lane, without end."""
    dice = random.Random(f"{seed} {lane}")
    number = 0
    while True:
        number += 1
        # A short fault ends before a session or a fetch times out, a long one after (defaults: 9 s, 2 s).
        short = dice.random() < 0.4
        yield Fault(
            number,
            lane,
            dice.choice(kinds),
            pause_s=dice.uniform(0.5, 8),
            lasts_s=dice.uniform(0.1, 2) if short else dice.uniform(2, 20),
            on_leader=dice.random() < 0.6,
            victim_share=dice.random(),
            peer_share=dice.random(),
            severity=dice.random(),
            again=dice.random() < 0.25,
        )


def selected(share: float, candidates: Sequence[int]) -> int:
    """Returns the candidate at a share."""
    return candidates[min(int(share * len(candidates)), len(candidates) - 1)]
