"""The history of topics, in Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.metadata import records as r
from quorate.metadata.image import MetadataImage
from quorate.pipeline.directories.layout import scan
from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import generate
from quorate.pipeline.jobs import topic_history
from quorate.pipeline.jobs.topic_history import history, history_here
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.uuids import uuid_text
from quorate.tools.topic_history import json_lines, main, text_lines
from tests.support.cluster import Node, running

from .conftest import GONE, LATE, LOG, ORDERS, change, config, partition, topic, write_log, write_state
from .oracle import images, log_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(240)]


def events_here(folder: Path) -> list[dict[str, Any]]:
    """The events that this process computes, in their order."""
    found = history_here(str(folder), 1 << 40)
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pylist()
    return sorted(rows, key=lambda row: (row["offset"], row["position"], row["topic"], row["event"]))


def events(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """The events that Spark computes, which are those that this process computes."""
    rows = history(spark, str(folder)).orderBy("offset", "position", "topic", "event").collect()
    found = [row.asDict(recursive=True) for row in rows]
    here = events_here(folder)
    for row in here:
        row["timestamp"] = datetime.fromtimestamp(row["timestamp"].timestamp())  # as Spark gives it
    assert sorted(map(str, found)) == sorted(map(str, here))
    return [
        (
            row["topic"],
            row["offset"],
            row["event"],
            row["partition"],
            {c["field"]: (c["old"], c["new"]) for c in row["changes"]},
        )
        for row in found
    ]


class Told:
    """The topics as the events tell them."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], dict[str, str]] = {}
        self.configs: dict[tuple[str, str], str] = {}

    def apply(self, event: dict[str, Any]) -> None:
        topic_id, kind = event["topic_id"], event["event"]
        if event["partition"] is not None:
            state = self.partitions.setdefault((topic_id, event["partition"]), {})
            for found in event["changes"]:
                assert state.get(found["field"]) == found["old"], event
                state[found["field"]] = found["new"]
        elif event["changes"]:
            [found] = event["changes"]
            assert self.configs.get((topic_id, found["field"])) == found["old"], event
            if found["new"] is None:
                del self.configs[topic_id, found["field"]]
            else:
                self.configs[topic_id, found["field"]] = found["new"]
        elif kind in ("created", "in snapshot"):
            assert topic_id not in self.topics
            self.topics[topic_id] = event["topic"]
        else:
            assert kind in ("deleted", "gone by snapshot")
            assert self.topics.pop(topic_id) == event["topic"]
            self.partitions = {key: state for key, state in self.partitions.items() if key[0] != topic_id}
            if kind == "deleted":  # a snapshot that lacks configs has an event for each of them
                self.configs = {key: value for key, value in self.configs.items() if key[0] != topic_id}


