"""What becomes of the values of records: columns, or poison with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from pyspark.sql import functions as f
from pyspark.sql import types as t

from quorate.pipeline.topics.formats import AvroFormat, Format, JsonFormat

from .conftest import KAFKA_JARS
from .topic_lake import INT, LONG, TEXT, struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


def decoded(spark: SparkSession, values: Format, lines: list[bytes | None]) -> list[Any]:
    """The value of each line as a dictionary, or the reason why there is none."""
    schema = "number INT, value BINARY"
    rows = spark.createDataFrame([(n, line and bytearray(line)) for n, line in enumerate(lines)], schema)
    found = values.decode(rows)
    assert found.columns == ["number", "value", "decoded", "reason"]
    by_number = {row["number"]: row.asDict(recursive=True) for row in found.collect()}
    assert all(row["decoded"] is None or row["reason"] is None for row in by_number.values())
    return [by_number[n]["reason"] or by_number[n]["decoded"] for n in range(len(lines))]


def test_a_json_object_becomes_columns_and_what_does_not_fit_is_poison(spark: SparkSession) -> None:
    lines: dict[bytes | None, Any] = {
        b'{"id": 1, "name": "a"}': {"id": 1, "name": "a"},
        b'{"id": 2, "more": true}': {"id": 2, "name": None},
        b'{"id": null}': {"id": None, "name": None},
        b" {} ": {"id": None, "name": None},
        None: None,
        b'{"id": "one", "name": 2}': "id is not bigint",
        b'{"id": 1.5}': "id is not bigint",
        b'{"id": 9223372036854775808}': "id is not bigint",
        b"{": "not JSON",
        b"": "not JSON",
        b"[1]": "not a JSON object",
        b'[{"id": 1}, {"id": 2}]': "not a JSON object",
        b"null": "not a JSON object",
        b'{"name": "\xff"}': "not UTF-8",
        b'{"id": 1}{"id": 2}': "not JSON",
        b'{"id": 1}, {"id": 2}': "not JSON",
        b'{"id": 1} and more': "not JSON",
        b'{"id": 1}] and more': "not JSON",
    }
    values = JsonFormat(struct(id=LONG, name=TEXT))
    found = decoded(spark, values, list(lines))
    assert dict(zip(lines, found, strict=True)) == lines


def test_json_within_json_is_read_whole_or_not_at_all(spark: SparkSession) -> None:
    deep = b'{"o": ' + b"[" * 2000 + b"]" * 2000 + b"}"
    lines: dict[bytes | None, Any] = {
        b'{"o": {"x": 1}, "l": [1, 2]}': {"o": {"x": 1}, "l": [1, 2], "d": None},
        b'{"o": {"x": "bad"}, "l": [1]}': "o is not struct<x:int>",
        b'{"l": [1, "bad"]}': "l is not array<int>",
        b'{"o": {"x": 2147483648}}': "o is not struct<x:int>",
        b'{"d": "2026-13-01"}': "d is not date",
        deep: "not JSON",
    }
    values = JsonFormat(struct(o=struct(x=INT), l=t.ArrayType(INT), d=t.DateType()))
    found = decoded(spark, values, list(lines))
    assert dict(zip(lines, found, strict=True)) == lines


def test_a_text_is_parsed_once_for_all_that_is_asked_of_it(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(bytearray(b"{}"),)], "value BINARY")
    found = JsonFormat(struct(id=LONG)).decode(rows).observe("all", f.count("reason")).where("reason IS NULL")
    plan = found.select("decoded")._jdf.queryExecution().executedPlan().toString()
    # The reasons of poison are parsed field by field, and only if there is no value.
    assert plan.count("from_json") - plan.count("id is not bigint") == 1, plan


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "label", "type": "string", "aliases": ["name"]},
        {"name": "more", "type": ["null", "int"], "default": None},
    ],
}


def test_avro_becomes_columns_and_a_damaged_value_is_poison(spark: SparkSession) -> None:
    if not KAFKA_JARS.is_dir():
        pytest.skip("the jars of Spark's Avro functions are missing (run: make setup)")
    poison = "not a record of the Avro schema"
    lines: dict[bytes | None, Any] = {
        b"\x02\x02a": {"id": 1, "name": "a"},
        None: None,
        b"": poison,
        b"\x02": poison,
        b"\x04\x80\x80\x80\x80\x10": poison,  # a text of 4 GB
    }
    assert decoded(spark, AvroFormat([AVRO]), list(lines)) == list(lines.values())


def test_avro_of_an_earlier_schema_is_resolved_to_the_first(spark: SparkSession) -> None:
    if not KAFKA_JARS.is_dir():
        pytest.skip("the jars of Spark's Avro functions are missing (run: make setup)")
    lines: list[bytes | None] = [b"\x04\x02b", b"\x06\x02c\x02\x0e"]  # (2, "b") as before, then (3, "c", 7)
    assert decoded(spark, AvroFormat([LATER, AVRO]), lines) == [
        {"id": 2, "label": "b", "more": None},
        {"id": 3, "label": "c", "more": 7},
    ]
