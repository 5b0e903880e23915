"""Runs functions in the worker processes of Spark, and sends Arrow tables between these processes.

Spark gets the tables as bytes. To convert columns to Spark's rows and back takes many times as long.
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
    """Calls a function with each task in a worker process, and returns the results to the driver."""
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
    """Sends tables from tasks to `count` receivers, and returns the results of the receivers.

    `send` yields tables with the number of the receiver, from 0 on. `receive` gets its number and its
    tables. Both run in worker processes.
    """
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
    """Returns a table in Arrow's IPC stream format, compressed with LZ4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """Returns the table that `packed` was given."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
