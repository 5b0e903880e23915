"""Runs seed after seed, in this process or in several, and replays one seed with its trace."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from simulation.checker.invariants import InvariantError

T = TypeVar("T")


def disable_logging() -> None:
    """Disables logging: nodes log as in production, and no one reads these lines."""
    logging.disable(logging.CRITICAL)


def results_of_seeds(run_seed: Callable[[int], T], first_seed: int, jobs: int) -> Generator[T, None, None]:
    """Yields the results of `run_seed` for the seeds from `first_seed` on, without end. With several jobs,
    they run in processes and are yielded as they end. Raises what `run_seed` raises."""
    seed = first_seed
    if jobs <= 1:
        while True:
            yield run_seed(seed)
            seed += 1
    with ProcessPoolExecutor(jobs, initializer=disable_logging) as pool:
        running: set[Future[T]] = set()
        try:
            while True:
                while len(running) < 2 * jobs:
                    running.add(pool.submit(run_seed, seed))
                    seed += 1
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def replay_seed(
    config: object,
    run: Callable[[Callable[[str], None]], object],
    write_line: Callable[[str], None],
    lines: int,
) -> bool:
    """Calls `run` with a function that takes its trace. Writes the configuration and the last lines of the
    trace.

    Returns whether all invariants held.
    """
    trace: deque[str] = deque(maxlen=lines)
    write_line(str(config))
    failure: InvariantError | None = None
    try:
        run(trace.append)
    except InvariantError as error:
        failure = error
    for line in trace:
        write_line(line)
    if failure is not None:
        write_line(f"FAILED: {failure}")
    return failure is None


@contextmanager
def naming_violations(seed: int, moment: Callable[[], tuple[int, float]]) -> Iterator[None]:
    """Adds the seed, and the event and the virtual time that `moment` returns, to an InvariantError that the
    block raises."""
    try:
        yield
    except InvariantError as error:
        if str(error).startswith("seed "):
            raise
        event, now = moment()
        raise InvariantError(f"seed {seed}, event {event}, {now:.6f} s: {error}") from error
