"""Topics as tables: every record once, whatever happens to a run, the brokers or the topic."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from confluent_kafka import Producer
from pyspark.sql import types as t

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, TopicPartition
from quorate.pipeline.spark.jars import Jars, jar_settings
from quorate.pipeline.tables.lake import LakeError
from quorate.pipeline.topics.brokers import Brokers
from quorate.pipeline.topics.formats import AvroFormat, Format, JsonFormat, RawFormat
from quorate.pipeline.topics.keep import Keeper, kafka_reason, keep, shares
from quorate.pipeline.topics.positions import Position, Positions
from quorate.pipeline.topics.schemas import require_compatible
from quorate.pipeline.topics.tables import TopicTables
from quorate.protocol.uuids import uuid_text
from quorate.testing import KafkaCluster, PortReservation
from quorate.tools.lake.pipeline import main
from tests.support.cluster import BIN, wait_for

from .conftest import DELTA_JARS, KAFKA_JARS

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

Row = dict[str, Any]

_names = (f"orders-{number}" for number in itertools.count())


# -- without Spark -------------------------------------------------------------------------------------


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
    first = Position("orders", "id").planned({0: 3, 1: 5}, {0: 7, 1: 5})
    assert (first.batch, first.pending, first.ranges, first.offsets) == (1, True, {0: (3, 7)}, 4)
    assert first.confirmed() == Position("orders", "id", 1, {0: 7, 1: 5}, {0: 7, 1: 5})
    assert first.taken_back() == Position("orders", "id", 1, {0: 3, 1: 5}, {0: 3, 1: 5})
    assert first.without({0: 6}).ranges == {0: (6, 7)}
    assert first.without({0: 9}) == Position("orders", "id", 1, {0: 9, 1: 5}, {0: 9, 1: 5})


INT, LONG, TEXT = t.IntegerType(), t.LongType(), t.StringType()


def struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (t.BinaryType(), t.BinaryType()),
        (struct(a=INT), struct(a=INT, b=TEXT)),
        (struct(a=INT, b=TEXT), struct(b=TEXT)),
        (struct(a=struct(b=INT)), struct(a=struct(b=INT, c=LONG))),
        (struct(a=t.ArrayType(struct(b=INT))), struct(a=t.ArrayType(struct(b=INT, c=INT)))),
    ],
)
def test_a_schema_may_add_fields_and_leave_some_out(present: t.DataType, wanted: t.DataType) -> None:
    require_compatible("orders", present, wanted)


@pytest.mark.parametrize(
    ("present", "wanted", "message"),
    [
        (t.BinaryType(), struct(a=INT), "column value has the type binary, and struct<a:int> cannot"),
        (struct(a=INT), struct(a=LONG), "column value.a has the type int, and bigint cannot"),
        (struct(a=INT), struct(A=TEXT), "column value.A has the type int, and string cannot"),
        (struct(a=t.ArrayType(INT)), struct(a=t.ArrayType(TEXT)), "value.a.element has the type int"),
        (struct(a=t.MapType(TEXT, INT)), struct(a=t.MapType(TEXT, TEXT)), "value.a.value has the type int"),
    ],
)
def test_a_schema_with_another_type_is_refused(present: t.DataType, wanted: t.DataType, message: str) -> None:
    with pytest.raises(LakeError, match=message):
        require_compatible("orders", present, wanted)


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


def test_jars_come_from_a_directory_or_from_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Jars("ONE", ("g:one:1",), ("one-1",)), Jars("TWO", ("g:two:2",), ("two-2", "base-2"))
    assert jar_settings([one, two]) == {"spark.jars.packages": "g:one:1,g:two:2"}
    monkeypatch.setenv("TWO", str(tmp_path))
    (tmp_path / "two-2.jar").touch()
    with pytest.raises(FileNotFoundError, match=r"TWO: .* has no base-2\.jar"):
        jar_settings([one, two])
    (tmp_path / "base-2.jar").touch()
    found = {"spark.jars": f"{tmp_path}/base-2.jar,{tmp_path}/two-2.jar", "spark.jars.packages": "g:one:1"}
    assert jar_settings([one, two]) == found


# -- with Spark and a cluster --------------------------------------------------------------------------


@pytest.fixture
def admin(brokers: KafkaCluster) -> Iterator[AdminClient]:
    with AdminClient(brokers.bootstrap_servers) as found:
        yield found


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic with two partitions."""
    name = next(_names)
    create(admin, name)
    return name


