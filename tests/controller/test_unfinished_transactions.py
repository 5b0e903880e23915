"""Metadata transactions whose end is not written: by time, by a change of the leader, by a failure."""

from __future__ import annotations

import pytest

from quorate.controller.requests import atomic_changes
from quorate.metadata.image import MetadataImage
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import (
    AbortTransactionRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError

from .large_changes import LIMIT, answered, begun, large, started, until
from .requests import broker, run, topics
from .support import FakeLog, FakeRaft, Harness


def replica(log: FakeLog, node_id: int) -> Harness:
    return Harness(FakeRaft(node_id, log, voters=(1, 2, 3)), node_id=node_id, max_records_per_op=LIMIT)


@pytest.mark.parametrize("parts", range(1, 12))
def test_the_next_leader_aborts_what_the_dead_one_has_not_ended(parts: int) -> None:
    """The leader dies after each part. All replicas show the whole topic or none of it."""

    async def test() -> None:
        log = FakeLog()
        one, two, three = [replica(log, node_id) for node_id in (1, 2, 3)]
        for follower in (two, three):
            await follower.start(lead=False)
        await one.start()
        await broker(one)
        answer = one.send(large())
        await begun(one, parts)
        assert log.batches[-1].values
        two.raft.commit()
        three.raft.commit()
        ended = two.controller.state.image.transaction is None
        assert ended == (parts == 11)
        one.raft.follow(2, 2)
        two.raft.become_leader(2)
        two.raft.commit()
        for each in (one, three):
            each.raft.commit()
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        images = [each.controller.state.image for each in (one, two, three)]
        assert [image.transaction for image in images] == [None] * 3
        assert [set(image.topics.by_name) for image in images] == [{"large"} if ended else set()] * 3
        assert images[0] == images[1] == images[2]
        from_the_log = apply_committed(MetadataImage(), log.batches)
        assert from_the_log.topics == images[0].topics
        aborts = [record for record in two.records if isinstance(record, AbortTransactionRecord)]
        assert [record.reason for record in aborts] == ([] if ended else ["Controller failover"])
        assert not one.controller.state.exclusive
        assert [each.fatal for each in (one, two, three)] == [[], [], []]

    run(test())


def test_requests_that_waited_for_a_transaction_fail_with_its_leader() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())
        await begun(h)
        waiting = h.send(topics("other"))
        h.raft.follow(2, 2)
        for each in (answer, waiting):
            with pytest.raises(KafkaError) as raised:
                await each
            assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_a_controller_that_leads_again_aborts_its_own_transaction() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())
        await begun(h, 3)
        h.raft.follow(2, 2)
        h.raft.become_leader(3)
        h.raft.commit()
        with pytest.raises(KafkaError):
            await answer
        assert isinstance(h.records[-1], AbortTransactionRecord)
        await h.call(topics("other"))
        assert set(h.controller.state.image.topics.by_name) == {"other"}

    run(test())


def test_a_transaction_that_takes_too_long_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        h = await started()
        monkeypatch.setattr(atomic_changes, "LONGEST_S", 0.05)
        answer = h.send(large())
        await until(lambda: h.controller.state.exclusive)
        other = h.send(topics("other"))
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        await answered(h, other)
        assert set(h.controller.state.image.topics.by_name) == {"other"}
        assert AbortTransactionRecord in map(type, h.records)

    run(test())


def test_a_change_whose_request_times_out_while_it_is_prepared_is_not_made() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        with pytest.raises(KafkaError) as raised:
            await h.send(large(timeout_ms=1))
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert h.raft.log.end == end
        assert not h.controller.state.exclusive

    run(test())
