"""The follower side of replication. For each leader that this broker follows, one task copies the leader's
batches unchanged (`ReplicaFetcherThread` in Kafka).

Logs are truncated by leader epochs (KIP-101, KIP-279, KIP-320, KIP-595). A Fetch carries the epoch of the
follower's last record. If the logs differ, the leader answers with its largest epoch that is not greater
than the follower's, and the end offset of that epoch. The follower truncates its log. If the logs still
differ, its next Fetch gets such an answer again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from quorate.broker.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from quorate.broker.replication.fetcher.fetch_positions import FetchPositions, FetchState, certain_end
from quorate.broker.replication.fetcher.fetch_session_handler import (
    FetchPosition,
    FetchSessionHandler,
    TopicIdPartition,
)
from quorate.log.partition.results import UnexpectedAppendOffset
from quorate.net.channel import NodeChannel
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.metrics.topic_stats import BrokerTopicStats
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replication_quota import ReplicationQuotas
    from quorate.clock import Clock
    from quorate.config.kafka_config import KafkaConfig
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog

logger = logging.getLogger("quorate.broker.replication.replica_fetcher")

_LATEST, _EARLIEST = -1, -2
_MAX_DOUBLINGS = 6
"""The backoff after unexpected errors doubles at most this often: up to 64 s with the default of 1 s."""


class FetcherHost(Protocol):
    """The members of the `ReplicaManager` that a fetcher uses."""

    node_id: int
    clock: Clock
    logs: LogManager
    metadata: MetadataCache
    quotas: ReplicationQuotas
    stats: BrokerTopicStats

    def handle_storage_failure(self, error: BaseException) -> None:
        """Takes the log directory offline if `error` is a LogDirFailure."""
        ...


class ReplicaFetcher:
    """Copies partitions from one leader."""

    def __init__(
        self,
        leader_id: int,
        config: KafkaConfig,
        host: FetcherHost,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.leader_id = leader_id
        self._host = host
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._listener = config.inter_broker_listener_name
        self._max_wait_ms: int = config.get("replica.fetch.wait.max.ms")
        self._min_bytes: int = config.get("replica.fetch.min.bytes")
        self._max_bytes: int = config.get("replica.fetch.response.max.bytes")
        self._partition_bytes: int = config.get("replica.fetch.max.bytes")
        self._backoff_s: float = config.get("replica.fetch.backoff.ms") / 1000
        self._timeout_s: float = config.get("replica.socket.timeout.ms") / 1000
        self._states: dict[TopicIdPartition, FetchState] = {}
        self._positions = FetchPositions(self._states)
        self._out_of_range: list[TopicIdPartition] = []
        self._truncated: list[PartitionLog] = []
        self._session = FetchSessionHandler()
        self._channel: NodeChannel | None = None
        self._address: tuple[str, int] | None = None
        self._task = loop.create_task(self._run())

    @property
    def is_idle(self) -> bool:
        """Whether no partition is left to copy."""
        return not self._states

    @property
    def failed_count(self) -> int:
        """The number of partitions whose last data caused an unexpected error."""
        return sum([state.failures > 0 for state in self._states.values()])

    def lags(self) -> Iterator[tuple[Partition, int]]:
        """The copied partitions, and by how many offsets each is behind its leader's high watermark."""
        return ((state.partition, state.lag) for state in self._states.values())

    def add(self, partition: Partition) -> None:
        """Starts to copy the partition in its current leader epoch, from the end of its log."""
        log = partition.log
        image = self._host.metadata.partition(partition.topic, partition.partition)
        node_id = self._host.node_id
        in_sync = image is not None and node_id in image.isr
        # After an unclean restart, the controller has removed this broker from both lists before it follows.
        counts = in_sync or (image is not None and node_id in image.elr)
        if (end := certain_end(log, counts=counts)) < log.log_end_offset:
            partition.truncate_to(end)
            self._host.logs.lower_checkpoints([log])
        key = (partition.topic_id, partition.partition)
        self._states[key] = FetchState(partition, partition.leader_epoch, in_sync=in_sync)
        self._positions.changed(key)

    def remove(self, partition: Partition) -> bool:
        """Stops copying the partition. Returns whether it was copied by this fetcher."""
        key = (partition.topic_id, partition.partition)
        if self._states.pop(key, None) is None:
            return False
        self._positions.changed(key)
        return True

    def stop(self) -> None:
        """Cancels the task and closes the connection."""
        self._task.cancel()
        if self._channel is not None:
            self._channel.close()

    async def stopped(self) -> None:
        """Waits for the cancelled task to end."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if not await self._fetch_once():
                    await asyncio.sleep(self._backoff_s / 10)
            except (NetError, OSError) as error:
                logger.info(
                    "[ReplicaFetcher broker=%d leader=%d] %s; retrying",
                    self._host.node_id,
                    self.leader_id,
                    error,
                )
                self._session.reset()
                await asyncio.sleep(self._backoff_s)
            except Exception:
                logger.exception(
                    "[ReplicaFetcher broker=%d leader=%d] failed", self._host.node_id, self.leader_id
                )
                self._session.reset()
                await asyncio.sleep(self._backoff_s)

    async def _fetch_once(self) -> bool:
        """Sends one Fetch and processes its response. Returns False if the fetcher should pause."""
        channel = self._leader_channel()
        if channel is None:
            return False
        held = self._is_held(self._host.clock.now())
        changed, forgotten = self._positions.next(self._session, self._loop.time(), held)
        if not self._positions.sent:
            return False
        request = self._request(changed, forgotten)
        response = await channel.call(request, self._timeout_s + self._max_wait_ms / 1000)
        if not self._session.handle_response(response.error_code, response.session_id):
            logger.info(
                "[ReplicaFetcher broker=%d leader=%d] Fetch session refused: %s",
                self._host.node_id,
                self.leader_id,
                ErrorCode.of(response.error_code).name,
            )
            return response.error_code in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        self._process_response(response)
        await self._handle_out_of_range_partitions()
        return True

    def _is_held(self, now: float) -> Callable[[FetchState], bool] | None:
        """Tells which partitions must not be fetched because the limit of throttled replicas is exceeded, or
        None. Replicas in sync are never left out: they would drop out of the ISR."""
        quota = self._host.quotas.follower
        if not quota.is_active or not quota.is_exceeded(now):
            return None
        return lambda state: (
            not state.in_sync and quota.is_throttled(state.partition.topic, state.partition.partition)
        )

    def _process_response(self, response: FetchResponse) -> None:
        """Processes the data of each partition that is still copied in the same leader epoch. The leader
        counts the data of the others as received, so the next request starts another session."""
        overtaken = False
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                state = self._positions.sent.get(key)
                if state is None or not self._is_current(key, state):
                    overtaken = True
                    continue
                self._positions.changed(key)
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range.append(key)
                    continue
                with self._delaying_on_error(state):
                    self._process_partition(state, data)
                if data.records and self._is_current(key, state):
                    # Moved to the end, as in Kafka's PartitionStates: without a session, a leader fills its
                    # response in the order of the request.
                    self._states[key] = self._states.pop(key)
        if overtaken:
            self._session.reset()
        self._lower_checkpoints()

    async def _handle_out_of_range_partitions(self) -> None:
        """Handles OFFSET_OUT_OF_RANGE. Called after the other partitions are processed, because the
        leader's answers may take long."""
        out_of_range, self._out_of_range = self._out_of_range, []
        for key in out_of_range:
            state = self._states.get(key)
            if state is not None:
                self._positions.changed(key)
                with self._delaying_on_error(state):
                    await self._handle_out_of_range(key, state)
                # Here and not after the loop: this broker may become the leader of the partition before the
                # next response arrives.
                self._lower_checkpoints()

    def _is_current(self, key: TopicIdPartition, state: FetchState) -> bool:
        """Whether `state` is still in use: the partition was not removed, and not added again in another
        leader epoch."""
        return self._states.get(key) is state

    def _lower_checkpoints(self) -> None:
        """Lowers the checkpoints of the truncated logs on disk. Must be called before the next await: after
        that, records may already be appended to the truncated logs."""
        truncated, self._truncated = self._truncated, []
        if truncated:
            try:
                self._host.logs.lower_checkpoints(truncated)
            except KafkaError as failure:
                logger.error(
                    "[ReplicaFetcher broker=%d leader=%d] %s", self._host.node_id, self.leader_id, failure
                )
                self._host.handle_storage_failure(failure)

    @contextlib.contextmanager
    def _delaying_on_error(self, state: FetchState) -> Iterator[None]:
        """Delays only this partition if its data cannot be processed. Errors of the connection are raised.

        After an unexpected error Kafka stops copying the partition until its leader changes. Here it is
        retried with a growing backoff.
        """
        try:
            yield
            state.failures = 0
        except KafkaError as failure:
            self._delay(state, self._backoff_s)
            logger.error(
                "[ReplicaFetcher broker=%d leader=%d] %s: %s",
                self._host.node_id,
                self.leader_id,
                state.partition,
                failure,
            )
            self._host.handle_storage_failure(failure)
        except NetError:
            self._delay(state, self._backoff_s)
            raise  # the leader cannot be reached for the other partitions either
        except Exception:
            delay_s = self._backoff_s * (1 << min(state.failures, _MAX_DOUBLINGS))
            state.failures += 1
            self._delay(state, delay_s)
            logger.exception(
                "[ReplicaFetcher broker=%d leader=%d] Unexpected error at offset %d of %s; trying again in "
                "%.1f s",
                self._host.node_id,
                self.leader_id,
                state.fetch_offset,
                state.partition,
                delay_s,
            )

    def _delay(self, state: FetchState, delay_s: float) -> None:
        state.delayed_until = self._loop.time() + delay_s
        key = (state.partition.topic_id, state.partition.partition)
        self._positions.delayed(key)

    def _leader_channel(self) -> NodeChannel | None:
        endpoint = self._host.metadata.endpoint(self.leader_id, self._listener)
        if endpoint is None:
            return None
        if self._channel is None or self._address != (endpoint.host, endpoint.port):
            if self._channel is not None:
                self._channel.close()
            self._address = (endpoint.host, endpoint.port)
            self._channel = NodeChannel(
                endpoint.host, endpoint.port, client_id=f"broker-{self._host.node_id}-fetcher-0"
            )
            self._session.reset()
        return self._channel

    def _request(
        self, changed: dict[TopicIdPartition, FetchPosition], forgotten: list[TopicIdPartition]
    ) -> FetchRequest:
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, partition), (offset, start, leader_epoch, last_epoch) in changed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=start,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        dropped: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, partition in forgotten:
            dropped.setdefault(topic_id, FetchRequest.ForgottenTopic(topic_id=topic_id)).partitions.append(
                partition
            )
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._host.node_id, replica_epoch=self._broker_epoch()
            ),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch if self._session.epoch != FINAL_EPOCH else INITIAL_EPOCH,
            topics=list(topics.values()),
            forgotten_topics_data=list(dropped.values()),
        )

    def _process_partition(self, state: FetchState, data: FetchResponse.PartitionData) -> None:
        """Appends or truncates. Raises KafkaError, and any other exception if this broker has a bug."""
        if data.error_code == ErrorCode.NONE:
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                self._truncate(state, data.diverging_epoch, data.log_start_offset)
            else:
                self._append(state, data)
        else:
            # The leader changes or the topic is deleted. The change arrives through the metadata log.
            logger.debug(
                "[ReplicaFetcher broker=%d leader=%d] %s: error %d",
                self._host.node_id,
                self.leader_id,
                state.partition,
                data.error_code,
            )
            self._delay(state, self._backoff_s)

    def _append(self, state: FetchState, data: FetchResponse.PartitionData) -> None:
        partition = state.partition
        log = partition.log
        records = data.records
        if isinstance(records, memoryview | bytes) and len(records):
            try:
                log.append_as_follower(records, self._host.clock.now_ms(), leader_epoch=state.leader_epoch)
            except UnexpectedAppendOffset as unexpected:
                if log.log_end_offset != log.log_start_offset or unexpected.last_offset < log.log_end_offset:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(unexpected)) from unexpected
                # The leader's log starts inside this batch (DeleteRecords): the empty log here starts at
                # the first offset of the batch.
                partition.truncate_fully_and_start_at(unexpected.first_offset)
                self._host.logs.lower_checkpoints([log])
                log.append_as_follower(records, self._host.clock.now_ms(), leader_epoch=state.leader_epoch)
            self._host.stats.replication_bytes_in += len(records)
            quota = self._host.quotas.follower
            if quota.is_active and quota.is_throttled(partition.topic, partition.partition):
                quota.record(len(records), self._host.clock.now())
        state.in_sync = log.log_end_offset >= data.high_watermark
        state.lag = max(0, data.high_watermark - log.log_end_offset)
        partition.follow_offsets(data.high_watermark, data.log_start_offset)

    def _truncate(
        self, state: FetchState, diverging: FetchResponse.EpochEndOffset, leader_start: int
    ) -> None:
        """Truncates the log at the offset where it diverges from the leader's. If this log does not have
        the leader's epoch, it is truncated to the end of the previous epoch, and the next Fetch
        continues the search. If it diverges before its start, it starts again where the leader's log does."""
        partition, leader_epoch, leader_end = state.partition, diverging.epoch, diverging.end_offset
        log = partition.log
        end = log.log_end_offset
        if leader_end < 0:
            target = min(log.high_watermark, end)
        elif leader_epoch < 0:
            target = min(leader_end, end)
        else:
            local_end = log.end_offset_for_epoch(leader_epoch)
            if local_end is None or local_end[1] < 0:
                target = min(leader_end, end)
            elif local_end[0] != leader_epoch:
                target = min(local_end[1], end)
            else:
                target = min(local_end[1], leader_end, end)
        if target < log.log_start_offset and leader_start >= 0:
            target = min(target, leader_start)
        logger.info(
            "[ReplicaFetcher broker=%d leader=%d] Truncating %s-%d from %d to %d (leader's epoch %d ends at "
            "%d)",
            self._host.node_id,
            self.leader_id,
            partition.topic,
            partition.partition,
            end,
            target,
            leader_epoch,
            leader_end,
        )
        if target < log.high_watermark:
            logger.warning(
                "[ReplicaFetcher broker=%d leader=%d] Truncating %s-%d to %d, below its high watermark %d",
                self._host.node_id,
                self.leader_id,
                partition.topic,
                partition.partition,
                target,
                log.high_watermark,
            )
        partition.truncate_to(target)
        self._truncated.append(log)

    async def _handle_out_of_range(self, key: TopicIdPartition, state: FetchState) -> None:
        """Handles OFFSET_OUT_OF_RANGE: this log ends after the leader's log (unclean election) or before
        its start (the leader has deleted the records in between)."""
        partition = state.partition
        leader_end = await self._leader_offset(state, _LATEST)
        # A response for another leader epoch, or for a removed replica, must not truncate this log.
        if not self._is_current(key, state):
            return
        log = partition.log  # after each response: meanwhile it may have moved to another log directory
        if log.log_start_offset <= leader_end < log.log_end_offset:
            partition.truncate_to(leader_end)
            self._truncated.append(log)
        else:
            leader_start = await self._leader_offset(state, _EARLIEST)
            if not self._is_current(key, state):
                return
            log = partition.log
            # If the leader's log ends before this one starts, it may have records that this one never had.
            # (Kafka copies only those after the leader's end.)
            if leader_end < log.log_start_offset or leader_start > log.log_end_offset:
                partition.truncate_fully_and_start_at(leader_start)
                self._truncated.append(log)
            # If the leader's log starts inside this one, the log start offset is taken from the next Fetch
            # response, together with the high watermark that it must not exceed.
        logger.info(
            "[ReplicaFetcher broker=%d leader=%d] %s-%d was out of the leader's range, fetching from %d",
            self._host.node_id,
            self.leader_id,
            partition.topic,
            partition.partition,
            state.fetch_offset,
        )

    async def _leader_offset(self, state: FetchState, timestamp: int) -> int:
        partition = state.partition
        channel = self._leader_channel()
        if channel is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        request = ListOffsetsRequest(
            replica_id=self._host.node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=state.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response: ListOffsetsResponse = await channel.call(request, self._timeout_s)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code))
        return answer.offset
