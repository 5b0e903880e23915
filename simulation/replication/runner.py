"""Runs the simulations of many seeds, in one process or in several, and replays one seed with its trace."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from simulation.checker.invariants import InvariantError
from simulation.replication.cluster import Cluster, run_cluster
from simulation.replication.config import ReplicationConfig
from simulation.run_report import commit_id
from simulation.seeds import replay_seed, results_of_seeds

EVENTS_PER_SEED = 4000
"""Long enough for a dozen crashes, short enough to replay in a second."""
TRACE_TAIL = 80
_REPORT_INTERVAL_S = 10


@dataclass(slots=True)
class Statistics:
    """Sums over the seeds of a run."""

    seeds: int = 0
    events: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    batches_committed: int = 0
    acknowledged: int = 0
    consumed: int = 0
    leader_changes: int = 0
    isr_changes: int = 0
    truncations: int = 0
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, other: Statistics) -> None:
        for name in self.__slots__:
            if name != "coverage":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.coverage.update(other.coverage)

    @classmethod
    def of(cls, cluster: Cluster, cpu_s: float) -> Statistics:
        checker, clients = cluster.checker, cluster.clients
        return cls(
            1,
            cluster.events,
            cluster.now,
            cpu_s,
            checker.batches_committed,
            clients.acknowledged,
            clients.consumed,
            checker.leader_changes,
            checker.isr_changes,
            checker.truncations,
            Counter({name: count for name, count in cluster.coverage.items() if count}),
        )

    def line(self, first_seed: int, took_s: float) -> str:
        """Returns one line for people."""
        return (
            f"seeds {first_seed}..{first_seed + self.seeds - 1}: {self.events} events in "
            f"{took_s:.1f} s, {self.events / max(self.cpu_s, 1e-9):.0f} a second of processor time; "
            f"{self.virtual_s:.0f} s of virtual time, {self.batches_committed} batches committed, "
            f"{self.acknowledged} acknowledged, {self.leader_changes} changes of leaders, "
            f"{self.isr_changes} of ISRs, {self.truncations} truncations"
        )


def run_seed(seed: int, events: int) -> Statistics:
    """Runs the simulation of one seed. Raises InvariantError with the seed."""
    began = time.process_time()
    cluster = run_cluster(ReplicationConfig.from_seed(seed), events)
    return Statistics.of(cluster, time.process_time() - began)


def run_seeds(
    first_seed: int,
    total_events: int,
    events: int,
    write_line: Callable[[str], None],
    *,
    jobs: int = 1,
    minutes: float | None = None,
    report: Path | None = None,
) -> Statistics:
    """Runs seeds from `first_seed` on until this many events have been run in all or these minutes have
    passed. Raises InvariantError with the seed.
    """
    statistics, started = Statistics(), time.perf_counter()
    reported_at = started
    results = results_of_seeds(partial(run_seed, events=events), first_seed, jobs)
    failure: str | None = None
    try:
        while statistics.events < total_events:
            statistics.add(next(results))
            now = time.perf_counter()
            if minutes is not None and now - started > 60 * minutes:
                break
            if now - reported_at > _REPORT_INTERVAL_S:
                reported_at = now
                write_line(statistics.line(first_seed, now - started))
    except InvariantError as error:
        failure = str(error)
        raise
    finally:
        results.close()
        took_s = time.perf_counter() - started
        write_line(statistics.line(first_seed, took_s))
        if report is not None:
            _keep(report, statistics, first_seed, events, took_s, failure)
    return statistics


def _keep(
    report: Path, statistics: Statistics, first_seed: int, events: int, took_s: float, failure: str | None
) -> None:
    """Adds the statistics of a run to a JSON file, under the level "replication"."""
    runs = json.loads(report.read_text()) if report.exists() else {}
    runs.setdefault("replication", []).append(
        {
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit_id(),
            "load_average": [round(x, 1) for x in os.getloadavg()],
            "first_seed": first_seed,
            "events_each": events,
            "seconds": round(took_s, 1),
            "failure": failure,
            **{name: getattr(statistics, name) for name in statistics.__slots__ if name != "coverage"},
            "coverage": dict(sorted(statistics.coverage.items())),
        }
    )
    report.write_text(json.dumps(runs, indent=1) + "\n")


def replay(seed: int, events: int, write_line: Callable[[str], None], lines: int = TRACE_TAIL) -> bool:
    """Runs one seed and writes its configuration and the end of its trace.

    Returns whether all invariants held.
    """
    config = ReplicationConfig.from_seed(seed)
    return replay_seed(config, partial(run_cluster, config, events), write_line, lines)
