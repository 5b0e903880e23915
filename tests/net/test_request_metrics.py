"""What the metrics of requests mean."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import Any

import pytest

from quorate.metrics import Family
from quorate.net.dispatch import Dispatcher, ListenerKind, RequestContext
from quorate.net.request_metrics import RequestMetrics, error_codes, request_families
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.offset_commit import OffsetCommitResponse


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def context(key: int, version: int, size: int = 50) -> RequestContext:
    return RequestContext(key, version, 1, "client", "PLAINTEXT", frame_size=size)


def families(*metrics: RequestMetrics, more_errors: Any = None, at: float = 100.0) -> dict[str, Family]:
    found = request_families(metrics, more_errors or Counter(), lambda: at)
    return {family.name: family for family in found if family is not None}


def series(metrics: RequestMetrics, name: str) -> dict[str, Any]:
    return dict(families(metrics)[f"kafka_network_requestmetrics_{name}"].series)


def test_requests_are_counted_by_api_and_version() -> None:
    metrics = RequestMetrics(Clock())
    for key, version, times in ((ApiKey.HEARTBEAT, 4, 3), (ApiKey.HEARTBEAT, 3, 1), (ApiKey.PRODUCE, 9, 2)):
        for _ in range(times):
            assert metrics.handle(lambda _c, _r: "answer", context(key, version), None) == "answer"
    assert series(metrics, "requests_total") == {
        'request="Heartbeat",version="3"': 1,
        'request="Heartbeat",version="4"': 3,
        'request="Produce",version="9"': 2,
    }


@pytest.mark.parametrize(
    ("version", "request_", "name"),
    [
        (12, FetchRequest(replica_id=-1), "FetchConsumer"),
        (12, FetchRequest(replica_id=3), "FetchFollower"),
        (17, FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=3)), "FetchFollower"),
        (17, FetchRequest(), "FetchConsumer"),
    ],
)
def test_fetches_of_consumers_and_of_followers_are_told_apart(
    version: int, request_: FetchRequest, name: str
) -> None:
    metrics = RequestMetrics(Clock())
    metrics.handle(lambda _c, _r: None, context(ApiKey.FETCH, version), request_)
    totals = series(metrics, "totaltimems")
    assert set(totals) == {f'request="{name}"', 'request="Fetch"'}
    assert totals['request="Fetch"'].total == 1


def test_the_parts_of_a_requests_time_add_up() -> None:
    clock = Clock()
    metrics = RequestMetrics(clock)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def handler(_context: Any, _request: Any) -> Any:
            clock.now += 0.020
            return future

        result = metrics.handle(handler, context(ApiKey.PRODUCE, 9, 700), None)
        clock.now += 0.300
        future.set_result("answer")
        assert await result == "answer"

    asyncio.run(main())
    expected = {
        "requestqueuetimems": 0,
        "localtimems": 20,
        "remotetimems": 300,
        "totaltimems": 320,
        "requestbytes": 700,
    }
    for name, value in expected.items():
        [(text, found)] = series(metrics, name).items()
        assert (text, found.total) == ('request="Produce"', 1)
        assert list(found.values) == pytest.approx([value] * 6), name


def test_a_request_that_a_frame_handler_answers_later_has_a_remote_time() -> None:
    clock = Clock()
    metrics = RequestMetrics(clock)

    async def main() -> None:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def handler(_frame: memoryview, _source: Any) -> asyncio.Future[bytes]:
            clock.now += 0.020
            return future

        source: Any = None
        frame = memoryview(struct.pack(">hh", ApiKey.OFFSET_COMMIT, 9) + bytes(46))
        result = metrics.handle_frame(handler, frame, source)
        clock.now += 0.300
        future.set_result(b"answer")
        assert result is future
        await future
        await asyncio.sleep(0)

    asyncio.run(main())
    assert series(metrics, "requests_total") == {'request="OffsetCommit",version="9"': 1}
    for name, value in {
        "localtimems": 20,
        "remotetimems": 300,
        "totaltimems": 320,
        "requestbytes": 50,
    }.items():
        [found] = series(metrics, name).values()
        assert list(found.values) == pytest.approx([value] * 6), name


def test_the_time_in_the_queue_is_that_since_the_arrival() -> None:
    metrics = RequestMetrics(Clock())

    async def main() -> None:
        ctx = context(ApiKey.HEARTBEAT, 4)
        ctx.received_at = asyncio.get_running_loop().time() - 5
        metrics.handle(lambda _c, _r: None, ctx, None)

    asyncio.run(main())
    [found] = series(metrics, "requestqueuetimems").values()
    assert found.values[0] == pytest.approx(5000, rel=0.1)


COMMITTED = OffsetCommitResponse(
    topics=[
        OffsetCommitResponse.OffsetCommitResponseTopic(
            name="a",
            partitions=[
                OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=i, error_code=code)
                for i, code in enumerate((0, 16, 16, 27))
            ],
        )
    ]
)


@pytest.mark.parametrize(
    ("response", "codes"),
    [
        (None, []),
        (HeartbeatResponse(), []),
        (HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), [27]),
        (COMMITTED, [16, 16, 27]),
    ],
)
def test_errors_are_found_at_the_top_and_in_the_lists_of_a_response(response: Any, codes: list[int]) -> None:
    assert error_codes(response, 1000) == codes


def test_a_very_large_response_is_searched_only_in_its_first_part() -> None:
    assert error_codes(COMMITTED, 3) == [16]


def test_errors_of_responses_of_futures_and_of_exceptions_are_counted() -> None:
    metrics = RequestMetrics(Clock())
    dispatcher = Dispatcher(ListenerKind.BROKER, metrics=metrics)

    async def later(_context: Any, _request: Any) -> Any:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    async def main() -> None:
        ctx = context(ApiKey.HEARTBEAT, 4)
        metrics.handle(lambda _c, _r: COMMITTED, context(ApiKey.OFFSET_COMMIT, 8), None)
        await metrics.handle(later, ctx, None)
        await asyncio.sleep(0)
        for error in (KafkaError(ErrorCode.NOT_COORDINATOR), RuntimeError("a bug")):
            answer: Any = dispatcher.failure(ctx, HeartbeatRequest(), error)
            assert answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)

    asyncio.run(main())
    found = families(metrics, more_errors=Counter({("Produce", 87): 4}))
    assert dict(found["kafka_network_requestmetrics_errors_total"].series) == {
        'request="OffsetCommit",error="NOT_COORDINATOR"': 2,
        'request="OffsetCommit",error="REBALANCE_IN_PROGRESS"': 1,
        'request="Heartbeat",error="UNKNOWN_MEMBER_ID"': 1,
        'request="Heartbeat",error="NOT_COORDINATOR"': 1,
        'request="Heartbeat",error="UNKNOWN_SERVER_ERROR"': 1,
        'request="Produce",error="INVALID_RECORD"': 4,
    }


def test_a_dispatcher_with_metrics_counts_what_it_dispatches() -> None:
    metrics = RequestMetrics(Clock())
    dispatcher = Dispatcher(ListenerKind.BROKER, metrics=metrics)
    dispatcher.register(ApiKey.HEARTBEAT, lambda _c, _r: HeartbeatResponse())
    dispatcher.dispatch(context(ApiKey.HEARTBEAT, 4), HeartbeatRequest())
    assert series(metrics, "requests_total") == {'request="Heartbeat",version="4"': 1}


def test_the_requests_of_both_roles_of_a_node_are_added_up() -> None:
    roles = [RequestMetrics(Clock()), RequestMetrics(Clock())]
    for metrics, times in zip(roles, (1, 2), strict=True):
        for _ in range(times):
            metrics.handle(lambda _c, _r: COMMITTED, context(ApiKey.CREATE_TOPICS, 7), None)
    found = families(*roles)
    assert dict(found["kafka_network_requestmetrics_requests_total"].series) == {
        'request="CreateTopics",version="7"': 3
    }
    assert found["kafka_network_requestmetrics_localtimems"].series[0][1].total == 3  # type: ignore[union-attr]
    assert dict(found["kafka_network_requestmetrics_errors_total"].series) == {
        'request="CreateTopics",error="NOT_COORDINATOR"': 6,
        'request="CreateTopics",error="REBALANCE_IN_PROGRESS"': 3,
    }
    assert roles[1].distribution("LocalTimeMs").total == 2
