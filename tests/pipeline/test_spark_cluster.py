"""The commands on a Spark cluster: a standalone master and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

import pyspark

from quorate.pipeline.generator.years import Size, generate
from tests.support.cluster import BIN, wait_for

from .conftest import DELTA_JARS, LOG
from .oracle import images, log_records, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def spark_process(folder: Path, name: str, role: str, *arguments: str) -> Iterator[Path]:
    """A process of the cluster; gives its log."""
    log = folder / f"{name}.log"
    environment = {
        **os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
    with (
        log.open("w") as out,
        subprocess.Popen(
            [*command, "--host", "127.0.0.1", *arguments],
            stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # a worker's executors, too


def said(log: Path, pattern: str) -> str | None:
    found = re.search(pattern, log.read_text())
    return found and found[0]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Path]]]:
    """The master's address, and the folders in which the two workers keep what their executors print."""
    if not DELTA_JARS.is_dir():
        pytest.skip("the jars of Delta are missing (run: make setup)")
    folder = tmp_path_factory.mktemp("spark")
    with ExitStack() as stack:
        ports = ("--port", "0", "--webui-port", "0")
        log = stack.enter_context(spark_process(folder, "master", "master.Master", *ports))
        wait_for("the master's address", lambda: said(log, r"Starting Spark master at spark://\S+"), 120)
        master = said(log, r"spark://127\.0\.0\.1:\d+")
        assert master is not None
        works = [folder / "work-1", folder / "work-2"]
        for work in works:
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            log = stack.enter_context(
                spark_process(folder, work.name, "worker.Worker", *ports, *room, master)
            )
            wait_for("a worker", lambda log=log: said(log, "Successfully registered with master"), 120)
        yield master, works


def submitted(master: str, *command: str) -> str:
    """What a command on the cluster prints."""
    settings = ["spark.executor.memory=640m", "spark.driver.memory=1g", "spark.sql.shuffle.partitions=2"]
    settings += ["spark.driver.host=127.0.0.1", "spark.ui.enabled=false"]
    submit = [f"--conf {setting}" for setting in settings]
    environment = {
        **os.environ, "QUORATE_SPARK_MASTER": master, "QUORATE_DELTA_JARS": str(DELTA_JARS),
        "PYSPARK_SUBMIT_ARGS": " ".join([*submit, "pyspark-shell"]),
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pipeline(master: str, *arguments: str) -> str:
    return submitted(master, str(BIN / "quorate-pipeline"), *arguments)


def executors(work: Path) -> list[Path]:
    """The executors that a worker has had."""
    return [folder for folder in work.glob("app-*/*") if folder.is_dir()]


def test_a_lake_is_filled_and_asked_on_two_workers(workers: tuple[str, list[Path]], tmp_path: Path) -> None:
    master, works = workers
    size = Size(brokers=6, racks=3, topics=8, partitions=4)
    generate(tmp_path / "node", seed=3, records=24_000, size=size, segment_bytes=1 << 18, snapshot_every=8000)
    lake = str(tmp_path / "lake")
    run = pipeline(master, "run", "--source", str(tmp_path / "node"), "--lake", lake, "--cluster", "c")
    assert "24" in run
    assert all(len(executors(work)) == 1 for work in works), "each worker had an executor"
    *_, (_, image) = images(log_records(tmp_path / "node" / LOG))
    wanted = rows_of(image)
    told = pipeline(master, "state", "--lake", lake, "--entity", "partitions", "--json")
    rows = [json.loads(line) for line in told.splitlines()]
    assert {(row["topic_id"], row["partition"]): row["leader"] for row in rows} == {
        key: row["leader"] for key, row in wanted["partitions"].items()
    }


READ = """
import json, os, sys, time
import pyarrow as pa
from quorate.pipeline.spark.cluster import cluster_session

def places(batches):
    rows = sum([batch.num_rows for batch in batches])
    time.sleep(1)  # so that one executor does not take all tasks
    yield pa.RecordBatch.from_pylist([{"place": os.getcwd(), "rows": rows}])

spark = cluster_session("read")
frame = spark.read.format("quorate_metadata").option("sliceBytes", 100_000).option("columns", "offset")
found = frame.load(sys.argv[1]).mapInArrow(places, "place string, rows bigint").collect()
print(json.dumps([[row.place, row.rows] for row in found]))
spark.stop()
"""
"""Counts the rows that each task decodes. An executor works in a folder below that of its worker."""


def test_the_data_source_is_read_by_both_workers(workers: tuple[str, list[Path]], tmp_path: Path) -> None:
    master, works = workers
    size = Size(brokers=6, racks=3, topics=8, partitions=4)
    generate(tmp_path, seed=3, records=12_000, size=size)
    *_, (last, _) = log_records(tmp_path / LOG)
    found = json.loads(submitted(master, sys.executable, "-c", READ, str(tmp_path)).splitlines()[-1])
    assert sum(rows for _, rows in found) == last + 1
    assert {place for place, rows in found if rows for work in works if Path(place).is_relative_to(work)} == {
        place for place, rows in found if rows
    }
    assert len({Path(place).parents[1] for place, rows in found if rows}) == 2
