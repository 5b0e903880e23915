"""Counts requests and measures how long they take (`RequestMetrics` in Kafka).

Every request is counted. Times are taken of a sample of them (`quorate.metrics.Reservoir`), so that a request
costs a fraction of a microsecond. As in Kafka:

    RequestQueueTimeMs   from the arrival of the request until its handler starts. The event loop's clock
                         is used, which does not advance within a turn of the loop.
    LocalTimeMs          the handler
    RemoteTimeMs         the wait after it: for records, for replicas, or for the controller
    TotalTimeMs          the sum
    RequestBytes         the size of the request

A response is written in the turn of the loop in which it is ready, or after those of earlier requests of its
connection. Kafka's times for this (ResponseQueueTimeMs, ResponseSendTimeMs) are not measured, and nothing
is throttled. FetchConsumer and FetchFollower are parts of Fetch.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quorate.metrics import Family, Quantiles, Reservoir, histogram, labels, meter, quantiles
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.net.dispatch import FrameAnswer, FrameHandler, FrameSource, Handler, RequestContext

PARTS = (
    ("TotalTimeMs", "Time from the arrival of a request until its response is ready, in ms."),
    ("RequestQueueTimeMs", "Time from the arrival of a request until its handler starts, in ms."),
    ("LocalTimeMs", "Time that the handler of a request takes, in ms."),
    ("RemoteTimeMs", "Time that a request waits for other brokers, records or the controller, in ms."),
    ("RequestBytes", "Size of a request."),
)

_FETCH = int(ApiKey.FETCH)
_HANDLERS_COUNT_ERRORS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""APIs whose responses are not searched for errors, which would cost time for each partition."""
_ERRORS_AT_MOST = 1000
"""Error codes that are counted of one response. The rest of a larger response is not searched."""


class RequestMeter:
    """The requests of one API, or of the consumers or followers among the Fetches."""

    __slots__ = ("name", "sample", "versions")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.versions: dict[int, int] = {}
        self.sample = Reservoir(now)

    def add(self, version: int) -> None:
        """Counts a request of this version of the API."""
        self.versions[version] = self.versions.get(version, 0) + 1

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.versions.values())


