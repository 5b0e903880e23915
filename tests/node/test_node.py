"""A node as a process: how it starts, what it refuses, how it stops."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from quorate.protocol.api import ApiKey, decode_response, encode_request
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.raft.storage.voter_marker import FILE_NAME as VOTER_MARKER
from tests.support.cluster import BIN, Node, free_ports, wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node")
    yield node
    node.kill()


def started(node: Node, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """kafka-server-start to its end, for starts that fail."""
    return subprocess.run(
        [str(BIN / "kafka-server-start"), str(node.properties), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, **(env or {})},
    )


def refused(node: Node, *words: str) -> str:
    """The reason of a start that fails: status 1, no traceback."""
    done = started(node, *words)
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "Traceback" not in text
    return text


def test_a_directory_that_is_not_formatted_is_refused_with_the_command_to_run(node: Node) -> None:
    assert re.search(r"does not exist.*kafka-storage format", refused(node))
    node.data.mkdir()
    assert re.search(r"is not formatted.*meta\.properties is missing.*kafka-storage format", refused(node))


def test_a_wrong_value_is_refused_with_key_and_value(node: Node) -> None:
    assert "Invalid value none for configuration num.partitions" in refused(
        node, "--override", "num.partitions=none"
    )
    assert "values must not be empty" in refused(node, "--override", "process.roles=")


def test_security_that_is_not_there_is_refused_not_left_out(node: Node) -> None:
    node.format()
    mapping = "listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"
    assert "must not serve in the clear" in refused(node, "--override", mapping)
    acls = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert "everybody would be let in" in refused(node, "--override", acls)


def test_another_nodes_directory_is_refused(node: Node) -> None:
    node.format()
    assert re.search(
        r"node\.id=1, but the configuration says node\.id=2", refused(node, "--override", "node.id=2")
    )


def test_the_error_for_a_busy_port_names_it_and_the_remedy(node: Node) -> None:
    node.format()
    with socket.create_server(("127.0.0.1", node.broker_port)):
        text = refused(node)
    assert f"port {node.broker_port} is in use by another process" in text
    assert "listeners" in text


def test_two_nodes_never_share_a_directory(node: Node) -> None:
    node.format()
    node.start()
    ports = free_ports(2)
    text = refused(
        node, "--override", f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
    )
    assert f"{node.data} is in use by another process" in text
    node.wait_ready()


def test_stops_cleanly_and_goes_on_where_it_was(node: Node) -> None:
    node.format()
    node.start()
    from confluent_kafka.admin import NewTopic

    admin = node.admin()
    for future in admin.create_topics([NewTopic("kept", 3, 1)]).values():
        future.result(10)
    assert node.stop() == 0
    assert (node.data / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in node.log_tail(1000)
    node.start()
    assert len(node.admin().list_topics(timeout=5).topics["kept"].partitions) == 3
    assert not (node.data / ".kafka_cleanshutdown").exists()


def test_a_node_that_is_told_to_stop_holds_its_directory_until_nothing_writes_there_any_more(
    node: Node,
) -> None:
    """Its metadata log is still being opened, which cuts what a crash has torn: nobody else may append
    there meanwhile."""
    node.format()
    blocked = node.data / VOTER_MARKER  # is read first; a pipe stands for a disk that takes its time
    os.mkfifo(blocked)
    node.start(wait=False)
    assert node.proc is not None
    wait_for("it to open the metadata log", lambda: "directories checked" in node.log_tail(), 20)
    node.proc.send_signal(signal.SIGTERM)
    wait_for("it to have heard", lambda: "SIGTERM: shutting down" in node.log_tail(), 20)
    for _ in range(2):  # a start takes longer than all that the first node closes
        assert "is in use by another process" in refused(node)
    with blocked.open("w"):
        pass
    assert node.proc.wait(20) == 0
    blocked.unlink()
    node.start()
    assert node.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stops_also_while_it_waits_for_a_controller(tmp_path: Path, number: signal.Signals) -> None:
    (nowhere,) = free_ports(1)
    broker = Node(tmp_path / "broker", node_id=7, roles="broker", voters={1: nowhere})
    broker.format()
    ours = signal.signal(
        number, signal.SIG_DFL
    )  # under `nohup` it is ignored, and so it would be by the broker
    broker.start(wait=False)
    signal.signal(number, ours)
    try:
        wait_for("the broker to begin to register", lambda: "now STARTING" in broker.log_tail(1000))
        assert broker.proc is not None
        broker.proc.send_signal(number)
        assert broker.proc.wait(10) == 0
        assert "Traceback" not in broker.log_tail(1000)
    finally:
        broker.kill()


def test_the_limit_of_open_files_is_raised(node: Node) -> None:
    node.format()
    with (node.base / "out.log").open("ab") as out:
        node.proc = subprocess.Popen(
            [str(BIN / "kafka-server-start"), str(node.properties)],
            stdout=out,
            stderr=out,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048)),
        )
    node.wait_ready()
    assert psutil.Process(node.proc.pid).rlimit(psutil.RLIMIT_NOFILE) == (2048, 2048)


def test_the_log_level_comes_from_flag_and_environment(node: Node) -> None:
    node.format()
    node.start(env={"QUORATE_LOG_LEVEL": "ERROR"})
    assert node.log_tail() == ""
    node.stop()
    bad = started(node, "--log-level", "LOUD")
    assert bad.returncode == 1
    assert "'LOUD' is no log level; choose among" in bad.stderr


def test_unknown_keys_warn_and_lines_have_kafkas_layout(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", extra={"num.partition": 3, "zookeeper.connect": "localhost:2181"})
    try:
        node.format()
        node.start()
        text = node.log_tail(1000)
        assert (
            "num.partition is not a known configuration and is ignored (did you mean num.partitions?)" in text
        )
        assert "zookeeper.connect is obsolete" in text
        layout = re.compile(
            r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (DEBUG|INFO|WARN|ERROR|FATAL) .* \([\w.]+\)"
        )
        assert [line for line in text.splitlines() if not layout.fullmatch(line)] == []
    finally:
        node.kill()


def test_serves_on_ipv6(tmp_path: Path) -> None:
    broker, controller = free_ports(2)
    node = Node(
        tmp_path / "node",
        broker_port=broker,
        controller_port=controller,
        extra={
            "listeners": f"PLAINTEXT://[::1]:{broker},CONTROLLER://[::1]:{controller}",
            "controller.quorum.bootstrap.servers": f"[::1]:{controller}",
        },
    )
    try:
        node.format()
        node.start(wait=False)
        admin = node.admin(**{"bootstrap.servers": f"[::1]:{broker}"})

        def ready() -> bool:
            from confluent_kafka import KafkaException

            try:
                return admin.list_topics(timeout=1).brokers[1].host == "::1"
            except (KafkaException, KeyError):
                return False

        wait_for("the node on IPv6", ready)
    finally:
        node.kill()


def test_a_signal_that_comes_when_all_is_closed_makes_no_failure_of_a_clean_stop(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.format()
    node.start()
    try:
        assert node.proc is not None
        node.proc.send_signal(signal.SIGTERM)
        with (tmp_path / "out.log").open() as log:
            while (
                "Shut down" not in log.read()
            ):  # seen within microseconds: the interpreter takes milliseconds to end
                assert node.proc.poll() is None
        node.proc.send_signal(signal.SIGTERM)
        assert node.proc.wait(20) == 0
    finally:
        node.kill()


def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    controller = Node(tmp_path / "controller", roles="controller")
    broker = Node(tmp_path / "broker", node_id=2, roles="broker", voters={1: controller.controller_port})
    try:
        for node in (controller, broker):
            node.format()
            node.start()
        assert controller.proc is not None and broker.proc is not None
        controller.proc.send_signal(
            signal.SIGSTOP
        )  # silent, not gone: the broker's controlled shutdown gets no answer
        broker.proc.terminate()
        wait_for("the first signal", lambda: "SIGTERM: shutting down" in broker.log_tail(1000))
        broker.proc.terminate()
        assert broker.proc.wait(10) == 0
        assert (broker.data / ".kafka_cleanshutdown").exists()
    finally:
        controller.kill()
        broker.kill()


def stop(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "kafka-server-stop"), *words], capture_output=True, text=True, check=False, timeout=30
    )


def shown(node: Node, roles: str = "broker, controller") -> str:
    """The line by which the stop script names a node."""
    assert node.proc is not None
    return (
        f"node {node.node_id} ({roles}): pid {node.proc.pid}, properties {node.properties}, "
        f"directory {node.data}\n"
    )


def test_the_stop_script_names_the_node_that_it_stops_and_stops_no_other(tmp_path: Path) -> None:
    one, other = Node(tmp_path / "one", node_id=870_001), Node(tmp_path / "other", node_id=870_002)
    try:
        for node in (one, other):
            node.format()
            node.start(script=True)
        assert one.proc is not None and other.proc is not None
        done = stop("--node-id", "870001", "--dry-run")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"Would stop {shown(one)}", "")
        assert one.proc.poll() is None
        done = stop("--node-id", "870001", "--wait", "20")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"Stopping {shown(one)}", "")
        assert one.proc.wait(5) == 0
        assert other.proc.poll() is None
        missing = stop("--node-id", "870001")
        assert missing.returncode == 1
        assert missing.stderr.startswith("No kafka server with node.id 870001 to stop. These run:\n")
        assert f"  {shown(other)}" in missing.stderr
    finally:
        one.kill()
        other.kill()


def test_the_stop_script_stops_none_of_several_nodes_with_one_id_and_selects_by_file(tmp_path: Path) -> None:
    one, other = Node(tmp_path / "one", node_id=870_005), Node(tmp_path / "other", node_id=870_005)
    try:
        for node in (one, other):
            node.format()
            node.start(script=True)
        assert one.proc is not None and other.proc is not None
        done = stop("--node-id", "870005")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("2 nodes have node.id 870005. Select one by --config:\n")
        assert f"  {shown(one)}" in done.stderr and f"  {shown(other)}" in done.stderr
        link = tmp_path / "link.properties"
        link.symlink_to(other.properties)
        done = stop("--config", str(link), "--wait", "20")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"Stopping {shown(other)}", "")
        assert other.proc.wait(5) == 0
        assert one.proc.poll() is None
        missing = stop("--config", str(other.properties))
        assert missing.returncode == 1
        assert missing.stderr.startswith(
            f"No kafka server with the properties file {other.properties} to stop"
        )
    finally:
        one.kill()
        other.kill()


@pytest.mark.parametrize(
    ("roles", "words", "selected"),
    [
        ("broker,controller", ["--process-role=broker,controller"], True),
        ("controller,broker", ["--process-role=broker,controller"], True),
        ("broker,controller", ["--process-role", "broker"], False),
        ("broker,controller", ["--process-role", "controller"], False),
        ("broker", ["--process-role", "broker"], True),
        ("controller", ["--process-role", "broker"], False),
        ("controller", ["--node-id", "870006", "--process-role", "broker"], True),
    ],
)
def test_the_stop_script_selects_by_exactly_the_roles_and_an_id_wins(
    tmp_path: Path, roles: str, words: list[str], selected: bool
) -> None:
    """As Kafka's script. The process has only the command line of a node."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=870006\nprocess.roles={roles}\nlog.dirs=data\n")
    script = tmp_path / "kafka-server-start"
    script.write_text("import time; time.sleep(60)")
    process = subprocess.Popen([sys.executable, str(script), properties.name], cwd=tmp_path)
    try:
        command_line = Path(f"/proc/{process.pid}/cmdline")
        wait_for("the process", lambda: properties.name in command_line.read_text())
        found = stop("--config", str(properties), *words, "--dry-run")
        assert (found.returncode == 0) == selected, found
        if selected:
            assert f"pid {process.pid}, properties {properties}, directory {tmp_path}/data" in found.stdout
        properties.unlink()
        unread = stop("--config", str(properties), "--dry-run")
        assert unread.stdout == f"Would stop node of unknown id: pid {process.pid}, properties {properties}\n"
    finally:
        process.kill()
        process.wait()


