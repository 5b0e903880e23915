"""Incremental fetch sessions (KIP-227): a fetcher names only the partitions that change, the broker
answers only those with news.

Pure: the clock and the random numbers are arguments. A session's partitions keep their order; one that
gave data goes to the end, so that under a response limit each gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.protocol.messages.fetch import FetchResponse

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
"""A full request that asks for a session."""
FINAL_EPOCH = -1
"""A full request that wants none, and closes the one that it names."""

# Partitions are keyed by topic id where the request carries one, else by name.
PartitionKey = tuple["bytes | str", int]


def next_epoch(epoch: int) -> int:
    """The epoch that must follow; wraps to 1, since 0 and -1 have meanings of their own."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


@dataclass(slots=True)
class FetchPartition:
    """What a fetcher wants of one partition, and, inside of a session, what it was last told."""

    topic: str | None  # None: the topic id is not known (yet)
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
        """Takes the request's side of `other`, keeps what was answered."""
        self.fetch_offset = other.fetch_offset
        self.log_start_offset = other.log_start_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class FetchSession:
    """One fetcher's remembered partitions."""

    id: int
    privileged: bool  # a follower's
    uses_topic_ids: bool
    partitions: dict[PartitionKey, FetchPartition]
    created_ms: int
    last_used_ms: int
    epoch: int


def _records_size(data: FetchResponse.PartitionData) -> int:
    records = data.records
    if records is None:
        return 0
    if isinstance(records, list):
        return sum(part.length if hasattr(part, "length") else len(part) for part in records)
    return records.length if hasattr(records, "length") else len(records)


class FetchContext:
    """One Fetch request under way: which partitions it is about, and which of the answers go out."""

    __slots__ = ("error", "partitions")

    def __init__(
        self, partitions: dict[PartitionKey, FetchPartition], error: ErrorCode = ErrorCode.NONE
    ) -> None:
        self.partitions = partitions
        self.error = error

    def finish(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData], now_ms: int
    ) -> tuple[ErrorCode, int, dict[PartitionKey, FetchResponse.PartitionData]]:
        """(top-level error, session id, answers to send)."""
        return self.error, INVALID_SESSION_ID, answers if self.error == ErrorCode.NONE else {}


class FullFetchContext(FetchContext):
    """A full request; a session is made for it if there is room."""

    __slots__ = ("_cache", "_privileged", "_uses_topic_ids")

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

    def finish(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData], now_ms: int
    ) -> tuple[ErrorCode, int, dict[PartitionKey, FetchResponse.PartitionData]]:
        session = self._cache.maybe_create(
            now_ms, privileged=self._privileged, uses_topic_ids=self._uses_topic_ids, size=len(answers)
        )
        if session is None:
            return ErrorCode.NONE, INVALID_SESSION_ID, answers
        for key, answer in answers.items():
            part = self.partitions[key]
            part.sent_high_watermark = answer.high_watermark
            part.sent_log_start_offset = answer.log_start_offset
            session.partitions[key] = part
        return ErrorCode.NONE, session.id, answers


class IncrementalFetchContext(FetchContext):
    """A request within a session: its partitions are the session's."""

    __slots__ = ("_expected_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions)
        self._session = session
        self._expected_epoch = session.epoch

    def finish(
        self, answers: dict[PartitionKey, FetchResponse.PartitionData], now_ms: int
    ) -> tuple[ErrorCode, int, dict[PartitionKey, FetchResponse.PartitionData]]:
        session = self._session
        if session.epoch != self._expected_epoch:  # the same request came twice while this one was waiting
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, {}
        news: dict[PartitionKey, FetchResponse.PartitionData] = {}
        partitions = session.partitions
        for key, answer in answers.items():
            part = partitions.get(key)
            if part is None:
                continue
            size = _records_size(answer)
            failed = answer.error_code != 0
            if (
                size > 0
                or failed
                or part.sent_high_watermark != answer.high_watermark
                or part.sent_log_start_offset != answer.log_start_offset
                or answer.preferred_read_replica != -1
                or answer.diverging_epoch.epoch >= 0
            ):
                news[key] = answer
                # After an error the watermark is forgotten, so that the recovery is told.
                part.sent_high_watermark = -1 if failed else answer.high_watermark
                part.sent_log_start_offset = answer.log_start_offset
                if size > 0:
                    del partitions[key]
                    partitions[key] = part
        return ErrorCode.NONE, session.id, news


class FetchSessionCache:
    """The sessions of one broker, at most `max_entries` (max.incremental.fetch.session.cache.slots).

    A new session may push out one that nobody used for `eviction_ms`, or a smaller one of lower
    standing that is `eviction_ms` old; a follower's may push out any consumer's.
    """

    __slots__ = ("_eviction_ms", "_max_entries", "_new_id", "_sessions")

    def __init__(self, max_entries: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._max_entries = max_entries
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Marks the session as the most recently used."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)

    def maybe_create(
        self, now_ms: int, *, privileged: bool, uses_topic_ids: bool, size: int
    ) -> FetchSession | None:
        """A new, empty session, or None when nothing may be pushed out for it."""
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
        oldest = next(iter(self._sessions.values()), None)  # the dictionary is in order of use
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            del self._sessions[oldest.id]
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
        return True


@dataclass(slots=True)
class FetchSessions:
    """Finds the context of each Fetch request."""

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
        """The context of a request; carries FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR where the session does not fit."""
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
        partitions = session.partitions
        for key, part in wanted.items():
            known = partitions.get(key)
            if known is None:
                partitions[key] = part
            else:
                known.update(part)
        for key in forgotten:
            partitions.pop(key, None)
        if not partitions:
            self.cache.remove(session.id)
            return FetchContext(wanted)
        if uses_topic_ids:
            for part in partitions.values():
                if part.topic is None:
                    part.topic = self.topic_name(part.topic_id)
        self.cache.touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(session)
