"""Schema files, and whether a table can take the columns that a schema gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

from quorate.pipeline.tables.lake import LakeError


def read_json_schema(path: Path) -> StructType:
    """The columns of a JSON object, in Spark's notation: `id BIGINT, name STRING`, or Spark's JSON
    of a schema.

    Raises ValueError. Needs a Spark session.
    """
    text = path.read_text(encoding="utf-8").strip()
    try:
        found = StructType.fromJson(json.loads(text)) if text.startswith("{") else StructType.fromDDL(text)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path} is no schema such as 'id BIGINT, name STRING': {reason}") from error
    if not isinstance(found, StructType):
        raise ValueError(f"{path} has the type {found.simpleString()}, and not columns with names")
    return found


def read_avro_schema(path: Path) -> dict[str, Any]:
    """The Avro schema of a record. Raises ValueError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no Avro schema: {error}") from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise ValueError(f"{path} is no Avro schema of a record")
    return found


_WIDER: Final[dict[DataType, tuple[DataType, ...]]] = {
    ByteType(): (ShortType(), IntegerType(), LongType(), DoubleType()),
    ShortType(): (IntegerType(), LongType(), DoubleType()),
    IntegerType(): (LongType(), DoubleType()),
    FloatType(): (DoubleType(),),
}
"""The types that have all values of a type, and which Delta gives to a column without writing its
files anew."""


def widened_columns(
    table: str, present: DataType, wanted: DataType, name: str = "value"
) -> dict[str, DataType]:
    """The columns of a table that need a wider type before rows can be appended to it.

    New fields of structs need nothing. Raises LakeError if the rows cannot be appended.
    """
    if isinstance(present, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in present.fields}
        pairs = [
            (known[field.name.lower()].dataType, field.dataType, f"{name}.{field.name}")
            for field in wanted.fields
            if field.name.lower() in known
        ]
    elif isinstance(present, ArrayType) and isinstance(wanted, ArrayType):
        pairs = [(present.elementType, wanted.elementType, f"{name}.element")]
    elif isinstance(present, MapType) and isinstance(wanted, MapType):
        pairs = [
            (present.keyType, wanted.keyType, f"{name}.key"),
            (present.valueType, wanted.valueType, f"{name}.value"),
        ]
    elif present == wanted:
        pairs = []
    elif wanted in _WIDER.get(present, ()):
        return {name: wanted}
    else:
        raise LakeError(
            f"{table}: the column {name} has the type {_short(present)}, and {_short(wanted)} "
            "cannot be added to it. Give the field another name, or keep the topic in another lake"
        )
    return {column: kind for pair in pairs for column, kind in widened_columns(table, *pair).items()}


def _short(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= 60 else f"{text[:57]}..."
