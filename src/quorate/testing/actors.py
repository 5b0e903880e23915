"""Those who act on a world of the core: the workload's clients and the faults. Each draws its own next time."""

from __future__ import annotations

from collections.abc import Callable

from quorate.raft import messages as m
from quorate.raft.voters import Voter
from quorate.testing.plan import Span
from quorate.testing.replica import LISTENER, Replica
from quorate.testing.world import World

MIN_VOTERS = 1
MAX_VOTERS = 5


class Actors:
    """Workload and faults of the world's plan, from `begin` to `end`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acting = False
        self.proposals = 0

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

    def _any(self, *, alive: bool = True) -> Replica | None:
        found = [r for r in self.world.replicas.values() if r.alive or not alive]
        return self.world.rng.choice(found) if found else None

    # --- workload ---------------------------------------------------------------------------------------------------

    def propose(self) -> None:
        """To whoever believes to lead: there may be two, the older one in vain."""
        world = self.world
        leaders = [r for r in world.replicas.values() if r.alive and r.core.is_leader and r.paused_until <= world.now]
        if leaders:
            count = world.rng.randint(*world.plan.workload.batch)
            self.proposals += count
            world.rng.choice(leaders).propose([f"v{world.unique()}" for _ in range(count)])

    def change_voters(self) -> None:
        """Adds or removes a random controller; a removed one may come back with a new directory."""
        world, leader = self.world, self.world.leader
        if leader is None:
            return
        chosen = world.rng.choice([r for r in world.replicas.values() if r.can_vote])
        voters = leader.core.voters
        if chosen.id not in voters.by_id:
            if world.rng.random() < 0.2 and not world.voter_anywhere(chosen.key) and not self._being_added(chosen):
                chosen.die(power=True)
                world.renew(chosen.id)
                world.replicas[chosen.id].start()
                return
            if len(voters) < MAX_VOTERS:
                entry = Voter(chosen.key, {LISTENER: chosen.address}, (0, 1))
                leader.ask(m.AddVoter(entry, ack_when_committed=world.rng.random() < 0.5))
        elif len(voters) > MIN_VOTERS:
            leader.ask(m.RemoveVoter(voters.by_id[chosen.id].key))

    def _being_added(self, replica: Replica) -> bool:
        """Its voter set entry may be written any moment: whoever takes its directory away now, loses a voter for good."""
        leaders = [r.core.leading for r in self.world.replicas.values() if r.alive and r.core.leading is not None]
        return any(g.change is not None and g.change.adding is not None and g.change.adding.id == replica.id for g in leaders)

    def snapshot(self) -> None:
        replica = self._any()
        if replica is not None:
            replica.take_snapshot(clean=self.world.rng.random() < 0.7)

    def resign(self) -> None:
        leader = self.world.leader
        if leader is not None:
            leader.step(m.Resign(leader.core.epoch, "asked"))

    def restart(self) -> None:
        """A graceful stop: resigned if it led, ended when another leads or time is over."""
        replica = self._any()
        if replica is None:
            return
        world, life = self.world, replica.life
        replica.step(m.Shutdown())
        deadline = world.now + 5.0

        def stopped(_: None) -> None:
            if replica.life != life:
                return
            if replica.core.shutdown_complete or world.now >= deadline:
                if replica.can_vote:  # a clean stop flushes
                    replica.disk.durable_end = replica.disk.end
                replica.die(power=False)
                self._later(world.plan.faults.down_s, lambda: self._start(replica))
            else:
                world.push(world.now + 0.05, stopped, None)

        stopped(None)

    def upgrade(self) -> None:
        leader = self.world.leader
        if leader is not None and leader.core.members.kraft_version == 0:
            token = ("upgrade", self.world.unique())
            leader.step(m.UpgradeKraftVersion(leader.core.epoch, 1, False, token))

    # --- faults -----------------------------------------------------------------------------------------------------

    def _start(self, replica: Replica) -> None:
        if not replica.alive and self.world.replicas[replica.id] is replica:
            replica.start()

    def crash(self) -> None:
        replica = self._any()
        if replica is None:
            return
        world, faults = self.world, self.world.plan.faults
        if world.rng.random() < faults.mid_step:
            replica.dies_at_duty = world.rng.randint(0, 6)
        else:
            replica.die(world.dies_by_power())
        self._later(faults.down_s, lambda: self._start(replica))

    def blackout(self) -> None:
        for replica in list(self.world.replicas.values()):
            replica.die(power=True)
            self._later(self.world.plan.faults.down_s, lambda r=replica: self._start(r))  # type: ignore[misc]

    def _cut(self, links: set[tuple[int, int]]) -> None:
        world = self.world
        world.cut |= links

        def mend() -> None:
            world.cut -= links

        self._later(world.plan.faults.cut_s, mend)

    def cut(self) -> None:
        ids = list(self.world.replicas)
        if len(ids) > 1:
            a, b = self.world.rng.sample(ids, 2)
            self._cut({(a, b)})

    def isolate(self) -> None:
        ids = list(self.world.replicas)
        alone = self.world.rng.choice(ids)
        self._cut({(alone, i) for i in ids if i != alone} | {(i, alone) for i in ids if i != alone})

    def split(self) -> None:
        ids = list(self.world.replicas)
        camp = {i for i in ids if self.world.rng.random() < 0.5}
        self._cut({(a, b) for a in ids for b in ids if (a in camp) != (b in camp)})

    def pause(self) -> None:
        replica = self._any()
        if replica is not None:
            world = self.world
            replica.paused_until = max(replica.paused_until, world.now + world.rng.uniform(*world.plan.faults.pause_s))


def run_plan(world: World, events: int) -> int:
    """The plan for so many events, then calm: a leader must be found, a value commit everywhere. Returns the events in all.

    Raises InvariantError naming the seed.
    """
    actors = Actors(world)
    with world.named():
        world.start_all()
        actors.begin()
        world.run(events=events)
        actors.end()
        world.calm_down()
        offset = world.settle("the end", 120)
        if not world.run(60, lambda: all(r.committed >= offset for r in world.replicas.values())):
            raise world.fail(f"not all reach offset {offset}")
    return world.events
