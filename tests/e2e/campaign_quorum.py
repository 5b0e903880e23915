"""Three controllers and a broker as processes, and the faults that can be injected."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import Node, free_ports, wait_for
from tests.support.disk import Disk
from tests.support.netns import Network

CONTROLLERS = (1, 2, 3)
BROKER = 9
DIRECTORIES = {1: "AAAAAAAAAAAAAAAAAAABAQ", 2: "AAAAAAAAAAAAAAAAAAABAg", 3: "AAAAAAAAAAAAAAAAAAABAw"}
QUICK = {
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.request.timeout.ms": 1000,  # a broker's Fetch that a silent leader holds
}
BUSY = {  # many segments and snapshots within seconds
    "metadata.log.max.record.bytes.between.snapshots": 30_000,
    "internal.metadata.log.segment.bytes": 60_000,
    "metadata.max.retention.bytes": 200_000,
    "internal.metadata.delete.delay.millis": 1_000,
}


class Told(NamedTuple):
    """The fields of a response to /health."""

    leader: int
    epoch: int
    high_watermark: int


@dataclass
class Member(Node):
    """A node on its own host: 127.0.0.1, or an address in a network namespace."""

    host: str = "127.0.0.1"
    http_port: int = 0
    enter: Callable[[], None] | None = None  # runs in the new process before the node does

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.broker_port}"

    @property
    def metadata(self) -> Path:
        return Path(str(self.extra.get("log.dirs", self.data))) / "__cluster_metadata-0"

    def start(self, **_: object) -> None:  # type: ignore[override]
        """Starts the node without waiting for it; see `Quorum.settle`."""
        with (self.base / "out.log").open("ab") as log:
            self.proc = subprocess.Popen(
                self._command("start", self.properties), stdout=log, stderr=log, preexec_fn=self.enter
            )

    @property
    def running(self) -> bool:
        return self.proc is not None and self.proc.poll() is None

    def told(self, timeout_s: float = 0.5) -> Told | None:
        """The health of the node. None while it does not answer or has not opened its log."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=timeout_s)
        try:
            connection.request("GET", "/health")
            said = json.loads(connection.getresponse().read())
            return Told(said["leaderId"], said["epoch"], said["highWatermark"])
        except (OSError, http.client.HTTPException, KeyError):
            return None
        finally:
            connection.close()


