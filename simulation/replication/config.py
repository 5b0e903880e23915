"""The configuration of one simulation of brokers: topology, network, disks, workload and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

LARGE_EVERY = 250
"""One seed of this many is a large cluster. It takes as long as a dozen others."""

Span = tuple[float, float]
"""A shortest and a longest time, in seconds."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The brokers and their topics."""

    brokers: int = 3
    directories: int = 1
    topics: int = 2
    partitions: int = 1
    replicas: int = 3
    min_isr: int = 2
    elr: bool = True
    unclean_elections: bool = False
    lag_max_s: float = 3.0


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """How messages travel. A message that is lost takes its connection with it, as TCP does."""

    delay_s: Span = (0.0002, 0.002)
    long_delay: float = 0.0
    long_delay_s: Span = (0.05, 2.0)
    reset: float = 0.0
    metadata_delay_s: Span = (0.001, 0.02)
    slow_metadata: float = 0.0
    slow_metadata_s: Span = (0.1, 4.0)


@dataclass(frozen=True, slots=True)
class Workload:
    """The mean intervals of what clients and operators do, in seconds. 0 means never."""

    producers: int = 2
    unsafe_producers: int = 1
    consumers: int = 1
    consumers_of_replicas: int = 1
    produce_every_s: float = 0.05
    delete_records_every_s: float = 0.0
    recreate_topic_every_s: float = 0.0
    reassign_every_s: float = 0.0
    cancel_every_s: float = 0.0
    elect_every_s: float = 0.0
    unclean_elect_every_s: float = 0.0
    shutdown_every_s: float = 0.0
    move_directory_every_s: float = 0.0
    retention_bytes: int = -1


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """The mean intervals of faults, in seconds. 0 means never."""

    crash_every_s: float = 0.0
    power: float = 0.0
    mid_step: float = 0.0
    cut_every_s: float = 0.0
    pause_every_s: float = 0.0
    bad_disk_every_s: float = 0.0
    new_disk_every_s: float = 0.0
    old_disk_every_s: float = 0.0
    new_controller_every_s: float = 0.0
    down_s: Span = (0.05, 8.0)
    cut_s: Span = (0.1, 8.0)
    pause_s: Span = (0.05, 4.0)


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Determines a simulation."""

    seed: int = 0
    topology: Topology = field(default_factory=Topology)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    workload: Workload = field(default_factory=Workload)
    faults: FaultSchedule = field(default_factory=FaultSchedule)

    @classmethod
    def from_seed(cls, seed: int) -> ReplicationConfig:
        """Draws a configuration. Some faults are left out of each, so that the others take effect more
        often (swarm testing)."""
        rng = random.Random(f"replication {seed}")
        drawn = cls._draw(seed, rng)
        if seed % LARGE_EVERY != LARGE_EVERY - 1:
            return drawn
        topology = replace(drawn.topology, brokers=rng.choice((20, 50, 95)), topics=6, partitions=8)
        return replace(drawn, topology=topology)

    @property
    def events_factor(self) -> int:
        """How many more events than a small cluster this one needs for the same virtual time."""
        return max(1, self.topology.brokers // 5)

    @classmethod
    def _draw(cls, seed: int, rng: random.Random) -> ReplicationConfig:
        """Draws a small cluster."""

        def some(share: float, low: float, high: float) -> float:
            return rng.uniform(low, high) if rng.random() < share else 0.0

        brokers = rng.choice((2, 3, 3, 3, 4, 5))
        replicas = min(brokers, rng.choice((2, 3, 3, 3, 4)))
        unclean = rng.random() < 0.1
        return cls(
            seed,
            Topology(
                brokers=brokers,
                directories=rng.choice((1, 1, 2)),
                topics=rng.choice((1, 2, 3)),
                partitions=rng.choice((1, 1, 2)),
                replicas=replicas,
                min_isr=rng.choice((1, 2, 2, 2)) if replicas == 2 else rng.choice((1, 2, 2, 2, 3)),
                elr=rng.random() < 0.75,
                unclean_elections=unclean,
                lag_max_s=rng.choice((1.0, 3.0, 8.0)),
            ),
            NetworkConfig(
                delay_s=rng.choice(((0.0001, 0.001), (0.0001, 0.01), (0.001, 0.1))),
                long_delay=some(0.4, 0.005, 0.1),
                reset=some(0.4, 0.0005, 0.02),
                metadata_delay_s=rng.choice(((0.0005, 0.005), (0.001, 0.1))),
                slow_metadata=some(0.5, 0.01, 0.2),
            ),
            Workload(
                producers=rng.choice((1, 2, 3)),
                unsafe_producers=rng.choice((0, 1, 1)),
                consumers=rng.choice((1, 1, 2)),
                # Not from `rng`: the other values of a seed stay as they were.
                consumers_of_replicas=random.Random(f"consumers of replicas {seed}").choice((0, 0, 1)),
                produce_every_s=rng.choice((0.02, 0.1, 0.4)),
                delete_records_every_s=some(0.4, 0.5, 5.0),
                recreate_topic_every_s=some(0.3, 2.0, 20.0),
                reassign_every_s=some(0.5, 1.0, 10.0),
                cancel_every_s=some(0.5, 1.0, 10.0),
                elect_every_s=some(0.5, 1.0, 10.0),
                unclean_elect_every_s=some(0.5, 2.0, 10.0) if unclean else 0.0,
                shutdown_every_s=some(0.4, 3.0, 15.0),
                # Not from `rng` either.
                move_directory_every_s=random.Random(f"moves {seed}").choice((0.0, 0.3, 2.0)),
                retention_bytes=rng.choice((-1, -1, 3000, 20_000)),
            ),
            FaultSchedule(
                crash_every_s=some(0.7, 1.0, 10.0),
                power=rng.choice((0.0, 0.3, 1.0)),
                mid_step=rng.choice((0.0, 0.3)),
                cut_every_s=some(0.6, 0.5, 8.0),
                pause_every_s=some(0.4, 1.0, 8.0),
                bad_disk_every_s=some(0.2, 5.0, 20.0),
                new_disk_every_s=some(0.2, 5.0, 20.0),
                old_disk_every_s=some(0.15, 5.0, 20.0),
                new_controller_every_s=some(0.4, 2.0, 15.0),
            ),
        )

    def without_faults(self) -> ReplicationConfig:
        """Returns this configuration without faults and without work of clients and operators."""
        network = replace(self.network, long_delay=0.0, reset=0.0, slow_metadata=0.0)
        return replace(
            self,
            network=network,
            workload=Workload(retention_bytes=self.workload.retention_bytes),
            faults=FaultSchedule(),
        )
