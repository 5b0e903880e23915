"""Simulations of whole Raft clients on virtual time, simulated disks and network, repeatable by seed."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from quorate.log import files as log_files
from quorate.log.partition import partition_log
from quorate.raft.core.effects import Effects
from quorate.raft.core.events import Synced
from quorate.raft.runtime.driver import RaftDriver
from simulation.checker.invariants import InvariantError
from simulation.config import DiskConfig, FaultSchedule, SimulationConfig, Topology
from simulation.nodes.cluster import Cluster, run_cluster
from simulation.nodes.loop import CALLBACK_OWNER, VirtualLoop
from simulation.runner import run_seeds
from tests.simulation import coverage, planted

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_random_worlds_of_whole_nodes_keep_every_invariant() -> None:
    statistics = run_seeds("node", 700, 25_000, 2000, lambda line: None)
    assert statistics.elections > 20
    assert statistics.truncations > 3


def test_a_seed_gives_the_same_history_each_time() -> None:
    def history(seed: int) -> tuple[object, ...]:
        trace: list[str] = []
        cluster = run_cluster(SimulationConfig.from_seed(seed), 1000, trace.append)
        return trace, cluster.events, cluster.now, cluster.checker.ends

    assert history(7) == history(7)


@pytest.mark.slow
def test_every_kind_of_fault_and_work_occurs() -> None:
    def run(config: SimulationConfig) -> Counter[str]:
        trace: list[str] = []
        cluster = run_cluster(config, 6000, trace.append)
        assert len(cluster.acknowledged) > 50
        forgot = sum("forgets its log" in line for line in trace)
        checker = cluster.checker
        return cluster.coverage + Counter(
            {
                "log starts moved": forgot,
                "elections": checker.elections,
                "truncations": checker.truncations,
                "changes of voters": checker.voter_changes,
            }
        )

    kinds = (
        *coverage.KINDS,
        "log starts moved",
        "stops by a failing disk",
        "torn writes",
        "unsynced names lost",
        "unsynced writes lost",
    )
    assert coverage.missing(run, kinds) == []


# --- bugs planted in storage and driver -----------------------------------------------------------


def no_fsync_of_the_log(patch: Patch) -> None:
    patch.setattr(partition_log.PartitionLog, "flush", lambda self, *args, **options: None)


def no_fsync_of_the_quorum_state(patch: Patch) -> None:
    write = log_files.write_atomically
    target = "quorate.raft.storage.quorum_state.write_atomically"
    patch.setattr(target, lambda path, data, sync=True: write(path, data, sync=False))


def no_fsync_of_directories(patch: Patch) -> None:
    """Loses directory entries: a file is durable, its name is not."""
    for module in (
        "files",
        "scheduler",
        "partition.flusher",
        "partition.local_log",
        "partition.partition_log",
    ):
        patch.setattr(f"quorate.log.{module}.fsync_directory", lambda path: None)


def answer_before_the_save(patch: Patch) -> None:
    """Performs effect 5 before effect 2: a vote is sent before it is durable."""
    perform = RaftDriver._perform

    def hasty(self: RaftDriver, effects: Effects) -> None:
        state = effects.save_quorum_state
        if effects.answers and state is not None:
            effects.save_quorum_state = None
            asyncio.get_running_loop().call_later(0.001, self._state_writer.save, state, False)
        perform(self, effects)

    patch.setattr(RaftDriver, "_perform", hasty)


def save_the_state_later(patch: Patch) -> None:
    """Treats every quorum state as one whose save may wait."""
    perform = RaftDriver._perform

    def lazy(self: RaftDriver, effects: Effects) -> None:
        effects.save_may_wait = True
        perform(self, effects)

    patch.setattr(RaftDriver, "_perform", lazy)


def acknowledge_before_the_fsync(patch: Patch) -> None:
    """Reports the end of an fsync to the core when it begins."""

    def start_sync(self: RaftDriver) -> None:
        if not self._syncer.running:
            self._queue.append(Synced(self.log.end_offset))
            self._syncer.in_thread(lambda error: None)

    patch.setattr(RaftDriver, "_start_sync", start_sync)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "caught_by"),
    [
        (no_fsync_of_the_log, "acknowledged is durable|majority"),
        (no_fsync_of_the_quorum_state, "one vote an epoch|epoch: "),
        (no_fsync_of_directories, "acknowledged is durable|majority|one vote an epoch|epoch: "),
        (answer_before_the_save, "one vote an epoch|epoch: "),
        (save_the_state_later, "one vote an epoch|epoch: "),
        (acknowledge_before_the_fsync, "acknowledged is durable|majority"),
        (planted.count_non_voters, "majority"),
        (planted.vote_twice, "one vote an epoch|one leader an epoch"),
        (planted.grant_a_pre_vote_while_hearing_the_leader, "pre-vote"),
        (
            planted.apply_voters_at_commit,
            "majority|one leader an epoch|one voter of difference|nothing commits",
        ),
    ],
)
def test_a_planted_bug_is_caught_in_whole_nodes(
    plant: Callable[[Patch], None], caught_by: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises(InvariantError, match=rf"seed \d+, event \d+, [0-9.]+ s: .*({caught_by})"):
        run_seeds("node", 0, 150_000, 2000, lambda line: None)


# --- what simulation found ------------------------------------------------------------------------


def test_a_vote_is_not_forgotten_with_the_directory_that_it_is_in() -> None:
    """The first start of a static quorum creates the log's directory.

    Its name must be durable before a vote.
    """
    config = SimulationConfig(1, Topology(kraft_version=0), faults=FaultSchedule(power=1.0))
    cluster = Cluster(config)
    with cluster.running():
        cluster.start_all()
        assert cluster.run(10, lambda: cluster.leader is not None)
        for process in cluster.replicas.values():
            state = process.disk.durable("meta", "__cluster_metadata-0", "quorum-state")
            assert process.core.state.epoch == 0 or state is not None


def test_a_broker_starts_beside_a_torn_quorum_state() -> None:
    cluster = Cluster(SimulationConfig(1, Topology(voters=1, observers=1)))
    with cluster.running():
        cluster.start_all()
        cluster.commit_value("a")
        broker = cluster.replicas[2]
        assert cluster.run(10, lambda: broker.committed == cluster.checker.committed_end)
        broker.crash(lose_power=False)
        broker.disk.online = True
        fd = os.open(f"{broker.disk.path}/meta/__cluster_metadata-0/quorum-state", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b'{"clusterId":"', 0)
        os.close(fd)
        broker.start()
        cluster.commit_value("b")
        assert cluster.run(10, lambda: broker.committed == cluster.checker.committed_end)


def test_a_log_starts_at_its_first_snapshot_after_a_restart_too() -> None:
    """Its first segment may begin earlier, and the start of a log is stored nowhere else (KIP-630)."""
    cluster = Cluster(
        SimulationConfig(
            4, Topology(voters=1), disks=DiskConfig(inline=1.0, segment_ms=2000, retention_bytes=2000)
        )
    )
    with cluster.running():
        cluster.start_all()
        [process] = cluster.replicas.values()
        for value in range(6):
            for i in range(10):
                cluster.commit_value(value)
                if i == 5:
                    process.take_snapshot()
            cluster.run(3)
        start = process.client.log.start_offset
        assert start not in [0, *(s.base_offset for s in process.client.log._log.segments)]
        assert start == process.client.log.earliest_snapshot().offset  # type: ignore[union-attr]
        process.crash(lose_power=False)
        process.start()
        assert cluster.run(5, lambda: process.started)
        assert process.client.log.start_offset == start


def test_what_a_process_made_durable_in_the_event_in_which_it_dies_counts() -> None:
    """The process may have acknowledged it, so the checker must know it."""
    cluster = Cluster(SimulationConfig(5, Topology(voters=1), disks=DiskConfig(inline=1.0)))
    with cluster.running():
        cluster.start_all()
        cluster.commit_value("a")
        [process] = cluster.replicas.values()
        before = process.model.log.end
        incarnation = process.current
        assert incarnation is not None
        process.propose(["b"])
        incarnation.context.run(incarnation.client.driver._flush_proposals)
        process.crash(lose_power=True)
        assert process.model.log.end == process.observer.durable_end() == before + 1


# --- the loop -------------------------------------------------------------------------------------


class Owner:
    def __init__(self) -> None:
        self.alive = True
        self.blocked_until = 0.0
        self.tasks: dict[asyncio.Task[object], None] = {}
        self.errors: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)


def test_virtual_time_passes_without_waiting() -> None:
    loop, woke = VirtualLoop(), []

    async def sleeper() -> None:
        await asyncio.sleep(3600)
        woke.append(loop.time())

    with loop.running():
        task = loop.create_task(sleeper())
        started = time.monotonic()
        loop.run_ready()
        while loop.run_event():
            pass
        assert task.done()
    assert 3600 <= woke[0] < 3600.001
    assert time.monotonic() - started < 5


def test_callbacks_of_a_dead_host_never_run_and_those_of_a_paused_one_wait() -> None:
    loop, ran = VirtualLoop(), []
    dead, paused = Owner(), Owner()
    paused.blocked_until = 5.0
    with loop.running():
        for owner in (dead, paused):
            loop.world_context.copy().run(
                lambda owner=owner: (
                    CALLBACK_OWNER.set(owner),
                    loop.call_later(1.0, lambda: ran.append((owner, loop.time()))),
                )  # type: ignore[misc]
            )
        dead.alive = False
        while loop.run_event():
            pass
    assert [(h, round(t, 6)) for h, t in ran] == [(paused, 5.0)]


def test_a_full_disk_stops_the_node_that_finds_it_full() -> None:
    cluster = Cluster(SimulationConfig(2))
    with cluster.running():
        cluster.start_all()
        cluster.commit_value("a")
        leader = cluster.leader
        assert leader is not None
        leader.disk.failing_errno = errno.ENOSPC
        leader.propose(["b"])
        assert cluster.run(10, lambda: not leader.alive)
        cluster.commit_value("c")