def check(told: Told, image: MetadataImage) -> None:
    """That the events tell the state of an image."""
    topics = image.topics.by_id.values()
    assert told.topics == {uuid_text(topic.id): topic.name for topic in topics}
    partitions = {}
    for each in topics:
        for number in each.partitions.ids():
            found: Any = each.partitions.get(number)
            state = {
                "leader": found.leader, "leader epoch": found.leader_epoch, "isr": found.isr,
                "replicas": found.replicas, "elr": found.elr, "last known elr": found.last_known_elr,
            }  # fmt: skip
            partitions[uuid_text(each.id), number] = {
                name: str(value if isinstance(value, int) else list(value)) for name, value in state.items()
            }
    nothing = {"elr": "[]", "last known elr": "[]"}
    assert {key: nothing | state for key, state in told.partitions.items()} == partitions
    assert told.configs == {
        (uuid_text(image.topics.get(name).id), key): value  # type: ignore[union-attr]
        for (kind, name), entries in image.configs.resources.items()
        if kind == ConfigResourceType.TOPIC
        for key, value in entries.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("is_cleaned", [False, True])
def test_the_events_up_to_any_offset_tell_the_state_of_the_controllers_image(
    tmp_path: Path, is_cleaned: bool
) -> None:
    """Also if the log begins with several snapshots, of which each lacks what was deleted since the
    one before."""
    node, log = tmp_path / "node", tmp_path / "node" / LOG
    size = Size(brokers=5, racks=2, topics=12)
    generate(node, seed=11, records=6000, size=size, snapshot_every=1000, segment_bytes=1 << 14)
    whole = [*images(log_records(log))]
    is_open = {offset: isinstance(record, r.BeginTransactionRecord) for offset, record in markers(log)}
    asked = {offset for offset, _ in whole if offset % 37 == 0}
    if is_cleaned:
        for segment in scan(log).segments:
            if segment.base_offset < 3500:
                Path(segment.path).unlink()
        resets = [found.end_offset for found in scan(log).resets()]
        assert len(resets) > 2
        asked = {end - 1 for end in resets} | {offset for offset in asked if offset >= resets[-1]}
    waiting = events_here(node)
    told, at, in_transaction = Told(), 0, False
    for offset, image in whole:
        in_transaction = is_open.get(offset, in_transaction)
        while at < len(waiting) and waiting[at]["offset"] <= offset:
            told.apply(waiting[at])
            at += 1
        if offset in asked and not in_transaction:
            check(told, image)
    assert at == len(waiting)
    assert len(asked) > 40
    kinds = {event["event"] for event in waiting}
    assert kinds >= {"created", "deleted", "partition changed", "config set"}
    assert ("in snapshot" in kinds) is ("gone by snapshot" in kinds) is is_cleaned


def markers(folder: Path) -> Iterator[tuple[int, Any]]:
    """The records that begin and end transactions, and their offsets."""
    kinds = (r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord)
    for last, records in log_records(folder):
        for place, record in enumerate(records):
            if isinstance(record, kinds):
                yield last - len(records) + 1 + place, record


@pytest.mark.spark
def test_parts_of_the_log_give_the_events_of_the_whole(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate(tmp_path / "node", seed=7, records=3000, size=Size(brokers=4, racks=2, topics=9))
    monkeypatch.setattr(topic_history, "_PART_BYTES", 50_000)
    expected = events(spark, tmp_path / "node")
    assert len(expected) > 1000
    name = expected[-1][0]
    assert main([str(tmp_path / "node"), "--topic", name, "--output", str(tmp_path / "events")]) == 0
    written = spark.read.parquet(str(tmp_path / "events")).orderBy("offset").collect()
    assert [row["offset"] for row in written] == [event[1] for event in expected if event[0] == name]
    assert main([str(tmp_path / "node"), "--output", str(tmp_path / "events")]) == 1
    assert f"{tmp_path / 'events'}" in capsys.readouterr().err


@pytest.mark.parametrize("batches", [[], [[r.NoOpRecord()]]], ids=["empty", "no topic"])
def test_a_log_without_topics_has_no_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], batches: list[list[Any]]
) -> None:
    write_log(tmp_path, 0, batches)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.spark
def test_files_of_a_log_without_topics_are_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "log", 0, [[r.NoOpRecord()]])
    write_log(tmp_path / "other", 0, [[topic("orders", ORDERS), partition(ORDERS)]])
    assert main([str(tmp_path / "log"), "--output", str(tmp_path / "nothing")]) == 0
    assert main([str(tmp_path / "other"), "--output", str(tmp_path / "something")]) == 0
    nothing, something = (spark.read.parquet(str(tmp_path / name)) for name in ("nothing", "something"))
    assert nothing.collect() == []
    assert nothing.schema == something.schema


def test_a_config_whose_value_is_the_text_of_an_empty_list_is_set(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS), config("orders", "k", "[]")]])
    [_, found] = events_here(tmp_path)
    assert found["event"] == "config set"
    assert found["changes"] == [{"field": "k", "old": None, "new": "[]"}]


@pytest.mark.spark
def test_topics_partitions_and_configs_have_a_history(spark: SparkSession, tmp_path: Path) -> None:
    elr = {"isr": [], "leader": -1, "eligible_leader_replicas": [2]}
    write_log(
        tmp_path, 0,
        [
            [topic("orders", ORDERS), config("orders", "k", "1"), partition(ORDERS)],  # 0 1 2
            [change(ORDERS, leader=2, isr=[2])],  # 3
            [change(ORDERS, **elr)],  # 4
            [r.ClearElrRecord(topic_name="orders")],  # 5
            [config("orders", "k", "2"), config("orders", "k", None)],  # 6 7
            [r.BeginTransactionRecord(), topic("never", GONE), r.AbortTransactionRecord()],  # 8 9 10
            [r.BeginTransactionRecord(), topic("late", LATE), r.EndTransactionRecord()],  # 11 12 13
            [r.RemoveTopicRecord(topic_id=ORDERS)],  # 14
            [topic("orders", GONE), config("orders", "k", "3")],  # 15 16
            [r.BeginTransactionRecord(), r.RemoveTopicRecord(topic_id=LATE)],  # 17 18: open
        ],
    )  # fmt: skip
    start = {
        "leader": (None, "1"),
        "leader epoch": (None, "0"),
        "isr": (None, "[1, 2]"),
        "replicas": (None, "[1, 2]"),
    }
    lost = {"leader": ("2", "-1"), "leader epoch": ("1", "2"), "isr": ("[2]", "[]"), "elr": ("[]", "[2]")}
    assert events(spark, tmp_path) == [
        ("orders", 0, "created", None, {}),
        ("orders", 1, "config set", None, {"k": (None, "1")}),
        ("orders", 2, "partition added", 0, start),
        (
            "orders",
            3,
            "partition changed",
            0,
            {"leader": ("1", "2"), "leader epoch": ("0", "1"), "isr": ("[1, 2]", "[2]")},
        ),
        ("orders", 4, "partition changed", 0, lost),
        ("orders", 5, "partition changed", 0, {"elr": ("[2]", "[]")}),
        ("orders", 6, "config set", None, {"k": ("1", "2")}),
        ("orders", 7, "config removed", None, {"k": ("2", None)}),
        ("late", 12, "created", None, {}),
        ("orders", 14, "deleted", None, {}),
        ("orders", 15, "created", None, {}),
        ("orders", 16, "config set", None, {"k": (None, "3")}),
    ]


