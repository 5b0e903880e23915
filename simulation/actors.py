"""Those who act on a world: the workload's clients and the faults. Each draws its own next time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from quorate.raft import messages as m
from quorate.raft.core import Raft
from quorate.raft.types import Address, ReplicaKey
from quorate.raft.voters import Voter
from simulation.invariants import InvariantError
from simulation.plan import Plan, Span
from simulation.replica import LISTENER
from simulation.world import ADDING_S

T = TypeVar("T")
MIN_VOTERS = 1
MAX_VOTERS = 5


class Player(Protocol):
    """A replica of either kind, as actors treat it."""

    id: int
    key: ReplicaKey
    address: Address
    can_vote: bool

    @property
    def alive(self) -> bool: ...
    @property
    def leads(self) -> bool: ...
    @property
    def core(self) -> Raft: ...
    @property
    def committed(self) -> int: ...
    def start(self) -> None: ...
    def die(self, power: bool) -> None: ...
    def doom(self, duties: int) -> None: ...
    def break_disk(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self, until: float) -> None: ...
    def resign(self) -> None: ...
    def upgrade(self) -> None: ...
    def propose(self, values: list[Any]) -> bool: ...
    def ask(self, request: m.RaftRequest) -> object: ...
    def take_snapshot(self, clean: bool = True) -> object: ...


class Stage(Protocol):
    """A world of either level."""

    plan: Plan
    rng: random.Random
    cut: set[tuple[int, int]]
    adding: dict[ReplicaKey, float]

    @property
    def now(self) -> float: ...
    @property
    def events(self) -> int: ...
    @property
    def players(self) -> Mapping[int, Player]: ...
    @property
    def leader(self) -> Player | None: ...
    def push(self, at: float, do: Callable[[T], bool | None], what: T) -> None: ...
    def unique(self) -> int: ...
    def dies_by_power(self) -> bool: ...
    def voter_anywhere(self, key: ReplicaKey) -> bool: ...
    def renew(self, node_id: int) -> None: ...
    def start_later(self, replica: Any) -> None: ...
    def start_all(self) -> None: ...
    def run(self, seconds: float = ..., until: Callable[[], bool] | None = None, events: int = ...) -> bool: ...
    def calm_down(self) -> None: ...
    def settle(self, value: Any, seconds: float = ...) -> int: ...
    def fail(self, what: str) -> InvariantError: ...


class Actors:
    """Workload and faults of the world's plan, from `begin` to `end`."""

    def __init__(self, world: Stage) -> None:
        self.world = world
        self.acting = False

    def begin(self) -> None:
        self.acting = True
        work, faults = self.world.plan.workload, self.world.plan.faults
        for act, every_s in (
            (self.propose, work.propose_every_s),
            (self.change_voters, work.change_voters_every_s),
            (self.snapshot, work.snapshot_every_s),
            (self.resign, work.resign_every_s),
            (self.restart, work.restart_every_s),
            (self.upgrade, work.upgrade_every_s),
            (self.crash, faults.crash_every_s),
            (self.blackout, faults.blackout_every_s),
            (self.cut, faults.cut_every_s),
            (self.isolate, faults.isolate_every_s),
            (self.split, faults.split_every_s),
            (self.pause, faults.pause_every_s),
            (self.break_disk, faults.bad_disk_every_s),
        ):
            if every_s > 0:
                self._again(act, every_s)

    def end(self) -> None:
        self.acting = False

    def _again(self, act: Callable[[], None], every_s: float) -> None:
        world = self.world

        def run(_: None) -> bool | None:
            if not self.acting:
                return False
            act()
            self._again(act, every_s)
            return None

        world.push(world.now + world.rng.expovariate(1 / every_s), run, None)

    def _later(self, span: Span, do: Callable[[], None]) -> None:
        world = self.world
        world.push(world.now + world.rng.uniform(*span), lambda _: do(), None)

    def _any(self) -> Player | None:
        found = [r for r in self.world.players.values() if r.alive]
        return self.world.rng.choice(found) if found else None

    # --- workload ---------------------------------------------------------------------------------------------------

    def propose(self) -> None:
        """To whoever believes to lead: there may be two, the older one in vain."""
        world = self.world
        leaders = [r for r in world.players.values() if r.leads]
        if leaders:
            count = world.rng.randint(*world.plan.workload.batch)
            world.rng.choice(leaders).propose([f"v{world.unique()}" for _ in range(count)])

    def change_voters(self) -> None:
        """Adds or removes a random controller; a removed one may come back with a new directory."""
        world, leader = self.world, self.world.leader
        if leader is None:
            return
        chosen = world.rng.choice([r for r in world.players.values() if r.can_vote])
        voters = leader.core.voters
        if chosen.id not in voters.by_id:
            # Whoever takes a directory away while it is being added, loses a voter for good.
            free = world.adding.get(chosen.key, -1.0) < world.now and not world.voter_anywhere(chosen.key)
            if free and world.rng.random() < 0.2:
                chosen.die(power=True)
                world.renew(chosen.id)
                world.players[chosen.id].start()
            elif len(voters) < MAX_VOTERS:
                entry = Voter(chosen.key, {LISTENER: chosen.address}, (0, 1))
                world.adding[chosen.key] = world.now + ADDING_S
                leader.ask(m.AddVoter(entry, ack_when_committed=world.rng.random() < 0.5))
        elif len(voters) > MIN_VOTERS:
            leader.ask(m.RemoveVoter(voters.by_id[chosen.id].key))

    def snapshot(self) -> None:
        replica = self._any()
        if replica is not None:
            replica.take_snapshot(clean=self.world.rng.random() < 0.7)

    def resign(self) -> None:
        leader = self.world.leader
        if leader is not None:
            leader.resign()

    def restart(self) -> None:
        replica = self._any()
        if replica is not None:
            replica.stop()

    def upgrade(self) -> None:
        leader = self.world.leader
        if leader is not None:
            leader.upgrade()

    # --- faults -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        replica = self._any()
        if replica is None:
            return
        world, faults = self.world, self.world.plan.faults
        if world.rng.random() < faults.mid_step:
            replica.doom(world.rng.randint(0, 6))
        else:
            replica.die(world.dies_by_power())
        world.start_later(replica)

    def blackout(self) -> None:
        for replica in list(self.world.players.values()):
            replica.die(power=True)
            self.world.start_later(replica)

    def _cut(self, links: set[tuple[int, int]]) -> None:
        world = self.world
        world.cut |= links

        def mend() -> None:
            world.cut -= links

        self._later(world.plan.faults.cut_s, mend)

    def cut(self) -> None:
        ids = list(self.world.players)
        if len(ids) > 1:
            a, b = self.world.rng.sample(ids, 2)
            self._cut({(a, b)})

    def isolate(self) -> None:
        ids = list(self.world.players)
        alone = self.world.rng.choice(ids)
        self._cut({(alone, i) for i in ids if i != alone} | {(i, alone) for i in ids if i != alone})

    def split(self) -> None:
        ids = list(self.world.players)
        camp = {i for i in ids if self.world.rng.random() < 0.5}
        self._cut({(a, b) for a in ids for b in ids if (a in camp) != (b in camp)})

    def break_disk(self) -> None:
        replica = self._any()
        if replica is not None:
            replica.break_disk()

    def pause(self) -> None:
        replica, world = self._any(), self.world
        if replica is not None:
            replica.pause(world.now + world.rng.uniform(*world.plan.faults.pause_s))


def run_plan(world: Stage, events: int) -> int:
    """The plan for so many events, then calm: a leader must be found, a value commit everywhere. Returns the events in all.

    Raises InvariantError naming the seed.
    """
    actors = Actors(world)
    world.start_all()
    actors.begin()
    world.run(events=events)
    actors.end()
    world.calm_down()
    offset = world.settle("the end", 120)
    if not world.run(60, lambda: all(r.committed >= offset for r in world.players.values())):
        raise world.fail(f"not all reach offset {offset}")
    return world.events
