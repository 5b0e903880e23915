"""Runs functions on the processes of Spark, and sends Arrow tables from some to others.

Spark sees bytes, not rows: to send columns as rows through its own writers takes many times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def each(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """The results of a function for each of some tasks. They are small: the driver collects them."""
    if not tasks:
        return []
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()


def shuffled(
    spark: SparkSession,
    tasks: Sequence[T],
    send: Callable[[T], Iterable[tuple[int, pa.Table]]],
    count: int,
    receive: Callable[[int, Iterator[pa.Table]], R],
) -> list[R]:
    """Sends tables from tasks to `count` receivers by their numbers, and returns the results of these."""
    if not tasks:
        return []

    def sent(task: T) -> Iterator[tuple[int, bytes]]:
        for number, table in send(task):
            yield number, packed(table)

    def received(number: int, found: Iterable[tuple[int, bytes]]) -> Iterator[Any]:
        yield receive(number, (unpacked(data) for _, data in found))

    messages = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(sent)
    return messages.partitionBy(count, lambda number: number).mapPartitionsWithIndex(received).collect()


def packed(table: pa.Table) -> bytes:
    """A table as bytes, as processes send it to each other."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """The table in such bytes."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
