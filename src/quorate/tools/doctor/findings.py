"""A finding of `quorate doctor`: what is wrong, where, and how it is mended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from pathlib import Path

from quorate.dataclass import dataclass


class Severity(IntEnum):
    """How bad a finding is."""

    NOTE = 0
    """Nothing is wrong. The operator may want to know it."""
    WARNING = 1
    """The node starts, but probably not as the operator intends, or it does more work than necessary."""
    ERROR = 2
    """The node does not start, or data is lost or damaged."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    `correction` has the values of keys of the properties file that mend it, None for a key to be removed.
    `kafka` is what Apache Kafka does or prints because of it, empty where it says nothing. `fix` is what
    `--fix` may do without a risk, None where the operator has to decide.
    """

    severity: Severity
    code: str
    """A stable name of the kind of finding."""
    path: Path
    text: str
    """What is wrong, with the value."""
    remedy: str = ""
    key: str = ""
    """The key of a properties file."""
    line: int = 0
    """The line of a properties file, 0 if the finding has none."""
    correction: Mapping[str, str | None] = field(default_factory=dict)
    kafka: str = ""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Moves a file or directory that the next start would delete into the backup."""

    path: Path
    directory: Path
    """Its log directory."""

    def __str__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class ReplaceLines:
    """Replaces lines of a properties file, each by at most one other line. None removes it."""

    path: Path
    lines: Mapping[int, str | None]

    def __str__(self) -> str:
        return "\n".join(
            f"{self.path}, line {number}: " + ("remove it" if text is None else text)
            for number, text in sorted(self.lines.items())
        )


Fix = RemoveFile | ReplaceLines


def exit_status(findings: Iterable[Finding]) -> int:
    """0 if nothing is wrong, 1 if there are warnings, 2 if there are errors."""
    return max((int(finding.severity) for finding in findings), default=0)
