"""A keeper of topics without Spark: kills, other runs, and topics that change, between any two of
its steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.types import TopicPartition
from quorate.pipeline.tables.lake import LakeConflictError
from quorate.pipeline.topics.brokers import Extent, Extents, Topic
from quorate.pipeline.topics.keep import Keeper, TopicError, UnreadableError, kafka_reason, keep, shares
from quorate.pipeline.topics.positions import Position

Records = dict[int, str]
"""The records of a partition by their offset."""

Row = tuple[str, int, int, str]
"""Topic id, partition, offset and value."""


class KilledError(BaseException):
    """Stands for the end of a process."""


@dataclass
class Partition:
    start: int = 0
    end: int = 0
    records: Records = field(default_factory=dict)


@dataclass
class World:
    """A cluster and a lake. `disturb` is called between any two steps of a run."""

    topics: dict[str, tuple[str, list[Partition]]] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    revision: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    written: dict[str, list[Records]] = field(default_factory=dict)
    """All records that each topic id ever had."""
    disturb: Callable[[], None] = lambda: None
    created: int = 0

    def create(self, name: str, partitions: int = 2) -> None:
        self.created += 1
        topic_id = f"{name}#{self.created}"
        self.topics[name] = (topic_id, [Partition() for _ in range(partitions)])
        self.written[topic_id] = [{} for _ in range(partitions)]

    def produce(self, name: str, partition: int, count: int = 1, gap: int = 0) -> None:
        """Adds records after `gap` offsets without one, as a compacted topic has."""
        topic_id, partitions = self.topics[name]
        log = partitions[partition]
        log.end += gap
        for _ in range(count):
            value = f"{topic_id}/{partition}/{log.end}"
            log.records[log.end] = self.written[topic_id][partition][log.end] = value
            log.end += 1

    def expire(self, name: str, partition: int, start: int) -> None:
        log = self.topics[name][1][partition]
        log.start = min(max(start, log.start), log.end)
        log.records = {offset: value for offset, value in log.records.items() if offset >= log.start}


class FakeBrokers:
    def __init__(self, world: World) -> None:
        self._world = world

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]:
        self._world.disturb()
        return {
            topic_id: Topic(name, topic_id, tuple(range(len(partitions))))
            for name, (topic_id, partitions) in self._world.topics.items()
            if matches(name)
        }

    def extents(self, topics: Iterable[Topic]) -> Extents:
        self._world.disturb()
        found, unreadable = {}, {}
        for topic in topics:
            for number in topic.partitions:
                key = TopicPartition(topic.name, number)
                if topic.name in self._world.topics:
                    log = self._world.topics[topic.name][1][number]
                    found[key] = Extent(log.start, log.end)
                else:
                    unreadable[key] = "unknown topic or partition"
        return Extents(found, unreadable)


class FakePositions:
    """The commits of a Delta table: one that another run has overtaken is refused."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.known: dict[str, Position] = {}
        self.load()

    def load(self) -> None:
        self._revision, self.known = self._world.revision, dict(self._world.positions)

    def save(self, changed: Iterable[Position]) -> None:
        wanted = self.known | {position.topic_id: position for position in changed}
        self._world.disturb()
        if self._world.revision != self._revision:
            raise LakeConflictError("another run has written to the lake meanwhile")
        self._world.revision, self._world.positions = self._revision + 1, wanted
        self._world.disturb()
        self.load()
        if self.known != wanted:
            raise LakeConflictError("another run has written to the lake meanwhile")


class FakeTables:
    """Reads by the topic's name, as Kafka's consumers do, and appends a batch once."""

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(self, topic: str) -> None:
        pass

    def has(self, position: Position) -> bool:
        return self._world.batches.get(position.topic_id, 0) >= position.batch

    def apply(self, position: Position) -> None:
        world = self._world
        world.disturb()
        if self.has(position):
            return
        read = [row for partition in position.ranges for row in self._read(position, partition)]
        world.disturb()
        if self.has(position):
            raise LakeConflictError("another run has written to the lake meanwhile")
        world.rows += read
        world.batches[position.topic_id] = position.batch
        world.disturb()

    def _read(self, position: Position, partition: int) -> list[Row]:
        start, end = position.ranges[partition]
        if position.topic not in self._world.topics:
            raise RuntimeError("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone")
        log = self._world.topics[position.topic][1][partition]
        if start < log.start or end > log.end:
            raise RuntimeError("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost")
        return [
            (position.topic_id, partition, offset, log.records[offset])
            for offset in range(start, end)
            if offset in log.records
        ]

    def take_back(self, position: Position) -> None:
        world = self._world
        world.disturb()
        world.batches[position.topic_id] = max(world.batches.get(position.topic_id, 0), position.batch)
        ranges = position.ranges
        world.rows = [
            row
            for row in world.rows
            if not (
                row[0] == position.topic_id
                and row[1] in ranges
                and ranges[row[1]][0] <= row[2] < ranges[row[1]][1]
            )
        ]
        world.disturb()


