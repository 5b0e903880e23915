"""`quorate-pipeline topics`: what it refuses, and that it continues after kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.sync import AdminClient
from quorate.testing import KafkaCluster, PortReservation
from quorate.tools.lake.pipeline import main
from tests.support.cluster import BIN, wait_for

from .conftest import DELTA_JARS, KAFKA_JARS
from .topic_lake import create, expected, new_name, numbers, produce, records, run

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake


@pytest.mark.spark
@pytest.mark.timeout(800)
def test_the_command_continues_after_kill_9_between_any_two_commits(
    brokers: KafkaCluster, lake: Lake
) -> None:
    topic = new_name()
    with AdminClient(brokers.bootstrap_servers) as admin:
        create(admin, topic)
    command = [
        str(BIN / "quorate-pipeline"), "topics", "--bootstrap-server", brokers.bootstrap_servers, "--topic", topic,
        "--lake", lake.folder, "--cluster", "c", "--follow", "--interval", "0.2", "--batch-records", "50",
    ]  # fmt: skip
    environment = {
        **os.environ, "QUORATE_DELTA_JARS": str(DELTA_JARS), "QUORATE_SPARK_KAFKA_JARS": str(KAFKA_JARS),
    }  # fmt: skip
    produce(brokers, topic, numbers(0, 300))
    # The batch is planned and not written, then written and not confirmed.
    for table, version in (("topic_positions", 0), (f"topic_records/{topic}", 1)):
        commit = Path(lake.folder) / table / "_delta_log" / f"{version:020}.json"
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
        ) as process:
            try:
                wait_for(f"commit {version} of {table}", commit.exists, 300, 0.002)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # Python and Java
    produce(brokers, topic, numbers(0, 20), partition=1)
    run(lake, brokers, topic)
    assert records(lake, topic) == expected(numbers(0, 300), numbers(0, 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "nothing"], "No topic has a name like nothing. The topics are: .*"),
        (["--topic", "("], r"\( is an invalid regex: .*"),
        (["--topic", "x", "--format", "json"], "--format json needs --schema FILE"),
        (["--topic", "x", "--schema", "f"], "--schema needs --format json or --format avro"),
        (
            ["--topic", "x", "--format", "avro", "--schema", "/none"],
            "Error: /none: No such file or directory",
        ),
    ],
)
@pytest.mark.process
def test_the_command_refuses_before_spark_starts(
    brokers: KafkaCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status = main(
        ["topics", "--bootstrap-server", brokers.bootstrap_servers, "--lake", "/nowhere", *arguments]
    )
    assert status == 1
    assert re.fullmatch(message, capsys.readouterr().err.strip())


def test_brokers_that_do_not_answer_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = PortReservation().port
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=300\n")
    arguments = ["--topic", "x", "--lake", "/nowhere", "--command-config", str(properties)]
    assert main(["topics", "--bootstrap-server", f"127.0.0.1:{port}", *arguments]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
