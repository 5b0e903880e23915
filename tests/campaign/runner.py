"""Runs the stages of a campaign as processes, follows their output, and ends them on Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.campaign.stages import ROOT, Figures, Planned, figures_of, replays

PROGRESS_EVERY_S = 30.0
GRACE_S = 900.0
"""How long a stage may take longer than its time: to start, to read everything at the end, to wait for a
recovery on a busy machine."""
INTERRUPTED_GRACE_S = 120.0
"""How long a stage may take to end after Ctrl-C. The check of a history may take a minute."""
_TAIL_BYTES = 64 << 10


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


@dataclass
class Outcome:
    """What became of a stage."""

    name: str
    command: list[str]
    minutes: float
    status: Status = Status.SKIPPED
    reason: str = ""
    """why it was skipped or failed"""
    took_s: float = 0.0
    figures: Figures = field(default_factory=dict)
    replay: list[str] = field(default_factory=list)
    log: str = ""


class Runner:
    """Runs lanes of stages at the same time. The files of the stages are in `folder`."""

    def __init__(
        self,
        lanes: Sequence[Sequence[Planned]],
        seed: int,
        folder: Path,
        say: Callable[[str], None],
        *,
        progress_every_s: float = PROGRESS_EVERY_S,
        grace_s: float = GRACE_S,
        interrupted_grace_s: float = INTERRUPTED_GRACE_S,
    ) -> None:
        self._lanes, self._seed, self._folder, self._say = lanes, seed, folder, say
        self._progress_every_s = progress_every_s
        self._grace_s, self._interrupted_grace_s = grace_s, interrupted_grace_s
        self._interrupted = threading.Event()
        self._outcomes: list[list[Outcome]] = [[] for _ in lanes]

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for lane in self._outcomes for outcome in lane]

    @property
    def interrupted(self) -> bool:
        return self._interrupted.is_set()

    def run(self) -> None:
        """Returns when all stages have ended. After a KeyboardInterrupt, the running ones are ended and the
        others are skipped."""
        ended = [threading.Event() for _ in self._lanes]
        for lane, outcomes, event in zip(self._lanes, self._outcomes, ended, strict=True):
            threading.Thread(target=self._run_lane, args=(lane, outcomes, event)).start()
        while not all(event.is_set() for event in ended):
            try:
                # Not Thread.join: after an interrupted one, a thread counts as ended.
                for event in ended:
                    event.wait()
            except KeyboardInterrupt:
                self._say("interrupted: the stages end")
                self._interrupted.set()

    def _run_lane(self, lane: Sequence[Planned], outcomes: list[Outcome], ended: threading.Event) -> None:
        try:
            self._run_stages(lane, outcomes)
        finally:
            ended.set()

    def _run_stages(self, lane: Sequence[Planned], outcomes: list[Outcome]) -> None:
        for planned in lane:
            stage = planned.stage
            name = re.sub(r"\W+", "-", stage.name)
            record, log = self._folder / f"{name}.json", self._folder / f"{name}.log"
            command = stage.arguments(planned.minutes, self._seed, record)
            outcome = Outcome(stage.name, command, planned.minutes, log=log.name)
            outcomes.append(outcome)
            if self.interrupted:
                outcome.reason = "the campaign was interrupted"
            elif reason := stage.missing():
                outcome.reason = reason
                self._say(f"{stage.name}: skipped: {reason}")
            else:
                try:
                    self._run_stage(outcome, log)
                except OSError as e:
                    outcome.status, outcome.reason = Status.FAILED, str(e)
                outcome.figures = figures_of(stage, record)
                if outcome.status is Status.FAILED:
                    outcome.reason = outcome.reason or str(outcome.figures.get("failure") or "see its log")
                    outcome.replay = list(replays(command, _tail(log)))
                took = f"in {outcome.took_s / 60:.1f} min"
                self._say(": ".join(filter(None, [stage.name, f"{outcome.status} {took}", outcome.reason])))

    def _run_stage(self, outcome: Outcome, log: Path) -> None:
        self._say(f"{outcome.name}: {outcome.minutes:.1f} min")
        started = time.monotonic()
        with log.open("wb") as output:
            # In a session of its own, so that Ctrl-C reaches only the campaign, which ends it.
            process = subprocess.Popen(
                outcome.command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
            try:
                self._follow(outcome, process, log, started)
            finally:
                _end(process, self._interrupted_grace_s)
        outcome.took_s = time.monotonic() - started
        if outcome.reason or process.returncode == 0:
            outcome.status = Status.FAILED if outcome.reason else Status.PASSED
        elif self.interrupted:
            outcome.status = Status.INTERRUPTED
        else:
            outcome.status = Status.FAILED
        if self.interrupted and "\nFAILED: " in f"\n{_tail(log)}":
            outcome.status = Status.FAILED

    def _follow(self, outcome: Outcome, process: subprocess.Popen[bytes], log: Path, started: float) -> None:
        """Waits for the process, and reports its last line from time to time."""
        limit_s = outcome.minutes * 60 + self._grace_s
        reported = started
        while not self._interrupted.wait(0.05):
            if process.poll() is not None:
                return
            now = time.monotonic()
            if now - started > limit_s:
                outcome.reason = f"did not end within {limit_s / 60:.1f} min"
                return
            if now - reported >= self._progress_every_s:
                reported = now
                last = (_tail(log).strip().splitlines() or [""])[-1].strip()
                self._say(
                    f"{outcome.name}: {(now - started) / 60:.1f} of {outcome.minutes:.1f} min: {last[:160]}"
                )


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends a process that runs: as by Ctrl-C, and if that takes too long, with its group."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read().decode(errors="replace")
