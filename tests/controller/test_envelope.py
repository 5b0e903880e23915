"""Forwarded requests: checks, their order, and responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey, decode_response, encode_request
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.principal_data import DefaultPrincipalData

from .requests import broker, run, topics
from .support import Harness

PRINCIPAL = b"\0\0" + DefaultPrincipalData(type="User", name="alice", token_authenticated=False).encode(0)
LOCAL = bytes([127, 0, 0, 1])


def envelope(request: Any, version: int | None = None, **changes: Any) -> EnvelopeRequest:
    data = encode_request(77, "app", request, request.MAX_VERSION if version is None else version)
    fields: dict[str, Any] = {
        "request_data": data,
        "request_principal": PRINCIPAL,
        "client_host_address": LOCAL,
    }
    return EnvelopeRequest(**{**fields, **changes})


def opened(response: EnvelopeResponse, key: int, version: int) -> tuple[int, Any]:
    assert response.response_data is not None
    return decode_response(response.response_data, key, version)


def test_a_forwarded_request_is_answered_with_its_own_correlation_id_and_the_offset_it_depends_on() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        response = await h.call(envelope(topics("a")))
        assert (response.error_code, response.committed_offset) == (ErrorCode.NONE, h.raft.log.end - 1)
        correlation_id, inner = opened(response, ApiKey.CREATE_TOPICS, 7)
        assert (correlation_id, inner.topics[0].error_code) == (77, ErrorCode.NONE)

    run(test())


REQUEST = bytes(range(16))


async def created(h: Harness, **changes: Any) -> tuple[int, bytes]:
    """(error code, topic id) of a forwarded creation of topic a."""
    _, inner = opened(await h.call(envelope(topics("a"), **changes)), ApiKey.CREATE_TOPICS, 7)
    return inner.topics[0].error_code, inner.topics[0].topic_id


def test_a_repeated_creation_gets_the_response_of_the_first() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        first = await h.call(envelope(topics("a"), request_id=REQUEST))
        log_end = h.raft.log.end
        again = await h.call(envelope(topics("a"), request_id=REQUEST, unanswered_attempts=1))
        assert opened(again, ApiKey.CREATE_TOPICS, 7) == opened(first, ApiKey.CREATE_TOPICS, 7)
        assert h.raft.log.end == log_end

    run(test())


def test_a_repeated_creation_is_answered_only_when_it_is_committed() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        h.send(envelope(topics("a"), request_id=REQUEST))
        again = h.send(envelope(topics("a"), request_id=REQUEST, unanswered_attempts=1))
        await asyncio.sleep(0)
        assert not again.done()
        h.raft.commit()
        assert (await again).committed_offset == h.raft.log.end - 1

    run(test())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unanswered_attempts": 1},
        {"request_id": bytes(16), "unanswered_attempts": 1},
        {"request_id": REQUEST},
    ],
    ids=["unnamed", "unnamed again", "without a name", "its first try"],
)
def test_a_topic_that_another_request_created_exists_already(changes: dict[str, Any]) -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        await created(h, request_id=REQUEST)
        assert (await created(h, **changes))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        other = bytes(15) + b"x"
        assert (await created(h, request_id=other, unanswered_attempts=1))[
            0
        ] == ErrorCode.TOPIC_ALREADY_EXISTS

    run(test())


def test_a_topic_that_was_deleted_between_two_tries_is_created_with_another_id() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        _, first = await created(h, request_id=REQUEST)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")])
        await h.call(envelope(deletion))
        code, second = await created(h, request_id=REQUEST, unanswered_attempts=1)
        assert (code, second != first) == (ErrorCode.NONE, True)
        assert await created(h, request_id=REQUEST, unanswered_attempts=2) == (ErrorCode.NONE, second)

    run(test())


def test_a_forwarded_request_waits_for_its_commit() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        first, second = h.send(envelope(topics("a"))), h.send(envelope(topics("a")))
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        h.raft.commit()
        _, inner = opened(await second, ApiKey.CREATE_TOPICS, 7)
        assert inner.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await second).committed_offset == (await first).committed_offset

    run(test())


def test_the_inner_request_has_the_principal_of_the_client() -> None:
    async def test() -> None:
        h = await Harness(token_secret="s").start()
        response = await h.call(envelope(CreateDelegationTokenRequest(), 3))
        _, inner = opened(response, ApiKey.CREATE_DELEGATION_TOKEN, 3)
        assert (inner.principal_type, inner.principal_name) == ("User", "alice")

    run(test())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\x09abc"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": PRINCIPAL + b"x"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"", "client_host_address": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"abc"}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"", "request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x7f\xff" + b"\0" * 20}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": encode_request(1, None, MetadataRequest(), 9)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": encode_request(1, None, topics("a"), 7)[:-1]}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_envelopes_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    async def test() -> None:
        h = await Harness().start()
        response = h.send(envelope(topics("a"), **changes))
        assert (response.error_code, response.response_data) == (code, None)

    run(test())


@pytest.mark.parametrize("when", ["standby", "pending"])
def test_not_controller_is_the_error_of_the_envelope(when: str) -> None:
    async def test() -> None:
        h = await Harness().start(lead=when == "pending")
        if when == "pending":
            await broker(h)
        outcome = h.send(envelope(topics("a")))
        if when == "pending":
            h.raft.follow(2, 9)
            outcome = await outcome
        assert (outcome.error_code, outcome.response_data) == (ErrorCode.NOT_CONTROLLER, None)

    run(test())


def test_an_error_of_the_whole_request_is_in_the_inner_response() -> None:
    async def test() -> None:
        h = await Harness().start()
        make = CreateTopicsRequest.CreatableTopic
        too_much = CreateTopicsRequest(topics=[make(name="a", num_partitions=10_001, replication_factor=1)])
        response = await h.call(envelope(too_much))
        _, inner = opened(response, ApiKey.CREATE_TOPICS, 7)
        assert (response.error_code, inner.topics[0].error_code) == (
            ErrorCode.NONE,
            ErrorCode.POLICY_VIOLATION,
        )

    run(test())


def quorum(error: int) -> DescribeQuorumResponse:
    partition = DescribeQuorumResponse.PartitionData(partition_index=0, error_code=error)
    topic = DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return DescribeQuorumResponse(topics=[topic])


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("error", "envelope_error"), [(0, 0), (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)]
)
def test_requests_about_the_quorum_go_to_raft(error: int, envelope_error: int, waits: bool) -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)
        asked: list[RequestContext] = []

        def handle(ctx: RequestContext, request: Any) -> Any:
            asked.append(ctx)
            if not waits:
                return quorum(error)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_result(quorum(error))
            return future

        h.raft.handle = handle  # type: ignore[method-assign]
        response = await h.call(envelope(DescribeQuorumRequest(), 1))
        assert (response.error_code, response.committed_offset) == (envelope_error, -1)
        assert (asked[0].api_version, asked[0].client_host, asked[0].forwarded) == (1, "127.0.0.1", True)

    run(test())


def test_an_error_that_raft_raises_is_in_the_inner_response() -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)

        def handle(ctx: RequestContext, request: Any) -> Any:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

        h.raft.handle = handle  # type: ignore[method-assign]
        response = h.send(envelope(DescribeQuorumRequest()))
        assert response.error_code == ErrorCode.NONE
        _, inner = opened(response, ApiKey.DESCRIBE_QUORUM, 2)
        assert inner.error_code == ErrorCode.BROKER_NOT_AVAILABLE

    run(test())
