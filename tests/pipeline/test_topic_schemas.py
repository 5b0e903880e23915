"""Schemas that change: which ones the table of a topic takes."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from pyspark.sql import types as t

from quorate.pipeline.tables.lake import LakeError
from quorate.pipeline.topics.schemas import widened_columns

from .topic_lake import INT, LONG, TEXT, struct

DOUBLE = t.DoubleType()


@pytest.mark.parametrize(
    ("present", "wanted", "widened"),
    [
        (t.BinaryType(), t.BinaryType(), {}),
        (struct(a=INT), struct(a=INT, b=TEXT), {}),
        (struct(a=INT, b=TEXT), struct(b=TEXT), {}),
        (struct(a=struct(b=INT)), struct(a=struct(b=INT, c=LONG)), {}),
        (struct(a=t.ArrayType(struct(b=INT))), struct(a=t.ArrayType(struct(b=INT, c=INT))), {}),
        (struct(a=INT, b=t.FloatType()), struct(b=DOUBLE, a=LONG), {"value.b": DOUBLE, "value.a": LONG}),
        (struct(a=struct(b=t.ByteType())), struct(a=struct(b=DOUBLE)), {"value.a.b": DOUBLE}),
        (struct(a=t.ArrayType(INT)), struct(a=t.ArrayType(LONG)), {"value.a.element": LONG}),
        (struct(a=t.MapType(TEXT, INT)), struct(a=t.MapType(TEXT, LONG)), {"value.a.value": LONG}),
    ],
)
def test_a_schema_may_add_fields_leave_some_out_and_widen_others(
    present: t.DataType, wanted: t.DataType, widened: dict[str, t.DataType]
) -> None:
    assert widened_columns("orders", present, wanted) == widened


@pytest.mark.parametrize(
    ("present", "wanted", "message"),
    [
        (t.BinaryType(), struct(a=INT), "column value has the type binary, and struct<a:int> cannot"),
        (struct(a=LONG), struct(a=INT), "column value.a has the type bigint, and int cannot"),
        (struct(a=LONG), struct(a=DOUBLE), "column value.a has the type bigint, and double cannot"),
        (struct(a=INT), struct(A=TEXT), "column value.A has the type int, and string cannot"),
        (struct(a=t.ArrayType(INT)), struct(a=t.ArrayType(TEXT)), "value.a.element has the type int"),
        (struct(a=t.MapType(TEXT, INT)), struct(a=t.MapType(TEXT, TEXT)), "value.a.value has the type int"),
    ],
)
def test_a_schema_with_another_type_is_refused(present: t.DataType, wanted: t.DataType, message: str) -> None:
    with pytest.raises(LakeError, match=message):
        widened_columns("orders", present, wanted)
