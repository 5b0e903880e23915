"""Failures of periodic tasks, and sweeps that take several turns, on a real Raft replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorate.metadata.image.partitions import NO_LEADER
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.schema import Data

from .requests import registration, run
from .test_with_raft import Single

PATIENCE_S = 10.0


class UnforeseenError(Exception):
    """An exception that no handler and no task expects."""


async def started(directory: Path, **config: Any) -> Single:
    node = Single(directory, **config)
    await node.start()
    return node


async def until(node: Single, condition: Callable[[], bool]) -> None:
    """Waits until the condition holds after a commit."""
    seen = asyncio.Event()
    node.controller.add_image_listener(lambda _: seen.set())
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            seen.clear()
            await seen.wait()


async def unfenced(node: Single, *broker_ids: int) -> dict[int, int]:
    """Registers and unfences these brokers. Returns their broker epochs."""
    epochs = {}
    for broker_id in broker_ids:
        epochs[broker_id] = (await node.call(registration(broker_id))).broker_epoch
        await beat(node, broker_id, epochs[broker_id])
    return epochs


async def beat(node: Single, broker_id: int, epoch: int) -> None:
    offset = node.raft.log_end_offset
    await node.call(
        BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset)
    )


def fail_writes(
    node: Single, monkeypatch: pytest.MonkeyPatch, concerns: Callable[[Data], bool], times: int
) -> list[Data]:
    """Makes writes with such a record fail a number of times. Returns the list of the records that
    failed."""
    write = node.controller.state.write
    failed: list[Data] = []

    def failing(records: list[Data], *cause: Any, atomic: bool = False) -> int:
        found = [record for record in records if concerns(record)]
        if found and len(failed) < times:
            failed.append(found[0])
            raise UnforeseenError("no such luck")
        return write(records, *cause, atomic=atomic)

    monkeypatch.setattr(node.controller.state, "write", failing)
    return failed


def fences(broker_id: int) -> Callable[[Data], bool]:
    return lambda r: (
        isinstance(r, BrokerRegistrationChangeRecord) and (r.broker_id, r.fenced) == (broker_id, 1)
    )


# -- periodic tasks


def test_a_periodic_task_that_fails_runs_again_in_the_same_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = await started(tmp_path, max_idle_interval_s=0.02)
        epoch = node.controller.state.epoch
        failed = fail_writes(node, monkeypatch, lambda record: isinstance(record, NoOpRecord), 2)
        end = node.raft.log_end_offset
        await until(node, lambda: len(failed) == 2 and node.controller.state.committed_offset >= end)
        assert node.controller.state.epoch == epoch
        await node.stop()

    run(test())


def test_a_broker_whose_fencing_fails_is_fenced_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = await started(tmp_path, broker_session_timeout_s=0.2)
        await unfenced(node, 1)
        failed = fail_writes(node, monkeypatch, fences(1), 1)
        await until(node, lambda: node.controller.state.image.cluster.brokers[1].fenced)
        assert len(failed) == 1
        await node.stop()

    run(test())


def test_a_failed_fencing_does_not_block_the_fencing_of_other_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = await started(tmp_path, broker_session_timeout_s=0.2)
        await unfenced(node, 1, 2)
        fail_writes(node, monkeypatch, fences(1), 1_000_000)
        await until(node, lambda: node.controller.state.image.cluster.brokers[2].fenced)
        assert not node.controller.state.image.cluster.brokers[1].fenced
        await node.stop()

    run(test())


def test_a_fencing_that_fails_between_two_portions_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the failure the broker must not count as leaving, since it would get no leadership for the
    rest of the term."""

    async def test() -> None:
        node = await started(tmp_path, broker_session_timeout_s=0.6)
        defaults = "quorate.controller.replication.broker_changes.ChangeBatch.__init__.__defaults__"
        monkeypatch.setattr(defaults, (None, 2, 100), raising=False)
        await unfenced(node, 1, 2)
        make = CreateTopicsRequest.CreatableTopic
        await node.call(CreateTopicsRequest(topics=[make(name="t", num_partitions=8, replication_factor=2)]))
        seen = 0

        def third_change(record: Data) -> bool:
            nonlocal seen
            seen += isinstance(record, PartitionChangeRecord)
            return seen >= 3

        fail_writes(node, monkeypatch, third_change, 1)
        leaving = []
        node.controller.add_image_listener(
            lambda _: leaving.append(
                [continuation.leaving for continuation in node.controller.state.broker_sessions.continuations]
            )
        )
        await until(
            node,
            lambda: all(broker.fenced for broker in node.controller.state.image.cluster.brokers.values()),
        )
        assert node.controller.state.broker_sessions.continuations == []
        assert any(leaving)  # it was done in portions
        assert all(
            partition.leader == NO_LEADER
            for partition in node.controller.state.image.topics.by_name["t"].partitions
        )
        await node.stop()

    run(test())


async def run_to_its_end(node: Single, name: str) -> list[int]:
    """Runs a periodic task until its sweep is complete. Returns the number of records of each turn."""
    (task,) = (task for task in node.controller.tasks._tasks if task.name == name)
    now, written = node.controller.state.clock.now(), []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = node.controller.state.next_offset
            due = task.run(now)
            written.append(node.controller.state.next_offset - before)
            if due > now + 1:
                return written
            assert (
                node.controller.state.last_written == -1 or task.run(now) > now
            )  # nothing more before that is committed
            await asyncio.sleep(0)


async def with_leaders_elsewhere(node: Single, partitions: int) -> None:
    """A topic t on brokers 1 and 2 whose partitions are all led by broker 2."""
    epochs = await unfenced(node, 1, 2)
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    assignments = [assignment(partition_index=index, broker_ids=[1, 2]) for index in range(partitions)]
    make = CreateTopicsRequest.CreatableTopic
    wanted = make(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    await node.call(CreateTopicsRequest(topics=[wanted]))
    topic_id = node.controller.state.image.topics.by_name["t"].id
    changes: list[Data] = [
        PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=2) for index in range(partitions)
    ]
    written = node.controller.state.write(changes)
    await until(node, lambda: node.controller.state.committed_offset >= written)
    assert set(epochs) == {1, 2}


def leaders(node: Single) -> list[int]:
    return [partition.leader for partition in node.controller.state.next_image.topics.by_name["t"].partitions]


def test_a_sweep_elects_every_preferred_leader_however_few_it_may_elect_in_one_turn(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(tmp_path, max_elections_per_run=7)
        await with_leaders_elsewhere(node, 30)
        written = await run_to_its_end(node, "elect preferred leaders")
        assert [count for count in written if count] == [7, 7, 7, 7, 2]
        assert leaders(node) == [1] * 30
        await node.stop()

    run(test())


def test_a_sweep_that_fails_starts_again_with_the_unchanged_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = await started(tmp_path, max_elections_per_run=7)
        await with_leaders_elsewhere(node, 30)
        fail_writes(node, monkeypatch, lambda record: isinstance(record, PartitionChangeRecord), 1)
        with pytest.raises(UnforeseenError):
            await run_to_its_end(node, "elect preferred leaders")
        await run_to_its_end(node, "elect preferred leaders")
        assert leaders(node) == [1] * 30
        await node.stop()

    run(test())