@dataclass
class Quorum:
    """Controllers 1 to 3 and broker 9; host i of the network is controller i, host 4 the broker."""

    base: Path
    network: Network | None = None
    disks: dict[int, Disk] = field(default_factory=dict)  # controller -> where its log is
    settings: dict[str, object] = field(default_factory=dict)
    controllers: dict[int, Member] = field(default_factory=dict)
    paused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        ports = iter(free_ports(8))
        voters = {i: next(ports) for i in CONTROLLERS}
        bootstrap = ",".join(f"{self._host(i)}:{port}" for i, port in voters.items())
        for i in CONTROLLERS:
            http_port = next(ports)
            extra: dict[str, object] = {
                "listeners": f"CONTROLLER://{self._host(i)}:{voters[i]}",
                "controller.quorum.bootstrap.servers": bootstrap,
                "quorate.http.listen": f"{self._host(i)}:{http_port}",
                **self.settings,
            }
            if i in self.disks:
                extra["log.dirs"] = self.disks[i].path / "data"
            self.controllers[i] = Member(
                self.base / f"c{i}", i, "controller", voters=voters, controller_port=voters[i], extra=extra,
                host=self._host(i), http_port=http_port, enter=self._enter(i),
            )  # fmt: skip
        port, http_port = next(ports), next(ports)
        self.broker = Member(
            self.base / "broker", BROKER, "broker", voters=voters, broker_port=port,
            extra={
                "listeners": f"PLAINTEXT://{self._host(4)}:{port}",
                "controller.quorum.bootstrap.servers": bootstrap,
                "quorate.http.listen": f"{self._host(4)}:{http_port}",
                "auto.create.topics.enable": "false",
                **self.settings,
            },
            host=self._host(4), http_port=http_port, enter=self._enter(4),
        )  # fmt: skip

    def _host(self, host: int) -> str:
        return "127.0.0.1" if self.network is None else self.network.address(host)

    def _enter(self, host: int) -> Callable[[], None] | None:
        return None if self.network is None else self.network.inside(host)

    @property
    def nodes(self) -> dict[int, Member]:
        return {**self.controllers, BROKER: self.broker}

    def format(self) -> None:
        initial = ",".join(
            f"{i}@{c.host}:{c.controller_port}:{DIRECTORIES[i]}" for i, c in self.controllers.items()
        )
        for controller in self.controllers.values():
            controller.format("--initial-controllers", initial)
        self.broker.format("--no-initial-controllers")

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.settle()
        wait_for("the broker to serve", lambda: BROKER in self.broker.admin().list_topics(timeout=2).brokers)

    # -- what is so

    def leader(self, among: tuple[int, ...] = CONTROLLERS, after: int = -1, timeout_s: float = 30) -> int:
        """The controller that reports itself as the leader of the highest epoch that any node reports,
        greater than `after`."""
        found: list[int] = []

        def leads() -> bool:
            told = {
                i: t for i in among if i not in self.paused and (t := self.controllers[i].told()) is not None
            }
            epoch = max((t.epoch for t in told.values()), default=-1)
            found[:] = [i for i, t in told.items() if (t.leader, t.epoch) == (i, epoch) and epoch > after]
            return bool(found)

        wait_for("a leader", leads, timeout_s)
        return found[0]

    def epoch(self) -> int:
        return max(t.epoch for c in self.controllers.values() if c.running and (t := c.told()) is not None)

    def settle(self, timeout_s: float = 60) -> int:
        """Waits until every running node follows one leader and has all records that are committed now.
        Returns the end offset of these records."""
        nodes = {i: n for i, n in self.nodes.items() if n.proc is not None}
        goal = [-1]

        def agreed() -> bool:
            dead = [i for i, n in nodes.items() if not n.running]
            assert not dead, (
                f"node {dead[0]} ended with {nodes[dead[0]].proc.returncode}\n{nodes[dead[0]].log_tail()}"
            )  # type: ignore[union-attr]
            told = [n.told() for n in nodes.values()]
            if None in told or len({t[:2] for t in told if t}) != 1 or told[0].leader < 0:  # type: ignore[union-attr]
                return False
            if goal[0] < 0:
                goal[0] = max(t.high_watermark for t in told if t)
            return all(t.high_watermark >= goal[0] for t in told if t)

        try:
            wait_for("all to follow one leader", agreed, timeout_s, 0.02)
        except AssertionError as e:
            raise AssertionError(f"{e}; told: { ({i: n.told() for i, n in nodes.items()}) }") from None
        return goal[0]

    # -- violence

    def pause(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.proc is not None
        node.proc.send_signal(signal.SIGSTOP)
        wait_for("it to stop", lambda: _state(node) == "T", 5)
        self.paused.add(node_id)

    def resume(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.proc is not None
        node.proc.send_signal(signal.SIGCONT)
        self.paused.discard(node_id)

    def kill_all(self) -> None:
        """Kills all controllers within a millisecond or two."""
        for controller in self.controllers.values():
            assert controller.proc is not None
            controller.proc.kill()
        for controller in self.controllers.values():
            controller.kill()

    def lose_power(self) -> None:
        """Simulates a power failure of all controllers. Their disks keep only what was synced."""
        for disk in self.disks.values():
            disk.fail()
        self.kill_all()
        for disk in self.disks.values():
            disk.replug()
        for controller in self.controllers.values():
            controller.start()

    def cut(self, one: int, *others: int) -> None:
        assert self.network is not None
        for other in others:
            self.network.cut(_host_of(one), _host_of(other))

    def cut_one_way(self, sender: int, *receivers: int) -> None:
        assert self.network is not None
        for receiver in receivers:
            self.network.cut_one_way(_host_of(sender), _host_of(receiver))

    def heal(self) -> None:
        if self.network is not None:
            self.network.heal()

    def restore(self) -> None:
        """Restores all links and all processes."""
        self.heal()
        for i in tuple(self.paused):
            self.resume(i)
        for node in self.nodes.values():
            if not node.running:
                node.start()
        self.settle()

    def end(self) -> None:
        for i in tuple(self.paused):
            self.resume(i)
        for node in self.nodes.values():
            node.kill()

    def others(self, *ids: int) -> list[int]:
        return [i for i in CONTROLLERS if i not in ids]

    def log_tails(self, lines: int = 40) -> str:
        return "\n".join(f"--- {i}\n{n.log_tail(lines)}" for i, n in self.nodes.items())


def _host_of(node_id: int) -> int:
    return 4 if node_id == BROKER else node_id


def _state(node: Member) -> str:
    assert node.proc is not None
    return Path(f"/proc/{node.proc.pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def running(quorum: Quorum) -> Iterator[Quorum]:
    """A formatted and started quorum. It is killed at the end, and its logs are printed if the body
    failed."""
    try:
        quorum.format()
        quorum.start()
        yield quorum
    except BaseException:
        print(quorum.log_tails())
        raise
    finally:
        quorum.end()
