"""Produce (0), versions 3 to 13. Versions 0 to 2 are advertised, as Kafka does for old versions of
librdkafka, and rejected.

3 transactional id · 5 log start offset · 7 zstd · 8 record errors · 10 leader hints (KIP-951) · 12
transactions without AddPartitionsToTxn (TV2) · 13 topic ids.

The append is done in the synchronous part of the handler, so the requests of a connection are appended in
their order. Only acks=all may wait. If the appends of a request take too long for a turn of the event
loop, they continue in further turns, and later requests of the connection wait for them. Not supported:
transactional batches (INVALID_TXN_STATE), quotas.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from quorate.broker.handlers import small_produce
from quorate.broker.handlers.refused_sequences import RefusedSequences
from quorate.broker.replication.purgatory import DelayedAcks
from quorate.broker.topic_names import is_internal
from quorate.log.partition.producer_state import AppendOrigin
from quorate.net.connections.response_queue import encode_frame
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse
from quorate.protocol.uuids import ZERO_UUID
from quorate.records.batch import parse_header

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.broker.replication.partition import Partition
    from quorate.log.partition.results import AppendInfo, CheckedBatch
    from quorate.net.dispatch import (
        ClientConnection,
        FrameSource,
        Handler,
        RequestContext,
        RequestCounter,
    )
    from quorate.protocol.schema import Records

logger = logging.getLogger("quorate.broker.produce")

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.PartitionProduceResponse

TURN_S = 0.004
"""Time for the appends of one request in one turn of the event loop. Creating the files of a new partition
takes up to a millisecond, and one request may write to thousands of partitions."""

_ZSTD = 4
_ZSTD_SINCE = 7
_NONE = int(ErrorCode.NONE)
_EXPECTED = frozenset(  # not logged: the client handles them
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of an append after which Kafka's response has no log start offset. After all others it has one."""

_MAGIC = 16
_MIN_OLD_SIZE = 14
"""The minimum size of a record of magic 0, without its offset and size fields. Kafka does not look at the
magic of a smaller record."""


def check_records(records: Records | None, version: int, transactional_id: str | None = None) -> CheckedBatch:
    """Returns the header and the records of a partition if they are exactly one batch of magic 2, with a
    compression that the version allows. Raises INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE,
    INVALID_TXN_STATE, or TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch in a request
    without a transactional id."""
    if not isinstance(records, (memoryview, bytes)) or len(records) == 0:
        raise _no_batch(version)
    if (
        len(records) > _MAGIC
        and records[_MAGIC] in (0, 1)
        and int.from_bytes(records[8:12], "big") >= _MIN_OLD_SIZE
    ):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches with magic "
            "version 2",
        )
    header = parse_header(records)
    if header.size_bytes > len(records):  # an incomplete batch
        raise _no_batch(version)
    if header.size_bytes < len(records):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain exactly one record batch "
            "per partition",
        )
    if header.attributes & 7 == _ZSTD and version < _ZSTD_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if header.is_transactional:
        if transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            "This broker has no transaction coordinator: no transaction can be under way.",
        )
    return header, memoryview(records)


def _no_batch(version: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} must have at least one record batch",
    )


def _set_log_start(part: PartitionAnswer, partition: Partition, refused: KafkaError) -> None:
    if refused.code not in _WITHOUT_LOG_START:
        part.log_start_offset = partition.log.log_start_offset