def test_the_stop_script_knows_nodes_of_quorate_up_and_leaves_what_only_names_one(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", node_id=870_004)
    node.format()
    idle = "import time; time.sleep(60)"
    decoys = [
        subprocess.Popen([sys.executable, "-c", idle, str(BIN / "kafka-server-start"), str(node.properties)]),
        subprocess.Popen(["sh", "-c", "sleep 60; :", "kafka-server-start", str(node.properties)]),
    ]
    proc = subprocess.Popen([sys.executable, "-m", "quorate.tools.server_start", str(node.properties)])
    try:
        node.proc = proc
        node.wait_ready()
        done = stop("--node-id", "870004", "--wait", "20")
        assert (done.returncode, done.stderr) == (0, "")
        assert proc.wait(5) == 0
        assert [decoy.poll() for decoy in decoys] == [None, None]
    finally:
        for process in (proc, *decoys):
            process.kill()
            process.wait()


def test_a_daemon_detaches_and_is_stopped(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", node_id=870_003)
    node.format()
    env = {**os.environ, "LOG_DIR": str(tmp_path / "logs")}
    done = subprocess.run(
        [str(BIN / "kafka-server-start"), "-daemon", str(node.properties)], env=env, check=False, timeout=20
    )
    try:
        assert done.returncode == 0
        out = tmp_path / "logs" / "kafkaServer.out"
        wait_for("the daemon", lambda: out.exists() and "Kafka Server started" in out.read_text())
    finally:
        assert stop("--node-id", "870003", "--wait", "20").returncode == 0


def test_starting_imports_only_what_a_node_needs() -> None:
    """A node is up within a third of a second, most of which is imports."""
    code = (
        "import sys, quorate.tools.server_start, quorate.node.main, quorate.broker.server, "
        "quorate.controller.driver\n"
        "print('\\n'.join(sys.modules))"
    )
    env = {**os.environ, "PYTHONPATH": ""}
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout.split()
    heavy = {
        "pyspark",
        "pyarrow",
        "pandas",
        "numpy",
        "rich",
        "psutil",
        "pytest",
        "cryptography",
        "http.client",
        "xml",
        "unittest",
    }
    assert heavy & set(modules) == set()
    messages = [m for m in modules if m.startswith("quorate.protocol.messages.")]
    assert len(messages) < 60, messages
    assert len(modules) < 450


def test_a_voter_whose_directory_id_changed_says_why_it_does_not_lead(node: Node) -> None:
    node.format()
    node.start()
    assert node.stop() == 0
    meta = node.data / "meta.properties"
    was = re.search(r"directory\.id=(.*)", meta.read_text())
    assert was is not None
    meta.write_text(meta.read_text().replace(was[1], "mwBBvG3oSIWDRk7crIrIug"))
    node.start(wait=False)
    wait_for(
        "the reason",
        lambda: f"directory.id={was[1]}" in node.log_tail() and "mwBBvG3oSIWDRk7crIrIug" in node.log_tail(),
        20,
    )


def test_a_request_of_exactly_the_largest_size_is_forwarded_in_an_envelope_that_is_larger(
    tmp_path: Path,
) -> None:
    largest = 70_000
    extra: dict[str, object] = {"socket.request.max.bytes": largest}
    controller = Node(tmp_path / "controller", 1, "controller", extra=extra)
    broker = Node(tmp_path / "broker", 2, "broker", voters=controller.voters, extra=extra)
    config = CreateTopicsRequest.CreatableTopicConfig

    def frame(padding: int) -> bytes:
        values = ["x" * 30_000, "x" * 30_000, "x" * padding]
        topic = CreateTopicsRequest.CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[config(name=f"unknown.{i}", value=value) for i, value in enumerate(values)],
        )
        return encode_request(1, "test", CreateTopicsRequest(topics=[topic]), 7)

    try:
        for node in (controller, broker):
            node.format()
            node.start()
        request = frame(largest - len(frame(128)) + 128)
        assert len(request) == largest
        with socket.create_connection(("127.0.0.1", broker.broker_port), timeout=10) as client:
            client.sendall(struct.pack(">i", largest) + request)
            (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
            response = memoryview(client.recv(size, socket.MSG_WAITALL))
        _, answer = decode_response(response, ApiKey.CREATE_TOPICS, 7)
        assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
    finally:
        controller.kill()
        broker.kill()
