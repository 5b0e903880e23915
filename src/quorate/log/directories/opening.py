"""Opens the logs of a directory in several threads (`num.recovery.threads.per.data.dir`).

The threads wait for the disk at the same time, and the system copies the file of one log while another one's
batches are checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_AHEAD = 4
"""How many results for each thread may wait for the caller. It bounds the memory if the caller is slow."""

T = TypeVar("T")
R = TypeVar("R")


def map_in_order(function: Callable[[T], R], items: Sequence[T], threads: int) -> Generator[R, None, None]:
    """Yields the results of `function` in the order of the items, while threads compute those of later items.
    If `threads` is 1, the caller's thread computes them.

    An exception of a call is raised in its turn. After that, and when the iterator is closed, calls that
    have not begun are not made, and those that run are waited for. Their results are lost.
    """
    if threads == 1:
        for item in items:
            yield function(item)
        return
    running: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="quorate-log-recovery") as pool:
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) > _AHEAD * threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
