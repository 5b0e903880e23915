"""FindCoordinator and InitProducerId in all their versions, and the error for transactions."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from quorate.broker.coordinators import loader, shard_loading
from quorate.log.errors import LogDirFailure
from quorate.log.partition.local_log import LocalLog
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.coordinators.client import (
    commit_request,
    fetch_request,
    fetched,
    in_loop,
    versions,
)
from tests.broker.coordinators.fakes import OFFSETS, World

E = ErrorCode


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
@in_loop
async def test_coordinators_are_found_in_every_version(version: int) -> None:
    async with World() as w:
        request = (
            FindCoordinatorRequest(coordinator_keys=["a", "b"])
            if version >= 4
            else FindCoordinatorRequest(key="a")
        )
        answer = await w.call(ApiKey.FIND_COORDINATOR, request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert {(c.error_code, c.node_id, c.host, c.port) for c in found} == {
            (E.NONE, 1, "plaintext.example", 9092)
        }
        assert len(found) == (2 if version >= 4 else 1)


@pytest.mark.parametrize("version", [3, 6])
@in_loop
async def test_a_missing_offsets_topic_is_created_while_the_client_retries(version: int) -> None:
    async with World(lead=False) as w:
        del w.metadata.topics[OFFSETS]
        request = (
            FindCoordinatorRequest(coordinator_keys=["a", "b"])
            if version >= 4
            else FindCoordinatorRequest(key="a")
        )
        for _ in range(3):
            answer = w.start(ApiKey.FIND_COORDINATOR, request, version)
            assert not hasattr(answer, "__await__"), (
                "a wait would hold up all answers behind it on the connection"
            )
            found = answer.coordinators if version >= 4 else [answer]
            assert {c.error_code for c in found} == {E.COORDINATOR_NOT_AVAILABLE}
        assert set(w.replicas.made) == {OFFSETS}
        w.metadata.topics[OFFSETS] = 4
        w.replicas.made_when.set_result(None)
        answer = w.start(ApiKey.FIND_COORDINATOR, request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert {c.error_code for c in found} == {E.NONE}


@in_loop
async def test_a_failed_topic_creation_is_retried() -> None:
    async with World(lead=False) as w:
        del w.metadata.topics[OFFSETS]
        w.replicas.made_when.set_exception(KafkaError(E.INVALID_REPLICATION_FACTOR))
        for _ in range(2):
            answer = await w.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="a"), 3)
            assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert w.replicas.made == [OFFSETS, OFFSETS]


@in_loop
async def test_an_unavailable_coordinator_is_answered_with_an_error() -> None:
    async with World() as w:
        w.metadata.fenced = True
        answer = await w.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="a"), 3)
        assert (answer.error_code, answer.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)
        answer = await w.call(
            ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=2, coordinator_keys=["a:b:0"]), 6
        )
        assert answer.coordinators[0].error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
@in_loop
async def test_producer_ids_are_allocated(version: int) -> None:
    async with World() as w:
        w.answers = [AllocateProducerIdsResponse(producer_id_start=3000, producer_id_len=10),
                     AllocateProducerIdsResponse(producer_id_start=4000, producer_id_len=10)]  # fmt: skip
        ids = []
        for _ in range(12):
            answer = await w.call(
                ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), version
            )
            assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
            ids.append(answer.producer_id)
        assert ids == [*range(3000, 3010), 4000, 4001]
        assert [(r.broker_id, r.broker_epoch) for r in w.sent] == [(1, 7), (1, 7)]


@in_loop
async def test_no_producer_id_while_the_controller_is_away() -> None:
    async with World() as w:
        w.answers = [
            ConnectionError("gone"),
            AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=5),
        ]
        request = InitProducerIdRequest(transactional_id=None)
        assert (
            await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        ).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)).producer_id == 0


@in_loop
async def test_a_controller_that_does_not_answer_blocks_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from quorate.broker.coordinators import producer_ids

    monkeypatch.setattr(producer_ids, "BLOCK_WAIT_S", 0.02)
    async with World() as w:
        answered = asyncio.Event()

        async def send(request: Any) -> Any:
            await answered.wait()
            return AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=5)

        monkeypatch.setattr(w, "send", send)
        request = InitProducerIdRequest(transactional_id=None)
        assert (
            await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        ).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        answered.set()
        ids = [(await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)).producer_id for _ in range(3)]
        assert ids == [0, 1, 2], "the block that came late is used"


@in_loop
async def test_the_refusal_of_transactions_is_final() -> None:
    async with World() as w:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        answer = await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        assert (answer.error_code, answer.producer_id) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0)
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
        answer = await w.call(
            ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest(group_id="g", topics=topics), 3
        )
        assert answer.topics[0].partitions[0].error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# -- logs that cannot be read
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["index", "batches"])
@in_loop
async def test_a_coordinator_that_cannot_read_its_log_takes_the_directory_offline(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad_sector(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    async with World() as w:
        assert (
            not (await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 8)).topics[0].partitions[0].error_code
        )
        failed: list[LogDirFailure] = []
        w.replicas.storage_failed = failed.append
        if part == "index":
            monkeypatch.setattr(LocalLog, "_find", bad_sector)
        else:
            monkeypatch.setattr(loader, "_bytes_of", bad_sector)
        await w.restart()
        answer = await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)
        assert answer.groups[0].error_code == E.NOT_COORDINATOR
        assert [failure.code for failure in failed] == [E.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
@in_loop
async def test_a_load_that_fails_begins_again_without_an_election(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its groups would have no coordinator, with a healthy leader, until an operator acts."""

    async def fails(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(shard_loading, "RETRY_MIN_S", 0.01)
    async with World() as w:
        assert (
            not (await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 8)).topics[0].partitions[0].error_code
        )
        read = loader._read
        monkeypatch.setattr(loader, "_read", fails)
        await w.restart()
        answer = await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)
        assert answer.groups[0].error_code == E.NOT_COORDINATOR
        monkeypatch.setattr(loader, "_read", read)
        while (answer := await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)).groups[0].error_code:
            assert answer.groups[0].error_code in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS)
            await asyncio.sleep(0.001)
        assert fetched(answer, 8) == {("t", 0): 1}