class RequestMetrics:
    """The requests of all listeners of a node."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._meters: dict[int, RequestMeter] = {}
        self._consumers = RequestMeter("FetchConsumer", clock())
        self._followers = RequestMeter("FetchFollower", clock())
        self.errors: Counter[tuple[str, int]] = Counter()
        """(API, error code) -> number of responses, or parts of responses, with the error."""

    def handle(self, handler: Handler, context: RequestContext, request: Any) -> Any:
        """Runs the handler of a request and returns its result."""
        key = context.api_key
        if key == _FETCH:
            follower = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
            counted = self._followers if follower >= 0 else self._consumers
        else:
            counted = self._meters.get(key) or self._new_meter(key)
        counted.add(context.api_version)
        in_sample = counted.sample.take()
        if not in_sample and key in _HANDLERS_COUNT_ERRORS:
            return handler(context, request)
        return self._observe(counted, in_sample, handler, context, request)

    def _new_meter(self, key: int) -> RequestMeter:
        meter = self._meters[key] = RequestMeter(REGISTRY[key].name, self._clock())
        return meter

    def handle_frame(self, handler: FrameHandler, frame: memoryview, source: FrameSource) -> FrameAnswer:
        """Runs a frame handler and returns its result. Its errors are counted by `failed`."""
        counted = self._meters.get(frame[1]) or self._new_meter(frame[1])
        started = self._clock() if counted.sample.take() else None
        answer = handler(frame, source)
        if answer is not None:
            counted.add(frame[3])
            if started is not None:
                self._record_frame(counted, started, len(frame), answer)
        return answer

    def _record_frame(
        self, counted: RequestMeter, started: float, size: int, answer: bytes | asyncio.Future[bytes]
    ) -> None:
        """Records the times of a request whose frame handler has returned `answer`."""
        returned = self._clock()

        def record(now: float) -> None:
            local_ms, remote_ms = (returned - started) * 1000, (now - returned) * 1000
            counted.sample.record((local_ms + remote_ms, 0.0, local_ms, remote_ms, size), now)

        if isinstance(answer, bytes):
            record(returned)
        else:
            answer.add_done_callback(lambda _: record(self._clock()))

    def _observe(
        self, counted: RequestMeter, in_sample: bool, handler: Handler, context: RequestContext, request: Any
    ) -> Any:
        """Runs a handler, measures the times of its request and counts the errors in its response."""
        started = self._clock()
        queued_ms = 0.0
        if context.received_at:
            queued_ms = max(0.0, asyncio.get_running_loop().time() - context.received_at) * 1000
        result = handler(context, request)
        returned = self._clock()
        local_ms = (returned - started) * 1000

        def done(future: asyncio.Future[Any] | None) -> None:
            if in_sample:
                now = returned if future is None else self._clock()
                remote_ms = (now - returned) * 1000
                row = (queued_ms + local_ms + remote_ms, queued_ms, local_ms, remote_ms, context.frame_size)
                counted.sample.record(row, now)
            if context.api_key in _HANDLERS_COUNT_ERRORS:
                return
            if future is None:
                self._count_errors(counted.name, result)
            elif not future.cancelled() and future.exception() is None:
                self._count_errors(counted.name, future.result())

        if result is None or not hasattr(result, "__await__"):
            done(None)
            return result
        future = result if isinstance(result, asyncio.Future) else asyncio.ensure_future(result)
        future.add_done_callback(done)
        return future

    def failed(self, api_key: int, error: BaseException) -> None:
        """Counts a request whose handler has raised an error."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self.errors[(REGISTRY[api_key].name, int(code))] += 1

    def _count_errors(self, api: str, response: Any) -> None:
        if response is not None:
            for code in error_codes(response, _ERRORS_AT_MOST):
                self.errors[(api, code)] += 1

    def meters(self) -> list[RequestMeter]:
        """The meters with requests."""
        meters = [*self._meters.values(), self._consumers, self._followers]
        return [one for one in meters if one.versions]

    def distribution(self, part: str) -> Quantiles:
        """The distribution of one of `PARTS` over the requests of all APIs."""
        index = [name for name, _ in PARTS].index(part)
        meters, now = self.meters(), self._clock()
        rows = [row[index] for one in meters for row in one.sample.rows(now)]
        return quantiles(sum(one.count for one in meters), rows)


def request_families(
    requests: Sequence[RequestMetrics],
    more_errors: Counter[tuple[str, int]],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Family | None]:
    """The metrics of kafka.network:type=RequestMetrics. `more_errors` are those that handlers count."""
    group = "network.RequestMetrics"
    meters = [one for some in requests for one in some.meters()]
    versions: Counter[tuple[str, int]] = Counter()
    rows: dict[str, list[Sequence[float]]] = {}
    counts: Counter[str] = Counter()
    now = clock()
    for one in meters:
        for version, count in one.versions.items():
            versions[(one.name, version)] += count
        for name in (one.name, "Fetch") if one.name in ("FetchConsumer", "FetchFollower") else (one.name,):
            counts[name] += one.count
            rows.setdefault(name, []).extend(one.sample.rows(now))
    yield meter(
        f"{group}.RequestsPerSec",
        "Requests.",
        [(labels(request=name, version=version), n) for (name, version), n in sorted(versions.items())],
    )
    errors = sum((some.errors for some in requests), Counter(more_errors))
    yield meter(
        f"{group}.ErrorsPerSec",
        "Errors in responses.",
        [
            (labels(request=name, error=ErrorCode.of(code).name), n)
            for (name, code), n in sorted(errors.items())
        ],
    )
    for index, (part, text) in enumerate(PARTS):
        series = []
        for name, sample in rows.items():
            series.append((labels(request=name), quantiles(counts[name], [row[index] for row in sample])))
            yield None
        yield histogram(f"{group}.{part}", text, series)


def error_codes(response: Any, at_most: int) -> list[int]:
    """The error codes in a response and its lists, without NONE."""
    found: list[int] = []
    _search(response, found, [at_most])
    return found


def _search(message: Any, found: list[int], left: list[int]) -> None:
    code = getattr(message, "error_code", 0)
    if code:
        found.append(int(code))
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name, None)
        if type(value) is list and value and hasattr(value[0], "__slots__"):
            for one in value:
                left[0] -= 1
                if left[0] < 0:
                    return
                _search(one, found, left)