def create(admin: AdminClient, name: str) -> None:
    assert admin.create_topics([NewTopic(name, 2, 1)]) == {name: None}


def recreate(admin: AdminClient, name: str) -> None:
    """Deletes a topic and creates it anew."""
    assert admin.delete_topics([name]) == {name: None}
    wait_for("the deletion", lambda: name not in [each.name for each in admin.list_topics()])
    create(admin, name)


def produce(brokers: KafkaCluster, topic: str, values: list[bytes | None], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}".encode(), partition, headers=[("n", str(number))])
    assert producer.flush(30) == 0


def numbers(first: int, end: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, end)]


def run(
    lake: Lake, brokers: KafkaCluster, pattern: str, values: Format | None = None, **options: Any
) -> list[str]:
    """Brings the tables up to date, and returns what is reported."""
    said: list[str] = []
    with Brokers(brokers.bootstrap_servers, {}) as client:
        keeper = Keeper(lake, client, "c", pattern.__eq__, values or RawFormat(), said.append, **options)
        keep(keeper, said.append)
    return said


def rows_of(lake: Lake, table: str, topic: str | None = None) -> list[Row]:
    if not lake.exists(table):
        return []
    rows = lake.spark.read.format("delta").load(lake.path(table))
    if topic is not None:
        rows = rows.where(rows["topic"] == topic)
    return [row.asDict(recursive=True) for row in rows.orderBy("topic_id", "partition", "offset").collect()]


def records(lake: Lake, topic: str) -> list[tuple[int, int, Any]]:
    """Partition, offset and value of a topic's rows."""
    return [(r["partition"], r["offset"], r["value"]) for r in rows_of(lake, f"topic_records/{topic}")]


def expected(*values: list[bytes | None]) -> list[tuple[int, int, Any]]:
    """The same of these values of partitions 0, 1, ..."""
    return [(p, offset, v) for p, each in enumerate(values) for offset, v in enumerate(each)]


def poison_of(lake: Lake, topic: str) -> list[tuple[int, bytes, str]]:
    return [
        (row["offset"], bytes(row["value"]), row["reason"]) for row in rows_of(lake, "topic_poison", topic)
    ]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_runs_append_what_is_new_with_all_columns(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str
) -> None:
    produce(brokers, topic, [b"a", None, b""])
    run(lake, brokers, topic)
    produce(brokers, topic, [b"\xff"], partition=1)
    said = run(lake, brokers, topic)
    assert run(lake, brokers, topic) == []
    assert records(lake, topic) == expected([b"a", None, b""], [b"\xff"])
    assert [line.partition(" in ")[0] for line in said] == [f"{topic}: 1 offsets (1: 0 to 0)"]
    row = rows_of(lake, f"topic_records/{topic}")[0]
    [listing] = [each for each in admin.list_topics() if each.name == topic]
    assert (row["cluster"], row["topic_id"]) == ("c", uuid_text(listing.topic_id))
    assert (bytes(row["key"]), row["headers"]) == (b"k0", [{"key": "n", "value": bytearray(b"0")}])
    assert row["timestamp"] is not None


