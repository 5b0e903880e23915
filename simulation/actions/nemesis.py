"""The nemesis, as in Jepsen: it injects the faults of `SimulationConfig.faults` while the workload runs."""

from __future__ import annotations

from collections.abc import Iterable

from simulation.actions.recurring import Action, RecurringActions

MAX_DUTY = 6  # a crash within a step comes after at most this many effects, or changes of the disk


class Nemesis(RecurringActions):
    """Crashes, power failures, cut links, partitions, failing disks and pauses."""

    def intervals(self) -> Iterable[tuple[Action, float]]:
        faults = self.quorum.config.faults
        return (
            (self.crash, faults.crash_every_s),
            (self.blackout, faults.blackout_every_s),
            (self.cut, faults.cut_every_s),
            (self.isolate, faults.isolate_every_s),
            (self.split, faults.split_every_s),
            (self.pause, faults.pause_every_s),
            (self.break_disk, faults.bad_disk_every_s),
        )

    def crash(self) -> None:
        """Ends a random process, between two steps or within one, and schedules its restart."""
        replica = self._random_replica()
        if replica is None:
            return
        quorum, faults = self.quorum, self.quorum.config.faults
        if quorum.rng.random() < faults.mid_step:
            replica.crash_mid_step(quorum.rng.randint(0, MAX_DUTY))
        else:
            replica.crash(quorum.crash_loses_power())
        quorum.schedule_restart(replica)

    def blackout(self) -> None:
        """Lets all hosts lose power at once."""
        for replica in list(self.quorum.replicas.values()):
            replica.crash(lose_power=True)
            self.quorum.schedule_restart(replica)

    def _cut(self, links: set[tuple[int, int]]) -> None:
        """Cuts these links, (sender, receiver), for a random time."""
        quorum = self.quorum
        quorum.cut_links |= links

        def heal() -> None:
            quorum.cut_links -= links

        self._after(quorum.config.faults.cut_s, heal)

    def cut(self) -> None:
        """Cuts one direction of one link."""
        ids = list(self.quorum.replicas)
        if len(ids) > 1:
            a, b = self.quorum.rng.sample(ids, 2)
            self._cut({(a, b)})

    def isolate(self) -> None:
        """Cuts all links of one node."""
        ids = list(self.quorum.replicas)
        isolated = self.quorum.rng.choice(ids)
        self._cut(
            {(isolated, i) for i in ids if i != isolated} | {(i, isolated) for i in ids if i != isolated}
        )

    def split(self) -> None:
        """Partitions the nodes into two random halves."""
        ids = list(self.quorum.replicas)
        half = {i for i in ids if self.quorum.rng.random() < 0.5}
        self._cut({(a, b) for a in ids for b in ids if (a in half) != (b in half)})

    def break_disk(self) -> None:
        replica = self._random_replica()
        if replica is not None:
            replica.break_disk()

    def pause(self) -> None:
        """Stops a process for a while, as SIGSTOP does."""
        replica, quorum = self._random_replica(), self.quorum
        if replica is not None:
            replica.pause(quorum.now + quorum.rng.uniform(*quorum.config.faults.pause_s))
