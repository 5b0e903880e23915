"""The cluster of the soak: three controllers that change their implementation, a broker of each
implementation, and the faults."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.admin.types import QuorumInfo
from tests.support import java
from tests.support.cluster import BIN, CLUSTER_ID
from tests.support.mixed import TOOLS, MixedNode, MixedQuorum

SMALL: dict[str, object] = {  # several snapshots and cleaned segments in each period of the soak
    "metadata.log.max.record.bytes.between.snapshots": 200_000,
    "internal.metadata.log.segment.bytes": 400_000,
    "metadata.max.retention.bytes": 4_000_000,
}
CAUGHT_UP_RECORDS = 100
"""Of lag, while the load goes on: what comes in half a second."""


@dataclass(slots=True)
class Fault:
    """One fault of one controller, and its effect."""

    at_s: float
    what: str  # kill, shutdown, swap
    role: str  # leader, follower
    victim: str  # quorate, java
    quorum: str  # the implementations of controllers 1, 2, 3 when it happened: "qjq"
    start: float  # monotonic
    new_leader: str = ""  # the implementation that leads afterwards
    caught_up_s: float = 0.0
    """from the restart until all three have the log and vote"""
    end: float = 0.0
    gaps_s: dict[str, float] = field(default_factory=dict)  # stream -> longest time without an answer
    load: float = 0.0


@dataclass(slots=True)
class Change:
    """One change of the voters."""

    what: str  # remove, add, add with a new disk
    victim: str
    role: str
    leader: str
    tool: str
    tries: int  # runs of the tool until it was done


@dataclass
class Cluster(MixedQuorum):
    """The processes of the cluster. Methods raise AssertionError for a violation; the caller then keeps the
    directories."""

    dice: random.Random = field(default_factory=random.Random)
    bound_s: float = 90
    """until all have caught up after a fault"""
    started: float = field(default_factory=time.monotonic)
    history: list[tuple[float, int, str]] = field(default_factory=list)
    """(seconds since 1970, controller, implementation), each since when"""
    ended: Counter[str] = field(default_factory=Counter)
    """"java 143" -> how often a controller that was told to stop ended so"""

    @property
    def letters(self) -> str:
        return "".join(c.impl[0] for c in self.controllers)

    def up(self) -> None:
        self.format()
        for controller in self.controllers:
            self._became(controller)
        self.start(self.bound_s)
        self.caught_up()

    def down(self) -> None:
        for node in self.nodes:
            node.kill()

    def caught_up(self) -> QuorumInfo:
        return self.whole(self.bound_s, CAUGHT_UP_RECORDS)

    def _became(self, node: MixedNode) -> None:
        self.history.append((time.time(), node.node_id, node.impl))

    def implementation_at(self, controller: int, at: float) -> str:
        """Which implementation a controller was at a time, seconds since 1970."""
        return [impl for since, node_id, impl in self.history if node_id == controller and since <= at][-1]

    # -- faults
    # ----------------------------------------------------------------------------------------------

    def disturb(self, what: str, role: str, down_s: float) -> Fault:
        """Kills or stops the leader or a follower, and starts it again; with `swap` as the other
        implementation."""
        leader = self.leader()
        if role == "leader":
            victim = leader
        else:
            victim = self.dice.choice([c for c in self.controllers if c is not leader])
        return self.disturb_node(victim, what, role, down_s)

    def disturb_node(self, victim: MixedNode, what: str, role: str, down_s: float) -> Fault:
        fault = Fault(
            time.monotonic() - self.started, what, role, victim.impl, self.letters, time.monotonic()
        )
        if what == "kill" or (what == "swap" and self.dice.random() < 0.5):
            victim.kill()
        else:
            self.stop(victim)
        time.sleep(max(0.0, down_s - (time.monotonic() - fault.start)))  # the fault's own length
        if what == "swap":
            victim.impl = {"quorate": "java", "java": "quorate"}[victim.impl]
            self._became(victim)
        restarted = time.monotonic()
        victim.start(wait=False)
        info = self.caught_up()
        fault.end = time.monotonic()
        fault.caught_up_s = fault.end - restarted
        fault.new_leader = self.controller(info.leader_id).impl
        return fault

    def stop(self, node: MixedNode) -> None:
        assert node.proc is not None
        node.proc.send_signal(signal.SIGTERM)
        status = node.proc.wait(self.bound_s)
        self.ended[f"{node.impl} {status}"] += 1
        # Apache Kafka ends with 1 when it is told to stop before all of its publishers are there.
        assert status == 0 or node.impl == "java", f"{node.impl} {node.node_id} ended with status {status}"

    # -- voters
    # ----------------------------------------------------------------------------------------------

    def change_voter(self, victim: MixedNode, tools: tuple[str, str], new_disk: bool) -> list[Change]:
        """Removes a voter with the first tool, replaces its disk if requested, and adds it with the second
        tool."""
        leader = self.leader()
        role = "leader" if victim is leader else "follower"
        key = ("--controller-id", victim.node_id, "--controller-directory-id", victim.directory_text)
        gone = (victim.node_id, victim.directory_id)
        tries = self._tool(tools[0], ("remove-controller", *key), lambda keys: gone not in keys)
        changes = [Change("remove", victim.impl, role, leader.impl, tools[0], tries)]
        if new_disk:
            victim.kill()
            shutil.rmtree(victim.data)
            victim.format("--no-initial-controllers", cluster_id=CLUSTER_ID)
            victim.start(wait=False)
        self.observes(victim, self.bound_s, CAUGHT_UP_RECORDS)
        leader = self.leader()
        here = (victim.node_id, victim.directory_id)
        tries = self._tool(
            tools[1], ("--command-config", victim.properties, "add-controller"), lambda keys: here in keys
        )
        what = "add with a new disk" if new_disk else "add"
        changes.append(Change(what, victim.impl, "observer", leader.impl, tools[1], tries))
        self.caught_up()
        return changes

    def _tool(
        self, impl: str, args: tuple[object, ...], done: Callable[[set[tuple[int, bytes]]], bool]
    ) -> int:
        """Runs kafka-metadata-quorum of either implementation until it succeeds. Returns the number of
        runs."""
        words = [*("--bootstrap-controller", self.bootstrap), *map(str, args)]
        said = []
        for tries in range(1, 6):
            if impl == "java":
                command = java.command(TOOLS["kafka-metadata-quorum"], *words, heap="-Xmx96m")
            else:
                command = [str(BIN / "kafka-metadata-quorum"), *words]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            said.append(f"{ran.returncode}: {ran.stdout[-400:]} {ran.stderr[-600:]}")
            keys = {(v.replica_id, v.directory_id) for v in self.describe().voters}
            if done(keys):
                # a tool that lost the answer tries again, and is told that there is nothing to do any more
                return tries
            assert ran.returncode != 0, f"{words}: reported as done, but the voters are {keys}"
        raise AssertionError(f"{impl} {words}: {said}")