class _KilledError(BaseException):
    """Stands for the end of a process."""


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("table", "after"),
    [("topic_positions", True), ("topic_poison", True), ("topic_records", False), ("topic_records", True)],
)
def test_a_run_that_ended_at_a_commit_is_continued_without_a_loss_or_a_double(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch, table: str, after: bool
) -> None:
    values = JsonFormat(struct(n=INT))
    produce(brokers, topic, [b'{"n": 0}', b"bad", b'{"n": 2}', b"worse"])
    owner, name = (Positions, "save") if table == "topic_positions" else (TopicTables, "_append")
    original = getattr(owner, name)

    def dies(self: Any, *arguments: Any) -> None:
        """Ends the run before or after it has committed to the table."""
        hit = table == "topic_positions" or arguments[0].startswith(table)
        if not hit or after:
            original(self, *arguments)
        if hit:
            raise _KilledError

    with monkeypatch.context() as patch, pytest.raises(_KilledError):
        patch.setattr(owner, name, dies)
        run(lake, brokers, topic, values)
    run(lake, brokers, topic, values)
    assert [(offset, value["n"]) for _, offset, value in records(lake, topic)] == [(0, 0), (2, 2)]
    assert [offset for offset, _, _ in poison_of(lake, topic)] == [1, 3]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_of_two_runs_at_once_both_end_and_nothing_is_doubled(
    lake: Lake, brokers: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(brokers, topic, numbers(0, 4))
    run(lake, brokers, topic)
    produce(brokers, topic, numbers(4, 9))
    original = Positions.save
    other: list[list[str]] = []

    def overtaken(self: Positions, changed: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Positions, "save", original)
            other.append(run(lake, brokers, topic))  # another run applies the same records first
            produce(brokers, topic, numbers(9, 11))
        monkeypatch.setattr(Positions, "save", original)
        original(self, changed)

    monkeypatch.setattr(Positions, "save", overtaken)
    said = run(lake, brokers, topic)
    assert len(other[0]) == 1
    assert said[0] == "another run has written to the lake meanwhile; continuing from there"
    assert records(lake, topic) == expected(numbers(0, 11))


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_a_topic_that_was_created_anew_has_rows_of_its_own(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str
) -> None:
    produce(brokers, topic, numbers(0, 3))
    run(lake, brokers, topic)
    recreate(admin, topic)
    produce(brokers, topic, numbers(10, 15))
    said = run(lake, brokers, topic)
    assert "was created anew with id" in said[0]
    histories: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows_of(lake, f"topic_records/{topic}"):
        histories.setdefault(row["topic_id"], []).append((row["offset"], bytes(row["value"])))
    assert sorted(histories.values()) == [
        [(n, str(n).encode()) for n in range(3)],
        [(n - 10, str(n).encode()) for n in range(10, 15)],
    ]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
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
    found = [row["value"] for row in rows_of(lake, f"topic_records/{topic}")]
    assert sorted(found, key=int) == numbers(0, 3) + numbers(20, 30)
    assert run(lake, brokers, topic) == []


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_json_becomes_columns_and_what_does_not_fit_is_poison(
    lake: Lake, brokers: KafkaCluster, topic: str
) -> None:
    lines = [
        b'{"id": 1, "name": "a"}',
        b'{"id": "one", "name": 2}',
        b"{",
        b"[1]",
        None,
        b"",
        b"null",
        b'{"name": "\xff"}',
        b'{"id": 2, "more": true}',
    ]
    produce(brokers, topic, lines)
    run(lake, brokers, topic, JsonFormat(struct(id=LONG, name=TEXT)))
    assert [(offset, value) for _, offset, value in records(lake, topic)] == [
        (0, {"id": 1, "name": "a"}),
        (4, None),
        (8, {"id": 2, "name": None}),
    ]
    assert poison_of(lake, topic) == [
        (1, lines[1], "id is not bigint"),
        (2, b"{", "not JSON"),
        (3, b"[1]", "not a JSON object"),
        (5, b"", "not JSON"),
        (6, b"null", "not a JSON object"),
        (7, lines[7], "not UTF-8"),
    ]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_a_new_field_becomes_a_column_and_another_type_is_refused(
    lake: Lake, brokers: KafkaCluster, topic: str
) -> None:
    produce(brokers, topic, [b'{"id": 1}'])
    run(lake, brokers, topic, JsonFormat(struct(id=LONG)))
    produce(brokers, topic, [b'{"id": 2, "more": true}'])
    with pytest.raises(LakeError, match=r"value.id has the type bigint, and string cannot be added to it"):
        run(lake, brokers, topic, JsonFormat(struct(id=TEXT)))
    run(lake, brokers, topic, JsonFormat(struct(more=t.BooleanType(), id=LONG)))
    assert records(lake, topic) == [(0, 0, {"id": 1, "more": None}), (0, 1, {"id": 2, "more": True})]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
LATER = {**AVRO, "fields": [*AVRO["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_avro_becomes_columns_and_an_earlier_schema_is_resolved(
    lake: Lake, brokers: KafkaCluster, topic: str
) -> None:
    first = [b"\x02\x02a", b"", b"\x04\x80\x80\x80\x80\x10", None]  # (1, "a"), cut, a text of 4 GB, no value
    produce(brokers, topic, first)
    run(lake, brokers, topic, AvroFormat([AVRO]))
    assert [(offset, value) for _, offset, value in records(lake, topic)] == [
        (0, {"id": 1, "name": "a"}),
        (3, None),
    ]
    reason = "not a record of the Avro schema"
    assert poison_of(lake, topic) == [(1, b"", reason), (2, first[2], reason)]
    produce(brokers, topic, [b"\x04\x02b", b"\x06\x02c\x02\x0e"])  # (2, "b") of the first schema, (3, "c", 7)
    run(lake, brokers, topic, AvroFormat([LATER, AVRO]))
    assert [value for _, offset, value in records(lake, topic) if offset > 3] == [
        {"id": 2, "name": "b", "more": None},
        {"id": 3, "name": "c", "more": 7},
    ]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(400)
def test_records_that_were_deleted_before_they_were_read_are_named(
    lake: Lake, brokers: KafkaCluster, admin: AdminClient, topic: str
) -> None:
    produce(brokers, topic, numbers(0, 3))
    run(lake, brokers, topic)
    produce(brokers, topic, numbers(3, 6))
    first = TopicPartition(topic, 0)
    assert admin.delete_records({first: 5}) == {first: 5}
    said = run(lake, brokers, topic)
    assert said[0] == f"{topic}-0: offsets 3 to 4 were deleted before they were read"
    assert [value for _, _, value in records(lake, topic)] == [*numbers(0, 3), b"5"]


@pytest.mark.spark
@pytest.mark.lake
@pytest.mark.timeout(800)
def test_the_command_continues_after_kill_9(
    tmp_path: Path, brokers: KafkaCluster, lake: Lake, topic: str
) -> None:
    command = [
        str(BIN / "quorate-pipeline"), "topics", "--bootstrap-server", brokers.bootstrap_servers, "--topic", topic,
        "--lake", lake.folder, "--cluster", "c", "--follow", "--interval", "0.2", "--batch-records", "50",
    ]  # fmt: skip
    environment = {
        **os.environ, "QUORATE_DELTA_JARS": str(DELTA_JARS), "QUORATE_SPARK_KAFKA_JARS": str(KAFKA_JARS),
    }  # fmt: skip
    produce(brokers, topic, numbers(0, 300))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for _ in range(2):
                assert process.stdout.readline().startswith(f"{topic}: ")
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Python and Java
    produce(brokers, topic, numbers(0, 20), partition=1)
    run(lake, brokers, topic)
    assert records(lake, topic) == expected(numbers(0, 300), numbers(0, 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "nothing"], "No topic has a name like nothing. The topics are: .*"),
        (["--topic", "("], r"\( is an invalid regex: .*"),
        (["--topic", "x", "--format", "json"], "--format json needs --schema FILE"),
        (["--topic", "x", "--schema", "f"], "--schema needs --format json or --format avro"),
        (
            ["--topic", "x", "--format", "avro", "--schema", "/none"],
            "Error: /none: No such file or directory",
        ),
    ],
)
@pytest.mark.process
def test_the_command_refuses_before_spark_starts(
    brokers: KafkaCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status = main(
        ["topics", "--bootstrap-server", brokers.bootstrap_servers, "--lake", "/nowhere", *arguments]
    )
    assert status == 1
    assert re.fullmatch(message, capsys.readouterr().err.strip())


def test_brokers_that_do_not_answer_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = PortReservation().port
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=300\n")
    arguments = ["--topic", "x", "--lake", "/nowhere", "--command-config", str(properties)]
    assert main(["topics", "--bootstrap-server", f"127.0.0.1:{port}", *arguments]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
