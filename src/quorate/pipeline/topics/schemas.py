"""Schema files, and whether a table can take the columns that a schema gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from quorate.pipeline.tables.lake import LakeError


def read_json_schema(path: Path) -> StructType:
    """The columns of a JSON object, in Spark's notation: `id BIGINT, name STRING`, or Spark's JSON of a schema.

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


def require_compatible(table: str, present: DataType, wanted: DataType, name: str = "value") -> None:
    """Raises LakeError if rows of a type cannot be appended to a column. New fields of structs can."""
    if isinstance(present, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in present.fields}
        for field in wanted.fields:
            there = known.get(field.name.lower())
            if there is not None:
                require_compatible(table, there.dataType, field.dataType, f"{name}.{field.name}")
    elif isinstance(present, ArrayType) and isinstance(wanted, ArrayType):
        require_compatible(table, present.elementType, wanted.elementType, f"{name}.element")
    elif isinstance(present, MapType) and isinstance(wanted, MapType):
        require_compatible(table, present.keyType, wanted.keyType, f"{name}.key")
        require_compatible(table, present.valueType, wanted.valueType, f"{name}.value")
    elif present != wanted:
        raise LakeError(
            f"{table}: the column {name} has the type {_short(present)}, and {_short(wanted)} cannot be added to it. "
            "Give the field another name, or keep the topic in another lake"
        )


def _short(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= 60 else f"{text[:57]}..."