def keeper(world: World, said: list[str], batch_records: int = 5) -> Keeper:
    return Keeper(
        FakeBrokers(world),
        FakePositions(world),
        FakeTables(world),
        lambda name: True,
        said.append,
        batch_records=batch_records,
    )


def run(world: World, batch_records: int = 5) -> list[str]:
    """Brings the tables up to date, and returns what is reported."""
    said: list[str] = []
    keep(keeper(world, said, batch_records), said.append)
    return said


def one_topic(count: int) -> World:
    world = World()
    world.create("orders", 1)
    world.produce("orders", 0, count)
    return world


def offsets(world: World) -> list[int]:
    return [row[2] for row in world.rows]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the order of the steps repeatable."""
    monkeypatch.setattr("quorate.pipeline.topics.keep._THREADS", 1)


@pytest.mark.parametrize("seed", range(300))
def test_every_record_of_a_topic_is_a_row_once_or_is_counted_as_lost(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    for name in ("a", "b"):
        world.create(name)
    depth = 0

    def change() -> None:
        name, partition = rng.choice("ab"), rng.randrange(2)
        match rng.choice(["produce", "produce", "produce", "expire", "recreate"]):
            case "produce":
                world.produce(name, partition, rng.randrange(1, 6), rng.choice([0, 0, 2]))
            case "expire":
                world.expire(name, partition, world.topics[name][1][partition].start + rng.randrange(8))
            case "recreate":
                world.create(name)

    def disturb() -> None:
        nonlocal depth
        chance = rng.random()
        if chance < 0.15:
            change()
        elif chance < 0.20:
            raise KilledError
        elif chance < 0.25 and depth == 0:
            depth += 1
            try:
                attempt()  # another run, at once
            finally:
                depth -= 1

    said: list[str] = []

    def attempt() -> None:
        try:
            keep(keeper(world, said), said.append)
        except (KilledError, UnreadableError, LakeConflictError):
            pass

    for _ in range(8):
        change()
    for _ in range(6):
        world.disturb = disturb
        attempt()
        world.disturb = lambda: None
        change()
    run(world)
    assert len(world.rows) == len({row[:3] for row in world.rows}), "a record is there twice"
    for topic_id, partition, offset, value in world.rows:
        assert world.written[topic_id][partition][offset] == value, "a row has the record of another topic"
    rows = {row[:3] for row in world.rows}
    for topic_id, partitions in world.topics.values():
        for number, log in enumerate(partitions):
            missing = {
                offset for offset in world.written[topic_id][number] if (topic_id, number, offset) not in rows
            }
            assert missing <= set(range(log.start)), "a record that had not expired is missing"
            position = world.positions.get(topic_id, Position("", topic_id))
            seen = [row[2] for row in world.rows if row[:2] == (topic_id, number)]
            # The lake never was to have what had expired before its first batch.
            missing = {offset for offset in missing if seen and offset > min(seen)}
            assert len(missing) <= position.lost.get(number, 0), "a loss is not counted"


def test_a_topic_that_was_created_anew_between_two_requests_is_no_loss_of_records() -> None:
    world = one_topic(4)
    run(world)

    calls = iter(range(100))

    def disturb() -> None:
        if next(calls) == 1:  # after the ids, before the offsets
            world.create("orders", 1)
            world.produce("orders", 0, 2)

    world.disturb = disturb
    said = run(world)
    assert [row[2] for row in world.rows if row[0] == "orders#2"] == [0, 1]
    assert "was created anew" in said[0]


def test_records_that_the_brokers_have_lost_end_the_run() -> None:
    world = one_topic(4)
    run(world)
    world.topics["orders"][1][0].end = 3
    with pytest.raises(TopicError, match="orders-0 ends at offset 3, but the lake has its records up to 3"):
        run(world)


def test_deleted_records_are_named_once_though_no_other_came() -> None:
    world = one_topic(4)
    run(world)
    world.produce("orders", 0, 2)
    world.expire("orders", 0, 6)
    assert run(world) == ["orders-0: offsets 4 to 5 were deleted before they were read"]
    assert run(world) == []
    world.produce("orders", 0)
    run(world)
    assert offsets(world) == [0, 1, 2, 3, 6]
    assert world.positions["orders#1"].lost == {0: 2}


def test_records_that_were_deleted_while_their_batch_was_read_are_left_out() -> None:
    world = one_topic(5)
    calls = iter(range(100))

    def disturb() -> None:
        if next(calls) == 4:  # the batch is planned, and not read yet
            world.expire("orders", 0, 2)

    world.disturb = disturb
    said = run(world)
    assert said[0] == "orders-0: offsets 0 to 1 were deleted before they were read"
    assert offsets(world) == [2, 3, 4]


def test_records_that_were_deleted_after_they_were_read_are_not_named() -> None:
    world = one_topic(3)

    def dies() -> None:
        if world.rows:
            world.expire("orders", 0, 2)
            raise KilledError

    world.disturb = dies
    with pytest.raises(KilledError):
        run(world)
    world.disturb = lambda: None
    assert run(world) == []
    assert offsets(world) == [0, 1, 2]


def test_a_partition_that_cannot_be_read_ends_the_run_after_the_others_are_up_to_date() -> None:
    world = one_topic(3)
    brokers = FakeBrokers(world)
    original = brokers.extents

    def extents(topics: Iterable[Topic]) -> Extents:
        return Extents(original(topics).found, {TopicPartition("orders", 7): "no leader"})

    brokers.extents = extents  # type: ignore[method-assign]
    made = Keeper(brokers, FakePositions(world), FakeTables(world), lambda name: True, lambda text: None)
    with pytest.raises(UnreadableError, match="orders-7 cannot be read: no leader"):
        keep(made, lambda text: None)
    assert offsets(world) == [0, 1, 2]


@pytest.mark.parametrize(
    ("lags", "limit", "expected"),
    [
        ({}, 10, {}),
        ({0: 4, 1: 6}, 10, {0: 4, 1: 6}),
        ({0: 40, 1: 60}, 10, {0: 4, 1: 6}),
        ({0: 1000, 1: 1, 2: 0}, 10, {0: 10, 1: 1, 2: 0}),
    ],
)
def test_a_batch_is_divided_among_partitions_by_what_each_has_left(
    lags: dict[int, int], limit: int, expected: dict[int, int]
) -> None:
    assert shares(lags, limit) == expected


def test_a_batch_is_pending_until_it_is_confirmed_or_taken_back() -> None:
    first = Position("orders", "id").with_partitions({0: 3, 1: 5}).planned({0: 7, 1: 5})
    assert (first.batch, first.pending, first.ranges, first.offsets) == (1, True, {0: (3, 7)}, 4)
    assert first.confirmed() == Position("orders", "id", 1, {0: 7, 1: 5}, {0: 7, 1: 5})
    assert first.taken_back() == Position("orders", "id", 1, {0: 3, 1: 5}, {0: 3, 1: 5})
    assert first.without({0: 6}) == Position("orders", "id", 1, {0: 6, 1: 5}, {0: 7, 1: 5}, {0: 3})
    assert first.without({0: 6}).without({0: 9}) == Position(
        "orders", "id", 1, {0: 9, 1: 5}, {0: 9, 1: 5}, {0: 6}
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x\nCaused by: org.apache.kafka.common.errors.TimeoutException: 60 s passed\n\tat", "60 s passed"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException\n\tat", "TopicAuthorizationException"),
        ("Job aborted: [KAFKA_DATA_LOSS.X] Some data\n\tat", "[KAFKA_DATA_LOSS.X] Some data"),
        ("java.lang.OutOfMemoryError", None),
    ],
)
def test_the_reason_of_kafkas_client_is_found_in_an_error_of_spark(text: str, reason: str | None) -> None:
    assert kafka_reason(RuntimeError(text)) == reason
