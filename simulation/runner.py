"""Runs the simulations of many seeds, in one process or in several, and replays one seed with its trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from simulation.actions.run import run_simulation
from simulation.checker.invariants import InvariantError
from simulation.config import SimulationConfig
from simulation.core.world import World
from simulation.nodes.cluster import run_cluster
from simulation.run_report import RunReport
from simulation.run_statistics import RunStatistics
from simulation.seeds import replay_seed, results_of_seeds

EVENTS_PER_SEED = 8000  # long enough for a dozen elections, short enough to replay in a second
TRACE_TAIL = 60  # lines of the trace that a replay prints
REPORT_INTERVAL_S = 10

TraceSink = Callable[[str], None] | None
Simulation = Callable[[SimulationConfig, int, RunStatistics, TraceSink], None]


def simulate_core(
    config: SimulationConfig, events: int, statistics: RunStatistics, trace_sink: TraceSink
) -> None:
    """Runs one quorum of pure cores. Raises InvariantError."""
    world = World(config, trace_sink)
    try:
        run_simulation(world, events)
    finally:
        statistics.add_simulation(world.checker, world.events, world.now)


def simulate_nodes(
    config: SimulationConfig, events: int, statistics: RunStatistics, trace_sink: TraceSink
) -> None:
    """Runs one cluster of complete Raft clients. Raises InvariantError."""
    cluster = run_cluster(config, events, trace_sink)
    statistics.add_simulation(cluster.checker, cluster.events, cluster.now)


LEVELS: dict[str, Simulation] = {"core": simulate_core, "node": simulate_nodes}


def run_seed(level: str, seed: int, events_per_seed: int) -> RunStatistics:
    """Runs the simulation of one seed. Raises InvariantError with the seed."""
    statistics, began = RunStatistics(), time.process_time()
    LEVELS[level](SimulationConfig.from_seed(seed), events_per_seed, statistics, None)
    statistics.cpu_s = time.process_time() - began
    return statistics


def run_seeds(
    level: str,
    first_seed: int,
    events: int,
    events_per_seed: int,
    write_line: Callable[[str], None],
    jobs: int = 1,
    run_report: RunReport | None = None,
    minutes: float | None = None,
) -> RunStatistics:
    """Runs seeds from `first_seed` on until this many events have been run in all or this time has passed,
    and reports progress.

    Raises InvariantError with the seed.
    """
    statistics, started, reported_at = RunStatistics(), time.perf_counter(), time.perf_counter()

    def report_progress(failure: str | None = None) -> None:
        took_s = time.perf_counter() - started
        write_line(statistics.line(first_seed, took_s))
        if run_report is not None:
            run_report.write(statistics, took_s, failure)

    run_one = partial(run_seed, level, events_per_seed=events_per_seed)
    results = results_of_seeds(run_one, first_seed, jobs)
    while statistics.events < events and (minutes is None or time.perf_counter() - started < minutes * 60):
        try:
            statistics.add(next(results))
        except InvariantError as e:
            report_progress(str(e))
            raise
        if time.perf_counter() - reported_at > REPORT_INTERVAL_S:
            reported_at = time.perf_counter()
            report_progress()
    results.close()
    report_progress()
    return statistics


def replay(level: str, seed: int, events_per_seed: int, write_line: Callable[[str], None]) -> bool:
    """Runs one seed and writes its configuration and the end of its trace.

    Returns whether all invariants held.
    """
    config = SimulationConfig.from_seed(seed)

    def run(trace_sink: Callable[[str], None]) -> None:
        LEVELS[level](config, events_per_seed, RunStatistics(), trace_sink)

    return replay_seed(config, run, write_line, TRACE_TAIL)
