"""The installation by pip: the wheel starts a cluster in an empty environment without a compiler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import free_ports, wait_for
from tests.support.java import ROOT

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has only the wheel and its dependencies."""
    base = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(base), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = base.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(base / "env")], check=True)
    env = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
    pip = [
        str(base / "env/bin/python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]
    subprocess.run([*pip, str(wheel)], check=True, env=env)
    return base / "env" / "bin"


@pytest.fixture
def up(installed: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    port = free_ports(1)[0]
    out = tmp_path / "out"
    with out.open("w") as f:
        proc = subprocess.Popen(
            [str(installed / "quorate"), "up", "--data", str(tmp_path / "data"), "--port", str(port)],
            stdout=f,
            stderr=f,
            text=True,
            cwd=tmp_path,
        )
    yield proc, out
    if proc.poll() is None:
        proc.kill()
        proc.wait()


def address(proc: subprocess.Popen[str], out: Path) -> str:
    def found() -> object:
        assert proc.poll() is None, out.read_text()
        return re.search(r"(?:localhost|127\.0\.0\.1):\d+", out.read_text())

    match = wait_for("quorate up to print what to connect to", found, 20)
    assert isinstance(match, re.Match)
    return match.group()


def test_quorate_up_runs_from_the_wheel_and_stops_cleanly(
    up: tuple[subprocess.Popen[str], Path], installed: Path
) -> None:
    proc, out = up
    bootstrap = address(proc, out)
    made = subprocess.run(
        [str(installed / "kafka-topics"), "--bootstrap-server", bootstrap, "--create", "--topic", "hello"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert made.returncode == 0, made.stderr + out.read_text()
    where = ["--bootstrap-server", bootstrap, "--topic", "hello"]
    command = [str(installed / "kafka-console-producer"), *where]
    subprocess.run(command, input="one\ntwo\n", text=True, check=True, capture_output=True, timeout=30)
    command = [str(installed / "kafka-console-consumer"), *where, "--from-beginning", "--max-messages", "2"]
    assert (
        subprocess.run(command, text=True, check=True, capture_output=True, timeout=30).stdout == "one\ntwo\n"
    )
    proc.send_signal(signal.SIGINT)
    assert proc.wait(20) == 0, out.read_text()
    assert "Traceback" not in out.read_text()


def test_the_error_for_a_busy_port_names_it_and_the_remedy(
    up: tuple[subprocess.Popen[str], Path], installed: Path, tmp_path: Path
) -> None:
    proc, out = up
    port = address(proc, out).rpartition(":")[2]
    second = subprocess.run(
        [str(installed / "quorate"), "up", "--data", str(tmp_path / "other"), "--port", port],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert second.returncode != 0
    assert port in second.stderr and "--port" in second.stderr and "Traceback" not in second.stderr


TEST_OF_A_USER = """
from confluent_kafka import Consumer, Producer

def test_orders(kafka_cluster):
    servers = {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("orders", b"one")
    assert producer.flush(20) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.value() == b"one"

def test_faults(kafka_cluster_factory):
    cluster = kafka_cluster_factory(controllers=3, brokers=3, config={"default.replication.factor": 3})
    cluster.slow_disk(1, fsync_ms=5)
    cluster.cut(1, 2)
    cluster.kill(3)
    cluster.heal()
    cluster.start(3)
"""


def test_pytest_finds_the_fixtures_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    (wheel,) = installed.parent.parent.glob("*.whl")
    pip = [
        str(installed / "python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]
    subprocess.run([*pip, f"{wheel}[testing]"], check=True)
    (tmp_path / "test_user.py").write_text(TEST_OF_A_USER)
    run = subprocess.run(
        [str(installed / "python"), "-m", "pytest", "-q", "test_user.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert "2 passed" in run.stdout, run.stdout + run.stderr
