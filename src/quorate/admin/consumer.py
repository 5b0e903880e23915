"""A small consumer, as the console tool needs it: assigned partitions or a group's share of topics, read with long polls of
their leaders.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quorate.admin.errors import ErrorCode, KafkaConnectionError, KafkaError, NetError, RequestTimedOut, check
from quorate.admin.membership import Membership
from quorate.admin.topic_metadata import RETRY_LEADER, TopicMetadata
from quorate.admin.topics import EARLIEST, LATEST
from quorate.admin.types import OffsetAndMetadata, TopicPartition
from quorate.records.batch import TimestampType, control_records, decode_records, iter_batches, verify_crc
from quorate.records.record import readable_headers

if TYPE_CHECKING:
    from quorate.admin.client import AdminClient

log = logging.getLogger("quorate.consumer")


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Times in seconds. `auto_offset_reset`: earliest, latest or none."""

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: str = "latest"
    auto_commit: bool = True
    auto_commit_interval_s: float = 5.0
    read_committed: bool = False
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 300.0
    heartbeat_interval_s: float = 3.0
    fetch_max_wait_s: float = 0.5
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    request_timeout_s: float = 30.0
    metadata_max_age_s: float = 300.0
    check_crcs: bool = True


@dataclass(slots=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    leader_epoch: int = -1


class Consumer:
    """`assign` or `subscribe`, then `poll` again and again, then `close`."""

    def __init__(self, admin: AdminClient, config: ConsumerConfig) -> None:
        self.admin = admin
        self.transport = admin.transport
        self.config = config
        self.metadata = TopicMetadata(self.transport)
        self.positions: dict[TopicPartition, int] = {}
        """The next offset to read of each partition that is read."""
        self._unset: dict[TopicPartition, int] = {}
        self._membership: Membership | None = None
        self._wanted: Callable[[str], bool] | None = None
        self._topics: tuple[str, ...] = ()
        self._next_commit = 0.0
        self._next_refresh = 0.0
        self._committed: dict[TopicPartition, int] = {}

    # -- what to read ----------------------------------------------------------------------------------------------------

    def assign(self, start: dict[TopicPartition, int]) -> None:
        """Reads these partitions from an offset, or from EARLIEST or LATEST."""
        self.positions = {tp: offset for tp, offset in start.items() if offset >= 0}
        self._unset = {tp: offset for tp, offset in start.items() if offset < 0}

    async def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None) -> None:
        """Reads topics: as a member of the group, or without a group all of their partitions."""
        if pattern is not None:
            compiled = re.compile(pattern)
            self._wanted = lambda name: compiled.fullmatch(name) is not None and not name.startswith("__")
        self._topics = tuple(topics)
        if self.config.group_id is not None:
            self._membership = Membership(self.admin, self.metadata, self.config, await self._names(), self._revoked)
            self._membership.start()
        await self._refresh()

    async def _names(self) -> tuple[str, ...]:
        if self._wanted is None:
            return self._topics
        return tuple(sorted(topic.name for topic in await self.metadata.all_topics() if self._wanted(topic.name)))

    async def _refresh(self) -> None:
        """New topics and partitions since the last look."""
        self._next_refresh = asyncio.get_running_loop().time() + self.config.metadata_max_age_s
        names = await self._names()
        if self._membership is not None:
            self._membership.topics_changed(names)
            return
        first = not self.positions and not self._unset
        for name in names:
            if not first:
                self.metadata.forget(name)
            for partition in range(len((await self.metadata.topic(name)).leaders)):
                tp = TopicPartition(name, partition)
                if tp not in self.positions and tp not in self._unset:
                    # A partition that appears while reading is read whole: nothing of it was there before.
                    self._unset[tp] = self._reset() if first else EARLIEST

    def _reset(self) -> int:
        if self.config.auto_offset_reset == "earliest":
            return EARLIEST
        if self.config.auto_offset_reset == "latest":
            return LATEST
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "Undefined offset with no reset policy for the partitions")

    # -- reading ---------------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        """Records that are there, or come within the time; none when the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left = deadline - loop.time()
            if self._subscribed and loop.time() >= self._next_refresh:
                await self._refresh()
            if self._membership is not None:
                await self._follow_membership(max(0.0, left))
                await self._maybe_commit()
            if self._unset:
                await self._find_positions()
            records = await self._fetch(max(0.0, min(left, self.config.fetch_max_wait_s))) if self.positions else []
            if records or loop.time() >= deadline:
                return records
            if not self.positions:
                await asyncio.sleep(min(0.1, max(0.0, deadline - loop.time())))

    @property
    def _subscribed(self) -> bool:
        return bool(self._topics) or self._wanted is not None

    async def _follow_membership(self, timeout_s: float) -> None:
        """Takes over a new assignment, with the group's committed offsets."""
        assert self._membership is not None and self.config.group_id is not None
        assigned = await self._membership.assignment(timeout_s)
        if assigned is None or set(assigned) == set(self.positions) | set(self._unset):
            return
        kept = {tp: offset for tp, offset in self.positions.items() if tp in assigned}
        missing = [tp for tp in assigned if tp not in kept]
        found = await self.admin.list_group_offsets(self.config.group_id, missing, require_stable=True) if missing else {}
        self._unset = {}
        for tp in missing:
            known = found.get(tp)
            if isinstance(known, KafkaError):
                raise known
            if known is None:
                self._unset[tp] = self._reset()
            else:
                kept[tp] = self._committed[tp] = known.offset
        self.positions = kept

    async def _find_positions(self) -> None:
        found = await self.admin.list_offsets(self._unset, read_committed=self.config.read_committed)
        for tp, offset in found.items():
            if isinstance(offset, KafkaError):
                raise offset
            self.positions[tp] = offset.offset
        self._unset = {}

    async def _fetch(self, max_wait_s: float) -> list[ConsumedRecord]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in list(self.positions):
            leaders = (await self.metadata.topic(tp.topic)).leaders
            by_leader.setdefault(leaders[tp.partition] if tp.partition < len(leaders) else -1, []).append(tp)
        homeless = by_leader.pop(-1, [])
        for tp in homeless:
            self.metadata.forget(tp.topic)
        tasks = [
            asyncio.ensure_future(self._fetch_from(leader, partitions, max_wait_s)) for leader, partitions in by_leader.items()
        ]
        if not tasks:
            await asyncio.sleep(min(0.1, max_wait_s))
            return []
        return [record for found in await asyncio.gather(*tasks) for record in found]

    async def _fetch_from(self, leader: int, partitions: list[TopicPartition], max_wait_s: float) -> list[ConsumedRecord]:
        from quorate.protocol.messages.fetch import FetchRequest

        topics: dict[str, FetchRequest.FetchTopic] = {}
        names: dict[bytes, str] = {}
        for tp in partitions:
            entry = topics.get(tp.topic)
            if entry is None:
                known = await self.metadata.topic(tp.topic)
                entry = topics[tp.topic] = FetchRequest.FetchTopic(topic=tp.topic, topic_id=known.topic_id)
                names[known.topic_id] = tp.topic
            entry.partitions.append(
                FetchRequest.FetchPartition(
                    partition=tp.partition,
                    fetch_offset=self.positions[tp],
                    partition_max_bytes=self.config.partition_max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=int(max_wait_s * 1000),
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            isolation_level=int(self.config.read_committed),
            topics=list(topics.values()),
        )
        try:
            address = await self.transport.address_of(leader)
            answer = await self.transport.ask(address, request)
            check(answer.error_code)
        except (KafkaConnectionError, RequestTimedOut, KafkaError) as error:
            if isinstance(error, KafkaError) and not error.code.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            log.warning("[Consumer] Fetch from node %d failed: %s", leader, error)
            self.transport.doubt()
            for tp in partitions:
                self.metadata.forget(tp.topic)
            await asyncio.sleep(0.1)
            return []
        records: list[ConsumedRecord] = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for p in topic.partitions:
                tp = TopicPartition(name, p.partition_index)
                if tp in self.positions:
                    self._take(tp, p, records)
        return records

    def _take(self, tp: TopicPartition, data: Any, records: list[ConsumedRecord]) -> None:
        code = ErrorCode.of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            log.warning("[Consumer] Fetch offset %d is out of range for %s, resetting", self.positions[tp], tp)
            del self.positions[tp]
            self._unset[tp] = self._reset()
            return
        if code in RETRY_LEADER or code is ErrorCode.OFFSET_NOT_AVAILABLE:
            self.metadata.forget(tp.topic)
            return
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        if data.records is None:
            return
        aborted = sorted((a.first_offset, a.producer_id) for a in data.aborted_transactions or ())
        doomed: set[int] = set()
        for header, batch in iter_batches(data.records):
            if self.config.check_crcs and not verify_crc(batch):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record batch at offset {header.base_offset} of {tp} is corrupt.")
            while aborted and aborted[0][0] <= header.last_offset:
                doomed.add(aborted.pop(0)[1])
            if header.is_control:
                if any(kind == 0 for kind, _ in control_records(batch)):  # ABORT
                    doomed.discard(header.producer_id)
            elif not (self.config.read_committed and header.is_transactional and header.producer_id in doomed):
                position = self.positions[tp]
                kind, epoch = header.timestamp_type, header.leader_epoch
                records.extend(
                    ConsumedRecord(
                        tp.topic,
                        tp.partition,
                        r.offset,
                        r.timestamp,
                        kind,
                        r.key,
                        r.value,
                        readable_headers(r.headers) if r.headers else r.headers,
                        epoch,
                    )
                    for r in decode_records(batch)
                    if r.offset >= position
                )
            self.positions[tp] = max(self.positions[tp], header.next_offset)

    # -- commits ---------------------------------------------------------------------------------------------------------

    async def _maybe_commit(self) -> None:
        loop = asyncio.get_running_loop()
        if self.config.auto_commit and loop.time() >= self._next_commit:
            self._next_commit = loop.time() + self.config.auto_commit_interval_s
            await self.commit(self.positions)

    async def _revoked(self) -> None:
        """Called before a rebalance: what comes after the last commit is the next owner's to read."""
        if self.config.auto_commit:
            await self.commit(self.positions)
        self.positions = {}
        self._unset = {}
        self._committed = {}

    async def commit(self, positions: dict[TopicPartition, int]) -> None:
        """Commits these offsets for the group; failures of a rebalance under way are logged, as the next owner reads them
        again.
        """
        news = {tp: offset for tp, offset in positions.items() if self._committed.get(tp) != offset}
        if self._membership is None or not news:
            return
        try:
            await self._membership.commit({tp: OffsetAndMetadata(offset) for tp, offset in news.items()})
        except (KafkaError, NetError) as error:
            log.warning("[Consumer] Offset commit failed: %s", error)
            return
        self._committed.update(news)

    async def close(self, positions: dict[TopicPartition, int] | None = None) -> None:
        """Commits (`positions` where less was used than read), and leaves the group."""
        if self._membership is not None:
            if self.config.auto_commit:
                await self.commit(self.positions if positions is None else positions)
            await self._membership.close()
