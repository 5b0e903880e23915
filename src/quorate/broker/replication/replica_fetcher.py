"""The follower side of replication: one task for each leader that this broker follows, which copies
batches as they are.

Truncation follows the leader epochs (KIP-101, KIP-279, KIP-595): a Fetch carries the epoch of the
follower's last record; a leader whose history differs answers with the epoch and offset where the two
part, and the follower cuts there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quorate.broker.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from quorate.log.partition.results import UnexpectedAppendOffset
from quorate.net.client import NodeChannel
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.config.kafka_config import KafkaConfig
    from quorate.log.partition.partition_log import PartitionLog

log_ = logging.getLogger("quorate.broker.replication.replica_fetcher")

_LATEST, _EARLIEST = -1, -2
_MAX_DOUBLINGS = 6  # of the backoff after unexpected errors: 64 s with the default of 1 s

Key = tuple[bytes, int]
Wish = tuple[int, int, int, int]
"""(fetch offset, log start offset, current leader epoch, last fetched epoch), as last sent."""


@dataclass(slots=True)
class _Followed:
    """A partition that is being copied."""

    partition: Partition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    delayed_until: float = 0.0
    failures: int = 0
    """Unexpected errors since the last answer that could be used."""


@dataclass(slots=True)
class ClientFetchSession:
    """The fetcher's half of a fetch session (KIP-227): sends what changed since the last request."""

    session_id: int = 0
    epoch: int = INITIAL_EPOCH
    sent: dict[Key, Wish] = field(default_factory=dict)

    def next(self, wanted: dict[Key, Wish]) -> tuple[dict[Key, Wish], list[Key]]:
        """(what to send, what to forget)."""
        if self.epoch == INITIAL_EPOCH:
            self.sent = dict(wanted)
            return wanted, []
        changed = {key: wish for key, wish in wanted.items() if self.sent.get(key) != wish}
        forgotten = [key for key in self.sent if key not in wanted]
        self.sent = dict(wanted)
        return changed, forgotten

    def answered(self, error: int, session_id: int) -> bool:
        """Whether the answer is of use; an error of the session makes the next request a full one."""
        if error != ErrorCode.NONE:
            self.reset()
            return False
        if self.epoch == INITIAL_EPOCH:
            self.session_id = session_id
            self.epoch = next_epoch(INITIAL_EPOCH) if session_id else INITIAL_EPOCH
        else:
            self.epoch = next_epoch(self.epoch)
        return True

    def reset(self) -> None:
        self.session_id, self.epoch, self.sent = 0, INITIAL_EPOCH, {}


class ReplicaFetchers:
    """A FollowerFetching: the fetchers of this broker by leader."""

    def __init__(
        self,
        config: KafkaConfig,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._fetchers: dict[int, LeaderFetcher] = {}

    def start_following(self, partition: Partition) -> None:
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader_id] = LeaderFetcher(
                partition.leader_id, self._config, self._replicas, self._broker_epoch, self._loop
            )
        fetcher.add(partition)

    def stop_following(self, partition: Partition) -> None:
        for leader_id, fetcher in list(self._fetchers.items()):
            if fetcher.remove(partition) and fetcher.is_idle:
                del self._fetchers[leader_id]
                fetcher.stop()

    async def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*(fetcher.stopped() for fetcher in fetchers))


