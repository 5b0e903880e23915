"""Terms that end while an atomic change is made, before the controller has learnt of it."""

from __future__ import annotations

import asyncio

import pytest

from quorate.controller.requests import atomic_changes
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .large_changes import MANY, answered, large, started, until
from .requests import broker, run, topics


def test_a_change_in_portions_fails_if_the_transaction_that_it_waits_for_cannot_be_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raft has lost the leadership, and its listeners do not know it yet."""

    async def test() -> None:
        h = await started()
        await broker(h, 2)
        await answered(h, h.send(large("old")))
        unregistration = h.send(UnregisterBrokerRequest(broker_id=1))
        monkeypatch.setattr(atomic_changes, "LONGEST_S", 0.05)
        answer = h.send(large())
        await until(lambda: h.controller.state.exclusive)
        h.raft.commit(h.raft.log.batches[-1].base_offset)
        await until(lambda: h.controller.state.next_image.transaction)
        h.raft.commit(h.raft.log.batches[-1].base_offset)
        await until(lambda: h.controller.state.written)
        h.raft.refuse = True
        for each in (answer, unregistration):
            with pytest.raises(KafkaError) as raised:
                await asyncio.wait_for(each, 5)
            assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_a_change_that_is_prepared_again_is_not_exclusive_after_its_term() -> None:
    """A request that waited meanwhile finds that the term has ended."""

    async def test() -> None:
        h = await started()
        make = CreateTopicsRequest.CreatableTopic
        named = [make(name=name, num_partitions=count, replication_factor=1)
                 for name, count in (("large", MANY), ("first", 1), ("second", 1))]  # fmt: skip
        answer, state = h.send(CreateTopicsRequest(topics=named)), h.controller.state
        await asyncio.sleep(0)
        h.send(topics("first"))
        await until(lambda: state.exclusive)
        await until(lambda: not state.exclusive)
        h.send(topics("second"))
        await until(lambda: state.exclusive)
        other = h.send(topics("other"))
        h.raft.refuse = True
        for each in (other, answer):
            with pytest.raises(KafkaError) as raised:
                await asyncio.wait_for(each, 5)
            assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert not state.exclusive

    run(test())
