"""Transcripts: text files with explanations and commands, each followed by what a simulated quorum then does.

A line that begins with `> ` is a command, and the lines after it that are indented by four spaces are its
output. All other lines are explanations. `replay` returns the text with the output that the commands have
now.

    > world voters=3 seed=1       also spares, observers, kraft, auto-join, quick, sync (ms of an fsync)
    > start                       all, or: start n1 n2
    > run until n2 leads          a leader | n2 leads | n2 follows | everybody has N | n1 has N | epoch N
                                  | answered
    > run 50 ms
    > write a b                   through the leader, or: write at n1 a b
    > kill n1                     with: kill n1, power
    > stop n1                     gracefully; it stays down
    > restart n1                  with: restart n1 at moved:9001, restart n1 with a torn quorum-state
    > isolate n1                  also: cut n1 n2, heal, heal n1 n2
    > add n4                      asked of the leader, as are: remove n3, upgrade
    > snapshot n1                 and delete the log before it
    > show                        a line for each replica; `3..4:e1` is a batch of offsets 3 and 4, epoch 1

`quietly` before a command suppresses its output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from quorate.raft.core import messages as m
from quorate.raft.core.events import UpgradeKraftVersion
from quorate.raft.core.voters import Voter
from simulation.config import DiskConfig, FaultSchedule, NetworkConfig, SimulationConfig, Topology, Workload
from simulation.identifiers import LISTENER
from simulation.transcripts.narration import NarratedReplica, NarratedWorld

INDENT = "    "
CONDITION_TIMEOUT_S = 60.0


class TranscriptError(Exception):
    """A command is not known, or a condition does not become true in time."""


def replay(text: str) -> str:
    """Returns the transcript with the output that its commands have now.

    Raises TranscriptError, InvariantError.
    """
    session, out = TranscriptSession(), []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        out.append(line)
        if line.startswith("> "):
            out += [INDENT + output for output in session.command(line[2:].strip())]
    return "\n".join(out) + "\n"


class TranscriptSession:
    """A simulated quorum, and the commands of a transcript on it.

    The methods named after commands perform them.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._world: NarratedWorld | None = None
        self.asked: list[tuple[NarratedReplica, object]] = []

    @property
    def world(self) -> NarratedWorld:
        if self._world is None:
            raise TranscriptError("there is no world yet")
        return self._world

    def command(self, text: str) -> Iterator[str]:
        """Performs a command and returns its output."""
        quietly, text = text.startswith("quietly "), text.removeprefix("quietly ")
        for pattern, perform in COMMANDS:
            found = re.fullmatch(pattern, text)
            if found is not None:
                self.lines = []
                perform(self, *found.groups())
                return iter([] if quietly else self.lines)
        raise TranscriptError(f"no such command: {text}")

    def replica(self, name: str) -> NarratedReplica:
        found = self.world.replicas.get(int(name[1:]))
        if not isinstance(found, NarratedReplica):
            raise TranscriptError(f"there is no {name}")
        return found

    def leader(self) -> NarratedReplica:
        found = self.world.leader
        if not isinstance(found, NarratedReplica):
            raise TranscriptError("nobody leads")
        return found

    # --- the world --------------------------------------------------------------------------------

    def build(self, options: str) -> None:
        """Makes the quorum, with a quiet network and no faults."""
        given = dict(option.split("=") for option in options.split())
        sync = float(given.get("sync", 0)) / 1000
        topology = Topology(
            voters=int(given.get("voters", 3)),
            spares=int(given.get("spares", 0)),
            observers=int(given.get("observers", 0)),
            kraft_version=int(given.get("kraft", 1)),
            quick_failover=given.get("quick", "yes") == "yes",
            auto_join=given.get("auto-join", "no") == "yes",
        )
        config = SimulationConfig(
            int(given["seed"]),
            topology,
            NetworkConfig(delay_s=(0.0004, 0.0006)),
            DiskConfig(inline=0.0 if sync else 1.0, sync_s=(sync, sync)),
            Workload(propose_every_s=0.0),
            FaultSchedule(down_s=(1e6, 1e6)),  # a stopped replica stays down
        )
        self._world = NarratedWorld(config, self.append_line)

    def append_line(self, line: str) -> None:
        self.lines.append(line)

    def start(self, names: str) -> None:
        for replica in [self.replica(n) for n in names.split()] or self.world.replicas.values():
            replica.start()

    def show(self) -> None:
        self.lines += self.world.table()

    # --- time -------------------------------------------------------------------------------------

    def run(self, count: str, unit: str) -> None:
        self.world.run(float(count) * (0.001 if unit == "ms" else 1.0))

    def run_until(self, condition: str) -> None:
        """Runs until the condition holds. Raises TranscriptError if it does not within
        CONDITION_TIMEOUT_S."""
        for pattern, holds in CONDITIONS:
            found = re.fullmatch(pattern, condition)
            if found is not None:
                if not self.world.run(CONDITION_TIMEOUT_S, partial(holds, self, *found.groups())):
                    raise TranscriptError(
                        f"{condition}: not within {CONDITION_TIMEOUT_S:.0f} s: {self.world.describe()}"
                    )
                return
        raise TranscriptError(f"no such condition: {condition}")

    # --- work and faults --------------------------------------------------------------------------

    def write(self, at: str | None, values: str) -> None:
        replica = self.replica(at) if at else self.leader()
        if not replica.propose(values.split()):
            raise TranscriptError(f"{replica.model.name} does not lead")

    def kill(self, name: str, power: str | None) -> None:
        self.replica(name).crash(lose_power=power is not None)

    def restart(self, name: str, host: str | None, port: str | None, torn: str | None) -> None:
        replica, world = self.replica(name), self.world
        if replica.alive:
            replica.crash(lose_power=False)
        if host is not None and port is not None:
            replica.address = (host, int(port))
            world.by_address = {r.address: i for i, r in world.replicas.items()}
        if torn is not None:
            replica.disk.stored = None  # Kafka, too, treats an empty file like a missing one
        replica.start()

    def cut(self, a: str, b: str) -> None:
        self.world.cut_links |= {(int(a[1:]), int(b[1:])), (int(b[1:]), int(a[1:]))}

    def heal(self, a: str, b: str) -> None:
        self.world.cut_links -= {(int(a[1:]), int(b[1:])), (int(b[1:]), int(a[1:]))}

    def ask(self, request: m.RaftRequest) -> None:
        """Makes a request to the leader from outside of the quorum."""
        leader = self.leader()
        self.asked.append((leader, leader.request_from_outside(request)))

    def add(self, name: str) -> None:
        replica = self.replica(name)
        self.ask(m.AddVoter(Voter(replica.key, {LISTENER: replica.address}, (0, 1))))

    def remove(self, name: str) -> None:
        self.ask(m.RemoveVoter(self.replica(name).key))

    def upgrade(self) -> None:
        leader = self.leader()
        token = ("ask", self.world.unique_number())
        leader.step(UpgradeKraftVersion(leader.core.state.epoch, 1, False, token))
        self.asked.append((leader, token))

    def answered(self) -> bool:
        """Returns whether all requests from outside have been answered."""
        return all(token in replica.replies for replica, token in self.asked)


