"""The driver on a replica in memory: the first records of a new active controller."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.activation_records import ActivationError, activation_records
from quorate.metadata.bootstrap import bootstrap_records
from quorate.metadata.image import EMPTY
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from quorate.raft.types import BatchTooLargeError

from .requests import broker, run
from .support import LATEST, Harness, uid


def test_an_empty_log_gets_the_bootstrap_records_in_a_transaction() -> None:
    async def test() -> None:
        h = await Harness(
            bootstrap=bootstrap_records({"metadata.version": LATEST, "eligible.leader.replicas.version": 1})
        ).start()
        assert [type(record) for record in h.records] == [
            BeginTransactionRecord,
            FeatureLevelRecord,
            FeatureLevelRecord,
            ConfigRecord,  # min.insync.replicas, which eligible leader replicas need
            EndTransactionRecord,
            RegisterControllerRecord,
        ]
        assert h.controller.state.image.features.metadata_version == LATEST
        assert h.controller.state.image.configs.cluster_default()["min.insync.replicas"] == "1"

    run(test())


@pytest.mark.parametrize(("level", "atomic"), [(12, True), (13, False)])
def test_before_transactions_the_bootstrap_records_are_one_batch(level: int, atomic: bool) -> None:
    records, is_atomic, _ = activation_records(EMPTY, bootstrap_records({"metadata.version": level}), 1)
    assert is_atomic is atomic
    assert isinstance(records[0], FeatureLevelRecord) is atomic


def test_a_log_with_a_metadata_version_gets_no_bootstrap_records() -> None:
    image = apply_records(
        EMPTY,
        [FeatureLevelRecord(name="metadata.version", feature_level=20)],
        offset=0,
        epoch=1,
        timestamp_ms=0,
    )
    assert activation_records(image, [], 1)[0] == []


def test_an_open_transaction_of_the_previous_controller_is_aborted() -> None:
    image = apply_records(
        EMPTY,
        [BeginTransactionRecord(name="x"), TopicRecord(name="t", topic_id=uid(9))],
        offset=1,
        epoch=1,
        timestamp_ms=0,
    )
    records, _, _ = activation_records(image, bootstrap_records({"metadata.version": LATEST}), 1)
    assert [type(record) for record in records] == [
        AbortTransactionRecord,
        BeginTransactionRecord,
        FeatureLevelRecord,
        EndTransactionRecord,
    ]


@pytest.mark.parametrize("bootstrap", [[], bootstrap_records({"group.version": 1, "metadata.version": 8})])
def test_a_log_with_which_no_controller_can_become_active_is_fatal(bootstrap: list[Any]) -> None:
    image = (
        EMPTY
        if not bootstrap
        else apply_records(EMPTY, [BeginTransactionRecord()], offset=0, epoch=1, timestamp_ms=0)
    )
    with pytest.raises(ActivationError):
        activation_records(image, bootstrap, 1)

    async def test() -> None:
        h = Harness(bootstrap=[])
        await h.start()
        assert isinstance(h.fatal[0], ActivationError)
        assert not h.controller.state.is_active

    run(test())


def test_activation_records_that_do_not_fit_into_one_batch_are_fatal() -> None:
    """Below metadata.version 13 they are one batch. A controller without them must not stay active."""

    async def test() -> None:
        h = Harness(bootstrap=bootstrap_records({"metadata.version": 12}))
        h.raft.max_batch_bytes = 1
        await h.start()
        assert [type(error) for error in h.fatal] == [BatchTooLargeError]
        assert not h.controller.state.is_active

    run(test())


def test_a_controller_registers_only_a_new_incarnation_of_itself() -> None:
    async def test() -> None:
        h = await Harness().start()
        assert h.controller.state.image.cluster.controllers[1].incarnation_id == uid(0xC1)
        count = len(h.records)
        await broker(h)
        assert not any(isinstance(record, RegisterControllerRecord) for record in h.records[count:])

    run(test())


def test_a_controller_that_steps_down_between_two_batches_of_a_write_has_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        h = await Harness().start()
        monkeypatch.setattr(h.raft, "max_batch_bytes", 200)
        keys = {f"k{number}" for number in range(12)}
        h.controller.state.write(
            [
                ConfigRecord(resource_type=2, resource_name="t", name=key, value="v" * 20)
                for key in sorted(keys)
            ]
        )
        last = h.raft.log.batches[-1].base_offset
        h.raft.commit(last)
        assert 0 < len(h.controller.state.image.configs.topic("t")) < len(keys)
        h.raft.follow(2, 2)  # it has the last batch as well, and commits it
        h.raft.commit()
        assert set(h.controller.state.image.configs.topic("t")) == keys
        assert not h.fatal

    run(test())
