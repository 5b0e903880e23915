"""The states of entities as Arrow tables: codes of values, names of topics, and which entities a
step affects."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

import pyarrow as pa

from quorate.pipeline.history.codes import codes, combined
from quorate.pipeline.history.names import TopicNames
from quorate.pipeline.history.replay import affected, history_rows, history_schema
from quorate.pipeline.history.steps import CHANGES, CLOSES, OPENS, Records, Scope, step_schema, steps
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.expressions import Rows, time_of
from quorate.pipeline.tables.kinds import arrow_kind

TOPICS_READ = pa.schema(
    [
        ("topic_id", pa.string()),
        ("topic", pa.string()),
        ("valid_from_offset", pa.int64()),
        ("valid_to_offset", pa.int64()),
    ]
)
PARTITIONS, CONFIGS = ENTITIES["partitions"], ENTITIES["configs"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [1, None, 0, 1, -1, None]),
        ("string", ["", None, "a", "", "a"]),
        ("array<int>", [[], None, [1], [1, 2], [], [1, None], [1], None, [12], [2, 1]]),
        ("array<string>", [["a", "b"], ["ab"], ["a", "b"], [None], [], None, ["b", "a"]]),
        ("struct<a:int,b:string>", [{"a": 1, "b": None}, None, {"a": None, "b": "1"}, {"a": 1, "b": None}]),
        ("array<struct<name:string,port:int>>", [[{"name": "x", "port": 1}], [], None, [{"name": "x", "port": 2}]]),
    ],
)  # fmt: skip
def test_codes_are_equal_exactly_where_values_are(kind: str, values: list[Any]) -> None:
    whole = pa.array([values[-1], *values], arrow_kind(kind))
    for array in (pa.array(values, arrow_kind(kind)), whole.slice(1)):
        found = codes(array)
        for one, other in itertools.combinations(range(len(values)), 2):
            assert (found[one] == found[other]) == (values[one] == values[other])


def test_combined_codes_of_many_large_columns_do_not_collide() -> None:
    large = pa.array(range(70_000)).dictionary_encode()
    column = codes(large)
    found = combined([column, column[::-1], column, column, column], len(column))
    assert len(set(found.tolist())) == len(column)


def test_types_are_parsed_to_any_depth() -> None:
    assert arrow_kind("array<struct<a:array<string>,b:struct<c:bigint>>>") == pa.list_(
        pa.struct([("a", pa.list_(pa.string())), ("b", pa.struct([("c", pa.int64())]))])
    )


def test_a_time_that_no_calendar_has_is_null() -> None:
    """As the times of records in the table `events`."""
    first, last = -62_135_596_800_000, 253_402_300_799_999
    given = [2**63 - 1, last + 1, last, None, -1, first, first - 1, -(2**63)]
    times = Rows(pa.table({"ms": pa.array(given, pa.int64())})).value(time_of("ms"))
    found = [None if us is None else us // 1000 for us in times.cast(pa.int64()).to_pylist()]
    assert found == [None, None, last, None, -1, first, None, None]


def test_a_name_has_the_id_of_the_topic_that_had_it_at_that_offset() -> None:
    topics = pa.table(
        {
            "topic_id": ["one", "two", "other"],
            "topic": ["a", "a", "b"],
            "valid_from_offset": pa.array([3, 9, 0]),
            "valid_to_offset": pa.array([6, None, None], pa.int64()),
        }
    )
    offsets = [2, 3, 5, 6, 8, 9, 100, 1, 1]
    rows = pa.table(
        {
            "topic_id": pa.array([None] * 8 + ["two"]),
            "topic_name": pa.array(["a"] * 7 + ["c", None]),
            "effective_offset": pa.array(offsets),
        }
    )
    found = TopicNames(topics).fill(Rows(rows), {"topic_id", "topic_name"}).table
    assert found["topic_id"].to_pylist() == [None, "one", "one", None, None, "two", "two", None, "two"]
    assert found["topic_name"].to_pylist() == ["a"] * 7 + ["c", "a"]
    nothing = TopicNames(topics.slice(0, 0)).fill(Rows(rows), {"topic_id"}).table
    assert nothing["topic_id"].to_pylist() == [None] * 8 + ["two"]


def config_steps(*rows: tuple[Any, ...]) -> pa.Table:
    """Steps of configurations: resource, key, offset, effect, value, scope."""
    found = []
    for resource, key, offset, effect, value, scope in rows:
        found.append(
            {
                "resource_type": "TOPIC", "resource_name": resource, "key": key, "effective_offset": offset,
                "position": offset, "type": f"at {offset}", "effect": effect, "scope": int(scope),
                "if_changed": False, "value": value,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(found, step_schema(CONFIGS))


def spans(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("resource_name", "key", "value", "valid_from_offset", "valid_to_offset", "to_record")
    return sorted([tuple(row[name] for name in names) for row in table.to_pylist()], key=str)


def test_a_step_for_a_part_of_the_key_is_for_all_that_agree() -> None:
    found = config_steps(
        ("a", "k", 1, OPENS, "1", Scope.ONE),
        ("a", "l", 2, OPENS, "2", Scope.ONE),
        ("b", "k", 3, OPENS, "3", Scope.ONE),
        ("a", None, 5, CLOSES, None, Scope.MATCHING),
        ("c", None, 6, CLOSES, None, Scope.MATCHING),
        ("a", "k", 7, OPENS, "1", Scope.ONE),
    )
    assert spans(history_rows(CONFIGS, found)) == [
        ("a", "k", "1", 1, 5, "at 5"),
        ("a", "k", "1", 7, None, None),
        ("a", "l", "2", 2, 5, "at 5"),
        ("b", "k", "3", 3, None, None),
    ]


def test_a_record_that_names_an_unknown_topic_is_for_no_entity() -> None:
    """Not for all of them, as one that names no topic."""
    events = pa.table(
        {
            "type": ["CLEAR_ELR_RECORD", "CLEAR_ELR_RECORD", "CLEAR_ELR_RECORD", "REMOVE_TOPIC_RECORD"],
            "topic_name": ["unknown", "", "a", None],
            "topic_id": pa.array([None, None, None, "unknown"], pa.string()),
            "clear_elr_record": [{"topic_name": "unknown"}, {"topic_name": ""}, {"topic_name": "a"}, None],
            "effective_offset": [4, 5, 6, 7],
            "position": [4, 5, 6, 7],
            "timestamp": pa.array([0, 0, 0, 0], pa.timestamp("us", "UTC")),
        }
    )
    topics = {"topic_id": ["one"], "topic": ["a"], "valid_from_offset": [3], "valid_to_offset": [None]}
    names = TopicNames(pa.table(topics, schema=TOPICS_READ))
    found = steps(PARTITIONS, Records(events), names=names)
    assert sorted((row["effective_offset"], row["topic_id"]) for row in found.to_pylist()) == [
        (5, None), (6, "one"), (7, "unknown"),
    ]  # fmt: skip
    assert steps(CONFIGS, Records(events), names=names).num_rows == 0
    # A topic that is created and deleted in one transaction is in no table, but known by its record.
    created = {
        "type": ["TOPIC_RECORD"],
        "topic_name": ["new"],
        "topic_id": ["unknown"],
        "effective_offset": [7],
    }
    created |= {
        "position": [6],
        "timestamp": events["timestamp"][:1],
        "clear_elr_record": events["clear_elr_record"][3:],
    }
    both = pa.concat_tables([events, pa.table(created, schema=events.schema)])
    [step] = steps(CONFIGS, Records(both), names=names).to_pylist()
    assert (step["effective_offset"], step["resource_name"]) == (7, "new")


def test_a_state_begins_only_if_something_differs() -> None:
    found = config_steps(
        ("a", "k", 1, OPENS, "1", Scope.ONE),
        ("a", "k", 2, OPENS, "1", Scope.ONE),
        ("a", "k", 3, CHANGES, "2", Scope.ONE),
        ("a", "k", 4, CHANGES, None, Scope.ONE),
        ("a", "k", 5, OPENS, None, Scope.ONE),
        ("b", "k", 6, CHANGES, "1", Scope.ONE),
        ("b", "k", 7, CLOSES, None, Scope.ONE),
    )
    assert spans(history_rows(CONFIGS, found)) == [
        ("a", "k", "1", 1, 3, "at 3"),
        ("a", "k", "2", 3, 5, "at 5"),
        ("a", "k", None, 5, None, None),
    ]


def test_what_a_snapshot_lacks_ends_with_it() -> None:
    found = config_steps(
        ("a", "k", 1, OPENS, "1", Scope.ONE),
        ("b", "k", 2, OPENS, "2", Scope.ONE),
        ("b", "k", 9, OPENS, "2", Scope.ONE),
        (None, None, 9, CLOSES, None, Scope.NOT_IN_SNAPSHOT),
    )
    assert spans(history_rows(CONFIGS, found)) == [
        ("a", "k", "1", 1, 9, "at 9"),
        ("b", "k", "2", 2, None, None),
    ]


def test_no_step_makes_no_state() -> None:
    assert history_rows(CONFIGS, config_steps()) == history_schema(CONFIGS).empty_table()
    only = config_steps(("a", None, 5, CLOSES, None, Scope.MATCHING))
    assert history_rows(CONFIGS, only).num_rows == 0


def test_only_states_that_a_step_may_be_for_are_affected() -> None:
    states = history_rows(
        CONFIGS,
        config_steps(
            ("a", "k", 1, OPENS, "1", Scope.ONE),
            ("a", "l", 2, OPENS, "2", Scope.ONE),
            ("b", "k", 3, OPENS, "3", Scope.ONE),
            ("c", "k", 4, OPENS, "3", Scope.ONE),
        ),
    )

    def of(*rows: tuple[Any, ...]) -> set[tuple[str, str]]:
        kept = states.filter(pa.array(affected(CONFIGS, states, config_steps(*rows))))
        return {(row["resource_name"], row["key"]) for row in kept.to_pylist()}

    assert of() == set()
    assert of(("b", "k", 5, OPENS, "4", Scope.ONE), ("d", "k", 5, OPENS, "4", Scope.ONE)) == {("b", "k")}
    assert of(("a", None, 5, CLOSES, None, Scope.MATCHING), ("c", "k", 6, CLOSES, None, Scope.ONE)) == {
        ("a", "k"), ("a", "l"), ("c", "k"),
    }  # fmt: skip
    assert len(of((None, None, 9, CLOSES, None, Scope.NOT_IN_SNAPSHOT))) == 4
