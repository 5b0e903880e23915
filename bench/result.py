"""What every result file says of itself: of which probe, when, from which commit, on which machine."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent


def heading(probe: str, rounds: int) -> dict[str, object]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "probe": probe,
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "machine": {
            "cpus": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "rounds": rounds,
    }


def single_run(probe: str, partitions: int, figures: Mapping[str, float]) -> dict[str, object]:
    """The result of one run on a metadata image of so many partitions, in the shape of a run with rounds."""
    return {
        **heading(probe, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "partitions": partitions,
        "figures": {"quorate": {k: {"median": v, "min": v, "max": v, "runs": 1} for k, v in figures.items()}},
    }
