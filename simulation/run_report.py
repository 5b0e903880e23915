"""The statistics of long runs, in a JSON file that is kept: a list of runs for each level."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from simulation.run_statistics import RunStatistics


def commit_id() -> str:
    """Returns the commit of the running source, with a mark if files differ from it.

    Empty outside of a repository.
    """
    here = Path(__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


class RunReport:
    """One run, added to the runs that the file has already."""

    def __init__(self, path: Path, level: str, command: str, first_seed: int) -> None:
        self._path = path
        self._runs: dict[str, list[Any]] = json.loads(path.read_text()) if path.exists() else {}
        self._run: dict[str, Any] = {
            "command": command,
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit_id(),
            "machine": {
                "cpus": os.cpu_count(),
                "system": platform.platform(),
                "python": platform.python_version(),
            },
            "niceness": os.nice(0),
        }
        self._first_seed = first_seed
        self._runs.setdefault(level, []).append(self._run)

    def write(self, statistics: RunStatistics, took_s: float, failure: str | None = None) -> None:
        """Writes the run as far as it has come, over what was written of it before. Raises OSError."""
        self._run.update(
            load_average=[round(x, 1) for x in os.getloadavg()],
            seeds=[self._first_seed, self._first_seed + statistics.seeds - 1],
            failure=failure,
            events=statistics.events,
            seconds=round(took_s, 1),
            processor_seconds=round(statistics.cpu_s, 1),
            events_a_second=round(statistics.events / took_s),
            events_a_processor_second=round(statistics.events / max(statistics.cpu_s, 1e-9)),
            virtual_seconds=round(statistics.virtual_s),
            elections=statistics.elections,
            truncations=statistics.truncations,
            voter_changes=statistics.voter_changes,
            records_committed=statistics.commits,
            coverage=dict(sorted(statistics.coverage.items())),
        )
        self._path.write_text(json.dumps(self._runs, indent=1) + "\n")
