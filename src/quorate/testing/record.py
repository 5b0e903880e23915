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
    from quorate.testing.simulate import Tally


def commit_id() -> str:
    """Of the source that runs, marked where it is not as committed; empty outside of a repository."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def write_record(path: Path, level: str, tally: Tally, first: int, events: int, each: int, jobs: int, took_s: float) -> None:
    """Adds this run to the file. Raises OSError."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    options = f"--level {level} --seed {first} --events {events} --each {each} --jobs {jobs}"
    run = {
        "command": f"python -m quorate.testing.simulate {options}",
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit_id(),
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "load_average": [round(x, 1) for x in os.getloadavg()],
        "niceness": os.nice(0),
        "seeds": [first, first + tally.seeds - 1],
        "failures": 0,
        "events": tally.events,
        "seconds": round(took_s, 1),
        "processor_seconds": round(tally.cpu_s, 1),
        "events_a_second": round(tally.events / took_s),
        "events_a_processor_second": round(tally.events / tally.cpu_s),
        "virtual_seconds": round(tally.virtual_s),
        "elections": tally.elections,
        "truncations": tally.truncations,
        "voter_changes": tally.set_changes,
        "records_committed": tally.commits,
        "happened": dict(sorted(tally.happened.items())),
    }
    known.setdefault(level, []).append(run)
    path.write_text(json.dumps(known, indent=1) + "\n")
