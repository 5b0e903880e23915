"""DeleteRecords (21), versions 0 to 2: raises the log start offset. The response waits until the live
followers have done so, too."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

from quorate.broker.replication.purgatory import DelayedAcks
from quorate.broker.topic_names import is_internal
from quorate.log.scheduler import run_steps
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.broker.replication.partition import Partition
    from quorate.net.dispatch import Handler, RequestContext

logger = logging.getLogger("quorate.broker.delete_records")


def delete(services: Services, _context: RequestContext, request: DeleteRecordsRequest) -> Any:
    """Deletes records up to the given offsets."""
    response = DeleteRecordsResponse()
    waiting: list[tuple[Partition, int, DeleteRecordsResponse.DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            result = DeleteRecordsResponse.DeleteRecordsPartitionResult(
                partition_index=part.partition_index, low_watermark=-1
            )
            results.append(result)
            try:
                if not services.metadata.contains(topic.name, part.partition_index):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if is_internal(topic.name):
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION,
                        f"Cannot delete records of internal topic {topic.name}",
                    )
                partition = services.replicas.partition(topic.name, part.partition_index)
                wanted, low = partition.delete_records(part.offset)
                result.low_watermark = low
                if low < wanted:
                    waiting.append((partition, wanted, result))
            except KafkaError as error:
                result.error_code = error.code
            except Exception:
                logger.exception("[DeleteRecords] %s-%d failed", topic.name, part.partition_index)
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        response.topics.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=results)
        )
    # Deleted records must stay deleted if the process fails right after the response.
    steps = [step for step in services.logs.checkpoint_log_start_offsets() if step is not None]
    durable = None
    if steps:
        durable = services.loop.run_in_executor(None, run_steps, steps)
        durable.add_done_callback(functools.partial(_report, services))
    if not waiting:
        return response if durable is None else _answer_when(durable, response)

    def settle(index: int, error: ErrorCode) -> None:
        partition, _, result = waiting[index]
        result.error_code = error
        result.low_watermark = partition.low_watermark() if error == ErrorCode.NONE else -1

    waiter = DelayedAcks(services.loop, (), request.timeout_ms / 1000, settle, lambda: response, len(waiting))
    for index, (partition, wanted, _) in enumerate(waiting):
        partition.delayed_operations.add_deletion(wanted, waiter, index)
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
    return {int(ApiKey.DELETE_RECORDS): lambda context, request: delete(services, context, request)}
