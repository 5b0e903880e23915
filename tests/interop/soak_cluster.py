"""The soak's cluster: three controllers that change their implementation, a broker of each, and what is done to them."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError
from quorate.admin.types import QuorumInfo
from quorate.protocol.uuids import parse_uuid
from tests.support import java
from tests.support.cluster import BIN, CLUSTER_ID, Node, free_ports

IDS = (1, 2, 3)
OUR_BROKER, JAVA_BROKER = 9, 8
SMALL = {  # several snapshots and cleaned segments in each period of the soak
    "metadata.log.max.record.bytes.between.snapshots": 200_000,
    "internal.metadata.log.segment.bytes": 400_000,
    "metadata.max.retention.bytes": 4_000_000,
}
CAUGHT_UP_RECORDS = 100
"""Of lag, while the load goes on: what comes in half a second."""
HEAP = {"controller": "-Xmx256m", "broker": "-Xmx384m"}


class SoakNode(Node):
    """A node that keeps Java's heap small, and remembers which implementation it was when."""

    def _command(self, what: str, *args: object) -> list[str]:
        command = super()._command(what, *args)
        return [HEAP[self.roles] if part == "-Xmx768m" else part for part in command]

    @property
    def letter(self) -> str:
        return self.impl[0]

    @property
    def directory_id(self) -> bytes:
        return parse_uuid(self.directory_text)

    @property
    def directory_text(self) -> str:
        lines = (self.data / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))

    @property
    def running(self) -> bool:
        return self.proc is not None and self.proc.poll() is None

    def rss_bytes_and_files(self) -> tuple[int, int]:
        assert self.proc is not None
        status = Path(f"/proc/{self.proc.pid}/status").read_text()
        kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
        return kib * 1024, len(list(Path(f"/proc/{self.proc.pid}/fd").iterdir()))


@dataclass(slots=True)
class Fault:
    """One thing that was done to one controller, and what came of it."""

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

    what: str  # remove, add, replaced disk
    victim: str
    role: str
    leader: str
    tool: str
    tries: int


