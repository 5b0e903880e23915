"""What a long simulation has run, as a JSON file that is kept: runs by level."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.simulate import Tally


def commit_id() -> str:
    """Of the source that runs, marked where it is not as committed; empty outside of a repository."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


class Record:
    """One run, in the file as far as it has come."""

    def __init__(self, path: Path, level: str, command: str, first: int) -> None:
        self._path = path
        self._runs: dict[str, list[Any]] = json.loads(path.read_text()) if path.exists() else {}
        self._run: dict[str, Any] = {
            "command": command,
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit_id(),
            "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
            "niceness": os.nice(0),
        }
        self._first = first
        self._runs.setdefault(level, []).append(self._run)

    def write(self, tally: Tally, took_s: float, failure: str | None = None) -> None:
        """Raises OSError."""
        self._run.update(
            load_average=[round(x, 1) for x in os.getloadavg()],
            seeds=[self._first, self._first + tally.seeds - 1],
            failure=failure,
            events=tally.events,
            seconds=round(took_s, 1),
            processor_seconds=round(tally.cpu_s, 1),
            events_a_second=round(tally.events / took_s),
            events_a_processor_second=round(tally.events / max(tally.cpu_s, 1e-9)),
            virtual_seconds=round(tally.virtual_s),
            elections=tally.elections,
            truncations=tally.truncations,
            voter_changes=tally.set_changes,
            records_committed=tally.commits,
            happened=dict(sorted(tally.happened.items())),
        )
        self._path.write_text(json.dumps(self._runs, indent=1) + "\n")
