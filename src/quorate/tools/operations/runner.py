"""Shows the plan of an operation, asks, and performs one step after the other.

After each step the cluster is described and the operation planned again. Only the first step of a plan is
ever performed. So what the runner does next never depends on what it has done before, but on the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.tools.command_line import ToolError
from quorate.tools.confirmation import NOBODY_ASKED, confirm
from quorate.tools.operations.description import Cluster, counted
from quorate.tools.operations.observer import Observer
from quorate.tools.operations.plan import OperationPlan, Planner, Progress, Step
from quorate.tools.quorum.leader_wait import with_leader

POLL_MS = 500
"""How long a Fetch waits for a change. The followers of the quorum are looked at as often."""

_PASSING = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Errors after which the cluster is described and the step planned again: it may have been done."""


class Operation(Planner, Protocol):
    """A planner whose steps can be performed."""

    async def perform(self, step: Step, cluster: Cluster, progress: Progress, observer: Observer) -> None: ...


class Reporter:
    """Prints what happens: lines for people, or with `--json` one JSON object in each line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def event(self, name: str, text: str, /, **members: object) -> None:
        print(json.dumps({"event": name, **members}) if self._as_json else text, flush=True)

    def plan(self, operation: Operation, cluster: Cluster, plan: OperationPlan) -> None:
        if self._as_json:
            self.event("plan", "", title=operation.title, clusterId=cluster.cluster_id, **plan.members)
            return
        print(f"{operation.title} (cluster {cluster.cluster_id})")
        for number, step in enumerate(plan.steps, 1):
            print(f"  {number:>2}. {step.text}" + (f" ({step.detail})" if step.detail else ""))
        for note in plan.notes:
            print(f"  Note: {note}.")
        sys.stdout.flush()

    def refused(self, plan: OperationPlan) -> None:
        if self._as_json:
            self.event("refused", "", refusals=[refusal.members for refusal in plan.refusals])
            return
        print(f"Refused for {counted(len(plan.refusals), 'reason')}:")
        for refusal in plan.refusals:
            print(f"  - {refusal.reason}.\n    To continue: {refusal.remedy}.")
        sys.stdout.flush()


async def run_operation(
    args: argparse.Namespace, prepare: Callable[[Observer, Cluster], Awaitable[Operation]]
) -> int:
    """Runs an operation that `prepare` creates for the cluster. Returns the exit status."""
    reporter = Reporter(as_json=args.json)
    async with Observer(args, args.timeout) as observer:
        cluster = await with_leader(
            await observer.bootstrap(),
            args,
            observer.start(),
            report=lambda text: print(
                f"{text}\nWaiting for a leader, for {args.timeout:g} s at most.", file=sys.stderr, flush=True
            ),
        )
        operation = await prepare(observer, cluster)
        cluster = await observer.observe()  # the preparation may have learnt more
        progress = Progress()
        plan = operation.plan(cluster, progress)
        reporter.plan(operation, cluster, plan)
        if plan.refusals:
            reporter.refused(plan)
            return 1
        if not plan.steps:
            reporter.event("done", "Nothing is left to do.", notes=list(plan.notes))
            return 0
        if args.dry_run:
            return 0
        _confirm(args)
        try:
            return await _Run(args, operation, observer, reporter, progress).run(cluster)
        except (ToolError, KafkaError, NetError) as error:
            text = str(error) if isinstance(error, ToolError) else error_text(error)
            raise ToolError(f"{text}\nTo continue: {again(args, operation)}") from error


def again(args: argparse.Namespace, operation: Planner) -> str:
    """The command that continues the operation."""
    words = ["quorate", *args.argv]
    for option, value in operation.again.items():
        if not any(word == option or word.startswith(f"{option}=") for word in words):
            words += [option, value]
    return shlex.join(words)


def _confirm(args: argparse.Namespace) -> None:
    """Asks on a terminal. Raises ToolError if the answer is no, or if nobody can be asked."""
    if args.yes:
        return
    if args.json:
        raise ToolError(NOBODY_ASKED)
    confirm()


class _Run:
    """The performance of one operation, to its end."""

    def __init__(
        self,
        args: argparse.Namespace,
        operation: Operation,
        observer: Observer,
        reporter: Reporter,
        progress: Progress,
    ) -> None:
        self._args = args
        self._operation = operation
        self._observer = observer
        self._reporter = reporter
        self._progress = progress
        self._shown: tuple[str, str, int | None] | None = None
        self._shown_detail = ""
        self._changed_s = 0.0
        """When the first step of the plan, or its detail, was last another one."""

    async def run(self, cluster: Cluster) -> int:
        words = self._operation.again
        if words:
            self._reporter.event(
                "resume",
                f"After an interruption, this continues: {again(self._args, self._operation)}",
                command=again(self._args, self._operation),
            )
        loop = asyncio.get_running_loop()
        self._changed_s = loop.time()
        while True:
            plan = self._operation.plan(cluster, self._progress)
            if not plan.steps and not plan.refusals:
                notes = [f"\n  Note: {note}." for note in plan.notes]
                self._reporter.event("done", "Done." + "".join(notes), notes=list(plan.notes))
                return 0
            step = _blocked(plan) if plan.refusals else plan.steps[0]
            self._show(step)
            if step.waits:
                self._check_patience(step)
                cluster = await self._observer.observe(POLL_MS)
                continue
            pause_ms = 0
            try:
                await self._operation.perform(step, cluster, self._progress, self._observer)
            except (KafkaError, NetError) as error:
                if isinstance(error, KafkaError) and error.code not in _PASSING:
                    raise
                self._check_patience(step, error)
                pause_ms = POLL_MS
            cluster = await self._observer.observe(pause_ms)

    def _show(self, step: Step) -> None:
        """Prints a step when it is another one than before, or its detail has changed."""
        key = step.kind, step.text, step.node
        if key == self._shown and step.detail == self._shown_detail:
            return
        self._changed_s = asyncio.get_running_loop().time()
        if key != self._shown:
            text = step.text[:1].upper() + step.text[1:]
            self._reporter.event("step", text + (f" ({step.detail})" if step.detail else ""), **step.members)
        else:
            self._reporter.event("progress", f"  {step.detail or 'waiting'}", **step.members)
        self._shown, self._shown_detail = key, step.detail

    def _check_patience(self, step: Step, error: Exception | None = None) -> None:
        """Raises ToolError if nothing has changed for longer than --timeout."""
        waited_s = asyncio.get_running_loop().time() - self._changed_s
        unlimited = step.unlimited or (step.by_user and not self._args.yes)
        if waited_s > self._args.timeout and not unlimited:
            why = (
                f": {error_text(error)}" if error is not None else f" ({step.detail})" if step.detail else ""
            )
            raise ToolError(
                f"No change for {self._args.timeout:g} s while this was to be done: {step.text}{why}"
            )


def _blocked(plan: OperationPlan) -> Step:
    """The step that waits while a plan that has begun is refused. A node may be away for a moment only."""
    reasons = "; ".join(f"{refusal.reason} (to continue: {refusal.remedy})" for refusal in plan.refusals)
    return Step("blocked", "wait until nothing blocks any more", waits=True, detail=reasons)