@dataclass
class Cluster:
    """Raises AssertionError for what must not be; the caller keeps the directories then."""

    base: Path
    implementations: str
    random: random.Random
    bound_s: float
    """until all have caught up after a fault"""
    start: float = field(default_factory=time.monotonic)
    history: list[tuple[float, int, str]] = field(default_factory=list)
    """(seconds since 1970, controller, implementation), each since when"""

    def __post_init__(self) -> None:
        java.require_java()
        ports = dict(zip(IDS, free_ports(3), strict=True))
        names = {"q": "quorate", "j": "java"}
        self.controllers = [
            SoakNode(
                self.base / f"c{i}", node_id=i, roles="controller", impl=names[letter], voters=ports, controller_port=ports[i],
                extra=dict(SMALL),
            )
            for i, letter in zip(IDS, self.implementations, strict=True)
        ]  # fmt: skip
        self.brokers = [
            SoakNode(self.base / "b9", node_id=OUR_BROKER, roles="broker", voters=ports, extra=dict(SMALL)),
            SoakNode(self.base / "b8", node_id=JAVA_BROKER, roles="broker", impl="java", voters=ports, extra=dict(SMALL)),
        ]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())

    @property
    def nodes(self) -> list[SoakNode]:
        return [*self.controllers, *self.brokers]

    @property
    def letters(self) -> str:
        return "".join(c.letter for c in self.controllers)

    def up(self) -> None:
        initial = ",".join(
            f"{c.node_id}@127.0.0.1:{c.controller_port}:AAAAAAAAAAAAAAAAAAAB{tail}"
            for c, tail in zip(self.controllers, ("AQ", "Ag", "Aw"), strict=True)
        )
        for controller in self.controllers:
            controller.format("--initial-controllers", initial)
            self._became(controller)
        for broker in self.brokers:
            broker.format("--no-initial-controllers")
        for node in self.nodes:
            node.start(wait=False)
        for broker in self.brokers:
            broker.wait_ready(self.bound_s)
        self.caught_up(self.bound_s)

    def down(self) -> None:
        for node in self.nodes:
            node.kill()

    def _became(self, node: SoakNode) -> None:
        self.history.append((time.time(), node.node_id, node.impl))

    def implementation_at(self, controller: int, at: float) -> str:
        """Which implementation a controller was at a time, seconds since 1970."""
        return [impl for since, node_id, impl in self.history if node_id == controller and since <= at][-1]

    # -- the quorum -------------------------------------------------------------------------------------------------------

    def quorum(self, timeout_s: float = 10) -> QuorumInfo:
        async def ask() -> QuorumInfo:
            async with AdminClient(
                bootstrap_controllers=self.bootstrap, request_timeout_s=2, api_timeout_s=2, retry_backoff_s=0.05
            ) as admin:
                return await admin.describe_quorum()

        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return asyncio.run(ask())
            except (KafkaError, NetError):  # a fresh client: the old one may hold on to the old leader
                if time.monotonic() > deadline:
                    raise

    def controller(self, node_id: int) -> SoakNode:
        return self.controllers[node_id - 1]

    def leader(self) -> SoakNode:
        deadline = time.monotonic() + 30
        while (found := self.quorum(30).leader_id) not in IDS:
            assert time.monotonic() < deadline, "no leader for 30 s"
        return self.controller(found)

    def caught_up(self, timeout_s: float, records: int = CAUGHT_UP_RECORDS) -> QuorumInfo:
        """Until the three controllers, with the directories that are on their disks, are the voters and have the log, and both
        brokers follow: what the leader knows of a process that died does not count."""
        deadline, since_ms = time.monotonic() + timeout_s, time.time() * 1000
        while True:
            info: QuorumInfo | None = None
            try:
                info = self.quorum(5)
                if self._is_whole(info, records, since_ms):
                    return info
            except (KafkaError, NetError, OSError):
                pass
            assert time.monotonic() < deadline, f"not all caught up in {timeout_s} s: {info}"
            dead = [n.node_id for n in self.nodes if not n.running]
            assert not dead, f"nodes {dead} ended by themselves"
            time.sleep(0.1)

    def _is_whole(self, info: QuorumInfo, records: int, since_ms: float) -> bool:
        voters = {(v.replica_id, v.directory_id): v for v in info.voters}
        if voters.keys() != {(c.node_id, c.directory_id) for c in self.controllers} or info.leader_id not in IDS:
            return False
        observers = {o.replica_id: o for o in info.observers}
        if not observers.keys() >= {b.node_id for b in self.brokers}:
            return False
        end = max(v.log_end_offset for v in info.voters)
        followers = [*voters.values(), *(observers[b.node_id] for b in self.brokers)]
        fetching = all(f.last_fetch_ms >= since_ms for f in followers if f.replica_id != info.leader_id)
        return fetching and all(f.log_end_offset >= end - records for f in followers)

    # -- faults -----------------------------------------------------------------------------------------------------------

    def disturb(self, what: str, role: str, down_s: float) -> Fault:
        """Kills or stops the leader or a follower, and starts it again, for `swap` as the other implementation."""
        leader = self.leader()
        if role == "leader":
            victim = leader
        else:
            victim = self.random.choice([c for c in self.controllers if c is not leader])
        return self.disturb_node(victim, what, role, down_s)

    def disturb_node(self, victim: SoakNode, what: str, role: str, down_s: float) -> Fault:
        fault = Fault(time.monotonic() - self.start, what, role, victim.impl, self.letters, time.monotonic())
        if what == "kill" or (what == "swap" and self.random.random() < 0.5):
            victim.kill()
        else:
            self.stop(victim)
        time.sleep(max(0.0, down_s - (time.monotonic() - fault.start)))  # the fault's own length
        if what == "swap":
            victim.impl = {"quorate": "java", "java": "quorate"}[victim.impl]
            self._became(victim)
        restarted = time.monotonic()
        victim.start(wait=False)
        info = self.caught_up(self.bound_s)
        fault.end = time.monotonic()
        fault.caught_up_s = fault.end - restarted
        fault.new_leader = self.controller(info.leader_id).impl
        return fault

    def stop(self, node: SoakNode) -> None:
        assert node.proc is not None
        node.proc.send_signal(signal.SIGTERM)
        status = node.proc.wait(self.bound_s)
        assert status == {"quorate": 0, "java": 143}[node.impl], f"{node.impl} {node.node_id} ended with status {status}"

    # -- voters -----------------------------------------------------------------------------------------------------------

    def change_voter(self, victim: SoakNode, tools: tuple[str, str], new_disk: bool) -> list[Change]:
        """Removes a voter by the first tool, gives it an empty disk if so wanted, and adds it by the second."""
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
        self._observes(victim)
        leader = self.leader()
        here = (victim.node_id, victim.directory_id)
        tries = self._tool(tools[1], ("--command-config", victim.properties, "add-controller"), lambda keys: here in keys)
        what = "add with a new disk" if new_disk else "add"
        changes.append(Change(what, victim.impl, "observer", leader.impl, tools[1], tries))
        self.caught_up(self.bound_s)
        return changes

    def _observes(self, node: SoakNode) -> None:
        deadline = time.monotonic() + self.bound_s
        while True:
            info = self.quorum(20)
            end = max(v.log_end_offset for v in info.voters)
            key = (node.node_id, node.directory_id)
            if any((o.replica_id, o.directory_id) == key and o.log_end_offset >= end - CAUGHT_UP_RECORDS for o in info.observers):
                return
            assert time.monotonic() < deadline, f"controller {node.node_id} did not follow as an observer: {info}"
            time.sleep(0.1)

    def _tool(self, impl: str, args: tuple[object, ...], done: Callable[[set[tuple[int, bytes]]], bool]) -> int:
        """Runs kafka-metadata-quorum of either side until it did what it was to do; how many runs that took."""
        words = [*("--bootstrap-controller", self.bootstrap), *map(str, args)]
        said = []
        for tries in range(1, 6):
            if impl == "java":
                command = java.command("org.apache.kafka.tools.MetadataQuorumCommand", *words, heap="-Xmx96m")
            else:
                command = [str(BIN / "kafka-metadata-quorum"), *words]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            said.append(f"{ran.returncode}: {ran.stdout[-400:]} {ran.stderr[-600:]}")
            keys = {(v.replica_id, v.directory_id) for v in self.quorum(20).voters}
            if done(keys):
                assert ran.returncode == 0 or tries > 1 or "imed out" in said[-1] or "imeout" in said[-1], said[-1]
                return tries
            assert ran.returncode != 0, f"{words}: reported as done, but the voters are {keys}"
        raise AssertionError(f"{impl} {words}: {said}")
