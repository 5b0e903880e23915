"""Topics as tables on Spark, Delta and running brokers: every record once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from confluent_kafka import Producer
from pyspark.sql import types as t

from quorate.admin.sync import AdminClient
from quorate.admin.types import TopicPartition
from quorate.pipeline.tables.lake import LakeConflictError, LakeError
from quorate.pipeline.topics.formats import JsonFormat, RawFormat
from quorate.pipeline.topics.positions import Position, Positions
from quorate.pipeline.topics.tables import TopicTables
from quorate.protocol.uuids import uuid_text
from quorate.testing import KafkaCluster
from quorate.tools.lake.pipeline import main
from tests.support.cluster import wait_for

from .topic_lake import (
    INT,
    LONG,
    TEXT,
    create,
    expected,
    new_name,
    numbers,
    poison_of,
    produce,
    records,
    recreate,
    rows_of,
    run,
    struct,
)

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def admin(brokers: KafkaCluster) -> Iterator[AdminClient]:
    with AdminClient(brokers.bootstrap_servers) as found:
        yield found


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic with two partitions."""
    name = new_name()
    create(admin, name)
    return name


class _KilledError(BaseException):
    """Stands for the end of a process."""


def ends_at_records(patch: pytest.MonkeyPatch, *, after: bool) -> None:
    """Lets a run end before or after it has committed records, whose poison it would commit next."""
    original = TopicTables._append

    def ending(self: TopicTables, table: str, *arguments: Any) -> None:
        if after:
            original(self, table, *arguments)
        assert table.startswith("topic_records/")
        raise _KilledError

    patch.setattr(TopicTables, "_append", ending)


