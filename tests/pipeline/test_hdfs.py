"""Metadata logs and a lake in a real HDFS: Hadoop's namenode and datanode, and its client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata import records as r
from quorate.pipeline.directories.copies import find_copies, find_logs
from quorate.pipeline.directories.files import Files
from quorate.pipeline.generator.years import Size, generate
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.update import update
from tests.support.hdfs import Hdfs, running_hdfs

from .asked_states import check_states
from .conftest import DELTA_JARS, LOG, all_rows, topic, voter, write_log
from .oracle import images, log_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def test_the_copies_of_a_cluster_are_read_as_from_a_disk(
    spark: SparkSession, hdfs: Hdfs, tmp_path: Path
) -> None:
    for node, end in ((1, 9), (2, 7), (3, 5)):
        voter(tmp_path / "prod", node, end)
    hdfs.shell("-put", tmp_path / "prod", "/")
    remote, files = f"{hdfs.uri}/prod", Files()
    assert find_logs(remote, files) == [f"{remote}/node-{node}/{LOG}" for node in (1, 2, 3)]
    assert [copy.end_offset for copy in find_copies([remote], files)] == [9, 7, 5]
    frame = spark.read.format("quorate_metadata").option("sliceBytes", "100").load(remote)
    rows = frame.select("offset", "type", "committed").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (row["offset"], row["type"], row["offset"] < 7)
        for row in all_rows(tmp_path / "prod" / "node-1" / LOG)
    ]
    with pytest.raises(FileNotFoundError, match="missing"):
        find_copies([f"{hdfs.uri}/missing"], files)


@pytest.mark.skipif(not DELTA_JARS.is_dir(), reason="the jars of Delta are missing (run: make setup)")
def test_a_lake_in_hdfs_is_filled_continued_and_compacted(
    spark: SparkSession, hdfs: Hdfs, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    size = Size(brokers=6, racks=3, topics=8, partitions=4)
    generate(node, seed=5, records=2_000, size=size)
    hdfs.shell("-put", node, "/")
    lake = Lake(spark, f"{hdfs.uri}/lake")
    update(lake, open_source(f"{hdfs.uri}/node"), "c", report=lambda _: None)
    every = list(images(log_records(node / LOG)))
    check_states(lake, "c", [every[700], every[-1]])
    segment = max((node / LOG).glob("*.log"))
    end = every[-1][0] + 1
    more = write_log(tmp_path / "more", end, [[topic("added", bytes([77] * 16))], [r.NoOpRecord()]], epoch=9)
    segment.write_bytes(segment.read_bytes() + more.read_bytes())
    hdfs.shell("-put", "-f", segment, f"/node/{LOG}/")
    runs = [
        threading.Thread(
            target=update,
            args=(Lake(spark, lake.folder), open_source(f"{hdfs.uri}/node"), "c"),
            kwargs={"report": lambda _: None},
        )
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    check_states(lake, "c", [every[700], every[-1], list(images(log_records(node / LOG)))[-1]])
    assert lake.read("events", "c").count() == end + 2
    assert lake.read("topics", "c").where("topic = 'added'").count() == 1
    assert f"/lake/topics/_delta_log/{0:020d}.json" in hdfs.shell("-ls", "/lake/topics/_delta_log")
