"""The configuration of one simulation: its topology, network and disks, its workload and its fault schedule.

Workload and faults are declared apart, so that each may be combined with the other. Times are virtual
seconds. A field that ends with `every_s` is the mean of a random interval; 0 means never. Other numbers
without a unit are probabilities.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

Span = tuple[float, float]  # (least, greatest), drawn uniformly

ADD_VOTER_TIMEOUT_S = 31.0  # an AddRaftVoter request may still take effect this long after it was sent
CONNECTION_RESET_DELAY_S = 0.0005  # from the end of a process until its peers see their connections reset


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of a cluster when it starts."""

    voters: int = 3
    spares: int = 0  # controllers that are not voters yet
    observers: int = 0  # brokers
    kraft_version: int = 1
    quick_failover: bool = True
    auto_join: bool = False  # controllers that are not voters send AddRaftVoter by themselves (KIP-853)


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Delays and losses of messages. The sender notices a lost message when the request times out."""

    delay_s: Span = (0.0001, 0.003)
    loss: float = 0.0
    duplicate: float = 0.0  # of a request, which then arrives twice
    # Of a message, which then takes `long_delay_s`: others overtake it, its request may time out.
    long_delay: float = 0.0
    long_delay_s: Span = (0.05, 3.0)
    request_timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class DiskConfig:
    """How long fsyncs take, and when a node rolls and cleans its log."""

    inline: float = 0.5  # of an fsync to run in the event loop; others run in a thread
    sync_s: Span = (0.0002, 0.01)
    slow: float = 0.0  # of an fsync to take `slow_s`
    slow_s: Span = (0.1, 1.5)
    segment_ms: int = 7 * 24 * 3600 * 1000  # a node rolls a segment of this age
    retention_bytes: int = 100 << 20  # and deletes segments below a snapshot when its log is larger than this


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of clients and operators to the quorum."""

    propose_every_s: float = 0.03
    batch: tuple[int, int] = (1, 4)  # least and greatest number of records of one append
    change_voters_every_s: float = 0.0  # AddRaftVoter and RemoveRaftVoter
    snapshot_every_s: float = 0.0
    resign_every_s: float = 0.0
    restart_every_s: float = 0.0  # a graceful one
    upgrade_every_s: float = 0.0  # attempts to raise kraft.version from 0 to 1


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """The faults of processes, hosts, disks, links and clocks."""

    crash_every_s: float = 0.0
    # Of a crash to be a power failure: unsynced writes may be lost, and peers see no reset.
    power: float = 0.5
    mid_step: float = 0.3  # of a crash to come between two effects of one step
    blackout_every_s: float = 0.0  # all hosts lose power at once
    down_s: Span = (0.0, 3.0)
    cut_every_s: float = 0.0  # one direction of one link
    isolate_every_s: float = 0.0  # one node, both directions
    split_every_s: float = 0.0  # a partition into two random halves
    cut_s: Span = (0.1, 6.0)
    pause_every_s: float = 0.0  # SIGSTOP
    pause_s: Span = (0.05, 5.0)
    bad_disk_every_s: float = 0.0  # every change and fsync fails until the next start
    skew: float = 0.0  # the greatest share by which a clock runs faster or slower


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """All that determines a simulation: equal configurations give equal histories."""

    seed: int
    topology: Topology = field(default_factory=Topology)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    disks: DiskConfig = field(default_factory=DiskConfig)
    workload: Workload = field(default_factory=Workload)
    faults: FaultSchedule = field(default_factory=FaultSchedule)

    @staticmethod
    def from_seed(seed: int) -> SimulationConfig:
        """Draws a configuration.

        Each leaves out some faults, so that the others take effect more often (Groce et al., Swarm Testing,
        ISSTA 2012).
        """
        rng = random.Random(f"plan {seed}")  # the text is part of every recorded seed's history
        kraft = rng.choice((0, 1, 1, 1))
        voters = rng.choice((1, 2, 3, 3, 3, 4, 5, 5))
        change = rng.random() < 0.7 and voters < 5

        def some(share: float, low: float, high: float) -> float:
            return rng.uniform(low, high) if rng.random() < share else 0.0

        return SimulationConfig(
            seed,
            Topology(
                voters=voters,
                spares=rng.choice((0, 1, 2)) if change else 0,
                observers=rng.choice((0, 0, 1, 2)),
                kraft_version=kraft,
                quick_failover=rng.random() < 0.7,
                auto_join=rng.random() < 0.3,
            ),
            NetworkConfig(
                delay_s=rng.choice(((0.0001, 0.001), (0.0001, 0.01), (0.001, 0.1))),
                loss=some(0.4, 0.001, 0.1),
                duplicate=some(0.4, 0.01, 0.2),
                long_delay=some(0.4, 0.005, 0.1),
            ),
            DiskConfig(
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
            FaultSchedule(
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

    def without_faults(self) -> SimulationConfig:
        """Returns this configuration without faults and workload. Clocks keep their skew."""
        network = replace(self.network, loss=0.0, duplicate=0.0, long_delay=0.0)
        return replace(
            self,
            network=network,
            workload=Workload(propose_every_s=0.0),
            faults=FaultSchedule(skew=self.faults.skew),
        )
