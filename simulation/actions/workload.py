"""The workload: the requests of clients and operators to a quorum, whatever faults there are."""

from __future__ import annotations

from collections.abc import Iterable

from quorate.raft.core import messages as m
from quorate.raft.core.voters import Voter
from simulation.actions.recurring import Action, RecurringActions
from simulation.config import ADD_VOTER_TIMEOUT_S
from simulation.identifiers import LISTENER

MIN_VOTERS = 1
MAX_VOTERS = 5


class WorkloadActions(RecurringActions):
    """The actions of `SimulationConfig.workload`."""

    def intervals(self) -> Iterable[tuple[Action, float]]:
        workload = self.quorum.config.workload
        return (
            (self.propose, workload.propose_every_s),
            (self.change_voters, workload.change_voters_every_s),
            (self.snapshot, workload.snapshot_every_s),
            (self.resign, workload.resign_every_s),
            (self.restart, workload.restart_every_s),
            (self.upgrade, workload.upgrade_every_s),
        )

    def propose(self) -> None:
        """Appends records at a replica that believes to lead.

        There may be two; those given to the older one never commit.
        """
        quorum = self.quorum
        leaders = [r for r in quorum.replicas.values() if r.leads]
        if leaders:
            count = quorum.rng.randint(*quorum.config.workload.batch)
            quorum.rng.choice(leaders).propose([f"v{quorum.unique_number()}" for _ in range(count)])

    def change_voters(self) -> None:
        """Adds or removes a random controller. One that is not a voter may also get a new directory."""
        quorum, leader = self.quorum, self.quorum.leader
        if leader is None:
            return
        chosen = quorum.rng.choice([r for r in quorum.replicas.values() if r.can_vote])
        voters = leader.core.state.voters
        if chosen.id not in voters.by_id:
            # A directory that is replaced while an AddRaftVoter for it is in flight may become a voter that
            # is lost for good.
            pending = quorum.pending_additions.get(chosen.key, -1.0) >= quorum.now
            if not pending and not quorum.is_voter_in_any_log(chosen.key) and quorum.rng.random() < 0.2:
                chosen.crash(lose_power=True)
                quorum.replace_directory(chosen.id)
                quorum.replicas[chosen.id].start()
            elif len(voters) < MAX_VOTERS:
                entry = Voter(chosen.key, {LISTENER: chosen.address}, (0, 1))
                quorum.pending_additions[chosen.key] = quorum.now + ADD_VOTER_TIMEOUT_S
                leader.request_from_outside(m.AddVoter(entry, ack_when_committed=quorum.rng.random() < 0.5))
        elif len(voters) > MIN_VOTERS:
            leader.request_from_outside(m.RemoveVoter(voters.by_id[chosen.id].key))

    def snapshot(self) -> None:
        replica = self._random_replica()
        if replica is not None:
            replica.take_snapshot(clean=self.quorum.rng.random() < 0.7)

    def resign(self) -> None:
        leader = self.quorum.leader
        if leader is not None:
            leader.resign()

    def restart(self) -> None:
        replica = self._random_replica()
        if replica is not None:
            replica.stop()

    def upgrade(self) -> None:
        leader = self.quorum.leader
        if leader is not None:
            leader.upgrade()
