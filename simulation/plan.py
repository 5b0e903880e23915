"""What a simulated world is made of, what is asked of it and what befalls it: three things, declared apart.

A `Plan` holds all of it under one seed. Times are virtual seconds; `every_s` is the mean of a random interval, 0 is never.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

Span = tuple[float, float]  # drawn uniformly between


@dataclass(frozen=True, slots=True)
class Topology:
    """Who is there at the start."""

    voters: int = 3
    spares: int = 0  # controllers that are not voters yet
    observers: int = 0  # brokers
    kraft_version: int = 1
    quick_failover: bool = True
    auto_join: bool = False  # controllers that are no voters ask for it


@dataclass(frozen=True, slots=True)
class Links:
    """The network's manners. A message that is lost is missed after the request timeout."""

    delay_s: Span = (0.0001, 0.003)
    loss: float = 0.0
    duplicate: float = 0.0  # a request that arrives twice
    stray: float = 0.0  # a message that takes `stray_s`: it overtakes nobody and may outlive its timeout
    stray_s: Span = (0.05, 3.0)
    request_timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Disks:
    """How long durability takes and what a power failure takes away."""

    inline: float = 0.5  # share of fsyncs that are done at once, the others in a thread meanwhile
    sync_s: Span = (0.0002, 0.01)
    slow: float = 0.0  # share of fsyncs that take `slow_s`
    slow_s: Span = (0.1, 1.5)
    segment_ms: int = 7 * 24 * 3600 * 1000  # nodes roll their log so often
    retention_bytes: int = 100 << 20  # and forget what is before a snapshot from so many on


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the quorum."""

    propose_every_s: float = 0.03
    batch: tuple[int, int] = (1, 4)  # records of one append
    change_voters_every_s: float = 0.0  # AddRaftVoter and RemoveRaftVoter
    snapshot_every_s: float = 0.0
    resign_every_s: float = 0.0
    restart_every_s: float = 0.0  # graceful
    upgrade_every_s: float = 0.0  # tries of kraft.version 0 -> 1


@dataclass(frozen=True, slots=True)
class Faults:
    """What befalls nodes and network."""

    crash_every_s: float = 0.0
    power: float = 0.5  # share of crashes that take the page cache with them, and answer nobody
    mid_step: float = 0.3  # share of crashes between the duties of one step
    blackout_every_s: float = 0.0  # all nodes lose power at once
    down_s: Span = (0.0, 3.0)
    cut_every_s: float = 0.0  # one direction of one link
    isolate_every_s: float = 0.0  # one node, both directions
    split_every_s: float = 0.0  # two camps
    cut_s: Span = (0.1, 6.0)
    pause_every_s: float = 0.0  # SIGSTOP
    pause_s: Span = (0.05, 5.0)
    bad_disk_every_s: float = 0.0  # every change and fsync fails until the next start; nodes only
    skew: float = 0.0  # clocks run faster or slower by up to this share


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    topology: Topology = field(default_factory=Topology)
    links: Links = field(default_factory=Links)
    disks: Disks = field(default_factory=Disks)
    workload: Workload = field(default_factory=Workload)
    faults: Faults = field(default_factory=Faults)

    @staticmethod
    def draw(seed: int) -> Plan:
        """A world for this seed: some faults are left out of each, so that the others come to bear (swarm testing)."""
        rng = random.Random(f"plan {seed}")
        kraft = rng.choice((0, 1, 1, 1))
        voters = rng.choice((1, 2, 3, 3, 3, 4, 5, 5))
        change = rng.random() < 0.7 and voters < 5

        def some(share: float, low: float, high: float) -> float:
            return rng.uniform(low, high) if rng.random() < share else 0.0

        return Plan(
            seed,
            Topology(
                voters=voters,
                spares=rng.choice((0, 1, 2)) if change else 0,
                observers=rng.choice((0, 0, 1, 2)),
                kraft_version=kraft,
                quick_failover=rng.random() < 0.7,
                auto_join=rng.random() < 0.3,
            ),
            Links(
                delay_s=rng.choice(((0.0001, 0.001), (0.0001, 0.01), (0.001, 0.1))),
                loss=some(0.4, 0.001, 0.1),
                duplicate=some(0.4, 0.01, 0.2),
                stray=some(0.4, 0.005, 0.1),
            ),
            Disks(
                inline=rng.choice((0.0, 0.5, 1.0)),
                slow=some(0.3, 0.01, 0.2),
                segment_ms=rng.choice((2000, 7 * 24 * 3600 * 1000)),
                retention_bytes=rng.choice((3000, 20_000, 100 << 20)),
            ),
            Workload(
                propose_every_s=rng.choice((0.01, 0.05, 0.2)),
                change_voters_every_s=some(0.9, 0.3, 5.0) if change else 0.0,
                snapshot_every_s=some(0.5, 0.3, 10.0),
                resign_every_s=some(0.2, 5.0, 20.0),
                restart_every_s=some(0.2, 5.0, 20.0),
                upgrade_every_s=some(0.8, 1.0, 10.0) if kraft == 0 else 0.0,
            ),
            Faults(
                crash_every_s=some(0.7, 1.0, 10.0),
                power=rng.choice((0.0, 0.5, 1.0)),
                blackout_every_s=some(0.3, 5.0, 30.0),
                cut_every_s=some(0.5, 0.5, 10.0),
                isolate_every_s=some(0.4, 2.0, 15.0),
                split_every_s=some(0.4, 2.0, 15.0),
                pause_every_s=some(0.3, 1.0, 10.0),
                bad_disk_every_s=some(0.3, 3.0, 20.0),
                skew=some(0.3, 0.0, 0.1),
            ),
        )

    def calm(self) -> Plan:
        """The same world without faults and without work."""
        links = replace(self.links, loss=0.0, duplicate=0.0, stray=0.0)
        return replace(self, links=links, workload=Workload(propose_every_s=0.0), faults=Faults(skew=self.faults.skew))