@in_loop
async def test_a_load_that_cannot_begin_again_for_lack_of_memory_is_tried_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*_: object) -> Any:
        tried.append(None)
        raise MemoryError

    async def fails(*_: object) -> bytes:
        raise MemoryError

    tried: list[None] = []
    monkeypatch.setattr(shard_loading, "RETRY_MIN_S", 0.01)
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 8)
        with monkeypatch.context() as broken:
            broken.setattr(loader, "_read", fails)
            await w.restart()
            broken.setattr(shard_loading, "CoordinatorContext", exhausted)
            async with asyncio.timeout(10):
                while len(tried) < 2:
                    await asyncio.sleep(0.001)
        async with asyncio.timeout(10):
            while (answer := await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)).groups[0].error_code:
                await asyncio.sleep(0.001)
        assert fetched(answer, 8) == {("t", 0): 1}


@pytest.mark.parametrize("part", ["CoordinatorContext", "CoordinatorLoader"])
@in_loop
async def test_a_first_load_that_cannot_begin_for_lack_of_memory_is_tried_later(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(shard_loading, "RETRY_MIN_S", 0.01)
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 8)
        with monkeypatch.context() as broken:
            broken.setattr(shard_loading, part, exhausted)
            await w.restart()
            answer = await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)
            assert answer.groups[0].error_code == E.NOT_COORDINATOR
        async with asyncio.timeout(10):
            while (answer := await w.call(ApiKey.OFFSET_FETCH, fetch_request(8), 8)).groups[0].error_code:
                await asyncio.sleep(0.001)
        assert fetched(answer, 8) == {("t", 0): 1}


@in_loop
async def test_a_load_that_failed_does_not_begin_again_after_the_partition_has_moved_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object) -> bytes:
        raise MemoryError

    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 8)
        monkeypatch.setattr(loader, "_read", fails)
        await w.restart()
        shards, partition = w.service.groups.runtime, w.service.groups.partition_for("g")
        assert partition in shards._loading._retries
        w.replicas.lead(partition, None)
        assert partition not in shards._loading._retries
        assert all(context.partition != partition for context in shards.contexts())
