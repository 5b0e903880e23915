"""Real nodes as processes, of Quorate or of Apache Kafka, from the same properties files.

A node is formatted, started, awaited by its port or by a Metadata answer (never by a sleep), stopped or
killed by its own process id.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import java

BIN = Path(sys.executable).parent
WAYS = {"--standalone", "--initial-controllers", "--controller-quorum-voters", "--no-initial-controllers"}
"""How a controller of a dynamic quorum is formatted."""
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def free_ports(n: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago, all different; below those that the kernel gives
    to outgoing connections, which would take one of them until its node has started."""
    ports: list[int] = []
    while len(ports) < n:
        port = random.randrange(10_240, 32_768)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            if port not in ports:
                ports.append(port)
    return ports


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
        self.base.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2)
        if "broker" in self.roles and not self.broker_port:
            self.broker_port = ports[0]
        if "controller" in self.roles and not self.controller_port:
            self.controller_port = ports[1]
        if not self.voters:
            self.voters = {self.node_id: self.controller_port}
        self.write_properties()

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def properties(self) -> Path:
        return self.base / "server.properties"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker_port}"

    def write_properties(self) -> None:
        listeners = []
        if "broker" in self.roles:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.broker_port}")
        if "controller" in self.roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        p: dict[str, object] = {
            "process.roles": self.roles,
            "node.id": self.node_id,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
        }
        if "broker" in self.roles:
            p["inter.broker.listener.name"] = "PLAINTEXT"
        if self.static:
            p["controller.quorum.voters"] = ",".join(
                f"{i}@127.0.0.1:{port}" for i, port in self.voters.items()
            )
        else:
            p["controller.quorum.bootstrap.servers"] = ",".join(
                f"127.0.0.1:{port}" for port in self.voters.values()
            )
        p |= self.extra
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in p.items()))

    def _command(self, what: str, *args: object) -> list[str]:
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
        if not self.static and "controller" in self.roles and not WAYS.intersection(map(str, args)):
            extra.append("--standalone")
        if self.release is not None:
            extra += ["--release-version", self.release]
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
        open_files: int | None = None,
        timeout_s: float = 60,
        env: dict[str, str] | None = None,
    ) -> None:
        def limit() -> None:
            if open_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        with (self.base / "out.log").open("ab") as log:
            self.proc = subprocess.Popen(
                self._command("start", self.properties),
                stdout=log,
                stderr=log,
                preexec_fn=limit,
                env={**os.environ, **(env or {})},
            )
        if wait:
            self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Until Metadata names a broker (or, for a controller, until its port accepts)."""

        def ready() -> bool:
            assert self.proc is not None
            if self.proc.poll() is not None:
                raise AssertionError(
                    f"node {self.node_id} ended with {self.proc.returncode}\n{self.log_tail()}"
                )
            if "broker" not in self.roles:
                socket.create_connection(("127.0.0.1", self.controller_port), 0.5).close()
                return True
            socket.create_connection(("127.0.0.1", self.broker_port), 0.5).close()
            from confluent_kafka import KafkaException

            try:
                return self.node_id in self.admin().list_topics(timeout=2).brokers
            except KafkaException:
                return False

        try:
            wait_for(f"node {self.node_id} to be ready", ready, timeout_s)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_tail()}") from None

    def admin(self, **conf: object):  # type: ignore[no-untyped-def]
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
        if self.proc is not None and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def log_tail(self, lines: int = 40) -> str:
        path = self.base / "out.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


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
