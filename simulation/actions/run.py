"""One complete simulation: the workload under faults, then a phase without them in which the quorum must
recover."""

from __future__ import annotations

from simulation.actions.interfaces import SimulatedQuorum
from simulation.actions.nemesis import Nemesis
from simulation.actions.workload import WorkloadActions

COMMIT_TIMEOUT_S = 120
CATCH_UP_TIMEOUT_S = 60


def run_simulation(quorum: SimulatedQuorum, events: int) -> int:
    """Runs this many events under workload and faults, then checks progress without them.

    Within a bounded virtual time a leader must be elected, a record commit, and every replica commit up to
    it (the liveness part of the invariants). Returns the number of all events. Raises InvariantError with
    the seed.
    """
    workload, nemesis = WorkloadActions(quorum), Nemesis(quorum)
    quorum.start_all()
    workload.start()
    nemesis.start()
    quorum.run(events=events)
    workload.stop()
    nemesis.stop()
    quorum.stop_faults()
    offset = quorum.commit_value("the end", COMMIT_TIMEOUT_S)
    if not quorum.run(
        CATCH_UP_TIMEOUT_S, lambda: all(r.committed >= offset for r in quorum.replicas.values())
    ):
        raise quorum.failure(f"not all reach offset {offset}")
    return quorum.events
