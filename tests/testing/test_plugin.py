"""The pytest plugin in runs of its own: reports, several workers, and no node that outlives its run
however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)


def pytest_run(folder: Path, source: str, *options: str) -> subprocess.Popen[str]:
    """pytest on one file, without this project's configuration."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    plugin = [
        "-p",
        "quorate.testing.plugin",
    ]  # as the entry point does; an older installation may not have it
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin,
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(folder / "tmp"),
        *options,
    ]
    return subprocess.Popen(
        [*command, "test_it.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(run: subprocess.Popen[str]) -> str:
    output, _ = run.communicate(timeout=120)
    return output


def eventually(what: str, probe: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not probe():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)  # polls other processes


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_report_of_a_failing_test_shows_its_nodes_logs(tmp_path: Path) -> None:
    run = pytest_run(
        tmp_path,
        """
def test_shared(kafka_cluster):
    assert False

def test_own(kafka_cluster_factory):
    cluster = kafka_cluster_factory(brokers=2)
    cluster.kill(2)
    assert False

def test_passes(kafka_cluster):
    pass
""",
    )
    output = finish(run)
    assert "2 failed, 1 passed" in output
    assert output.count("- log of kafka_cluster, node 1 -") == 1
    assert "- log of kafka_cluster_factory, node 1 -" in output
    assert "- log of kafka_cluster_factory, node 2, not running -" in output
    assert output.count("Kafka Server started in") == 3


def test_tests_of_one_session_share_a_cluster_and_each_worker_has_its_own(tmp_path: Path) -> None:
    run = pytest_run(
        tmp_path,
        """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range(4))
def test_which(kafka_cluster, worker_id, n):
    with open("told", "a") as told:
        told.write(f"{worker_id} {kafka_cluster.bootstrap_servers} {kafka_cluster.pid(1)} {kafka_cluster.directory}\\n")
    deadline = time.monotonic() + 60
    while len({line.split()[0] for line in open("told")}) < 2:  # until both workers have a test
        assert time.monotonic() < deadline
        time.sleep(0.01)
""",
        "-n", "2",
    )  # fmt: skip
    output = finish(run)
    assert "4 passed" in output, output
    told = {tuple(line.split()) for line in (tmp_path / "told").read_text().splitlines()}
    assert len(told) == 2, "one cluster for each worker"
    for column in zip(*told, strict=True):
        assert len(set(column)) == 2
    assert not any(alive(int(line[2])) for line in told)


WAITS = """
import sys, time
def test_waits(kafka_cluster_factory):
    cluster = kafka_cluster_factory(controllers=1, brokers=2)
    {before}
    with open("pids", "w") as pids:
        pids.write(" ".join(str(cluster.pid(n)) for n in cluster.node_ids) + "\\n")
    time.sleep(600)
"""


@pytest.mark.parametrize("before", ["", "cluster.freeze(1); cluster.freeze(2)"], ids=["running", "frozen"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_node_outlives_its_run(tmp_path: Path, number: signal.Signals, before: str) -> None:
    run = pytest_run(tmp_path, WAITS.format(before=before))
    file = tmp_path / "pids"
    eventually("the nodes to run", lambda: file.exists() and file.read_text().endswith("\n"))
    pids = [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    os.kill(run.pid, number)
    output = finish(run)
    eventually("the nodes to end", lambda: not any(map(alive, pids)))
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in output


def test_a_project_configures_the_shared_cluster(tmp_path: Path) -> None:
    run = pytest_run(
        tmp_path,
        """
import pytest

@pytest.fixture(scope="session")
def kafka_cluster_config():
    return {"num.partitions": 5}

def test_configured(kafka_cluster):
    properties = kafka_cluster.directory / "node-1" / "server.properties"
    assert "num.partitions=5" in properties.read_text().splitlines()
""",
    )
    output = finish(run)
    assert "1 passed" in output, output


def test_the_plugin_costs_a_run_without_clusters_next_to_nothing(tmp_path: Path) -> None:
    run = pytest_run(
        tmp_path,
        """
import sys
def test_modules():
    loaded = sorted(name for name in sys.modules if name.startswith("quorate"))
    assert loaded == ["quorate", "quorate.testing", "quorate.testing.plugin"]
""",
    )
    assert "1 passed" in finish(run)


def test_fixtures_are_described(tmp_path: Path) -> None:
    output = finish(pytest_run(tmp_path, "", "--fixtures"))
    assert re.search(r"kafka_cluster \[session scope\].*\n\s+A cluster of one node", output)
    assert re.search(r"kafka_cluster_factory .*\n\s+Starts clusters", output)
