"""Keeps topics as tables: plans batches of records, applies them and confirms them, round by round.

A batch counts as confirmed if the topic still has its id after the batch was applied. Otherwise the
topic was deleted meanwhile, and perhaps created anew, so that the batch may have records of another
topic under the same name. It is taken back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.types import TopicPartition
from quorate.pipeline.tables.lake import LakeConflictError, LakeError
from quorate.pipeline.topics.brokers import Extent, Extents, Topic
from quorate.pipeline.topics.positions import Position

Report = Callable[[str], None]

BATCH_RECORDS: Final = 1_000_000
"""The records of a topic in one batch. A kill loses the work of at most one batch of each topic."""

_THREADS: Final = 4
"""The topics whose batches are applied at the same time: small batches take little but latency."""

_ATTEMPTS: Final = 5


class TopicError(Exception):
    """A topic cannot be read. The message says why."""


class UnreadableError(TopicError):
    """The brokers do not serve a topic now."""


class Cluster(Protocol):
    """The members of `Brokers` that a keeper uses."""

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]: ...

    def extents(self, topics: Iterable[Topic]) -> Extents: ...


class PositionTable(Protocol):
    """The members of `Positions` that a keeper uses."""

    known: dict[str, Position]

    def load(self) -> None: ...

    def save(self, changed: Iterable[Position]) -> None: ...


class RecordTables(Protocol):
    """The members of `TopicTables` that a keeper uses."""

    def prepare(self, topic: str) -> None: ...

    def has(self, position: Position) -> bool: ...

    def apply(self, position: Position) -> None: ...

    def take_back(self, position: Position) -> None: ...


class Keeper:
    """Brings the tables of topics up to date."""

    def __init__(
        self,
        brokers: Cluster,
        positions: PositionTable,
        tables: RecordTables,
        matches: Callable[[str], bool],
        report: Report,
        *,
        batch_records: int = BATCH_RECORDS,
    ) -> None:
        """`matches` chooses topics by their name."""
        self._brokers = brokers
        self._matches = matches
        self._report = report
        self._batch_records = batch_records
        self._positions = positions
        self._tables = tables
        self._applied: set[str] = set()
        """The ids of the topics whose pending batch this run has applied."""
        self._prepared: set[str] = set()
        """The topics whose tables take the values of this run."""
        self._lag: dict[str, int] = {}
        """The records that each topic has after its pending batch."""
        self._outdated = False
        """Whether topics have changed since this round asked for them."""
        self.unreadable: Mapping[TopicPartition, str] = {}
        """The partitions that could not be read in the last round, and why."""

    def round(self) -> bool:
        """Confirms what the last round has applied, and applies the next batch of each topic.

        Returns False if there was nothing to do.
        """
        topics = self._brokers.topics(self._matches)
        extents = self._brokers.extents(topics.values())
        self.unreadable, self._outdated = extents.unreadable, False
        changed = {position.topic_id: position for position in self._settled(topics, extents.found)}
        changed |= self._planned(topics, {**self._positions.known, **changed}, extents.found)
        known = {**self._positions.known, **changed}
        pending = [
            position for position in known.values() if position.pending and self._matches(position.topic)
        ]
        for name in {position.topic for position in pending} - self._prepared:
            self._tables.prepare(name)
            self._prepared.add(name)
        if changed:
            self._positions.save(changed.values())
        with ThreadPoolExecutor(_THREADS) as pool:
            outcomes = list(pool.map(self._apply, pending))
        for position, error in zip(pending, outcomes, strict=True):
            if error is not None and not self._changes_next_round(position):
                raise error
        return bool(changed or pending or self._outdated)

    def _changes_next_round(self, position: Position) -> bool:
        """Whether a batch could not be read because the topic was deleted, or records of the batch
        were. The next round takes the batch back, or leaves these records out."""
        topic = self._brokers.topics(self._matches).get(position.topic_id)
        if topic is None:
            return True
        starts = self._starts(position, self._brokers.extents([topic]).found)
        return any(starts.get(partition, 0) > start for partition, (start, _) in position.ranges.items())

    def reload(self) -> None:
        """Reads the positions that another run has written."""
        self._positions.load()
        self._applied.clear()

    def _settled(
        self, topics: Mapping[str, Topic], extents: Mapping[TopicPartition, Extent]
    ) -> Iterable[Position]:
        """Confirms the batches that were applied, and takes back those of topics that do not exist
        any more."""
        for position in self._positions.known.values():
            if not position.pending or not self._matches(position.topic):
                continue
            if position.topic_id not in topics:
                self._tables.take_back(position)
                self._report(
                    f"{position.topic}: the topic with id {position.topic_id} was deleted while it was read: "
                    "its last batch is taken back"
                )
                yield position.taken_back()
            elif position.topic_id in self._applied or self._tables.has(position):
                yield position.confirmed()
            else:
                left = position.without(self._starts(position, extents))
                if left != position:
                    self._report_deleted(position, self._starts(position, extents))
                    yield left
            self._applied.discard(position.topic_id)

    def _planned(
        self,
        topics: Mapping[str, Topic],
        known: Mapping[str, Position],
        extents: Mapping[TopicPartition, Extent],
    ) -> dict[str, Position]:
        """The next batch of the topics that have none pending."""
        planned = {}
        for topic in topics.values():
            before = known.get(topic.topic_id)
            if before is not None and before.pending:
                continue
            position = before if before is not None else self._first(topic, known)
            keys = [TopicPartition(topic.name, number) for number in topic.partitions]
            found = {key.partition: extents[key] for key in keys if key in extents}
            if self._ends_before(position, found):
                self._outdated = True
                continue
            after = self._next(position, found)
            if after is not None:
                planned[topic.topic_id] = after
        return planned

    def _ends_before(self, position: Position, found: Mapping[int, Extent]) -> bool:
        """Whether a topic has fewer records than the lake has of it, because these are the offsets
        of another topic that was created under its name meanwhile. Raises TopicError if there is no
        other topic."""
        short = {
            number: extent for number, extent in found.items() if position.starts.get(number, 0) > extent.end
        }
        if short and position.topic_id in self._brokers.topics(self._matches):
            number, extent = next(iter(short.items()))
            raise TopicError(
                f"{position.topic}-{number} ends at offset {extent.end}, but the lake has its "
                f"records up to {position.starts[number] - 1}: the brokers have lost records. "
                "Delete and create the topic, so that new records are told apart"
            )
        return bool(short)

    def _first(self, topic: Topic, known: Mapping[str, Position]) -> Position:
        others = [each.topic_id for each in known.values() if each.topic == topic.name]
        if others:
            self._report(
                f"{topic.name}: the topic was created anew with id {topic.topic_id}; the rows of "
                f"{' and '.join(others)} stay"
            )
        return Position(topic.name, topic.topic_id)

    def _next(self, before: Position, found: Mapping[int, Extent]) -> Position | None:
        """The position with the next batch, or after records that were deleted. None if neither are there."""
        first = {number: extent.start for number, extent in found.items()}
        self._report_deleted(before, first)
        position = before.without(first).with_partitions(first)
        lags = {number: extent.end - position.starts[number] for number, extent in found.items()}
        taken = shares(lags, self._batch_records)
        self._lag[position.topic_id] = sum(lags.values()) - sum(taken.values())
        if any(taken.values()):
            return position.planned({p: at + taken.get(p, 0) for p, at in position.starts.items()})
        return position if before.batch > 0 and position != before else None

    def _starts(self, position: Position, extents: Mapping[TopicPartition, Extent]) -> dict[int, int]:
        """The offset of the first record of each partition."""
        keys = [TopicPartition(position.topic, number) for number in position.starts]
        return {key.partition: extents[key].start for key in keys if key in extents}

    def _report_deleted(self, position: Position, starts: Mapping[int, int]) -> None:
        for number, at in position.starts.items():
            if starts.get(number, 0) > at:
                self._report(
                    f"{position.topic}-{number}: offsets {at} to {starts[number] - 1} were deleted "
                    "before they were read"
                )

    def _apply(self, position: Position) -> Exception | None:
        """Applies a batch, and returns its error."""
        begin = time.monotonic()
        try:
            if position.ranges:
                self._tables.apply(position)
        except LakeError as error:
            return error
        except Exception as error:
            reason = kafka_reason(error)
            return error if reason is None else UnreadableError(f"{position.topic}: {reason}")
        self._applied.add(position.topic_id)
        self._report(self._progress(position, time.monotonic() - begin))
        return None

    def _progress(self, position: Position, elapsed: float) -> str:
        rate = position.offsets / max(elapsed, 1e-3)
        where = ", ".join([f"{p}: {start} to {end - 1}" for p, (start, end) in position.ranges.items()][:3])
        more = ", ..." if len(position.ranges) > 3 else ""
        text = (
            f"{position.topic}: {position.offsets:,} offsets ({where}{more}) in {elapsed:.1f} s, "
            f"{rate:,.0f} a second"
        )
        left = self._lag.get(position.topic_id, 0)
        return f"{text}; {left:,} left, {left / rate:,.0f} s" if left else text


def keep(keeper: Keeper, report: Report, *, follow: bool = False, interval_s: float = 5.0) -> None:
    """Brings the tables up to date, once or until it is interrupted.

    While it follows, it waits for brokers that do not answer.

    Raises LakeError, TopicError, KafkaError and NetError.
    """
    conflicts = 0
    while True:
        try:
            busy = keeper.round()
            conflicts = 0
        except LakeConflictError as error:
            conflicts += 1
            if conflicts == _ATTEMPTS:
                raise
            report(f"{error}; continuing from there")
            keeper.reload()
            continue
        except (UnreadableError, KafkaError, NetError) as error:
            if not follow:
                raise
            report(f"{error_text(error)}; trying again")
            busy = False
        if busy:
            continue
        if not follow:
            for partition, reason in keeper.unreadable.items():
                raise UnreadableError(f"{partition} cannot be read: {reason}")
            return
        time.sleep(interval_s)


def shares(lags: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divides a batch among partitions in proportion to the records that each has left."""
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    return {partition: -(-lag * limit // total) for partition, lag in lags.items()}


def kafka_reason(error: Exception) -> str | None:
    """What Kafka's client in Spark has reported, or None if the error is another one."""
    text = str(error)
    found = re.search(r"org\.apache\.kafka\.common\.errors\.(\w+)(?:: ([^\n]*))?", text)
    if found is not None:
        return found[2] or found[1]
    found = re.search(r"(\[KAFKA_[A-Z_.]+\][^\n]*)", text)
    return found[1] if found is not None else None
