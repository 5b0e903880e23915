"""Transcripts: text files in which commands stand between sentences, each followed by what a simulated world then does.

A line that begins with `> ` is a command, lines indented by four spaces are what came of it, everything else is the
teller's. `replay` gives the text with what happens now.

    > world voters=3 seed=1       also spares, observers, kraft, auto-join, quick, sync (milliseconds that an fsync takes)
    > start                       all, or: start n1 n2
    > run until n2 leads          a leader | n2 leads | n2 follows | everybody has N | n1 has N | epoch N | answered
    > run 50 ms
    > write a b                   through the leader, or: write at n1 a b
    > kill n1                     with: kill n1, power
    > stop n1                     gracefully; it stays down
    > restart n1                  with: restart n1 at moved:9001, restart n1 with a torn quorum-state
    > isolate n1                  also: cut n1 n2, heal, heal n1 n2
    > add n4                      asked of the leader, as are: remove n3, upgrade
    > snapshot n1                 and forget the log before it
    > show                        a line for each replica; `3..4:e1` is a batch with offsets 3 and 4, written in epoch 1

`quietly` in front of a command leaves untold what comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from quorate.raft import messages as m
from quorate.raft.voters import Voter
from simulation.plan import Disks, Faults, Links, Plan, Topology, Workload
from simulation.replica import LISTENER
from simulation.transcript_world import ToldReplica, ToldWorld

INDENT = "    "
PATIENCE_S = 60.0


class TranscriptError(Exception):
    """A command that is not known, or whose wish does not come true."""


def replay(text: str) -> str:
    """The transcript with what its commands do now. Raises TranscriptError, InvariantError."""
    stage, out = Stage(), []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        out.append(line)
        if line.startswith("> "):
            out += [INDENT + told for told in stage.command(line[2:].strip())]
    return "\n".join(out) + "\n"


class Stage:
    """One world and the commands that it understands."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._world: ToldWorld | None = None
        self.asked: list[tuple[ToldReplica, object]] = []

    @property
    def world(self) -> ToldWorld:
        if self._world is None:
            raise TranscriptError("there is no world yet")
        return self._world

    def command(self, text: str) -> Iterator[str]:
        """Runs it; the lines told meanwhile. `quietly`, in front, leaves them untold."""
        quietly, text = text.startswith("quietly "), text.removeprefix("quietly ")
        for pattern, do in COMMANDS:
            found = re.fullmatch(pattern, text)
            if found is not None:
                self.lines = []
                do(self, *found.groups())
                return iter([] if quietly else self.lines)
        raise TranscriptError(f"no such command: {text}")

    def replica(self, name: str) -> ToldReplica:
        found = self.world.replicas.get(int(name[1:]))
        if not isinstance(found, ToldReplica):
            raise TranscriptError(f"there is no {name}")
        return found

    def leader(self) -> ToldReplica:
        found = self.world.leader
        if not isinstance(found, ToldReplica):
            raise TranscriptError("nobody leads")
        return found

    # --- the world --------------------------------------------------------------------------------------------------

    def build(self, options: str) -> None:
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
        plan = Plan(
            int(given["seed"]),
            topology,
            Links(delay_s=(0.0004, 0.0006)),
            Disks(inline=0.0 if sync else 1.0, sync_s=(sync, sync)),
            Workload(propose_every_s=0.0),
            Faults(down_s=(1e6, 1e6)),  # who is stopped stays down
        )
        self._world = ToldWorld(plan, self.told)

    def told(self, line: str) -> None:
        self.lines.append(line)

    def start(self, names: str) -> None:
        for replica in [self.replica(n) for n in names.split()] or self.world.replicas.values():
            replica.start()

    def show(self) -> None:
        self.lines += self.world.table()

    # --- time -------------------------------------------------------------------------------------------------------

    def run(self, count: str, unit: str) -> None:
        self.world.run(float(count) * (0.001 if unit == "ms" else 1.0))

    def run_until(self, wish: str) -> None:
        for pattern, holds in WISHES:
            found = re.fullmatch(pattern, wish)
            if found is not None:
                if not self.world.run(PATIENCE_S, partial(holds, self, *found.groups())):
                    raise TranscriptError(f"{wish}: not within {PATIENCE_S:.0f} s: {self.world.describe()}")
                return
        raise TranscriptError(f"no such wish: {wish}")

    # --- work and faults --------------------------------------------------------------------------------------------

    def write(self, at: str | None, values: str) -> None:
        replica = self.replica(at) if at else self.leader()
        if not replica.propose(values.split()):
            raise TranscriptError(f"{replica.subject.name} does not lead")

    def kill(self, name: str, power: str | None) -> None:
        self.replica(name).die(power=power is not None)

    def restart(self, name: str, host: str | None, port: str | None, torn: str | None) -> None:
        replica, world = self.replica(name), self.world
        if replica.alive:
            replica.die(power=False)
        if host is not None and port is not None:
            replica.address = (host, int(port))
            world.by_address = {r.address: i for i, r in world.replicas.items()}
        if torn is not None:
            replica.disk.stored = None  # Kafka, too, takes an empty file for none
        replica.start()

    def cut(self, a: str, b: str) -> None:
        self.world.cut |= {(int(a[1:]), int(b[1:])), (int(b[1:]), int(a[1:]))}

    def heal(self, a: str, b: str) -> None:
        self.world.cut -= {(int(a[1:]), int(b[1:])), (int(b[1:]), int(a[1:]))}

    def ask(self, request: m.RaftRequest) -> None:
        leader = self.leader()
        self.asked.append((leader, leader.ask(request)))

    def add(self, name: str) -> None:
        replica = self.replica(name)
        self.ask(m.AddVoter(Voter(replica.key, {LISTENER: replica.address}, (0, 1))))

    def remove(self, name: str) -> None:
        self.ask(m.RemoveVoter(self.replica(name).key))

    def upgrade(self) -> None:
        leader = self.leader()
        token = ("ask", self.world.unique())
        leader.step(m.UpgradeKraftVersion(leader.core.epoch, 1, False, token))
        self.asked.append((leader, token))

    def answered(self) -> bool:
        return all(token in replica.replies for replica, token in self.asked)