NODE = r"(n\d+)"
Command = Callable[..., None]
COMMANDS: list[tuple[str, Command]] = [
    (r"world (.+)", TranscriptSession.build),
    (r"start((?: n\d+)*)", TranscriptSession.start),
    (r"show", TranscriptSession.show),
    (r"run ([\d.]+) (ms|s)", TranscriptSession.run),
    (r"run until (.+)", TranscriptSession.run_until),
    (rf"write(?: at {NODE})? (.+)", TranscriptSession.write),
    (rf"kill {NODE}(, power)?", TranscriptSession.kill),
    (rf"stop {NODE}", lambda s, name: s.replica(name).stop()),
    (rf"restart {NODE}(?: at (\S+):(\d+))?( with a torn quorum-state)?", TranscriptSession.restart),
    (rf"isolate {NODE}", lambda s, name: s.world.isolate(int(name[1:]))),
    (rf"cut {NODE} {NODE}", TranscriptSession.cut),
    (rf"cut {NODE} to {NODE}", lambda s, a, b: s.world.cut_links.add((int(a[1:]), int(b[1:])))),
    (r"heal", lambda s: s.world.heal()),
    (rf"heal {NODE} {NODE}", TranscriptSession.heal),
    (rf"add {NODE}", TranscriptSession.add),
    (rf"remove {NODE}", TranscriptSession.remove),
    (r"upgrade", TranscriptSession.upgrade),
    (rf"snapshot {NODE}", lambda s, name: s.replica(name).take_snapshot()),
]
CONDITIONS: list[tuple[str, Callable[..., bool]]] = [
    (r"a leader", lambda s: s.world.leader is not None and s.world.leader.core.state.hwm is not None),
    (rf"{NODE} leads", lambda s, n: s.replica(n).leads and s.replica(n).core.state.hwm is not None),
    (rf"{NODE} follows", lambda s, n: s.replica(n).alive and s.replica(n).hears_leader),
    (
        r"everybody has (\d+)",
        lambda s, at: all(r.committed >= int(at) for r in s.world.replicas.values() if r.alive),
    ),
    (rf"{NODE} has (\d+)", lambda s, n, at: s.replica(n).committed >= int(at)),
    (r"epoch (\d+)", lambda s, e: s.world.leader is not None and s.world.leader.core.state.epoch >= int(e)),
    (rf"{NODE} is down", lambda s, n: not s.replica(n).alive),
    (r"answered", lambda s: s.answered()),
]
