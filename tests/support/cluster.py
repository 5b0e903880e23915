"""Real nodes as processes, of Quorate or of Apache Kafka, from the same properties files.

`quorate.testing.KafkaNode` writes the properties, and formats, starts and awaits a node of Quorate.
Here is what only our tests need: Apache Kafka's nodes, nodes that change their implementation,
static voters, and the console scripts themselves with limits on their resources.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorate.testing import ClusterError, KafkaNode, PortReservation
from quorate.testing.cluster_node import ClusterNode
from quorate.testing.kafka_node import CLUSTER_ID
from quorate.testing.readiness import wait_until_ready
from tests.support import java

__all__ = ["BIN", "CLUSTER_ID", "Node", "free_ports", "running", "wait_for"]

BIN = Path(sys.executable).parent
WAYS = {"--standalone", "--initial-controllers", "--controller-quorum-voters", "--no-initial-controllers"}
"""How a controller of a dynamic quorum is formatted."""

_reserved: deque[PortReservation] = deque(maxlen=200)


def free_ports(n: int) -> list[int]:
    """Ports of 127.0.0.1, all different. Each stays reserved until 200 others have been."""
    found = [PortReservation() for _ in range(n)]
    _reserved.extend(found)
    return [reservation.port for reservation in found]


def wait_for(what: str, probe: object, timeout_s: float = 30, every_s: float = 0.01) -> object:
    """Calls probe until it returns something true; an AssertionError names what was awaited."""
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = probe()  # type: ignore[operator]
            if last:
                return last
        except (OSError, ConnectionError) as e:
            last = e
        time.sleep(every_s)  # polls another process, which has no way to call us
    raise AssertionError(f"waited {timeout_s} s for {what}; last: {last!r}")


@dataclass
class Node:
    """One node of either implementation (`quorate` or `java`, of release `kafka`); `impl` and `kafka` may
    change between a stop and a start."""

    base: Path
    node_id: int = 1
    roles: str = "broker,controller"
    impl: str = "quorate"
    static: bool = False
    voters: dict[int, int] = field(default_factory=dict)  # controller id -> port
    extra: dict[str, object] = field(default_factory=dict)
    broker_port: int = 0
    controller_port: int = 0
    proc: subprocess.Popen[bytes] | None = None
    kafka: str = java.KAFKA_VERSION
    release: str | None = None  # whose features a new cluster gets; the formatting tool's own by default

    def __post_init__(self) -> None:
        self._ours = KafkaNode(
            self.base, self.node_id, self.roles, broker_port=self.broker_port,
            controller_port=self.controller_port, log_file=self.base / "out.log",
        )  # fmt: skip
        if "broker" in self.roles:
            self.broker_port = self._ours.broker_port
        if "controller" in self.roles:
            self.controller_port = self._ours.controller_port
        if not self.voters:
            self.voters = {self.node_id: self.controller_port}
        self.write_properties()

    @property
    def data(self) -> Path:
        return self._ours.data_directory

    @property
    def properties(self) -> Path:
        return self._ours.properties_file

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker_port}"

    def write_properties(self) -> None:
        node = self._ours
        node.node_id, node.roles = self.node_id, self.roles
        node.broker_port, node.controller_port = self.broker_port, self.controller_port
        node.bootstrap_controllers = ",".join(f"127.0.0.1:{port}" for port in self.voters.values())
        node.config = dict(self.extra)
        if self.static:
            voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in self.voters.items())
            node.config = {"controller.quorum.voters": voters} | node.config
        node.write_properties()

    def _command(self, what: str, *args: object) -> list[str]:
        """The command line of the implementation's own script."""
        if self.impl == "java":
            main = {"format": "kafka.tools.StorageTool", "start": "kafka.Kafka"}[what]
            words = (*(("format",) if what == "format" else ()), *args)
            return java.command(main, *words, heap="-Xmx768m", version=self.kafka)
        return [
            str(BIN / {"format": "kafka-storage", "start": "kafka-server-start"}[what]),
            *(("format",) if what == "format" else ()),
            *map(str, args),
        ]

    def format(self, *args: object, cluster_id: str = CLUSTER_ID) -> str:
        """Formats the directories; `--standalone` is added for a dynamic quorum's controller where no
        other way is named."""
        extra = list(args)
        if self.release is not None:
            extra += ["--release-version", self.release]
        if self.impl == "quorate":
            with _assertion_errors():
                return self._ours.format(*extra, cluster_id=cluster_id)
        if not self.static and "controller" in self.roles and not WAYS.intersection(map(str, args)):
            extra.append("--standalone")
        done = subprocess.run(
            self._command("format", "-t", cluster_id, "-c", self.properties, *extra),
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        if done.returncode:
            raise AssertionError(f"format: status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def start(
        self,
        *,
        wait: bool = True,
        script: bool = False,
        open_files: int | None = None,
        timeout_s: float = 60,
        env: dict[str, str] | None = None,
    ) -> None:
        """Starts the node; with `script`, or with a limit on its open files, by `kafka-server-start`."""
        if self.impl == "quorate" and not script and open_files is None:
            with _assertion_errors():
                self._ours.start(wait=False, env=env)
            self.proc = self._ours.process
        else:
            self.proc = self._start_script(open_files, env or {})
        if wait:
            self.wait_ready(timeout_s)

    def _start_script(self, open_files: int | None, env: dict[str, str]) -> subprocess.Popen[bytes]:
        def limit() -> None:
            if open_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        with (self.base / "out.log").open("ab") as log:
            return subprocess.Popen(
                self._command("start", self.properties),
                stdout=log,
                stderr=log,
                preexec_fn=limit,
                env={**os.environ, **env},
            )

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Until Metadata names a broker (or, for a controller, until its port accepts)."""
        member = ClusterNode(self._ours.local, self._ours.log_file)
        member.process = self.proc
        with _assertion_errors():
            wait_until_ready([member], timeout_s)

    def admin(self, **conf: object) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                **conf,
            }
        )

    def stop(self, timeout_s: float = 60) -> int:
        """SIGTERM, and the exit status."""
        assert self.proc is not None
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self._ours.kill()
        if self.proc is not None and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def log_tail(self, lines: int = 40) -> str:
        return self._ours.log_tail(lines)


@contextlib.contextmanager
def _assertion_errors() -> Iterator[None]:
    """What a node of ours does wrong, as an AssertionError."""
    try:
        yield
    except ClusterError as e:
        raise AssertionError(str(e)) from None


@contextlib.contextmanager
def running(node: Node, *format_args: object, **start: object) -> Iterator[Node]:
    """Formats and starts a node; kills it at the end, whatever happens, and prints its log if the body
    failed."""
    try:
        if not (node.data / "meta.properties").exists():
            node.format(*format_args)
        node.start(**start)  # type: ignore[arg-type]
        yield node
    except BaseException:
        print(node.log_tail(), file=sys.stderr)
        raise
    finally:
        node.kill()
