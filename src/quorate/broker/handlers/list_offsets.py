"""ListOffsets (2), versions 1 to 11.

2 isolation level · 4 leader epochs · 5 OFFSET_NOT_AVAILABLE · 7 -3 max timestamp · 8 -4 earliest local
· 9 -5 latest tiered · 10 timeout for remote storage (not supported, so nothing waits) · 11 -6 earliest
pending upload (KIP-1023).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from quorate.broker.replication.partition import Partition
from quorate.log.partition.timestamp_search import Scan
from quorate.net.turns import Rounds, run_steps
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.file_region import READ_AHEAD_ROUNDS, touch
from quorate.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.net.dispatch import Handler, RequestContext
    from quorate.protocol.file_region import ReadAhead

logger = logging.getLogger("quorate.broker.list_offsets")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER, _DEBUGGING = -1, -2

AT_ONCE = 100
"""Partitions of a request that are looked up in one turn of the event loop, in a millisecond or two."""

Answer = ListOffsetsResponse.ListOffsetsPartitionResponse
_Searched = tuple[str, ListOffsetsRequest.ListOffsetsPartition, Scan]
"""A topic, a partition with a timestamp for which its log is searched, and how far it was."""
_Key = tuple[str, int]


class _Asked:
    """What a request asks for, after all steps of `read`."""

    __slots__ = ("request", "scans", "searched", "twice", "version")

    def __init__(self, request: ListOffsetsRequest, version: int) -> None:
        self.request = request
        self.version = version
        self.twice: set[_Key] = set()
        """Partitions that the request has more than once."""
        self.searched: list[_Searched] = []
        self.scans: dict[_Key, Scan] = {}

    def read(self) -> Iterator[None]:
        """Reads one partition with each step."""
        seen: set[_Key] = set()
        for topic in self.request.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                (self.twice if key in seen else seen).add(key)
                yield
        for topic in self.request.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                if (part.timestamp >= 0 or part.timestamp == MAX_TIMESTAMP) and key not in self.twice:
                    self.searched.append((topic.name, part, self.scans.setdefault(key, Scan())))
                yield
            yield


class ListOffsetsHandler:
    """Finds offsets by timestamp, including the special timestamps."""

    __slots__ = ("_rounds", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rounds = Rounds(AT_ONCE)

    def __call__(self, context: RequestContext, request: ListOffsetsRequest) -> Any:
        count = sum([len(topic.partitions) for topic in request.topics])
        asked = _Asked(request, context.api_version)
        if count + len(request.topics) > AT_ONCE:
            return self._answer_many(asked, count)
        run_steps(asked.read())
        cold = list(chain.from_iterable(map(self._cold_regions, asked.searched)))
        if cold or any(scan.is_long for _, _, scan in asked.searched):
            return self._answer_searched(asked, count)
        return _response(request, list(self._answers(asked)))

    async def _answer_many(self, asked: _Asked, count: int) -> ListOffsetsResponse:
        """Answers a request about many partitions in several turns of the event loop."""
        await self._rounds.collect(asked.read())
        if asked.searched:
            return await self._answer_searched(asked, count)
        return await self._answer_in_turns(asked)

    async def _answer_searched(self, asked: _Asked, count: int) -> ListOffsetsResponse:
        """Makes long searches in slices, and loads what they need into the page cache in a thread. Then
        answers."""
        rounds = slices = 0
        while rounds < READ_AHEAD_ROUNDS:
            cold = list(chain.from_iterable(await self._rounds.collect(self._scan(asked.searched))))
            if not cold:
                break
            try:
                await self._services.loop.run_in_executor(None, touch, cold)
            except (OSError, EOFError):
                break  # the search raises the error again
            before, slices = slices, sum([scan.slices for _, _, scan in asked.searched])
            rounds = rounds + 1 if slices == before else 0
        if count > AT_ONCE:
            return await self._answer_in_turns(asked)
        return _response(asked.request, list(self._answers(asked)))

    async def _answer_in_turns(self, asked: _Asked) -> ListOffsetsResponse:
        answers = await self._rounds.collect(self._answers(asked))
        response = ListOffsetsResponse()
        await self._rounds.collect(_responding(asked.request, answers, response))
        return response

    def _answers(self, asked: _Asked) -> Iterator[Answer]:
        """The answers about all partitions of a request, in their order."""
        for topic in asked.request.topics:
            for part in topic.partitions:
                is_duplicate = (topic.name, part.partition_index) in asked.twice
                yield self._answer(asked, topic.name, part, is_duplicate)

    def _scan(self, searched: list[_Searched]) -> Iterator[list[ReadAhead]]:
        """Continues each search until the next regions that the page cache does not have, or to its end.
        Yields after each slice."""
        for one in searched:
            while True:
                cold = self._cold_regions(one)
                yield cold
                if cold or not one[2].is_long:
                    break

    def _cold_regions(self, searched: _Searched) -> list[ReadAhead]:
        """The regions that a search needs and the page cache does not have."""
        topic, part, scan = searched
        log = self._services.replicas.local_log(topic, part.partition_index)
        if log is None:
            return []
        try:
            if part.timestamp == MAX_TIMESTAMP:
                return log.cold_regions_for_timestamp(None)
            return log.cold_regions_for_timestamp(part.timestamp, scan)
        except (OSError, KafkaError):
            return []  # the search raises the error again and handles it

    def _answer(
        self,
        asked: _Asked,
        topic: str,
        part: ListOffsetsRequest.ListOffsetsPartition,
        is_duplicate: bool,
    ) -> Answer:
        version = asked.version
        answer = Answer(partition_index=part.partition_index)
        try:
            if is_duplicate:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if part.timestamp < 0 and _SINCE.get(part.timestamp, version + 1) > version:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            scan = asked.scans.get((topic, part.partition_index))
            self._lookup(asked.request, version, topic, part, answer, scan)
        except KafkaError as error:
            self._services.replicas.handle_storage_failure(error)
            code = error.code
            if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            answer.error_code = code
        except Exception:
            logger.exception("[ListOffsets] Lookup in %s-%d failed", topic, part.partition_index)
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return answer

    def _lookup(
        self,
        request: ListOffsetsRequest,
        version: int,
        topic: str,
        part: ListOffsetsRequest.ListOffsetsPartition,
        answer: Answer,
        scan: Scan | None,
    ) -> None:
        partition = self._services.replicas.partition(topic, part.partition_index)
        partition.check_leader(part.current_leader_epoch, only_leader=request.replica_id != _DEBUGGING)
        log = partition.log
        from_client = request.replica_id == _CONSUMER
        if not from_client:
            last_fetchable = log.log_end_offset
        elif request.isolation_level == 1:
            last_fetchable = log.last_stable_offset
        else:
            last_fetchable = log.high_watermark
        if part.timestamp == LATEST:
            self._check_available(partition, log, from_client)
            found: tuple[int, int, int] | None = (-1, last_fetchable, partition.leader_epoch)
        else:
            found = _search(log, part.timestamp, scan)
            if part.timestamp not in (EARLIEST, EARLIEST_LOCAL) and (
                found is None or found[1] >= last_fetchable
            ):
                # Right after an election the high watermark may lag, and the offset may exist above it.
                self._check_available(partition, log, from_client)
                found = None
        if found is not None:
            answer.timestamp, answer.offset = found[0], found[1]
            if version >= 4:
                answer.leader_epoch = found[2]

    @staticmethod
    def _check_available(partition: Partition, log: PartitionLog, from_client: bool) -> None:
        start = partition.leader_epoch_start
        if from_client and start is not None and start > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The high watermark {log.high_watermark} of {partition.topic}-{partition.partition} lags "
                f"behind the start of this leader epoch, {start}.",
            )


def _response(request: ListOffsetsRequest, answers: list[Answer]) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    run_steps(_responding(request, answers, response))
    return response


def _responding(
    request: ListOffsetsRequest, answers: list[Answer], response: ListOffsetsResponse
) -> Iterator[None]:
    """Fills the response with the answers about all partitions, one topic with each step."""
    rest = iter(answers)
    for topic in request.topics:
        response.topics.append(
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name, partitions=list(islice(rest, len(topic.partitions)))
            )
        )
        yield


def _search(log: PartitionLog, timestamp: int, scan: Scan | None) -> tuple[int, int, int] | None:
    """Returns (timestamp, offset, leader epoch) for any timestamp except LATEST."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        epoch = log.epochs.epoch_for(start)
        return -1, start, -1 if epoch is None else epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1  # without tiered storage
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp()
    return log.offset_for_timestamp(timestamp, scan)


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.LIST_OFFSETS): ListOffsetsHandler(services)}