NODE = r"(n\d+)"
Do = Callable[..., None]
COMMANDS: list[tuple[str, Do]] = [
    (r"world (.+)", Stage.build),
    (r"start((?: n\d+)*)", Stage.start),
    (r"show", Stage.show),
    (r"run ([\d.]+) (ms|s)", Stage.run),
    (r"run until (.+)", Stage.run_until),
    (rf"write(?: at {NODE})? (.+)", Stage.write),
    (rf"kill {NODE}(, power)?", Stage.kill),
    (rf"stop {NODE}", lambda s, name: s.replica(name).stop()),
    (rf"restart {NODE}(?: at (\S+):(\d+))?( with a torn quorum-state)?", Stage.restart),
    (rf"isolate {NODE}", lambda s, name: s.world.isolate(int(name[1:]))),
    (rf"cut {NODE} {NODE}", Stage.cut),
    (r"heal", lambda s: s.world.heal()),
    (rf"heal {NODE} {NODE}", Stage.heal),
    (rf"add {NODE}", Stage.add),
    (rf"remove {NODE}", Stage.remove),
    (r"upgrade", Stage.upgrade),
    (rf"snapshot {NODE}", lambda s, name: s.replica(name).take_snapshot()),
]
WISHES: list[tuple[str, Callable[..., bool]]] = [
    (r"a leader", lambda s: s.world.leader is not None and s.world.leader.core.hwm is not None),
    (rf"{NODE} leads", lambda s, n: s.replica(n).leads and s.replica(n).core.hwm is not None),
    (rf"{NODE} follows", lambda s, n: s.replica(n).alive and s.replica(n).hears),
    (r"everybody has (\d+)", lambda s, at: all(r.committed >= int(at) for r in s.world.replicas.values() if r.alive)),
    (rf"{NODE} has (\d+)", lambda s, n, at: s.replica(n).committed >= int(at)),
    (r"epoch (\d+)", lambda s, e: s.world.leader is not None and s.world.leader.core.epoch >= int(e)),
    (rf"{NODE} is down", lambda s, n: not s.replica(n).alive),
    (r"answered", lambda s: s.answered()),
]