@pytest.mark.spark
def test_snapshots_reset_the_state_and_what_they_lack_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    gone = [topic("gone", GONE), config("gone", "k", "1"), partition(GONE)]
    write_state(tmp_path, 10, [topic("orders", ORDERS), partition(ORDERS), *gone])
    write_state(
        tmp_path,
        20,
        [topic("orders", ORDERS), partition(ORDERS, leader=2, leader_epoch=4), topic("late", LATE)],
    )
    write_log(tmp_path, 20, [[change(ORDERS, leader=1)], [r.RemoveTopicRecord(topic_id=LATE)]])
    start = {
        "leader": (None, "1"),
        "leader epoch": (None, "0"),
        "isr": (None, "[1, 2]"),
        "replicas": (None, "[1, 2]"),
    }
    found = events(spark, tmp_path)
    assert sorted(found[:5], key=str) == sorted(
        [
            ("gone", 9, "in snapshot", None, {}),
            ("gone", 9, "in snapshot", None, {"k": (None, "1")}),
            ("gone", 9, "in snapshot", 0, start),
            ("orders", 9, "in snapshot", None, {}),
            ("orders", 9, "in snapshot", 0, start),
        ],
        key=str,
    )
    assert sorted(found[5:9], key=str) == sorted(
        [
            ("gone", 19, "gone by snapshot", None, {}),
            ("gone", 19, "gone by snapshot", None, {"k": ("1", None)}),
            ("late", 19, "in snapshot", None, {}),
            ("orders", 19, "in snapshot", 0, {"leader": ("1", "2"), "leader epoch": ("0", "4")}),
        ],
        key=str,
    )
    assert found[9:] == [
        ("orders", 20, "partition changed", 0, {"leader": ("2", "1"), "leader epoch": ("4", "5")}),
        ("late", 21, "deleted", None, {}),
    ]


def test_the_lines_name_topics_offsets_and_times() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    base = {
        "topic": "t",
        "topic_id": "id",
        "timestamp": when,
        "snapshot": None,
        "partition": None,
        "changes": [],
    }
    changed = [{"field": "leader", "old": "1", "new": "-1"}, {"field": "isr", "old": "[1]", "new": "[]"}]
    removed = [{"field": "k", "old": "1", "new": None}]
    rows = [
        {**base, "offset": 1, "event": "created"},
        {**base, "offset": 2, "event": "partition changed", "partition": 0, "changes": changed},
        {**base, "offset": 3, "event": "config removed", "changes": removed},
    ]
    assert list(text_lines(iter(rows))) == [
        "t  id",
        "  2026-01-02 03:04:05.006  offset 1        created",
        "  2026-01-02 03:04:05.006  offset 2        partition 0: leader 1 -> none, ISR [1] -> []",
        "  2026-01-02 03:04:05.006  offset 3        config k 1 -> unset",
    ]
    assert json.loads(next(json_lines(iter(rows))))["timestamp"] == "2026-01-02T03:04:05.006+00:00"


def test_the_command_tells_the_history_of_a_running_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(Node(tmp_path / "node")) as node:
        with AdminClient(node.bootstrap) as admin:
            admin.create_topics([NewTopic("kept", partitions=2), NewTopic("dropped", partitions=1)])
            admin.delete_topics(["dropped"])
        assert main(["--json", str(node.data)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["event"] for row in told if row["topic"] == "kept"] == [
        "created",
        "partition added",
        "partition added",
    ]
    assert [row["event"] for row in told if row["topic"] == "dropped"] == [
        "created",
        "partition added",
        "deleted",
    ]
    assert [(row["topic"], row["offset"]) for row in told] == sorted(
        (row["topic"], row["offset"]) for row in told
    )
