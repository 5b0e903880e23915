"""Incremental fetch sessions on the broker (KIP-227). A fetcher sends only the partitions that changed,
and the broker answers only those that have something new.

Pure: time and random numbers are arguments. The partitions of a session keep their order. A partition
that returned data moves to the end, so that each gets its turn under a response limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from quorate.broker.replication.quiet_partitions import QuietPartitions
from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.protocol.messages.fetch import FetchResponse

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
"""Epoch of a full request that requests a session."""
FINAL_EPOCH = -1
"""Epoch of a full request that requests no session and closes the given one."""

# Partitions are keyed by topic id where the request carries one, else by name.
PartitionKey = tuple["bytes | str", int]


def next_epoch(epoch: int) -> int:
    """The epoch of the next request. Wraps to 1, because 0 and -1 have special meanings."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


@dataclass(slots=True)
class FetchPartition:
    """One partition of a Fetch: the fetcher's position and, in a session, the offsets last sent to it."""

    topic: str | None  # None if this broker does not know the topic id
    topic_id: bytes
    partition: int
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    def update(self, other: FetchPartition) -> None:
        """Takes the position from `other`. Keeps the offsets that were sent, unless the leader epoch is
        another one: a follower ignores a response that its change of the epoch has overtaken."""
        if self.current_leader_epoch != other.current_leader_epoch:
            self.sent_high_watermark = self.sent_log_start_offset = -1
        self.fetch_offset = other.fetch_offset
        self.log_start_offset = other.log_start_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class FetchSession:
    """The partitions of one fetcher, kept between its requests. Those that are not quiet are `active`."""

    id: int
    privileged: bool  # a follower's
    uses_topic_ids: bool
    partitions: dict[PartitionKey, FetchPartition]
    created_ms: int
    last_used_ms: int
    epoch: int
    active: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    quiet: QuietPartitions[FetchPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.quiet = QuietPartitions(self.partitions, self.active)


def _records_size(data: FetchResponse.PartitionData) -> int:
    records = data.records
    if records is None:
        return 0
    if isinstance(records, list):
        return sum(part.length if hasattr(part, "length") else len(part) for part in records)
    return records.length if hasattr(records, "length") else len(records)


class FetchContext:
    """One Fetch request: the partitions to read, and the selection of the answers to send. This class is
    used without a session."""

    __slots__ = ("active", "error", "partitions", "quiet")

    def __init__(
        self, partitions: dict[PartitionKey, FetchPartition], error: ErrorCode = ErrorCode.NONE
    ) -> None:
        self.partitions = partitions
        self.active = partitions
        """The partitions to read."""
        self.quiet: QuietPartitions[FetchPartition] | None = None
        """The others, in a session of a follower that uses topic ids."""
        self.error = error

    def finish(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData], now_ms: int
    ) -> tuple[ErrorCode, int, dict[PartitionKey, FetchResponse.PartitionData]]:
        """Returns (top-level error, session id, answers to send)."""
        session_id = self.begin(len(answers), now_ms)
        news = self.select(answers)
        return self.error, session_id, news

    def begin(self, size: int, now_ms: int) -> int:
        """Returns the session id for a response about `size` partitions. `select` is called after it."""
        return INVALID_SESSION_ID

    def select(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData]
    ) -> dict[PartitionKey, FetchResponse.PartitionData]:
        """Returns those of some answers that are to be sent. After an error, which it may set, nothing is
        sent."""
        return answers if self.error == ErrorCode.NONE else {}


def _quiet(session: FetchSession) -> QuietPartitions[FetchPartition] | None:
    return session.quiet if session.privileged and session.uses_topic_ids else None


class FullFetchContext(FetchContext):
    """A full request, for which a session is created if the cache has room."""

    __slots__ = ("_cache", "_privileged", "_session", "_uses_topic_ids")

    def __init__(
        self,
        partitions: dict[PartitionKey, FetchPartition],
        cache: FetchSessionCache,
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._privileged = privileged
        self._uses_topic_ids = uses_topic_ids
        self._session: FetchSession | None = None

    def begin(self, size: int, now_ms: int) -> int:
        session = self._session = self._cache.maybe_create(
            now_ms, privileged=self._privileged, uses_topic_ids=self._uses_topic_ids, size=size
        )
        if session is None:
            return INVALID_SESSION_ID
        self.quiet = _quiet(session)
        return session.id

    def select(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData]
    ) -> dict[PartitionKey, FetchResponse.PartitionData]:
        if self._session is not None:
            kept, active = self._session.partitions, self._session.active
            for key, answer in answers.items():
                part = self.partitions[key]
                diverges = answer.diverging_epoch.epoch >= 0
                part.sent_high_watermark = -1 if diverges else answer.high_watermark
                part.sent_log_start_offset = answer.log_start_offset
                kept[key] = active[key] = part
        return answers


