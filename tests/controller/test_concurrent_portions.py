"""Changes that begin while another change of the same broker is made in portions: all of them end, and
the last one determines the state of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quorate.controller.replication.broker_changes import CHANGES_PER_TURN
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .requests import broker, registration, run, topics
from .support import Harness, directory, uid

MANY = 3 * CHANGES_PER_TURN + 100


async def partitions(h: Harness, count: int, *replicas: int) -> None:
    assign, make = CreateTopicsRequest.CreatableReplicaAssignment, CreateTopicsRequest.CreatableTopic
    assignments = [assign(partition_index=n, broker_ids=list(replicas)) for n in range(count)]
    topic = make(name="many", num_partitions=-1, replication_factor=-1, assignments=assignments)
    created = await h.call(CreateTopicsRequest(topics=[topic]))
    assert created.topics[0].error_code == ErrorCode.NONE


def heartbeat(h: Harness, broker_id: int, epoch: int, **wants: Any) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=h.raft.log.end, **wants
    )


async def run_until_answered(
    h: Harness, *answers: asyncio.Future[Any], also: Callable[[], bool] = lambda: True
) -> list[Any]:
    """Runs the event loop, commits and the clock until all requests are answered. Returns their
    responses."""
    for _ in range(300):
        if all(answer.done() for answer in answers) and also():
            return [answer.exception() or answer.result() for answer in answers]
        for _ in range(4):
            await asyncio.sleep(0)
        h.raft.commit()
        h.clock.seconds += 0.01
        h.controller.run_due()
    raise AssertionError(f"not through after 300 commits, at offset {h.raft.log.end}")


async def unfencing(*replicas: int) -> tuple[Harness, int, asyncio.Future[Any]]:
    """A controller, the broker epoch of broker 1, and the pending heartbeat that unfences it. No
    partition has a leader."""
    h = await Harness().start()
    epochs = {broker_id: await broker(h, broker_id) for broker_id in replicas}
    await partitions(h, MANY, *replicas)
    for broker_id in reversed(replicas):
        await run_until_answered(h, h.send(heartbeat(h, broker_id, epochs[broker_id], want_fence=True)))
    assert h.controller.state.image.topics.leader_count(-1) == MANY
    return h, epochs[1], h.send(heartbeat(h, 1, epochs[1]))


def test_a_broker_that_dies_while_it_is_unfenced_ends_fenced() -> None:
    async def test() -> None:
        h, _, heartbeat_answer = await unfencing(1, 2)
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
        await run_until_answered(
            h, heartbeat_answer, also=lambda: h.controller.state.image.cluster.brokers[1].fenced
        )
        h.advance(60)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced
        assert h.controller.state.image.topics.leader_count(1) == 0
        assert h.controller.state.broker_sessions.continuations == []

    run(test())


def test_a_broker_that_is_killed_while_it_is_unfenced_may_register_again() -> None:
    async def test() -> None:
        h, epoch, heartbeat_answer = await unfencing(1)
        h.controller.connection_lost((1, epoch))
        again = registration(1)
        again.incarnation_id = uid(77)
        _, registered = await run_until_answered(h, heartbeat_answer, h.send(again))
        known = h.controller.state.image.cluster.brokers[1]
        assert (known.epoch, known.incarnation_id, known.fenced) == (registered.broker_epoch, uid(77), True)
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_a_broker_may_be_unregistered_while_it_is_unfenced() -> None:
    async def test() -> None:
        h, _, heartbeat_answer = await unfencing(1, 2)
        _, unregistered = await run_until_answered(
            h, heartbeat_answer, h.send(UnregisterBrokerRequest(broker_id=1))
        )
        assert unregistered.error_code == ErrorCode.NONE
        assert 1 not in h.controller.state.image.cluster.brokers
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_a_directory_that_fails_while_its_broker_is_unfenced_leads_nothing() -> None:
    async def test() -> None:
        h, epoch, unfenced = await unfencing(1)
        failed = h.send(heartbeat(h, 1, epoch, offline_log_dirs=[directory(1)]))
        assert [answered.is_fenced for answered in await run_until_answered(h, unfenced, failed)] == [
            False,
            False,
        ]
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_a_registration_and_an_unregistration_at_once_both_end() -> None:
    async def test() -> None:
        h = await Harness().start()
        for broker_id in (1, 2):
            await broker(h, broker_id)
        await partitions(h, MANY, 1, 2)
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
        again = registration(1)
        again.incarnation_id = uid(77)
        gone, registered = await run_until_answered(
            h, h.send(UnregisterBrokerRequest(broker_id=1)), h.send(again)
        )
        assert (gone.error_code, registered.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert h.controller.state.image.cluster.brokers[1].incarnation_id == uid(77)

    run(test())


@pytest.mark.parametrize("led", (CHANGES_PER_TURN - 100, 2 * CHANGES_PER_TURN, 2 * CHANGES_PER_TURN + 100))
def test_a_broker_that_shuts_down_waits_for_the_others_however_many_portions_it_takes(led: int) -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch, _ = await broker(h, 1), await broker(h, 2)
        await partitions(h, led, 1, 2)
        (answered,) = await run_until_answered(h, h.send(heartbeat(h, 1, epoch, want_shut_down=True)))
        assert (answered.should_shut_down, answered.is_fenced) == (False, False)
        assert 1 in h.controller.state.broker_sessions.shutdown_offsets
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_a_leaving_broker_joins_no_isr_and_gets_no_leadership() -> None:
    async def test() -> None:
        h = await Harness().start()
        epochs = {broker_id: await broker(h, broker_id) for broker_id in (1, 2)}
        await partitions(h, MANY, 1, 2)
        leaving = h.send(UnregisterBrokerRequest(broker_id=1))
        changed = h.controller.state.next_image.topics.by_name["many"]
        index, partition = next((n, p) for n, p in changed.partitions.items() if p.isr == (2,))
        make = AlterPartitionRequest
        wish = make.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                make.BrokerState(broker_id=2, broker_epoch=-1),
                make.BrokerState(broker_id=1, broker_epoch=-1),
            ],
        )
        topic = make.TopicData(topic_id=changed.id, partitions=[wish])
        back = h.send(make(broker_id=2, broker_epoch=epochs[2], topics=[topic]))
        created = h.send(topics("new"))
        refused, new, _ = await run_until_answered(h, back, created, leaving)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
        assert new.topics[0].error_code == ErrorCode.NONE
        assert h.controller.state.image.topics.by_name["new"].partitions[0].leader == 2

    run(test())
