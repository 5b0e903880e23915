"""Changes of very many partitions: one portion in each turn of the event loop, with the same result as a
single turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.context import View
from quorate.controller.handlers.broker_heartbeat import broker_heartbeat
from quorate.controller.handlers.register_broker import register_broker
from quorate.controller.handlers.unregister_broker import unregister_broker
from quorate.controller.replication import broker_changes as isr_updates
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, ChangeBatch
from quorate.metadata.image.partitions import NO_LEADER
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .requests import beat, broker, registration, topics
from .support import CLUSTER, LATEST, Cluster, Harness, directory, uid

BROKER = 1
OTHERS = (2, 3, 4)

Change = Callable[[View, list[Any], ChangeBatch], None]


def fence(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.fence(view, (BROKER,), records, batch)


def unfence(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.unfence(view, BROKER, records, batch)


def unregister(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.unregister(view, BROKER, 100 + BROKER, records, batch)


def shut_down(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.begin_controlled_shutdown(view, BROKER, records, batch)


def come_back_clean(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.clean_up_incarnation(view, BROKER, True, records, batch)


def come_back_unclean(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.clean_up_incarnation(view, BROKER, False, records, batch)


def lose_directory(view: View, records: list[Any], batch: ChangeBatch) -> None:
    isr_updates.take_directories_offline(view, BROKER, [directory(BROKER)], records, batch)


CHANGES = (fence, unfence, unregister, shut_down, come_back_clean, come_back_unclean, lose_directory)


def random_cluster(seed: int, elr: bool) -> Cluster:
    """A cluster with about forty partitions, in and out of the ISR of broker 1, some of them without a
    leader."""
    rng = Random(seed)
    cluster = Cluster().brokers(BROKER, *OTHERS)
    if elr:
        cluster.elr()
    for number in range(8):
        replicas = [rng.sample([BROKER, *OTHERS], rng.randint(1, 4)) for _ in range(rng.randint(1, 9))]
        cluster.topic(f"t{number}", *replicas)
    for broker_id in rng.sample(OTHERS, rng.randint(0, 3)):
        records: list[Any] = []
        isr_updates.fence(cluster.view, (broker_id,), records, ChangeBatch(changes=1_000_000))
        cluster.apply(records)
    return cluster


def carry_out(cluster: Cluster, change: Change, changes_per_turn: int) -> int:
    """Runs all portions of a change. Returns their number."""
    continuation, turns = None, 0
    while True:
        records: list[Any] = []
        batch = ChangeBatch(continuation, changes_per_turn)
        change(cluster.view, records, batch)
        cluster.apply(records)
        turns += 1
        continuation = batch.continuation
        if continuation is None:
            return turns
        assert sum(isinstance(record, PartitionChangeRecord) for record in records) == changes_per_turn


@pytest.mark.parametrize("elr", (False, True), ids=("without ELR", "with ELR"))
@pytest.mark.parametrize("change", CHANGES)
def test_portions_give_the_same_state_as_a_single_turn(change: Change, elr: bool) -> None:
    several = 0
    for seed in range(20):
        at_once, in_portions = random_cluster(seed, elr), random_cluster(seed, elr)
        if change is unfence:
            for cluster in (at_once, in_portions):
                carry_out(cluster, fence, 1_000_000)
        assert carry_out(at_once, change, 1_000_000) == 1
        several += carry_out(in_portions, change, 1 + seed % 4) > 1
        assert in_portions.image.topics == at_once.image.topics
        assert in_portions.image.cluster == at_once.image.cluster
    assert several > 5


def test_the_registration_changes_in_the_last_portion_of_a_fence_and_in_the_first_of_an_unfence() -> None:
    cluster = Cluster().brokers(BROKER, 2)
    cluster.topic("t", *([[BROKER]] * 5))
    for change, positions in ((fence, [5]), (unfence, [0])):
        written: list[Any] = []
        continuation = None
        while True:
            records: list[Any] = []
            batch = ChangeBatch(continuation, 2)
            change(cluster.view, records, batch)
            cluster.apply(records)
            written += records
            if (continuation := batch.continuation) is None:
                break
        assert len(written) == 6
        assert [
            n for n, record in enumerate(written) if isinstance(record, BrokerRegistrationChangeRecord)
        ] == positions


def test_topics_may_be_deleted_and_created_between_two_portions() -> None:
    cluster = Cluster().brokers(BROKER, 2)
    ids = [cluster.topic(name, [BROKER, 2], [BROKER, 2]) for name in ("a", "b", "c")]
    records: list[Any] = []
    batch = ChangeBatch(None, 3)
    fence(cluster.view, records, batch)
    cluster.apply(records)
    untouched = next(i for i in ids if i not in {record.topic_id for record in records})
    cluster.topic("new", [2])
    cluster.apply([RemoveTopicRecord(topic_id=untouched)])
    left: list[Any] = []
    batch = ChangeBatch(batch.continuation, 100)
    fence(cluster.view, left, batch)
    cluster.apply(left)
    assert batch.continuation is None
    assert all(BROKER not in p.isr for topic in cluster.image.topics.by_id.values() for p in topic.partitions)
    assert cluster.image.cluster.brokers[BROKER].fenced


def test_the_visits_of_a_turn_are_limited() -> None:
    cluster = Cluster().brokers(BROKER, 2)
    cluster.topic("t", *([[BROKER, 2]] * 50), isr=[2])
    turns, continuation = 0, None
    while True:
        records: list[Any] = []
        batch = ChangeBatch(continuation, visits=20)
        fence(cluster.view, records, batch)
        cluster.apply(records)
        turns += 1
        if (continuation := batch.continuation) is None:
            break
        assert records == []
    assert turns == 3
    assert cluster.image.cluster.brokers[BROKER].fenced


def test_nothing_is_assigned_to_a_leaving_broker_or_a_failing_directory() -> None:
    cluster = Cluster().brokers(BROKER, 2, directories=2)
    assert cluster.view.is_active(BROKER)
    continuation = Continuation(iter(()), leaving=(BROKER,))
    cluster.broker_sessions.replace_continuation(None, continuation)
    assert (cluster.view.is_active(BROKER), cluster.view.is_active(2)) == (False, True)
    following = Continuation(iter(()), failing=(directory(2, 1),))
    cluster.broker_sessions.replace_continuation(continuation, following)
    assert cluster.view.is_active(BROKER)
    assert [cluster.view.has_online_directory(2, directory(2, n)) for n in range(2)] == [True, False]
    cluster.broker_sessions.replace_continuation(following, None)
    assert cluster.view.has_online_directory(2, directory(2, 1))


# -- on the driver

MANY = 2 * CHANGES_PER_TURN + 100


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def with_many_partitions(h: Harness) -> tuple[int, int]:
    """Two brokers, the first of which leads very many partitions. Returns their broker epochs."""
    first, second = await broker(h, 1), await broker(h, 2)
    assign = CreateTopicsRequest.CreatableReplicaAssignment
    make = CreateTopicsRequest.CreatableTopic
    assignments = [assign(partition_index=n, broker_ids=[1, 2]) for n in range(MANY)]
    created = await h.call(
        CreateTopicsRequest(
            topics=[make(name="many", num_partitions=-1, replication_factor=-1, assignments=assignments)]
        )
    )
    assert created.topics[0].error_code == ErrorCode.NONE
    return first, second


async def turns(h: Harness, until: Callable[[], bool]) -> int:
    count = 0
    while not until():
        await asyncio.sleep(0)
        h.raft.commit()
        count += 1
        assert count < 1_000
    return count


def test_other_requests_are_handled_between_the_portions_of_a_shutdown() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        leaving = asyncio.ensure_future(beat(h, 1, first, want_shut_down=True))
        await asyncio.sleep(0)
        answer = h.send(topics("between"))
        await turns(h, lambda: bool(answer.done()))
        assert answer.result().topics[0].error_code == ErrorCode.NONE
        assert not leaving.done()
        assert (await leaving).should_shut_down is False
        records = h.records
        between = next(n for n, r in enumerate(records) if isinstance(r, TopicRecord) and r.name == "between")
        moved = [n for n, r in enumerate(records) if isinstance(r, PartitionChangeRecord)]
        assert len(moved) == MANY
        assert moved[0] < between < moved[-1]
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_the_response_to_a_change_in_portions_waits_for_the_last_commit() -> None:
    async def test() -> None:
        h = await Harness().start()
        await with_many_partitions(h)
        answer = h.send(UnregisterBrokerRequest(broker_id=1))
        for _ in range(3):
            for _ in range(5):
                await asyncio.sleep(0)
            assert not answer.done()
            h.raft.commit()
        assert (await answer).error_code == ErrorCode.NONE
        assert 1 not in h.controller.state.image.cluster.brokers

    run(test())


def test_a_term_that_ends_between_two_portions_answers_not_controller() -> None:
    async def test() -> None:
        h = await Harness().start()
        await with_many_partitions(h)
        answer = h.send(UnregisterBrokerRequest(broker_id=1))
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError) as error:
            await answer
        assert error.value.code == ErrorCode.NOT_CONTROLLER
        assert sum(isinstance(r, PartitionChangeRecord) for r in h.records) == CHANGES_PER_TURN

    run(test())


@pytest.mark.parametrize("begun", [True, False])
def test_a_continuation_is_not_used_in_a_later_term_of_the_same_controller(begun: bool) -> None:
    """The continuation does not contain partitions that the broker got since its first turn."""

    async def test() -> None:
        h = await Harness().start()
        await with_many_partitions(h)
        answer = h.send(UnregisterBrokerRequest(broker_id=1))
        if begun:
            await asyncio.sleep(0)  # it waits for its first portion
        h.raft.commit()  # the first portion is stable, and before anything goes on
        h.raft.become_leader(9)
        with pytest.raises(KafkaError) as error:
            await answer
        assert error.value.code == ErrorCode.NOT_CONTROLLER
        assert sum(isinstance(r, PartitionChangeRecord) for r in h.records) == CHANGES_PER_TURN

    run(test())


def test_a_broker_whose_session_expired_is_fenced_in_portions() -> None:
    async def test() -> None:
        h = await Harness().start()
        _, second = await with_many_partitions(h)
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s - 1
        await beat(h, 2, second)
        h.clock.seconds += 2
        rounds = []
        while not h.controller.state.next_image.cluster.brokers[1].fenced:
            before = h.raft.log.end
            h.clock.seconds += 0.01
            h.controller.run_due()
            assert h.raft.log.end - before <= CHANGES_PER_TURN + 1
            h.controller.run_due()  # none before the last is committed
            rounds.append(h.raft.log.end - before)
            h.raft.commit()
        assert rounds == [CHANGES_PER_TURN, CHANGES_PER_TURN, 101]
        assert h.controller.state.next_image.topics.leader_count(1) == 0
        assert not h.controller.state.next_image.cluster.brokers[2].fenced

    run(test())


def test_a_new_incarnation_is_registered_when_the_old_one_is_out_of_every_isr() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
        feature = BrokerRegistrationRequest.Feature
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER,
            incarnation_id=uid(99),
            features=[
                feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST),
                feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
            ],
            log_dirs=[directory(1)],
        )
        answer = h.send(request)
        await turns(h, lambda: bool(answer.done()))
        response = await answer
        assert response.broker_epoch > first
        registered = h.controller.state.image.cluster.brokers[1]
        assert (registered.epoch, registered.incarnation_id, registered.fenced) == (
            response.broker_epoch,
            uid(99),
            True,
        )
        assert h.controller.state.image.topics.leader_count(1) == 0

    run(test())


def test_every_leaderless_partition_elects_when_its_only_broker_is_unfenced() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        second = h.controller.state.image.cluster.brokers[2].epoch
        await h_call(h, BrokerHeartbeatRequest(broker_id=2, broker_epoch=second, want_fence=True))
        await h_call(h, BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, want_fence=True))
        assert h.controller.state.image.topics.leader_count(NO_LEADER) == MANY
        offset = h.raft.log.end
        await h_call(
            h, BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, current_metadata_offset=offset)
        )
        assert h.controller.state.image.topics.leader_count(1) == MANY

    run(test())


@pytest.mark.parametrize("fenced_by", ["the controller", "the broker"])
def test_a_term_that_ends_while_an_only_broker_is_fenced_leaves_no_partition_without_a_leader(
    fenced_by: str,
) -> None:
    """The broker is well, and stays registered as unfenced: no later heartbeat of its changes anything."""

    async def test() -> None:
        h = await Harness().start()
        first, second = await with_many_partitions(h)
        await h_call(h, BrokerHeartbeatRequest(broker_id=2, broker_epoch=second, want_fence=True))
        if fenced_by == "the controller":
            h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
            h.controller.run_due()
        else:
            answer = h.send(BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, want_fence=True))
        h.raft.commit()
        h.raft.follow(2, 2)
        if fenced_by == "the broker":
            with pytest.raises(KafkaError):
                await answer
        assert h.controller.state.image.topics.leader_count(NO_LEADER) == CHANGES_PER_TURN
        h.raft.become_leader(3)
        for _ in range(5):
            h.clock.seconds += 0.01
            h.controller.run_due()
            h.raft.commit()
        await h_call(
            h, BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, current_metadata_offset=h.raft.log.end)
        )
        assert not h.controller.state.image.cluster.brokers[1].fenced
        assert h.controller.state.image.topics.leader_count(1) == MANY

    run(test())


def test_a_term_that_ends_while_an_only_broker_is_unfenced_leaves_no_partition_without_a_leader() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, second = await with_many_partitions(h)
        for broker_id, epoch in ((2, second), (1, first)):
            await h_call(h, BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, want_fence=True))
        answer = h.send(
            BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, current_metadata_offset=h.raft.log.end)
        )
        h.raft.commit()
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError):
            await answer
        assert 0 < h.controller.state.image.topics.leader_count(NO_LEADER) < MANY
        h.raft.become_leader(3)
        for _ in range(5):
            h.clock.seconds += 0.01
            h.controller.run_due()
            h.raft.commit()
        assert h.controller.state.image.topics.leader_count(1) == MANY

    run(test())


def test_replicas_in_a_directory_that_fails_leave_their_isrs_in_portions() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        offset = h.raft.log.end
        failed = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=first, current_metadata_offset=offset, offline_log_dirs=[directory(1)]
        )
        answer = h.send(failed)
        assert await turns(h, answer.done) > MANY // CHANGES_PER_TURN
        assert (await answer).is_fenced is False
        image = h.controller.state.image
        assert image.topics.leader_count(2) == MANY
        changed = [r for r in h.records if isinstance(r, PartitionChangeRecord)]
        assert len(changed) == MANY

    run(test())


def test_isr_changes_of_very_many_partitions_are_answered_each_after_all_portions() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        topic = h.controller.state.image.topics.by_name["many"]
        make = AlterPartitionRequest
        wishes = [
            make.PartitionData(
                partition_index=n,
                leader_epoch=topic.partitions[n].leader_epoch if n != 7 else 99,
                partition_epoch=topic.partitions[n].partition_epoch,
                new_isr_with_epochs=[make.BrokerState(broker_id=1, broker_epoch=first)],
            )
            for n in range(MANY)
        ]
        answer = h.send(
            make(
                broker_id=1, broker_epoch=first, topics=[make.TopicData(topic_id=topic.id, partitions=wishes)]
            ),
        )
        assert await turns(h, answer.done) > MANY // CHANGES_PER_TURN
        (answered,) = (await answer).topics
        assert [part.partition_index for part in answered.partitions] == list(range(MANY))
        assert [
            part.partition_index for part in answered.partitions if part.error_code != ErrorCode.NONE
        ] == [7]
        changed = h.controller.state.image.topics.by_name["many"].partitions
        assert [n for n in range(MANY) if changed[n].isr != (1,)] == [7]

    run(test())


@pytest.mark.parametrize("online", (True, False))
def test_very_many_replicas_are_assigned_to_a_directory_in_portions(online: bool) -> None:
    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        elsewhere = directory(1, 1)
        if online:
            registered = h.controller.state.image.cluster.brokers[1]
            again = registration(1)
            again.incarnation_id, again.log_dirs = (
                registered.incarnation_id,
                [elsewhere, *registered.log_dirs],
            )
            await h_call(h, again)
        topic_id = h.controller.state.image.topics.by_name["many"].id
        make = AssignReplicasToDirsRequest
        wishes = [make.PartitionData(partition_index=n) for n in range(MANY + 1)]
        topic = make.TopicData(topic_id=topic_id, partitions=wishes)
        answer = h.send(
            make(
                broker_id=1,
                broker_epoch=first,
                directories=[make.DirectoryData(id=elsewhere, topics=[topic])],
            )
        )
        assert await turns(h, answer.done) > MANY // CHANGES_PER_TURN
        (answered,) = (await answer).directories[0].topics
        assert (await answer).directories[0].id == elsewhere and answered.topic_id == topic_id
        codes = [part.error_code for part in answered.partitions]
        assert codes == [*[ErrorCode.NONE] * MANY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        changed = h.controller.state.image.topics.by_name["many"].partitions
        assert all(changed[n].directory(1) == elsewhere for n in range(MANY))
        assert all(
            (1 in changed[n].isr) is online and (changed[n].leader == 1) <= online for n in range(MANY)
        )

    run(test())


def test_a_request_whose_portions_write_nothing_is_answered() -> None:
    """None of its portions writes a record that could commit."""

    async def test() -> None:
        h = await Harness().start()
        first, _ = await with_many_partitions(h)
        make = AlterPartitionRequest
        wishes = [make.PartitionData(partition_index=n) for n in range(MANY)]
        request = make(
            broker_id=1, broker_epoch=first, topics=[make.TopicData(topic_id=uid(1), partitions=wishes)]
        )
        (answered,) = (await asyncio.wait_for(h.send(request), 5)).topics
        assert {part.error_code for part in answered.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}
        assert len(answered.partitions) == MANY

    run(test())


async def h_call(h: Harness, request: Any) -> Any:
    answer = h.send(request)
    if asyncio.isfuture(answer):
        await turns(h, answer.done)
        return await answer
    return answer


@pytest.mark.parametrize("handler", (broker_heartbeat, register_broker, unregister_broker))
def test_a_handler_returns_a_continuation(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeBatch.__init__, "__defaults__", (None, 2, 100))
    cluster = Cluster().brokers(BROKER, 2)
    cluster.topic("t", *([[BROKER, 2]] * 5))
    feature = BrokerRegistrationRequest.Feature(
        name="metadata.version", min_supported_version=7, max_supported_version=LATEST
    )
    kraft = BrokerRegistrationRequest.Feature(
        name="kraft.version", min_supported_version=0, max_supported_version=1
    )
    request: Any = {
        broker_heartbeat: BrokerHeartbeatRequest(
            broker_id=BROKER, broker_epoch=100 + BROKER, want_shut_down=True
        ),
        register_broker: BrokerRegistrationRequest(
            broker_id=BROKER,
            cluster_id=CLUSTER,
            incarnation_id=uid(7),
            features=[feature, kraft],
            log_dirs=[directory(BROKER)],
        ),
        unregister_broker: UnregisterBrokerRequest(broker_id=BROKER),
    }[handler]
    result = handler(cluster.view, request, cluster.ctx())
    assert result.continuation is not None
    assert (result.touch, result.registered, result.atomic) == (None, None, False)
    assert sum(isinstance(record, PartitionChangeRecord) for record in result.records) == 2
