"""DeleteRecords (21), versions 0 to 2: raises the log start offset. The response waits until the live
followers have done so, too."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

from quorate.broker.replication.purgatory import DelayedAcks
from quorate.broker.topic_names import is_internal
from quorate.log.scheduler import run_steps
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.broker.replication.partition import Partition
    from quorate.net.dispatch import Handler, RequestContext

logger = logging.getLogger("quorate.broker.delete_records")


AT_ONCE = 100
"""Partitions of a request from which records are deleted in one turn of the event loop."""

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


class Deletions:
    """The deletions of one request. Those that wait for followers are registered in the turn in which they
    are done, because the partition may have another leader in the next one."""

    __slots__ = ("_services", "_waiting", "response", "waiter")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: list[tuple[Partition, Result]] = []
        self.response = DeleteRecordsResponse()
        self.waiter: DelayedAcks | None = None
        """Waits for the followers; None if none of the deletions has to."""

    def of(self, request: DeleteRecordsRequest) -> Iterator[None]:
        """Deletes the records of one partition with each step."""
        for topic in request.topics:
            answer = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
            self.response.topics.append(answer)
            for part in topic.partitions:
                result = Result(partition_index=part.partition_index, low_watermark=-1)
                answer.partitions.append(result)
                try:
                    self._delete(topic.name, part, result)
                except KafkaError as error:
                    result.error_code = error.code
                except Exception:
                    logger.exception("[DeleteRecords] %s-%d failed", topic.name, part.partition_index)
                    result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
                yield

    def _delete(self, topic: str, part: DeleteRecordsRequest.DeleteRecordsPartition, result: Result) -> None:
        services = self._services
        if not services.metadata.contains(topic, part.partition_index):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
            )
        partition = services.replicas.partition(topic, part.partition_index)
        wanted, low = partition.delete_records(part.offset)
        result.low_watermark = low
        if low < wanted:
            if self.waiter is None:
                self.waiter = DelayedAcks(services.loop, (), None, self._settle, lambda: self.response)
            self._waiting.append((partition, result))
            self.waiter.add_deletion(partition, wanted)

    def _settle(self, index: int, error: ErrorCode) -> None:
        partition, result = self._waiting[index]
        result.error_code = error
        result.low_watermark = partition.low_watermark() if error == ErrorCode.NONE else -1


def delete(
    services: Services, rounds: Rounds, _context: RequestContext, request: DeleteRecordsRequest
) -> Any:
    """Deletes records up to the given offsets."""
    deletions = Deletions(services)

    def finish(_: list[None]) -> Any:
        return _finish(services, deletions, request)

    count = sum([len(topic.partitions) for topic in request.topics])
    result = rounds.answer(count, deletions.of(request), finish)
    return result if count <= AT_ONCE else _later(result)


async def _later(result: Awaitable[Any]) -> Any:
    finished = await result
    return finished if isinstance(finished, DeleteRecordsResponse) else await finished


def _finish(services: Services, deletions: Deletions, request: DeleteRecordsRequest) -> Any:
    """Returns the response, or an awaitable of it, after the last deletion."""
    # Deleted records must stay deleted if the process fails right after the response.
    steps = [step for step in services.logs.checkpoint_log_start_offsets() if step is not None]
    durable = None
    if steps:
        durable = services.loop.run_in_executor(None, run_steps, steps)
        durable.add_done_callback(functools.partial(_report, services))
    waiter = deletions.waiter
    if waiter is None:
        return deletions.response if durable is None else _answer_when(durable, deletions.response)
    waiter.start(request.timeout_ms / 1000)
    return waiter.future if durable is None else _answer_when(durable, waiter.future)


async def _answer_when(
    durable: asyncio.Future[None], response: DeleteRecordsResponse | asyncio.Future[Any]
) -> DeleteRecordsResponse:
    """Returns the response when the checkpoint is written. Raises LogDirFailure, which becomes
    KAFKA_STORAGE_ERROR."""
    await asyncio.shield(durable)
    return response if isinstance(response, DeleteRecordsResponse) else await response


def _report(services: Services, durable: asyncio.Future[None]) -> None:
    error = None if durable.cancelled() else durable.exception()
    if error is not None:
        services.replicas.handle_storage_failure(error)


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DELETE_RECORDS): functools.partial(delete, services, Rounds(AT_ONCE))}
