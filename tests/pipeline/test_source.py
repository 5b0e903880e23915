"""The data source in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

from .conftest import ORDERS, config, partition, topic, write_log, write_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

TOPIC_ID = "AQEBAQEBAQEBAQEBAQEBAQ"


def test_the_source_gives_every_row_once_with_its_types(spark: SparkSession, kafka: Path) -> None:
    frame = spark.read.format("quorate_metadata").option("snapshots", "latest").load(str(kafka / "running"))
    log = frame.where("snapshot is null")
    assert (
        log.count(),
        log.select("offset").distinct().count(),
        log.agg({"offset": "max"}).collect()[0][0],
    ) == (60, 60, 59)
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    assert {row["snapshot"] for row in frame.select("snapshot").distinct().collect()} == {None, 38}


def test_a_record_type_is_a_table_of_its_fields(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS)], [partition(ORDERS, n) for n in range(20)]])
    frame = spark.read.format("quorate_metadata").option("types", "PARTITION_RECORD").load(str(tmp_path))
    found = frame.select("offset", "partition_record.*").orderBy("offset").collect()
    assert [(row.offset, row.partition_id, row.topic_id, row.isr) for row in found] == [
        (n + 1, n, TOPIC_ID, [1, 2]) for n in range(20)
    ]


def test_a_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS), config("orders", "a", "b")]])
    reader = spark.read.format("quorate_metadata")
    schema = (
        "offset bigint, topic_record struct<name string>, config_record struct<name string, value string>"
    )
    rows = reader.schema(schema).load(str(tmp_path)).orderBy("offset").collect()
    assert [(row.topic_record, row.config_record) for row in rows] == [
        (("orders",), None),
        (None, ("a", "b")),
    ]
    with pytest.raises(Exception, match="the schema of these columns is offset:bigint"):
        reader.schema("offset string").load(str(tmp_path)).count()


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_queries_of_one_load_do_not_take_rows_from_each_other(
    spark: SparkSession, tmp_path: Path, push_down: str
) -> None:
    """Spark keeps one set of pushed filters for each load, and one reader for the next query without any."""
    path = write_log(tmp_path, 0, [[topic("orders", ORDERS), partition(ORDERS)] for _ in range(6)])
    write_log(tmp_path, 12, [[topic("orders", ORDERS)]])
    write_state(tmp_path, 13, [])
    path.write_bytes(b"?" * path.stat().st_size)  # is not opened for the offsets from 12 on
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, push_down)
    try:
        frame = spark.read.format("quorate_metadata").option("startOffset", 12).load(str(tmp_path))
        log, rest = (frame.where(f"snapshot is {which}") for which in ("null", "not null"))
        assert [row.offset for row in log.where("type = 'TOPIC_RECORD' and offset = 12").collect()] == [12]
        assert frame.where("offset > 12").count() == 0
        every = frame.collect()
        assert {row.snapshot for row in log.union(rest).collect()} == {None, 13}
        assert log.count() + rest.count() == len(every) == frame.count()
    finally:
        spark.conf.set(name, str(before))


def test_times_of_a_load_are_those_of_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS), partition(ORDERS)] for _ in range(6)])
    reader = spark.read.format("quorate_metadata").option("startTime", "1970-01-01T00:00:04")
    frame = reader.option("endTime", "1970-01-01T00:00:08").load(str(tmp_path))
    assert [row.offset for row in frame.orderBy("offset").collect()] == [4, 5, 6, 7]


def test_damage_is_an_error_or_a_row(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, [[topic("orders", ORDERS)], [partition(ORDERS)], [topic("gone", ORDERS)]])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    reader = spark.read.format("quorate_metadata")
    with pytest.raises(Exception, match=f"{path.name}: bytes .* wrong checksum"):
        reader.load(str(tmp_path)).count()
    rows = reader.option("mode", "permissive").load(str(tmp_path)).orderBy("offset").collect()
    assert [(row.offset, row.type, row.corrupt is None) for row in rows] == [
        (0, "TOPIC_RECORD", True),
        (1, None, False),
        (2, "TOPIC_RECORD", True),
    ]


def test_a_bad_option_or_directory_is_an_error_in_words(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="option snapshots is 'x'"):
        spark.read.format("quorate_metadata").option("snapshots", "x").load(str(tmp_path)).count()
    with pytest.raises(Exception, match="has no option payload, only path, controllers, columns, "):
        spark.read.format("quorate_metadata").option("payload", "x").load(str(tmp_path)).count()
    with pytest.raises(Exception, match="holds no metadata log"):
        spark.read.format("quorate_metadata").load(str(tmp_path)).count()


def test_a_stream_reads_a_quorum_exactly_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[int, str | None]] = []

    def write(frame: DataFrame, batch: int) -> None:
        seen.extend((row.offset, row.topic_name) for row in frame.select("offset", "topic_name").collect())

    def run(cluster: KafkaCluster, **options: str) -> None:
        reader = spark.readStream.format("quorate_metadata")
        frame = reader.options(controllers=cluster.bootstrap_controllers, **options).load()
        writer = frame.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start().awaitTermination(120)

    with KafkaCluster() as cluster:
        with AdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("first")])
            run(cluster)
            first = len(seen)
            admin.create_topics([NewTopic("second")])
            run(cluster)
        assert [name for _, name in seen if name] == ["first", "second"]
        assert "second" in {name for _, name in seen[first:]}
        assert sorted(offset for offset, _ in seen) == list(range(len(seen)))
        reader = spark.read.format("quorate_metadata").option("controllers", cluster.bootstrap_controllers)
        table = reader.option("endOffset", len(seen)).load()
        assert sorted(row.offset for row in table.select("offset").collect()) == list(range(len(seen)))
        stream = spark.readStream.format("quorate_metadata").option(
            "controllers", cluster.bootstrap_controllers
        )
        assert stream.load().schema == table.schema
    with (
        KafkaCluster() as other,
        pytest.raises(Exception, match=f"has read cluster {cluster.cluster_id}, but"),
    ):
        run(other)


def test_a_stream_follows_a_quorum_with_a_limit_for_each_batch(spark: SparkSession) -> None:
    sizes: list[int] = []
    names: set[str] = set()

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.select("topic_record").collect()
        sizes.append(len(rows))
        names.update(row.topic_record.name for row in rows if row.topic_record)

    with KafkaCluster() as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("first")])
        reader = spark.readStream.format("quorate_metadata").option("columns", "topic_record.name")
        reader = reader.option("controllers", cluster.bootstrap_controllers).option(
            "maxOffsetsPerTrigger", 20
        )
        query = reader.load().writeStream.foreachBatch(write).start()
        try:
            wait_for("the first topic", lambda: "first" in names or query.exception(), 120)
            admin.create_topics([NewTopic("second")])
            wait_for("the second topic", lambda: "second" in names or query.exception(), 120)
            assert query.exception() is None
        finally:
            query.stop()
    assert max(sizes) <= 20
