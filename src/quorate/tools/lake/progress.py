"""Shows on a terminal how far Spark is with the current jobs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERVAL_S = 0.5
_ERASE = "\r\x1b[K"


class Progress:
    """One line: how long the command has run, its current step, and the tasks of the current stages."""

    def __init__(self, spark: SparkSession, out: TextIO) -> None:
        self._spark = spark
        self._out = out
        self._begin = time.monotonic()
        self._step = ""

    def step(self, name: str) -> None:
        """Names the current step."""
        self._step = name

    def line(self) -> str:
        """The text of the line."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done, every = (
            sum([stage.numCompletedTasks for stage in known]),
            sum([stage.numTasks for stage in known]),
        )
        parts = [
            f"{time.monotonic() - self._begin:.0f} s",
            self._step,
            f"{done} of {every} tasks" if every else "",
        ]
        return "  ".join([part for part in parts if part])

    def follow(self, ended: threading.Event) -> None:
        """Writes the line again and again until the event is set, and erases it then."""
        while not ended.wait(_INTERVAL_S):
            self._out.write(_ERASE + self.line())
            self._out.flush()
        self._out.write(_ERASE)
        self._out.flush()


@contextmanager
def shown(spark: SparkSession, out: TextIO | None = None) -> Iterator[Progress]:
    """Shows the progress on stderr as long as the block runs, if stderr is a terminal."""
    found = Progress(spark, out or sys.stderr)
    if not (out or sys.stderr).isatty():
        yield found
        return
    ended = threading.Event()
    thread = threading.Thread(target=found.follow, args=(ended,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
