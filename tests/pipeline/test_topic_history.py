"""The history of topics, in Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.metadata import records as r

from .conftest import GONE, LATE, ORDERS, change, config, partition, topic, write_log, write_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def events(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    from quorate.pipeline.jobs.topic_history import history

    rows = history(spark, str(folder)).orderBy("offset", "position", "topic", "event").collect()
    return [
        (
            row["topic"],
            row["offset"],
            row["event"],
            row["partition"],
            {c["field"]: (c["old"], c["new"]) for c in row["changes"]},
        )
        for row in rows
    ]


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
    from datetime import UTC, datetime

    from quorate.tools.topic_history import json_lines, text_lines

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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    from quorate.admin.sync import AdminClient
    from quorate.admin.types import NewTopic
    from quorate.tools.topic_history import main
    from tests.support.cluster import Node, running

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
