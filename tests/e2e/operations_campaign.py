"""Runs the five operations of `quorate` on one cluster under load while they, or the nodes, are killed.

    python -m tests.e2e.operations_campaign --seed 1 --kills 10 --json FILE

The cluster begins with static voters and the features of Kafka 4.0. Its features are upgraded
release by release, its quorum becomes dynamic, its nodes restart one after the other, the disks of
a broker and of the active controller are replaced, and a broker is retired. `--victims command`
ends the command by SIGKILL at random points, `--kills` times in each operation, and runs it again
each time; a run that came to its end first does not count. `--victims nodes` ends nodes instead:
each time when a step was announced and before it is performed, and starts them again some seconds
later. At the end every acknowledged record is read. `--kafka 4.4.0` does the same to three nodes of
Apache Kafka with both roles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from quorate.metadata.features import parse_version
from quorate.protocol.uuids import uuid_text
from tests.e2e.operations import TOPIC, Event, OperatedCluster, Tool
from tests.support.cluster import wait_for

RELEASES = ("4.0", "4.1", "4.2", "4.3", "4.4")
OPERATIONS = ("upgrade", "move-to-dynamic-quorum", "rolling-restart", "replace-disk", "decommission")
COMMANDS = {"upgrade": len(RELEASES) - 1, "replace-disk": 2}
"""Of the operations that are more than one command. The kills are shared among them."""
SESSION_S = 9.0
"""broker.session.timeout.ms: a node that is away for longer is fenced."""


@dataclass
class Outcome:
    """What happened to one operation."""

    operation: str
    runs: int = 0
    kills: list[str] = field(default_factory=list)
    """Where each kill hit: the last step that the command had announced, or the node and the step."""
    refused_or_failed: list[str] = field(default_factory=list)
    """What the runs said that did not end with status 0 (and were not killed)."""
    seconds: float = 0.0
    longest_gap_s: float = 0.0
    """Between two acknowledgements of one partition."""

    def after(self, before: Outcome | None) -> Outcome:
        """Adds what happened to the same operation on an earlier cluster."""
        if before is None:
            return self
        return Outcome(
            self.operation,
            before.runs + self.runs,
            before.kills + self.kills,
            before.refused_or_failed + self.refused_or_failed,
            round(before.seconds + self.seconds, 1),
            max(before.longest_gap_s, self.longest_gap_s),
        )


class Campaign:
    """One cluster, and the operations on it."""

    def __init__(
        self, cluster: OperatedCluster, rng: random.Random, victims: str, kills: int, only: list[str]
    ) -> None:
        self.cluster = cluster
        self.outcomes: list[Outcome] = []
        self._rng, self._victims, self._kills, self._only = rng, victims, kills, only
        self._restarts: list[threading.Timer] = []

    def operations(self) -> Iterator[tuple[str, list[str]]]:
        """The operations in their order. Each is named when the one before has ended."""
        cluster, machines = self.cluster, self.cluster.machines
        newest = (cluster.kafka or RELEASES[-1])[:3]
        for release in RELEASES[1 : RELEASES.index(newest) + 1]:
            yield "upgrade", ["upgrade", "--release-version", release]
        yield "move-to-dynamic-quorum", ["move-to-dynamic-quorum"]
        cluster.use_bootstrap_servers()
        yield "rolling-restart", ["rolling-restart", "--restart-command", machines.command("restart")]
        for node in (cluster.broker_ids[0], cluster.quorum().leader_id):
            command = ["replace-disk", str(node), "--directory-id", cluster.nodes[node].directory_text]
            command += ["--stop-command", machines.command("stop")]
            yield "replace-disk", [*command, "--replace-command", machines.command("replace")]
        command = ["decommission", str(cluster.broker_ids[-1]), "--max-moves", "1"]
        command += ["--throttle", "10000000"]
        yield "decommission", [*command, "--stop-command", machines.command("stop")]

    def run(self, tell: Callable[[str], None]) -> None:
        """Performs all operations. Raises AssertionError if one is not finished, or a record is lost."""
        cluster = self.cluster
        for name, command in self.operations():
            if name not in self._only:
                continue
            if not self.outcomes or self.outcomes[-1].operation != name:
                self.outcomes.append(Outcome(name))
            outcome = self.outcomes[-1]
            cluster.load.forget_gaps()
            began = time.monotonic()
            words = [*command, "-b", cluster.servers, "--yes", "--json", "--timeout", "60"]
            if self._victims == "command":
                self._kill_the_command(words, outcome)
            else:
                self._kill_nodes(words, outcome)
            outcome.seconds = round(outcome.seconds + time.monotonic() - began, 1)
            cluster.load.flows(120)
            outcome.longest_gap_s = max(outcome.longest_gap_s, round(cluster.load.longest_gap_s, 2))
            tell(f"{name}: {outcome.runs} runs, {len(outcome.kills)} kills, {outcome.seconds} s")
        self._check_the_cluster()
        cluster.check()

    # -- the command is killed

    def _kill_the_command(self, words: list[str], outcome: Outcome) -> None:
        """Runs a command to its end. SIGKILL hits it at random points before."""
        kills = -(-self._kills // COMMANDS.get(outcome.operation, 1))
        is_short = outcome.operation in ("upgrade", "move-to-dynamic-quorum")
        killed, has_ended = 0, False
        while killed < kills:
            tool = Tool(*words)
            outcome.runs += 1
            # The one step of a short operation takes milliseconds. Most kills come before, so that
            # it is not done at once.
            is_early = killed < kills - 2 if is_short else self._rng.random() < 0.1
            steps = 0 if is_early or has_ended else 1
            wait_s = self._rng.uniform(0.0, 0.005 if is_short and steps else 0.25)
            is_running = _steps(tool, steps)
            if is_running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    tool.process.wait(wait_s)
            if not is_running or tool.process.poll() is not None:
                words, has_ended = _continuing(words, tool.finish()), True
                continue  # nobody has interrupted it: whoever runs it again finds nothing left to do
            tool.kill()
            killed += 1
            outcome.kills.append(_point(tool.events))
            words = _continuing(words, tool.events)
        outcome.runs += 1
        Tool(*words).finish()

    # -- nodes are killed

    def _kill_nodes(self, words: list[str], outcome: Outcome) -> None:
        """Runs a command to its end. Nodes die when a step was announced, before it is performed."""
        left = self._kills
        while True:
            tool = Tool(*words)
            outcome.runs += 1
            for event in tool:
                may_kill = event["event"] == "step" and not any(t.is_alive() for t in self._restarts)
                if left and may_kill and self._rng.random() < 0.7:
                    left -= 1
                    outcome.kills.append(self._kill_a_node(event))
            if tool.process.wait(120) == 0:
                break
            said = (tool.process.stderr.read() if tool.process.stderr else "").strip()
            refused = [e for e in tool.events if e["event"] == "refused"]
            assert refused or "To continue: " in said or "has not answered" in said, said
            outcome.refused_or_failed.append(json.dumps(refused[-1]["refusals"]) if refused else said)
            assert outcome.runs < 30, outcome
            for timer in self._restarts:
                timer.join()
            words = _continuing(words, tool.events)
        for timer in self._restarts:
            timer.join()

    def _kill_a_node(self, event: Event) -> str:
        """Kills a node that runs, and starts it again later. A retired broker stays away."""
        alive = [n for n in self.cluster.nodes if self.cluster.pid(n) is not None]
        victim = self._rng.choice(alive)
        self.cluster.nodes[victim].kill()
        away_s = self._rng.choice((0.2, 3.0, SESSION_S + 3))
        timer = threading.Timer(away_s, self._start_again, (victim,))
        timer.start()
        self._restarts = [t for t in self._restarts if t.is_alive()] + [timer]
        return f"node {victim} for {away_s:g} s before {event['kind']}" + (
            f" {event['node']}" if "node" in event else ""
        )

    def _start_again(self, node: int) -> None:
        is_retired = self.outcomes[-1].operation == "decommission" and node == self.cluster.broker_ids[-1]
        if self.cluster.pid(node) is None and not (is_retired and self._stopped(node)):
            self.cluster.nodes[node].start(wait=False)

    def _stopped(self, node: int) -> bool:
        return ("stop", node) in self.cluster.machines.calls

    # -- the end

    def _check_the_cluster(self) -> None:
        """Each operation has had its effect."""
        cluster = self.cluster
        leaving = cluster.broker_ids[-1] if "decommission" in self._only else -1
        assert leaving not in [node.id for node in cluster.admin.describe_cluster(fenced=True).nodes]
        wait_for("full ISRs", lambda: self._full_isrs(leaving), 120)
        finalized = cluster.admin.describe_features().finalized
        if "upgrade" in self._only:
            assert finalized["metadata.version"] == parse_version((cluster.kafka or RELEASES[-1])[:3]).level
        if "move-to-dynamic-quorum" in self._only:
            assert finalized["kraft.version"] == 1
            wait_for("all voters", lambda: self._voters_run(leaving), 60)

    def _voters_run(self, leaving: int) -> bool:
        voters = {v.replica_id: uuid_text(v.directory_id) for v in self.cluster.quorum().voters}
        wanted = [n for n in self.cluster.controller_ids if n != leaving]
        return voters == {n: self.cluster.nodes[n].directory_text for n in wanted}

    def _full_isrs(self, leaving: int) -> bool:
        partitions = self.cluster.admin.describe_topics([TOPIC])[TOPIC].partitions
        return all(leaving not in p.replicas and sorted(p.isr) == sorted(p.replicas) for p in partitions)


def _steps(tool: Tool, count: int) -> bool:
    """Reads events until so many steps were announced.

    Whether there were as many before the command ended.
    """
    return not count or any(sum(event["event"] == "step" for event in tool.events) >= count for _ in tool)


def _point(events: list[Event]) -> str:
    """Where a kill has hit: the last step that the command had announced."""
    announced = [e["kind"] for e in events if e["event"] == "step"]
    if announced:
        return f"after {announced[-1]}" if events[-1]["event"] == "done" else str(announced[-1])
    has_finished = any(e["event"] == "plan" and not e["steps"] for e in events)
    return "nothing was left to do" if has_finished else "before the first step"


def _continuing(words: list[str], events: list[Event]) -> list[str]:
    """The command that continues an operation, as it has said itself."""
    told = [e["command"] for e in events if e["event"] == "resume"]
    return shlex.split(told[-1])[1:] if told else words


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", choices=("command", "nodes"), default="command")
    parser.add_argument("--kills", type=int, default=10, help="in each operation (10)")
    parser.add_argument(
        "--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), help="only these operations"
    )
    parser.add_argument("--rounds", type=int, default=1, help="clusters, one after the other (1)")
    parser.add_argument("--kafka", metavar="RELEASE", help="nodes of Apache Kafka instead of ours")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the record to this file")
    args = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    outcomes: dict[str, Outcome] = {}
    rng, acknowledged = random.Random(args.seed), 0
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            cluster = OperatedCluster(
                Path(folder), replicas=2, kafka=args.kafka, release=RELEASES[0], static=True,
                separate_roles=args.kafka is None,
            )  # fmt: skip
            try:
                campaign = Campaign(cluster, rng, args.victims, args.kills, args.only)
                campaign.run(lambda text: print(text, flush=True))
            finally:
                cluster.close()
        acknowledged += cluster.load.acknowledged
        for each in campaign.outcomes:
            outcomes[each.operation] = each.after(outcomes.get(each.operation))
    record = {
        "command": shlex.join(["python", "-m", "tests.e2e.operations_campaign", *sys.argv[1:]]),
        "nodes": len(cluster.nodes),
        "seconds": round(time.monotonic() - began, 1),
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
        "acknowledged": acknowledged,
        "operations": [asdict(outcome) for outcome in outcomes.values()],
    }
    print(f"{acknowledged} records acknowledged, and each read once")
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
