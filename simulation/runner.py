"""Runs the simulations of many seeds, in one process or in several, and replays one seed with its trace."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from simulation.actions.run import run_simulation
from simulation.checker.invariants import InvariantError
from simulation.config import SimulationConfig
from simulation.core.world import World
from simulation.nodes.cluster import run_cluster
from simulation.run_report import RunReport
from simulation.run_statistics import RunStatistics

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


def disable_logging() -> None:
    """Disables logging: nodes log as in production, and no one reads these lines."""
    logging.disable(logging.CRITICAL)


def _run_in_processes(
    level: str, first_seed: int, events_per_seed: int, jobs: int
) -> Generator[RunStatistics, None, None]:
    """Runs seeds from `first_seed` on, without end, in this many processes. Raises InvariantError."""
    seed = first_seed
    with ProcessPoolExecutor(jobs, initializer=disable_logging) as pool:
        running: set[Future[RunStatistics]] = set()
        try:
            while True:
                while len(running) < 2 * jobs:
                    running.add(pool.submit(run_seed, level, seed, events_per_seed))
                    seed += 1
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def run_seeds(
    level: str,
    first_seed: int,
    events: int,
    events_per_seed: int,
    write_line: Callable[[str], None],
    jobs: int = 1,
    run_report: RunReport | None = None,
) -> RunStatistics:
    """Runs seeds from `first_seed` on until this many events have been run in all, and reports progress.

    Raises InvariantError with the seed.
    """
    statistics, started, reported_at = RunStatistics(), time.perf_counter(), time.perf_counter()

    def report_progress(failure: str | None = None) -> None:
        took_s = time.perf_counter() - started
        write_line(statistics.line(first_seed, took_s))
        if run_report is not None:
            run_report.write(statistics, took_s, failure)

    results = _run_in_processes(level, first_seed, events_per_seed, jobs) if jobs > 1 else None
    while statistics.events < events:
        try:
            if results is not None:
                statistics.add(next(results))
            else:
                statistics.add(run_seed(level, first_seed + statistics.seeds, events_per_seed))
        except InvariantError as e:
            report_progress(str(e))
            raise
        if time.perf_counter() - reported_at > REPORT_INTERVAL_S:
            reported_at = time.perf_counter()
            report_progress()
    if results is not None:
        results.close()
    report_progress()
    return statistics


def replay(level: str, seed: int, events_per_seed: int, write_line: Callable[[str], None]) -> bool:
    """Runs one seed and writes its configuration and the end of its trace.

    Returns whether all invariants held.
    """
    trace: deque[str] = deque(maxlen=TRACE_TAIL)
    config = SimulationConfig.from_seed(seed)
    write_line(str(config))
    failure: InvariantError | None = None
    try:
        LEVELS[level](config, events_per_seed, RunStatistics(), trace.append)
    except InvariantError as e:
        failure = e
    for line in trace:
        write_line(line)
    if failure is not None:
        write_line(f"FAILED: {failure}")
    return failure is None