def test_runs_append_what_is_new_with_all_columns(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str
) -> None:
    hidden, empty = new_name("_schemas"), new_name()
    for name in (hidden, empty):
        create(admin, name)
    produce(brokers, topic, [b"a", None, b""])
    produce(brokers, hidden, [b"s"])
    run(lake, brokers, topic, hidden, empty)
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    producer.produce(topic, b"\xff", None, 1, headers=[("x", None), ("x", b"\x00"), ("\N{SNOWMAN}", b"")])
    assert producer.flush(30) == 0
    said = run(lake, brokers, topic, hidden, empty)
    assert run(lake, brokers, topic, hidden, empty) == []
    assert records(lake, topic) == expected([b"a", None, b""], [b"\xff"])
    assert records(lake, hidden) == expected([b"s"])
    assert records(lake, empty) == []
    assert [line.partition(" in ")[0] for line in said] == [f"{topic}: 1 offsets (1: 0 to 0)"]
    first, *_, last = rows_of(lake, f"topic_records/{topic}")
    [listing] = [each for each in admin.list_topics() if each.name == topic]
    assert (first["cluster"], first["topic_id"]) == ("c", uuid_text(listing.topic_id))
    assert (bytes(first["key"]), first["headers"]) == (b"k0", [{"key": "n", "value": bytearray(b"0")}])
    assert first["timestamp"] is not None
    headers = [("x", None), ("x", b"\x00"), ("\N{SNOWMAN}", b"")]
    assert last["key"] is None
    assert [(h["key"], h["value"]) for h in last["headers"]] == headers


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_ended_at_its_commit_of_records_is_continued_without_a_loss_or_a_double(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    values = JsonFormat(struct(n=INT))
    produce(brokers, topic, [b'{"n": 0}', b"bad", b'{"n": 2}', b"worse"])
    with monkeypatch.context() as patch, pytest.raises(_KilledError):
        ends_at_records(patch, after=after)
        run(lake, brokers, topic, values=values)
    run(lake, brokers, topic, values=values)
    assert [(offset, value["n"]) for _, offset, value in records(lake, topic)] == [(0, 0), (2, 2)]
    assert [offset for offset, _, _ in poison_of(lake, topic)] == [1, 3]


def test_a_batch_without_poison_is_read_from_the_brokers_once(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(brokers, topic, [b'{"n": 0}', None, b'{"n": 2}'])
    original = TopicTables._append

    def expiring(self: TopicTables, table: str, *arguments: Any) -> None:
        original(self, table, *arguments)
        if table.startswith("topic_records/"):
            assert admin.delete_records({TopicPartition(topic, 0): 3}) == {TopicPartition(topic, 0): 3}

    monkeypatch.setattr(TopicTables, "_append", expiring)
    [said] = run(lake, brokers, topic, values=JsonFormat(struct(n=INT)))
    assert said.startswith(f"{topic}: 3 offsets (0: 0 to 2)")
    assert [offset for _, offset, _ in records(lake, topic)] == [0, 1, 2]
    assert poison_of(lake, topic) == []


def test_two_runs_with_two_schemas_at_once_keep_each_record_once(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(brokers, topic, [b'{"n": 0}', b'{"n": "x"}', b"bad"])
    original = TopicTables._append
    other = TopicTables(lake, "c", brokers.bootstrap_servers, {}, JsonFormat(struct(n=INT)))

    def overtaken(self: TopicTables, table: str, position: Position, *arguments: Any) -> None:
        if table.startswith("topic_records/"):
            monkeypatch.setattr(TopicTables, "_append", original)
            rows = other._records(position, other._rows(position))
            original(other, table, position, rows)  # and the other run is killed
        original(self, table, position, *arguments)

    monkeypatch.setattr(TopicTables, "_append", overtaken)
    run(lake, brokers, topic, values=JsonFormat(struct(n=TEXT)))
    assert [offset for _, offset, _ in records(lake, topic)] == [0]
    assert [offset for offset, _, _ in poison_of(lake, topic)] == [1, 2]


def test_a_batch_that_another_schema_had_begun_has_each_record_once(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[bytes | None] = [b'{"n": 0}', b"bad", b'{"n": 2, "m": "x"}', b'{"n": "y", "m": 3}']
    produce(brokers, topic, lines)
    with monkeypatch.context() as patch, pytest.raises(_KilledError):
        ends_at_records(patch, after=True)
        run(lake, brokers, topic, values=JsonFormat(struct(n=INT)))
    run(lake, brokers, topic, values=JsonFormat(struct(m=INT)))
    assert [offset for _, offset, _ in records(lake, topic)] == [0, 2]
    assert poison_of(lake, topic) == [
        (1, b"bad", "not JSON"),
        (3, lines[3], "not of the schema with which its batch was read"),
    ]


def test_of_two_runs_at_once_both_end_and_nothing_is_doubled(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(brokers, topic, numbers(0, 4))
    original = Positions.save
    other: list[list[str]] = []

    def overtaken(self: Positions, changed: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Positions, "save", original)
            other.append(run(lake, brokers, topic))  # another run applies the same records first
            produce(brokers, topic, numbers(4, 6))
        monkeypatch.setattr(Positions, "save", original)
        original(self, changed)

    monkeypatch.setattr(Positions, "save", overtaken)
    said = run(lake, brokers, topic)
    assert len(other[0]) == 1
    assert said[0] == "another run has written to the lake meanwhile; continuing from there"
    assert records(lake, topic) == expected(numbers(0, 6))


def test_compaction_joins_the_files_of_topics_and_a_run_goes_on(
    lake: Lake, brokers: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for first in (0, 2):
        produce(brokers, topic, numbers(first, first + 2))
        run(lake, brokers, topic)
    relative = os.path.relpath(lake.folder)
    assert main(["compact", "--lake", relative, "--retain-hours", "0", "--yes"]) == 0
    said = capsys.readouterr().out
    assert " are small and joined" in said
    assert f"topic_records/{topic}: 1 files, " in said
    for table in (f"topic_records/{topic}", "topic_positions"):
        assert len(list(Path(lake.path(table)).rglob("part-*.parquet"))) == 1
    produce(brokers, topic, numbers(4, 6))
    run(lake, brokers, topic)
    assert records(lake, topic) == expected(numbers(0, 6))


def test_positions_are_read_once_though_other_clusters_write_theirs_meanwhile(lake: Lake) -> None:
    ours, same, other = Positions(lake, "c"), Positions(lake, "c"), Positions(lake, "d")
    first = Position("orders", "id").with_partitions({0: 3}).planned({0: 7})
    loads: list[Positions] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Positions, "load", loads.append)
        ours.save([first])
        other.save([first])
        other.save([first.confirmed()])
        ours.save([first.confirmed()])
        with pytest.raises(LakeConflictError, match="another run has written to the lake meanwhile"):
            same.save([first])
    assert loads == []
    for written in (ours, other):
        assert written.known == {"id": first.confirmed()}
    assert Positions(lake, "c").known == Positions(lake, "d").known == ours.known


def test_a_batch_that_was_taken_back_is_not_appended_by_a_slower_run(lake: Lake) -> None:
    tables = TopicTables(lake, "c", "127.0.0.1:1", {}, RawFormat())
    batch = Position("gone", "id").with_partitions({0: 0}).planned({0: 3})
    tables.take_back(batch)  # before the other run has created the table
    assert tables.has(batch)
    tables.apply(batch)  # asks no broker
    assert records(lake, "gone") == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_during_which_the_topic_was_created_anew_is_taken_back(
    lake: Lake,
    brokers: KafkaCluster,
    admin: AdminClient,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    produce(brokers, topic, numbers(0, 3))
    run(lake, brokers, topic)
    produce(brokers, topic, numbers(3, 6))
    original = TopicTables.apply

    def disturbed(self: TopicTables, position: Position) -> None:
        """The topic is created anew before or after its records are read."""
        monkeypatch.setattr(TopicTables, "apply", original)
        if when == "after":
            original(self, position)
        recreate(admin, topic)
        produce(brokers, topic, numbers(20, 30))
        if when == "before":
            original(self, position)  # reads records of the other topic

    monkeypatch.setattr(TopicTables, "apply", disturbed)
    said = run(lake, brokers, topic)
    assert any("was deleted while it was read" in line for line in said)
    assert any("was created anew with id" in line for line in said)
    histories: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows_of(lake, f"topic_records/{topic}"):
        histories.setdefault(row["topic_id"], []).append((row["offset"], bytes(row["value"])))
    assert sorted(histories.values()) == [
        [(n, str(n).encode()) for n in range(3)],
        [(n - 20, str(n).encode()) for n in range(20, 30)],
    ]


def test_fields_are_added_left_out_renamed_and_widened_and_other_types_are_refused(
    lake: Lake, brokers: KafkaCluster, topic: str
) -> None:
    produce(brokers, topic, [b'{"id": 1, "l": [1], "old": "x"}'])
    run(lake, brokers, topic, values=JsonFormat(struct(id=INT, l=t.ArrayType(INT), old=TEXT)))
    produce(brokers, topic, [b'{"id": 3000000000, "l": [3000000000], "new": true}'])
    with pytest.raises(LakeError, match=r"value.id has the type int, and string cannot be added to it"):
        run(lake, brokers, topic, values=JsonFormat(struct(id=TEXT)))
    later = JsonFormat(struct(new=t.BooleanType(), l=t.ArrayType(LONG), id=LONG))
    run(lake, brokers, topic, values=later)
    assert [value for _, _, value in records(lake, topic)] == [
        {"id": 1, "l": [1], "old": "x", "new": None},
        {"id": 3000000000, "l": [3000000000], "old": None, "new": True},
    ]


def test_records_that_are_deleted_between_the_plan_and_the_reading_are_named(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(brokers, topic, numbers(0, 6))
    first = TopicPartition(topic, 0)
    original = TopicTables.apply

    def disturbed(self: TopicTables, position: Position) -> None:
        monkeypatch.setattr(TopicTables, "apply", original)
        assert admin.delete_records({first: 5}) == {first: 5}
        original(self, position)

    monkeypatch.setattr(TopicTables, "apply", disturbed)
    said = run(lake, brokers, topic)
    assert said[0] == f"{topic}-0: offsets 0 to 4 were deleted before they were read"
    assert records(lake, topic) == [(0, 5, b"5")]


def test_a_leader_that_is_killed_while_a_batch_is_read_does_not_end_the_run(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_name()
    create(admin, topic, partitions=-1, replication_factor=-1, assignment={0: [2, 1]})
    produce(brokers, topic, numbers(0, 5))
    original = TopicTables.apply

    def disturbed(self: TopicTables, position: Position) -> None:
        monkeypatch.setattr(TopicTables, "apply", original)
        brokers.kill(2)
        original(self, position)

    monkeypatch.setattr(TopicTables, "apply", disturbed)
    try:
        run(lake, brokers, topic)
    finally:
        brokers.start(2)
    assert records(lake, topic) == expected(numbers(0, 5))
    wait_for("both replicas", lambda: len(admin.describe_topics([topic])[topic].partitions[0].isr) == 2)
