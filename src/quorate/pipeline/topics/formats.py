"""What becomes of the values of records: bytes as they are, or columns by a schema.

Spark decodes. A value that does not decode is poison, with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

DECODED: Final = "decoded"
REASON: Final = "reason"

_CORRUPT = "__corrupt"
"""The field in which Spark puts the text of an object that does not fit the schema."""

_PARSED = "__parsed"

_WRAPPER = "__record"


class Format(Protocol):
    """A format of values."""

    has_poison: bool
    """Whether there are values that do not decode."""

    def kind(self, spark: SparkSession) -> DataType:
        """The type of the decoded value."""
        ...

    def decode(self, rows: DataFrame) -> DataFrame:
        """The rows with two more columns.

        `decoded` is their decoded value, null if the record has none. `reason` says why the value
        does not decode, or is null.
        """
        ...


class RawFormat:
    """The bytes of the value."""

    has_poison = False

    def kind(self, spark: SparkSession) -> DataType:
        return BinaryType()

    def decode(self, rows: DataFrame) -> DataFrame:
        return rows.select("*", f.col("value").alias(DECODED), f.lit(None).cast("string").alias(REASON))


class JsonFormat:
    """A JSON object with the fields of a schema. A field that it lacks is null, and others are left out."""

    has_poison = True

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def kind(self, spark: SparkSession) -> DataType:
        return self._schema

    def decode(self, rows: DataFrame) -> DataFrame:
        value, parsed = f.col("value"), f.col(_PARSED)
        text = value.cast("string")
        good = parsed.isNotNull() & parsed[_CORRUPT].isNull() & f.is_valid_utf8(text) & _is_one_value(text)
        decoded = f.struct(*[parsed[field.name].alias(field.name) for field in self._schema.fields])
        # A column of its own, so that each text is parsed once for all that is asked of it.
        return rows.select("*", _parse(text, self._schema.fields).alias(_PARSED)).select(
            *rows.columns,
            f.when(good, decoded).alias(DECODED),
            f.when(value.isNotNull() & ~good, self._reason(text)).alias(REASON),
        )

    def _reason(self, text: Column) -> Column:
        """Why a text is not an object of the schema."""
        wrong = [
            f.when(
                _parse(text, [field])[_CORRUPT].isNotNull(),
                f.lit(f"{field.name} is not {field.dataType.simpleString()}"),
            )
            for field in self._schema.fields
        ]
        parsed = f.try_parse_json(text)
        return (
            f.when(~f.is_valid_utf8(text), "not UTF-8")
            .when(parsed.isNull() | ~_is_one_value(text), "not JSON")
            .when(~f.schema_of_variant(parsed).startswith("OBJECT"), "not a JSON object")
            .otherwise(f.coalesce(f.nullif(f.concat_ws(", ", *wrong), f.lit("")), f.lit("not of the schema")))
        )


def _is_one_value(text: Column) -> Column:
    """Whether a text is one JSON value. Spark's parsers leave out what follows the first one."""
    return f.coalesce(f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]"))) == 2, f.lit(False))


def _parse(text: Column, fields: Sequence[StructField]) -> Column:
    schema = StructType([*fields, StructField(_CORRUPT, StringType())])
    return f.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})


class AvroFormat:
    """Avro's binary encoding of a record, without a header.

    The first schema gives the columns. A value that it does not decode is tried with the others:
    earlier schemas of the same topic, which Avro's rules of schema resolution turn into the first
    one.
    """

    has_poison = True

    def __init__(self, schemas: Sequence[dict[str, Any]]) -> None:
        # Spark decodes a damaged value into a struct of nulls. The wrapper, which takes no byte,
        # tells it apart from a record whose fields are null.
        self._schemas = [
            json.dumps({"type": "record", "name": _WRAPPER, "fields": [{"name": _WRAPPER, "type": schema}]})
            for schema in schemas
        ]

    def kind(self, spark: SparkSession) -> DataType:
        return spark.range(0).select(self._decoded(f.lit(b"")).alias("value")).schema["value"].dataType

    def decode(self, rows: DataFrame) -> DataFrame:
        poison = f.col("value").isNotNull() & f.col(DECODED).isNull()
        reason = f.when(poison, f.lit("not a record of the Avro schema"))
        return rows.select("*", self._decoded(f.col("value")).alias(DECODED)).select(
            "*", reason.alias(REASON)
        )

    def _decoded(self, value: Column) -> Column:
        newest = self._schemas[0]
        attempts = [
            from_avro(value, schema, {"mode": "PERMISSIVE", "avroSchema": newest})[_WRAPPER]
            for schema in self._schemas
        ]
        return f.coalesce(*attempts)
