"""Counts batches, bytes and requests of a broker by topic (`BrokerTopicStats` and `BrokerTopicMetrics` in
Kafka).

The handlers of Produce and Fetch increment the numbers of a topic once for each partition of a request. The
numbers of all topics are sums, which are made when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from quorate.metrics import Family, labels, meter
from quorate.protocol.errors import ErrorCode


class TopicStats:
    """The numbers of one topic since this broker has a replica of it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: TopicStats) -> None:
        """Adds the numbers of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ReadPartition(Protocol):
    """The members of a partition of a Fetch that are used here."""

    @property
    def topic(self) -> str | None: ...


class ReadResult(Protocol):
    """The members of the result of reading a partition that are used here."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def size(self) -> int: ...


REJECTED = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Errors of batches whose bytes count as rejected."""

PRODUCE_NOT_FAILED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors that Kafka does not count as failed Produce requests: the client repeats them elsewhere."""

FETCH_NOT_FAILED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Errors that Kafka does not count as failed Fetch requests, and OFFSET_NOT_AVAILABLE, which followers return
here instead of OFFSET_OUT_OF_RANGE."""


PIECE = 200
"""Topics that are read without a pause."""


class BrokerTopicStats:
    """The numbers of all topics of a broker, and those that Kafka does not count by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self._removed = TopicStats()
        """The numbers of topics that this broker no longer hosts, so that the sums never fall."""
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.expired_fetches = {"consumer": 0, "follower": 0}
        """Fetches that had not enough data when their time was over, by who has sent them."""
        self.errors: Counter[tuple[str, int]] = Counter()
        """(API, error code) -> number of partitions of Produce and Fetch requests with this error."""

    def consumer_fetch_expired(self) -> None:
        """Counts a Fetch of a consumer whose time was over before it had enough data."""
        self.expired_fetches["consumer"] += 1

    def follower_fetch_expired(self) -> None:
        """Counts a Fetch of a follower whose time was over before it had enough data."""
        self.expired_fetches["follower"] += 1

    def topic(self, name: str) -> TopicStats:
        """The numbers of a topic."""
        stats = self.topics.get(name)
        if stats is None:
            stats = self.topics[name] = TopicStats()
        return stats

    def remove(self, name: str) -> None:
        """Forgets a topic of which this broker has no replica any more."""
        stats = self.topics.pop(name, None)
        if stats is not None:
            self._removed.add(stats)

    def produce_failed(self, name: str | None, size: int, error: ErrorCode) -> None:
        """Counts the refusal of a batch."""
        self.errors[("Produce", int(error))] += 1
        if name is None:
            return
        stats = self.topics.get(name)
        if stats is None:
            if error in PRODUCE_NOT_FAILED:
                return  # a name that a client has invented must not stay in memory
            stats = self.topic(name)
        if error in REJECTED:
            stats.bytes_rejected += size
        if error not in PRODUCE_NOT_FAILED:
            stats.failed_produces += 1

    def fetched(
        self, wanted: Iterable[ReadPartition], results: Sequence[ReadResult], *, by_follower: bool
    ) -> None:
        """Counts the partitions of an answered Fetch request."""
        for part, result in zip(wanted, results, strict=True):
            if result.error:
                self.errors[("Fetch", int(result.error))] += 1
                if result.error in FETCH_NOT_FAILED:
                    continue
            stats = self.topic(part.topic or "")
            stats.fetches += 1
            if result.error:
                stats.failed_fetches += 1
            elif by_follower:
                self.replication_bytes_out += result.size
            else:
                stats.bytes_out += result.size

    def consumer_fetched(self, name: str, size: int) -> None:
        """Counts a partition of which a consumer gets that many bytes, as `fetched` does."""
        stats = self.topic(name)
        stats.fetches += 1
        stats.bytes_out += size

    # -- metrics

    def families(self) -> Iterator[Family | None]:
        """The metrics of kafka.server:type=BrokerTopicMetrics. A series without a label is the sum of all
        topics."""
        topics: list[tuple[str, TopicStats]] = []
        for name, topic_stats in list(self.topics.items()):
            topics.append((labels(topic=name), topic_stats))
            if len(topics) % PIECE == 0:
                yield None
        for slot, kafka_name, text in _BY_TOPIC:
            values: list[tuple[str, float]] = [(where, getattr(stats, slot)) for where, stats in topics]
            total = sum([value for _, value in values]) + getattr(self._removed, slot)
            yield meter(f"server.BrokerTopicMetrics.{kafka_name}", text, [("", total), *values])
            yield None
        yield meter(
            "server.BrokerTopicMetrics.ReplicationBytesInPerSec",
            "Bytes of batches that were copied from leaders.",
            self.replication_bytes_in,
        )
        yield meter(
            "server.BrokerTopicMetrics.ReplicationBytesOutPerSec",
            "Bytes of batches that followers have read.",
            self.replication_bytes_out,
        )
        yield meter(
            "server.DelayedFetchMetrics.ExpiresPerSec",
            "Fetches that had not enough data when their time was over.",
            [(labels(fetcherType=who), count) for who, count in self.expired_fetches.items()],
        )
        yield meter(
            "server.DelayedProduceMetrics.ExpiresPerSec",
            "Batches that were not replicated within the timeout of their request.",
            self.errors[("Produce", int(ErrorCode.REQUEST_TIMED_OUT))],
        )


_BY_TOPIC = (
    ("messages_in", "MessagesInPerSec", "Records that were appended."),
    ("bytes_in", "BytesInPerSec", "Bytes of batches that were appended by clients and coordinators."),
    ("bytes_out", "BytesOutPerSec", "Bytes of batches that consumers have read."),
    ("bytes_rejected", "BytesRejectedPerSec", "Bytes of batches that were too large."),
    ("produces", "TotalProduceRequestsPerSec", "Batches of Produce requests."),
    ("fetches", "TotalFetchRequestsPerSec", "Partitions of answered Fetch requests."),
    ("failed_produces", "FailedProduceRequestsPerSec", "Batches that were refused."),
    ("failed_fetches", "FailedFetchRequestsPerSec", "Partitions whose read failed."),
)