class IncrementalFetchContext(FetchContext):
    """A request in a session. It reads all partitions of the session that are not quiet."""

    __slots__ = ("_expected_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions)
        self.active = session.active
        self.quiet = _quiet(session)
        self._session = session
        self._expected_epoch = session.epoch

    def change(self, wanted: dict[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Adds or changes the partitions of `wanted` in the session, and removes those of `forgotten`."""
        partitions, active, quiet = self.partitions, self.active, self._session.quiet
        for key, part in wanted.items():
            known = partitions.get(key)
            if known is None:
                partitions[key] = active[key] = part
            else:
                known.update(part)
                if key not in active:
                    quiet.end(key)
                    active[key] = known
        for key in forgotten:
            partitions.pop(key, None)
            if active.pop(key, None) is None:
                quiet.end(key)

    def begin(self, size: int, now_ms: int) -> int:
        return self._session.id

    def select(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData]
    ) -> dict[PartitionKey, FetchResponse.PartitionData]:
        session = self._session
        if session.epoch != self._expected_epoch:  # this request was repeated while it waited
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return {}
        news: dict[PartitionKey, FetchResponse.PartitionData] = {}
        partitions, active = session.partitions, session.active
        for key, answer in answers.items():
            part = partitions.get(key)
            if part is None:
                continue
            size = _records_size(answer)
            failed = answer.error_code != 0
            diverges = answer.diverging_epoch.epoch >= 0
            if (
                size > 0
                or failed
                or diverges
                or part.sent_high_watermark != answer.high_watermark
                or part.sent_log_start_offset != answer.log_start_offset
                or answer.preferred_read_replica != -1
            ):
                news[key] = answer
                # The reader does not take the high watermark of an error, nor of a divergence, at which it
                # truncates its log. Forgotten here, it is sent with the next success.
                part.sent_high_watermark = -1 if failed or diverges else answer.high_watermark
                part.sent_log_start_offset = answer.log_start_offset
                if size > 0:
                    del partitions[key]
                    partitions[key] = part
                    active.pop(key, None)
                    active[key] = part
        return news

    def close_if_empty(self, cache: FetchSessionCache) -> bool:
        """Closes a session that has no partitions left. Returns whether it did."""
        if self.partitions:
            return False
        cache.remove(self._session.id)
        return True


class FetchSessionCache:
    """The sessions of one broker, at most `max_entries` (max.incremental.fetch.session.cache.slots).

    A new session may evict one that was not used for `eviction_ms`, or a smaller one of the same or lower
    privilege that is `eviction_ms` old. The session of a follower may evict that of any consumer.
    """

    __slots__ = ("_eviction_ms", "_max_entries", "_new_id", "_sessions", "evictions")

    def __init__(self, max_entries: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self.evictions = 0
        """Sessions that were closed to make room for others."""
        self._max_entries = max_entries
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id, or None."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        """Closes a session, if it exists."""
        self._sessions.pop(session_id, None)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Marks the session as the most recently used one."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)

    def maybe_create(
        self, now_ms: int, *, privileged: bool, uses_topic_ids: bool, size: int
    ) -> FetchSession | None:
        """Returns a new, empty session, or None if the cache is full and no session may be evicted."""
        if len(self._sessions) >= self._max_entries and not self._evict(now_ms, privileged, size):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._new_id()
        session = FetchSession(
            session_id, privileged, uses_topic_ids, {}, now_ms, now_ms, next_epoch(INITIAL_EPOCH)
        )
        self._sessions[session_id] = session
        return session

    def _evict(self, now_ms: int, privileged: bool, size: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)  # ordered by last use
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            del self._sessions[oldest.id]
            self.evictions += 1
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > self._eviction_ms or (privileged and not session.privileged)
        ]
        if not evictable:
            return False
        victim = min(evictable, key=lambda session: (session.privileged, len(session.partitions), session.id))
        if (privileged, size, 0) < (victim.privileged, len(victim.partitions), victim.id):
            return False
        del self._sessions[victim.id]
        self.evictions += 1
        return True


@dataclass(slots=True)
class FetchSessions:
    """Makes the context of each Fetch request (`FetchManager` in Kafka)."""

    cache: FetchSessionCache
    topic_name: Callable[[bytes], str | None]

    def context(
        self,
        *,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        privileged: bool,
        wanted: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchContext:
        """Returns the context of a request, after `opened` with the changes to its session."""
        fetch = self.opened(
            session_id=session_id,
            epoch=epoch,
            uses_topic_ids=uses_topic_ids,
            privileged=privileged,
            wanted=wanted,
            now_ms=now_ms,
        )
        if isinstance(fetch, IncrementalFetchContext):
            fetch.change(wanted, forgotten)
            if fetch.close_if_empty(self.cache):
                return FetchContext(wanted)
            if uses_topic_ids:
                self.resolve(fetch.active.values())
        return fetch

    def opened(
        self,
        *,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        privileged: bool,
        wanted: dict[PartitionKey, FetchPartition],
        now_ms: int,
    ) -> FetchContext:
        """Returns the context of a request, with the session before its changes. Its error is
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR if the session
        does not match."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self.cache.remove(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return FullFetchContext(wanted, self.cache, privileged=privileged, uses_topic_ids=uses_topic_ids)
        session = self.cache.get(session_id)
        if session is None:
            return FetchContext({}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext({}, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext({}, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.cache.touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(session)

    def resolve(self, partitions: Iterable[FetchPartition]) -> None:
        """Looks up the names of topics that were unknown until now."""
        for part in partitions:
            if part.topic is None:
                part.topic = self.topic_name(part.topic_id)
