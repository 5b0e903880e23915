"""The report of a campaign: what ran, on which code and machine, and how to repeat a failure."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.campaign.runner import Outcome, Status
from tests.campaign.stages import ROOT


def report(
    outcomes: Sequence[Outcome], *, seed: int, minutes: float, started: str, interrupted: bool
) -> dict[str, Any]:
    """Returns the report as JSON values."""
    failed = [outcome.name for outcome in outcomes if outcome.status is Status.FAILED]
    return {
        "command": f"make campaign MINUTES={minutes:g} SEED={seed}",
        "result": "failed" if failed else "interrupted" if interrupted else "passed",
        "failed": failed,
        "started": started,
        "seed": seed,
        "minutes": minutes,
        "versions": versions(),
        "machine": machine(),
        "stages": [asdict(outcome) for outcome in outcomes],
    }


def versions() -> dict[str, str]:
    """Returns the versions of what took part."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = {"commit": commit.stdout.strip(), "python": platform.python_version()}
    for package in ("quorate", "confluent-kafka"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    jars = sorted(path.name for path in (ROOT / ".cache").glob("kafka-*") if path.is_dir())
    if jars:
        found["Apache Kafka"] = ", ".join(name.removeprefix("kafka-") for name in jars)
    return found


def machine() -> dict[str, Any]:
    memory = re.search(r"^MemTotal:\s+(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    processor = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "processor": processor[1] if processor else platform.processor(),
        "memory_gb": round(int(memory[1]) / 2**20, 1) if memory else None,
        "load_average": [round(x, 1) for x in os.getloadavg()],
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def markdown(document: dict[str, Any]) -> str:
    """Returns the report for people."""
    lines = [
        f"# Campaign of {document['started']}: {document['result']}",
        "",
        f"`{document['command']}`",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in document["versions"].items()),
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in document["machine"].items()),
        "",
        "| stage | result | minutes | seeds | events | faults |",
        "|---|---|---|---|---|---|",
    ]
    for stage in document["stages"]:
        figures = stage["figures"]
        cells = [
            stage["name"],
            stage["status"],
            f"{stage['took_s'] / 60:.1f}",
            *(_shown(figures.get(name, "")) for name in ("seeds", "events", "faults")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for stage in document["stages"]:
        if not stage["reason"]:
            continue
        lines += ["", f"## {stage['name']}: {stage['status']}", "", "```", stage["reason"], "```"]
        if stage["replay"]:
            lines += ["", "Replay:", "", "```", *stage["replay"], "```"]
        if stage["status"] != Status.SKIPPED:
            lines += ["", f"Its output is in `{stage['log']}`."]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