class LeaderFetcher:
    """Copies from one leader."""

    def __init__(
        self,
        leader_id: int,
        config: KafkaConfig,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.leader_id = leader_id
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._listener = config.inter_broker_listener_name
        self._max_wait_ms: int = config.get("replica.fetch.wait.max.ms")
        self._min_bytes: int = config.get("replica.fetch.min.bytes")
        self._max_bytes: int = config.get("replica.fetch.response.max.bytes")
        self._partition_bytes: int = config.get("replica.fetch.max.bytes")
        self._backoff_s: float = config.get("replica.fetch.backoff.ms") / 1000
        self._timeout_s: float = config.get("replica.socket.timeout.ms") / 1000
        self._followed: dict[Key, _Followed] = {}
        self._out_of_range: list[Key] = []
        self._truncated: list[PartitionLog] = []
        self._session = ClientFetchSession()
        self._channel: NodeChannel | None = None
        self._address: tuple[str, int] | None = None
        self._task = loop.create_task(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._followed

    def add(self, partition: Partition) -> None:
        log = partition.log
        # A log without epochs may hold what a former leader never committed: only what is below the
        # watermark is sure.
        known = log.latest_epoch
        if known is None and log.log_end_offset > log.high_watermark:
            partition.truncate_to(log.high_watermark)
            self._replicas.logs.lower_checkpoints([log])
        self._followed[(partition.topic_id, partition.partition)] = _Followed(
            partition, partition.leader_epoch, log.log_end_offset, -1 if known is None else known
        )

    def remove(self, partition: Partition) -> bool:
        return self._followed.pop((partition.topic_id, partition.partition), None) is not None

    def stop(self) -> None:
        self._task.cancel()
        if self._channel is not None:
            self._channel.close()

    async def stopped(self) -> None:
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if not await self._round():
                    await asyncio.sleep(self._backoff_s / 10)
            except (NetError, OSError) as error:
                log_.info(
                    "[ReplicaFetcher broker=%d leader=%d] %s; retrying",
                    self._replicas.node_id,
                    self.leader_id,
                    error,
                )
                self._session.reset()
                await asyncio.sleep(self._backoff_s)
            except Exception:
                log_.exception(
                    "[ReplicaFetcher broker=%d leader=%d] failed", self._replicas.node_id, self.leader_id
                )
                self._session.reset()
                await asyncio.sleep(self._backoff_s)

    async def _round(self) -> bool:
        """One Fetch; false when there was nothing to ask."""
        now = self._loop.time()
        due = {key: followed for key, followed in self._followed.items() if followed.delayed_until <= now}
        if not due:
            return False
        channel = self._leader_channel()
        if channel is None:
            return False
        response = await channel.call(self._request(due), self._timeout_s + self._max_wait_ms / 1000)
        if not self._session.answered(response.error_code, response.session_id):
            log_.info(
                "[ReplicaFetcher broker=%d leader=%d] Fetch session refused: %s",
                self._replicas.node_id,
                self.leader_id,
                ErrorCode.of(response.error_code).name,
            )
            return response.error_code in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        self._take_all(due, response)
        await self._reset_out_of_range()
        return True

    def _take_all(self, due: dict[Key, _Followed], response: FetchResponse) -> None:
        """Takes over what was answered for each partition that is still followed."""
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = due.get(key)
                if followed is None or not self._is_followed(key, followed):
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range.append(key)
                    continue
                with self._only_delaying(followed):
                    self._take(followed, data)
                if data.records and self._is_followed(key, followed):
                    # Behind the others, as in Kafka's PartitionStates: a leader that keeps no session
                    # fills its answer in the order of the request.
                    self._followed[key] = self._followed.pop(key)
        self._lower_checkpoints()

    async def _reset_out_of_range(self) -> None:
        """Asks the leader where its log begins and ends, after the other partitions were served: the
        answers may take long."""
        out_of_range, self._out_of_range = self._out_of_range, []
        for key in out_of_range:
            followed = self._followed.get(key)
            if followed is not None:
                with self._only_delaying(followed):
                    await self._reset_to_leader(key, followed)
                # Now and not behind the loop: this broker may lead the partition before the next answer
                # comes.
                self._lower_checkpoints()

    def _is_followed(self, key: Key, followed: _Followed) -> bool:
        """Whether the partition is followed since `followed` was made: not removed, and not in another
        leader epoch."""
        return self._followed.get(key) is followed

    def _lower_checkpoints(self) -> None:
        """To be called before anything is awaited, so before anything is appended behind a cut."""
        truncated, self._truncated = self._truncated, []
        if truncated:
            try:
                self._replicas.logs.lower_checkpoints(truncated)
            except KafkaError as failure:
                log_.error(
                    "[ReplicaFetcher broker=%d leader=%d] %s", self._replicas.node_id, self.leader_id, failure
                )
                self._replicas.note_storage_failure(failure)

    @contextlib.contextmanager
    def _only_delaying(self, followed: _Followed) -> Iterator[None]:
        """An error inside, unless it is the connection's, delays this partition alone.

        Kafka gives a partition up whose data cannot be processed for an unexpected reason, until its
        leader changes. Here it is tried again, less often each time.
        """
        try:
            yield
            followed.failures = 0
        except KafkaError as failure:
            self._delay(followed, self._backoff_s)
            log_.error(
                "[ReplicaFetcher broker=%d leader=%d] %s: %s",
                self._replicas.node_id,
                self.leader_id,
                followed.partition,
                failure,
            )
            self._replicas.note_storage_failure(failure)
        except NetError:
            self._delay(followed, self._backoff_s)
            raise  # the leader cannot be reached: the other partitions would wait for it in vain
        except Exception:
            delay_s = self._backoff_s * (1 << min(followed.failures, _MAX_DOUBLINGS))
            followed.failures += 1
            self._delay(followed, delay_s)
            log_.exception(
                "[ReplicaFetcher broker=%d leader=%d] Unexpected error at offset %d of %s; trying again in "
                "%.1f s",
                self._replicas.node_id,
                self.leader_id,
                followed.fetch_offset,
                followed.partition,
                delay_s,
            )

    def _delay(self, followed: _Followed, delay_s: float) -> None:
        followed.delayed_until = self._loop.time() + delay_s

    def _leader_channel(self) -> NodeChannel | None:
        endpoint = self._replicas.metadata.endpoint(self.leader_id, self._listener)
        if endpoint is None:
            return None
        if self._channel is None or self._address != (endpoint.host, endpoint.port):
            if self._channel is not None:
                self._channel.close()
            self._address = (endpoint.host, endpoint.port)
            self._channel = NodeChannel(
                endpoint.host, endpoint.port, client_id=f"broker-{self._replicas.node_id}-fetcher-0"
            )
            self._session.reset()
        return self._channel

    def _request(self, due: dict[Key, _Followed]) -> FetchRequest:
        wanted: dict[Key, Wish] = {
            key: (f.fetch_offset, f.partition.log.log_start_offset, f.leader_epoch, f.last_fetched_epoch)
            for key, f in due.items()
        }
        changed, forgotten = self._session.next(wanted)
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
                replica_id=self._replicas.node_id, replica_epoch=self._broker_epoch()
            ),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch if self._session.epoch != FINAL_EPOCH else INITIAL_EPOCH,
            topics=list(topics.values()),
            forgotten_topics_data=list(dropped.values()),
        )

    def _take(self, followed: _Followed, data: FetchResponse.PartitionData) -> None:
        """Raises KafkaError, or whatever a fault of this broker raises."""
        if data.error_code == ErrorCode.NONE:
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                self._truncate(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            else:
                self._append(followed, data)
        else:
            # Leader or metadata are about to change (or the topic to go): the metadata log brings the news.
            log_.debug(
                "[ReplicaFetcher broker=%d leader=%d] %s: error %d",
                self._replicas.node_id,
                self.leader_id,
                followed.partition,
                data.error_code,
            )
            self._delay(followed, self._backoff_s)

    def _append(self, followed: _Followed, data: FetchResponse.PartitionData) -> None:
        partition = followed.partition
        log = partition.log
        records = data.records
        if isinstance(records, memoryview | bytes) and len(records):
            try:
                log.append_as_follower(records, self._replicas.clock.now_ms())
            except UnexpectedAppendOffset as unexpected:
                if log.log_end_offset != log.log_start_offset or unexpected.last_offset < log.log_end_offset:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(unexpected)) from unexpected
                # The leader's log starts inside of this batch (DeleteRecords): an empty log begins
                # where the batch does.
                partition.truncate_fully_and_start_at(unexpected.first_offset)
                self._replicas.logs.lower_checkpoints([log])
                log.append_as_follower(records, self._replicas.clock.now_ms())
            followed.fetch_offset = log.log_end_offset
            followed.last_fetched_epoch = -1 if log.latest_epoch is None else log.latest_epoch
        partition.follow_offsets(data.high_watermark, data.log_start_offset)

    def _truncate(self, followed: _Followed, leader_epoch: int, leader_end: int) -> None:
        """Cuts where the leader's history and this one part; where this log never saw the leader's
        epoch, at the end of the epoch before, and the next Fetch goes on from there."""
        partition = followed.partition
        log = partition.log
        end = log.log_end_offset
        if leader_end < 0:
            target = min(log.high_watermark, end)
        elif leader_epoch < 0:
            target = min(leader_end, end)
        else:
            mine = log.end_offset_for_epoch(leader_epoch)
            if mine is None or mine[1] < 0:
                target = min(leader_end, end)
            elif mine[0] != leader_epoch:
                target = min(mine[1], end)
            else:
                target = min(mine[1], leader_end, end)
        log_.info(
            "[ReplicaFetcher broker=%d leader=%d] Truncating %s-%d from %d to %d (leader's epoch %d ends at "
            "%d)",
            self._replicas.node_id,
            self.leader_id,
            partition.topic,
            partition.partition,
            end,
            target,
            leader_epoch,
            leader_end,
        )
        if target < log.high_watermark:
            log_.warning(
                "[ReplicaFetcher broker=%d leader=%d] Truncating %s-%d to %d, below its high watermark %d",
                self._replicas.node_id,
                self.leader_id,
                partition.topic,
                partition.partition,
                target,
                log.high_watermark,
            )
        partition.truncate_to(target)
        self._truncated.append(log)
        followed.fetch_offset = log.log_end_offset
        followed.last_fetched_epoch = -1 if log.latest_epoch is None else log.latest_epoch

    async def _reset_to_leader(self, key: Key, followed: _Followed) -> None:
        """This log ends behind the leader's (an unclean election), or before its start (retention
        passed it by)."""
        partition = followed.partition
        log = partition.log
        leader_end = await self._leader_offset(followed, _LATEST)
        # What was asked for another leader epoch, or for a replica that is gone, must not cut this log.
        if not self._is_followed(key, followed):
            return
        if leader_end < log.log_end_offset:
            partition.truncate_to(leader_end)
            self._truncated.append(log)
            followed.fetch_offset = leader_end
        else:
            leader_start = await self._leader_offset(followed, _EARLIEST)
            if not self._is_followed(key, followed):
                return
            if leader_start > log.log_end_offset:
                partition.truncate_fully_and_start_at(leader_start)
                self._truncated.append(log)
            # A start inside of this log comes with the next Fetch, together with the high watermark
            # that it must not pass.
            followed.fetch_offset = max(leader_start, log.log_end_offset)
        followed.last_fetched_epoch = -1 if log.latest_epoch is None else log.latest_epoch
        log_.info(
            "[ReplicaFetcher broker=%d leader=%d] %s-%d was out of the leader's range, fetching from %d",
            self._replicas.node_id,
            self.leader_id,
            partition.topic,
            partition.partition,
            followed.fetch_offset,
        )

    async def _leader_offset(self, followed: _Followed, timestamp: int) -> int:
        partition = followed.partition
        channel = self._leader_channel()
        if channel is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        request = ListOffsetsRequest(
            replica_id=self._replicas.node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=followed.leader_epoch,
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