class ProduceHandler:
    """Appends batches, and responds when they are acknowledged."""

    __slots__ = ("_refused_sequences", "_services", "_unfinished", "turn_s")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._refused_sequences = RefusedSequences(services.loop.time)
        self.turn_s = TURN_S
        self._unfinished: dict[ClientConnection | None, asyncio.Task[Any]] = {}
        """The last unfinished task of each connection whose appends need further turns."""

    def __call__(self, context: RequestContext, request: ProduceRequest) -> Any:
        if context.api_version < 3:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"Produce version {context.api_version} is not supported."
            )
        appends = self._append_all(context, request)
        before = self._unfinished.get(context.connection) if self._unfinished else None
        if before is None:
            try:
                next(appends)
            except StopIteration as done:
                return done.value
        task = self._services.loop.create_task(_finish_appends(appends, before))
        self._unfinished[context.connection] = task
        task.add_done_callback(functools.partial(self._appended, context.connection))
        return _answer_of(task)

    def answer_frame(self, frame: memoryview, source: FrameSource) -> bytes | None:
        """Answers a request of one batch for one partition, for which no replica must be waited for (a
        `FrameHandler`)."""
        request = small_produce.parse(frame)
        if request is None or self._unfinished:
            return None
        version, acks, name, topic_id, _, index, data = request
        services = self._services
        if version >= 13:
            name = services.metadata.topic_name(topic_id) or ""
        partition = services.replicas.partitions.get((name, index))
        if partition is None or topic_id not in (ZERO_UUID, partition.topic_id) or is_internal(name):
            return None
        if not (acks == 1 or (acks == -1 and not partition.followers)):
            return None
        try:
            batch = check_records(data, version)
        except KafkaError:
            return None
        try:
            info = self._append_batch(partition, name, batch, acks, source)
        except Exception as error:
            return self._refused_frame(frame, source, name, partition, error)
        return small_produce.response(
            frame, request, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )

    def _refused_frame(
        self, frame: memoryview, source: FrameSource, name: str, partition: Partition, error: Exception
    ) -> bytes:
        """The response to the only append of a request, after an error."""
        context, request = source.decode(frame)
        (topic,) = request.topic_data
        part = PartitionAnswer(index=topic.partition_data[0].index)
        answer = ProduceResponse(
            responses=[TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=[part])]
        )
        if isinstance(error, KafkaError):
            _set_log_start(part, partition, error)
        self._refused(context, answer, name, part, topic.partition_data[0].records, error)
        return b"".join(encode_frame(context, answer))  # type: ignore[arg-type]

    def _appended(self, connection: ClientConnection | None, task: asyncio.Task[Any]) -> None:
        if self._unfinished.get(connection) is task:
            del self._unfinished[connection]

    def _append_all(self, context: RequestContext, request: ProduceRequest) -> Generator[None, None, Any]:
        """Appends to the partitions in order and yields when the time of a turn has elapsed. Returns the
        handler's result."""
        version, acks, loop = context.api_version, request.acks, self._services.loop
        answer = ProduceResponse()
        failed = False
        waits: list[tuple[Partition, int]] = []
        waiting: list[tuple[str, Any]] = []
        delayed: DelayedAcks | None = None

        turn_ends = loop.time() + self.turn_s
        for topic_data in request.topic_data:
            if not topic_data.partition_data and loop.time() > turn_ends:
                # The waits begin before the first yield: in other turns a high watermark may pass these
                # appends.
                delayed = delayed or self._delayed_acks(context, answer, waits, waiting, None)
                yield
                turn_ends = loop.time() + self.turn_s
            name, topic_id = self._resolve(topic_data, version)
            topic_answer = TopicAnswer(name=topic_data.name, topic_id=topic_id)
            answer.responses.append(topic_answer)
            for data in topic_data.partition_data:
                if loop.time() > turn_ends:
                    delayed = delayed or self._delayed_acks(context, answer, waits, waiting, None)
                    yield
                    turn_ends = loop.time() + self.turn_s
                part = PartitionAnswer(index=data.index)
                topic_answer.partition_responses.append(part)
                try:
                    if acks not in (-1, 0, 1):
                        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                    if name is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    wait = self._append(context, name, topic_id, data, request, part)
                    if wait is not None:
                        waits.append(wait)
                        waiting.append((name, part))
                        if delayed is not None:
                            delayed.add(*wait)
                except Exception as error:
                    failed = True
                    self._refused(context, answer, name, part, data.records, error, topic_id)
        if acks == 0:
            if failed:
                self._close(context, answer)
            return None
        if not waits:
            return answer
        timeout_s = max(request.timeout_ms, 0) / 1000
        if delayed is None:
            return self._delayed_acks(context, answer, waits, waiting, timeout_s).future
        delayed.start(timeout_s)
        return delayed.future

    def _delayed_acks(
        self,
        context: RequestContext,
        answer: ProduceResponse,
        waits: list[tuple[Partition, int]],
        waiting: list[tuple[str, Any]],
        timeout_s: float | None,
    ) -> DelayedAcks:
        """Waits for the appends in `waits`; `waiting` has the topic and the answer of each."""

        def settle(index: int, error: ErrorCode) -> None:
            if error != ErrorCode.NONE:
                name, part = waiting[index]
                self._services.replicas.stats.errors[("Produce", int(error))] += 1
                self._failed(context, answer, name, part, KafkaError(error))

        return DelayedAcks(self._services.loop, waits, timeout_s, settle, lambda: answer)

    def _resolve(self, topic_data: ProduceRequest.TopicProduceData, version: int) -> tuple[str | None, bytes]:
        if version < 13:
            return topic_data.name, ZERO_UUID
        return self._services.metadata.topic_name(topic_data.topic_id), topic_data.topic_id

    def _append(
        self,
        context: RequestContext,
        name: str,
        topic_id: bytes,
        data: ProduceRequest.PartitionProduceData,
        request: ProduceRequest,
        part: PartitionAnswer,
    ) -> tuple[Partition, int] | None:
        services, acks = self._services, request.acks
        partition = services.replicas.partitions.get((name, data.index))
        if partition is None:
            raise services.replicas.missing(name, data.index)
        batch = check_records(data.records, context.api_version, request.transactional_id)
        if is_internal(name) and context.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        if topic_id != ZERO_UUID and topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            info = self._append_batch(partition, name, batch, acks, context.connection)
        except KafkaError as refused:
            _set_log_start(part, partition, refused)
            raise
        part.base_offset = info.first_offset
        part.log_append_time_ms = info.log_append_time_ms
        part.log_start_offset = info.log_start_offset
        if acks != -1:
            return None
        log = partition.log
        required = info.last_offset + 1
        if log.high_watermark < required:
            return partition, required
        error = partition.ack_error(log)
        if error != ErrorCode.NONE:
            raise KafkaError(error)
        return None

    def _append_batch(
        self,
        partition: Partition,
        name: str,
        batch: CheckedBatch,
        acks: int,
        connection: RequestCounter | None,
    ) -> AppendInfo:
        services = self._services
        stats = services.replicas.stats.topic(name)
        stats.produces += 1
        if self._refused_sequences and batch[0].base_sequence >= 0:
            self._refused_sequences.check(partition, batch[0], acks, connection)
        info = partition.append(batch, acks, services.clock.now_ms(), AppendOrigin.CLIENT)
        stats.messages_in += info.last_offset - info.first_offset + 1
        stats.bytes_in += len(batch[1])
        return info

    def _refused(
        self,
        context: RequestContext,
        answer: ProduceResponse,
        name: str | None,
        part: PartitionAnswer,
        records: Records | None,
        error: Exception,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        """Counts an append that failed, and puts its error into the answer."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._services.replicas.stats.produce_failed(name, len(records or b""), code)
        topic = topic_id if name is None else name
        self._refused_sequences.remember(topic, part.index, records, code, context.connection)
        self._failed(context, answer, name, part, error)

    def _failed(
        self,
        context: RequestContext,
        answer: ProduceResponse,
        name: str | None,
        part: PartitionAnswer,
        error: Exception,
    ) -> None:
        if not isinstance(error, KafkaError):
            logger.error(
                "[Produce broker=%d] Appending to %s-%d failed",
                self._services.node_id,
                name,
                part.index,
                exc_info=error,
            )
            part.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            part.base_offset = -1
            return
        if error.code not in _EXPECTED:
            logger.info(
                "[Produce broker=%d] Append to %s-%d by %s refused: %s",
                self._services.node_id,
                name,
                part.index,
                context.client_id,
                error,
            )
        part.error_code = error.code
        part.base_offset = -1
        part.log_append_time_ms = -1
        if context.api_version >= 8:
            # Kafka sends a message only for rejected records. For other errors the client knows the text.
            record_errors = getattr(error, "record_errors", None)
            if record_errors:
                part.error_message = error.message
                part.record_errors = [
                    ProduceResponse.BatchIndexAndErrorMessage(
                        batch_index=index, batch_index_error_message=text
                    )
                    for index, text in record_errors
                ]
        if context.api_version >= 10 and name is not None and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            metadata = self._services.metadata
            leader, epoch = metadata.current_leader(name, part.index)
            part.current_leader.leader_id = leader
            part.current_leader.leader_epoch = epoch
            endpoint = metadata.endpoint(leader, context.listener)
            broker = metadata.broker(leader)
            if (
                endpoint is None
                or broker is None
                or any(node.node_id == leader for node in answer.node_endpoints)
            ):
                return
            answer.node_endpoints.append(
                ProduceResponse.NodeEndpoint(
                    node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )

    def _close(self, context: RequestContext, answer: ProduceResponse) -> None:
        """Closes the connection. With acks=0 no response can carry the error, and the client refreshes its
        metadata after a lost connection."""
        logger.info(
            "[Produce broker=%d] Closing connection %s after an error with acks=0: %s",
            self._services.node_id,
            context.connection_id,
            ", ".join(
                f"{topic.name}-{part.index}: {ErrorCode.of(part.error_code).name}"
                for topic in answer.responses
                for part in topic.partition_responses
                if part.error_code
            ),
        )
        if context.connection is not None:
            context.connection.close()


async def _finish_appends(appends: Generator[None, None, Any], before: asyncio.Task[Any] | None) -> Any:
    """Completes the appends, a slice in each turn, after those of `before`. Returns the handler's result.

    The task is not cancelled when its connection is lost: all batches of a request are appended.
    """
    if before is not None:
        await asyncio.wait([before])
    while True:
        try:
            next(appends)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


async def _answer_of(task: asyncio.Task[Any]) -> Any:
    result = await asyncio.shield(task)
    return await result if isinstance(result, asyncio.Future) else result


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.PRODUCE): ProduceHandler(services)}
