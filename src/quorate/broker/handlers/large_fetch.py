"""A Fetch of very many partitions, each of whose steps takes several turns of the event loop.

Between two turns partitions may be deleted, leaders may change, and another request may change the session.
Each step looks its partitions up again. The answer has the partitions in the same order as that of a small
Fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from quorate.broker.handlers.fetch_steps import (
    FetchSteps,
    PartitionAnswer,
    forgotten_keys,
)
from quorate.broker.replication.fetch_session import (
    FetchContext,
    FetchPartition,
    IncrementalFetchContext,
    PartitionKey,
)
from quorate.broker.replication.log_reader import FetchParams, ReadResult, missing_bytes, read
from quorate.broker.replication.purgatory import Wakeup
from quorate.broker.replication.replica_selector import LEADER
from quorate.net.turns import Rounds
from quorate.protocol.errors import ErrorCode
from quorate.protocol.file_region import READ_AHEAD_ROUNDS, touch
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.broker.replication.partition import Partition
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.file_region import ReadAhead

PIECE = 20
"""Partitions for which a step is taken before the time is looked at. Reading them takes half a
millisecond."""

T = TypeVar("T")


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        yield piece


class LargeFetch:
    """One request for very many partitions."""

    def __init__(
        self,
        steps: FetchSteps,
        services: Services,
        rounds: Rounds,
        context: RequestContext,
        request: FetchRequest,
        fetch: FetchContext,
        asked: dict[PartitionKey, FetchPartition],
        params: FetchParams,
    ) -> None:
        """`asked` is empty, and `fetch` knows it as the partitions of the request."""
        self._steps = steps
        self._services = services
        self._rounds = rounds
        self._context = context
        self._request = request
        self._fetch = fetch
        self._asked = asked
        self._params = params
        self._keys: list[PartitionKey] = []
        self._wanted: list[FetchPartition] = []
        self._refused: dict[PartitionKey, PartitionAnswer] = {}
        self._results: list[ReadResult] = []
        self._due = params.max_wait_ms <= 0
        self._missing = 0

    async def response(self) -> FetchResponse:
        """Returns the response. Waits for more bytes if the request does."""
        take_turns = self._rounds.collect
        if self._fetch.error == ErrorCode.NONE:
            await take_turns(self._prepare())
        if self._wanted:
            await self._read_ahead()
            await take_turns(self._read(note_follower=True))
            if not self._due:
                await self._wait()
                await take_turns(self._read(note_follower=False))
        response = FetchResponse()
        await take_turns(self._finish(response))
        await take_turns(self._forget())
        return response

    def _prepare(self) -> Iterator[None]:
        """Finds the partitions to read."""
        steps, request, fetch, asked = self._steps, self._request, self._fetch, self._asked
        version = self._context.api_version
        for topic in request.topics:
            for some in _pieces(topic.partitions):
                steps.add_wanted(asked, topic, some, version)
                yield
        if isinstance(fetch, IncrementalFetchContext):
            for changed in _pieces(asked.items()):
                fetch.change(dict(changed), ())
                yield
            for forgotten in _pieces(forgotten_keys(request, version)):
                fetch.change({}, forgotten)
                yield
            if fetch.close_if_empty(self._services.sessions.cache):
                fetch = self._fetch = FetchContext(asked)
        if fetch.quiet is not None:
            steps.note_reader(fetch.quiet, self._params)
        # Other requests of the session may change it between two turns.
        keys, partitions = list(fetch.active), list(fetch.active.values())
        for piece in _pieces(zip(keys, partitions, strict=True)):
            if version >= 13:
                self._services.sessions.resolve([part for _, part in piece])
            steps.choose(piece, self._keys, self._wanted, self._refused)
            yield

    async def _read_ahead(self) -> None:
        """Loads the indexes and batch headers into the page cache in a thread."""
        for _ in range(READ_AHEAD_ROUNDS):
            cold: list[ReadAhead] = []
            await self._rounds.collect(self._find_cold(cold))
            if not cold:
                return
            try:
                await self._services.loop.run_in_executor(None, touch, cold)
            except (OSError, EOFError):
                return  # the read raises the error again

    def _find_cold(self, cold: list[ReadAhead]) -> Iterator[None]:
        for some in _pieces(self._wanted):
            cold += self._steps.cold_regions(some)
            yield

    def _read(self, *, note_follower: bool) -> Iterator[None]:
        """Reads the partitions, and finds out whether the response is due."""
        self._results = []
        size = 0
        for some in _pieces(self._wanted):
            results = read(
                self._services.replicas, self._params, some, note_follower=note_follower, size=size
            )
            for result in results:
                size += result.size
                if (
                    result.error != ErrorCode.NONE
                    or result.diverging is not None
                    or result.preferred_read_replica != LEADER
                ):
                    self._due = True
            self._results += results
            yield
        if size >= self._params.min_bytes:
            self._due = True

    async def _wait(self) -> None:
        """Waits until the partitions have enough bytes or an error, or the client's time is over."""
        loop, take_turns = self._services.loop, self._rounds.collect
        ends = loop.time() + self._params.max_wait_ms / 1000
        wakeup = Wakeup()
        registered: list[Partition] = []
        quiet = self._fetch.quiet
        if quiet is not None:
            quiet.waiting = wakeup
        try:
            await take_turns(self._register(wakeup, registered))
            while True:
                # Also at first: there may have been appends since the read.
                await take_turns(self._check())
                if quiet is not None and quiet.fresh:
                    return  # the next request reads the partitions that have changed
                left = ends - loop.time()
                if self._missing <= 0:
                    return
                if left <= 0 or not await wakeup.wait(left):
                    stats = self._services.replicas.stats
                    from_follower = self._params.is_from_follower
                    (stats.follower_fetch_expired if from_follower else stats.consumer_fetch_expired)()
                    return
        finally:
            if quiet is not None:
                quiet.waiting = None
            await take_turns(self._release(wakeup, registered))

    def _register(self, wakeup: Wakeup, registered: list[Partition]) -> Iterator[None]:
        partitions = self._services.replicas.partitions
        for part in self._wanted:
            partition = partitions.get((part.topic or "", part.partition))
            if partition is not None:
                wakeup.register(partition)
                registered.append(partition)
                yield

    @staticmethod
    def _release(wakeup: Wakeup, registered: list[Partition]) -> Iterator[None]:
        while registered:
            wakeup.release(registered.pop())
            yield

    def _check(self) -> Iterator[None]:
        """Finds out how many bytes are missing."""
        self._missing = self._params.min_bytes
        for some in _pieces(self._wanted):
            self._missing = missing_bytes(self._services.replicas, self._params, some, self._missing)
            if self._missing <= 0:
                return
            yield

    def _finish(self, response: FetchResponse) -> Iterator[None]:
        """Fills the response: the partitions that were read before the others."""
        fetch = self._fetch
        hints: dict[int, FetchResponse.NodeEndpoint] = {}
        count = len(self._keys) + len(self._refused)
        response.session_id = fetch.begin(count, self._services.clock.now_ms())
        for answers in self._answers():
            news = fetch.select(answers)
            if fetch.error != ErrorCode.NONE:
                response.responses = []
                break
            self._steps.add_news(self._context, self._params, response, fetch.partitions, news, hints)
            yield
        response.error_code = fetch.error
        response.node_endpoints = list(hints.values())
        for some in _pieces(zip(self._keys, self._wanted, self._results, strict=True)):
            self._steps.make_quiet(fetch, self._params, some)
            yield

    def _answers(self) -> Iterator[dict[PartitionKey, PartitionAnswer]]:
        for read_ones in _pieces(zip(self._keys, self._wanted, self._results, strict=True)):
            answers: dict[PartitionKey, PartitionAnswer] = {}
            _, wanted, results = zip(*read_ones, strict=True)
            self._steps.count(self._params, wanted, results)
            self._steps.answer_read(answers, read_ones, self._context.api_version)
            yield answers
        for refused in _pieces(self._refused.items()):
            yield dict(refused)

    def _forget(self) -> Iterator[None]:
        """Frees what only this request needed. To free it at once would take long."""
        for some in (self._results, self._wanted, self._keys):
            while some:
                del some[-PIECE:]
                yield
        for parts in (self._asked, self._refused):
            while parts:
                parts.popitem()
                yield
