"""The nodes of the cluster, each a process of its own, and what they use."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from quorate.node.local.cluster import LocalCluster, LocalNode
from quorate.node.local.processes import NodeProcess, start_process
from quorate.testing.ports import HOST, PortReservation

_LAG = re.compile(r"^quorate_node_event_loop_lag_ms_(?P<kind>max|highest)(?:\{[^}]*\})? (?P<ms>\S+)$", re.M)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MB. `own` divides each page by the number of processes that share it (PSS)."""

    resident: float
    own: float


@dataclass(slots=True)
class Nodes:
    """The controllers, then the brokers in `racks` racks of consecutive ids.

    The controllers and the first broker of each rack serve /metrics, so that the pauses of their event
    loops can be read.
    """

    folder: Path
    controllers: int
    brokers: int
    racks: int
    config: Mapping[str, str]
    controller_nice: int = 0
    local: LocalCluster = field(init=False)
    processes: dict[int, NodeProcess] = field(default_factory=dict)
    _reserved: list[PortReservation] = field(default_factory=list)
    _http: dict[int, int] = field(default_factory=dict)
    _ended_cpu_s: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})

    def format(self) -> None:
        """Writes the properties of each node and formats its directory."""
        count = self.controllers + self.brokers
        self._reserved = [PortReservation() for _ in range(2 * count)]
        ports = [reservation.port for reservation in self._reserved]
        self.local = LocalCluster(
            self.folder,
            self.controllers,
            self.brokers,
            HOST,
            overrides=dict(self.config),
            ports={i + 1: (ports[2 * i], ports[2 * i + 1]) for i in range(count)},
            separate_roles=True,
        )
        self.local.prepare(lambda text: None)
        observed = {self.rack(r)[0] for r in range(self.racks)}
        for node in self.local.nodes:
            added = []
            if node.broker:
                added.append(f"broker.rack={self.rack_of(node.node_id)}")
            if node.controller or node.node_id in observed:
                free = node.broker_port if node.controller else node.controller_port
                self._http[node.node_id] = free  # a node with one role leaves the other's port unused
                added.append(f"quorate.http.listen={HOST}:{free}")
            with node.properties_file.open("a") as file:
                file.write("".join(f"{line}\n" for line in added))

    # -- ids

    @property
    def controller_ids(self) -> list[int]:
        return list(range(1, self.controllers + 1))

    @property
    def broker_ids(self) -> list[int]:
        return list(range(self.controllers + 1, self.controllers + self.brokers + 1))

    def rack(self, number: int) -> list[int]:
        """The brokers of a rack."""
        ids = self.broker_ids
        return ids[len(ids) * number // self.racks : len(ids) * (number + 1) // self.racks]

    def rack_of(self, broker_id: int) -> str:
        return next(f"rack-{r}" for r in range(self.racks) if broker_id in self.rack(r))

    def node(self, node_id: int) -> LocalNode:
        return self.local.nodes[node_id - 1]

    def addresses(self, ids: Iterable[int]) -> list[str]:
        """host:port of these nodes."""
        nodes = [self.node(i) for i in ids]
        return [f"{HOST}:{n.controller_port if n.controller else n.broker_port}" for n in nodes]

    # -- processes

    def start(self, ids: Iterable[int]) -> None:
        """Starts nodes, and does not wait for them."""
        for node_id in ids:
            node = self.node(node_id)
            with node.log_file.open("ab") as log:
                self.processes[node_id] = start_process(
                    "quorate.tools.server_start", ["--until-input-ends", str(node.properties_file)], log
                )
            if node.controller and self.controller_nice:
                os.setpriority(os.PRIO_PROCESS, self.processes[node_id].pid, self.controller_nice)

    def stop(self, ids: Sequence[int], sig: signal.Signals = signal.SIGTERM, timeout_s: float = 600) -> None:
        """Sends the signal to all of these nodes at once, and waits for their ends."""
        for node_id in ids:
            self._ended_cpu_s[self.node(node_id).controller] += self._cpu_s(node_id)
        for node_id in ids:
            self.processes[node_id].send_signal(sig)
        for node_id in ids:
            process = self.processes[node_id]
            process.wait(timeout_s)
            if process.stdin is not None:
                process.stdin.close()

    def close(self) -> None:
        """Ends all nodes by SIGKILL and gives the ports back."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        for reservation in self._reserved:
            reservation.close()

    def check_running(self) -> None:
        """Raises ChildProcessError if a node has ended by itself."""
        for node_id, process in self.processes.items():
            if process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
                tail = self.node(node_id).log_file.read_text(errors="replace").splitlines()[-20:]
                raise ChildProcessError(
                    f"node {node_id} ended with {process.returncode}:\n" + "\n".join(tail)
                )

    def running(self, ids: Iterable[int]) -> list[int]:
        return [i for i in ids if i in self.processes and self.processes[i].poll() is None]

    # -- what they use

    def cpu_s(self) -> dict[str, float]:
        """CPU time since the start of the cluster, of all controllers and of all brokers."""
        return {
            role: self._ended_cpu_s[controllers] + sum(self._cpu_s(i) for i in self.running(ids))
            for role, controllers, ids in (
                ("controllers", True, self.controller_ids),
                ("brokers", False, self.broker_ids),
            )
        }

    def cpu_of(self, node_id: int) -> float:
        """CPU time of the current process of a node; 0 if it does not run."""
        return self._cpu_s(node_id) if self.running([node_id]) else 0.0

    def _cpu_s(self, node_id: int) -> float:
        try:
            times = psutil.Process(self.processes[node_id].pid).cpu_times()
        except psutil.Error:
            return 0.0
        return times.user + times.system

    def waited_s(self, node_id: int) -> float:
        """For how long the node's main thread was ready to run while the machine ran others."""
        try:
            text = Path(f"/proc/{self.processes[node_id].pid}/schedstat").read_text()
        except OSError:
            return 0.0
        return int(text.split()[1]) / 1e9

    def memory(self, node_id: int) -> Memory:
        text = Path(f"/proc/{self.processes[node_id].pid}/smaps_rollup").read_text()
        sizes = {key: int(kb) / 1e3 for key, kb in re.findall(r"^(\w+): +(\d+) kB", text, re.M)}
        return Memory(sizes["Rss"], sizes["Pss"])

    def loop_lag_ms(self, node_id: int) -> dict[str, float]:
        """The greatest delays of a timer of the event loop: `max` in the last 30 to 60 seconds, `highest`
        since the start. Empty where the node serves no metrics."""
        if node_id not in self._http or not self.running([node_id]):
            return {}
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._http[node_id]}/metrics", timeout=10) as page:
                text = page.read().decode()
        except OSError:
            return {}
        return {found["kind"]: float(found["ms"]) for found in _LAG.finditer(text)}

    def worst_lag_ms(self, ids: Iterable[int]) -> float | None:
        """The greatest lag of these nodes in the last 30 to 60 seconds. None if none serves metrics."""
        found = [lag["max"] for i in ids if "max" in (lag := self.loop_lag_ms(i))]
        return round(max(found), 1) if found else None

    def logged(self, pattern: str, ids: Iterable[int]) -> int:
        """The number of lines in the logs of these nodes that match."""
        command = ["grep", "-chE", pattern, *(str(self.node(i).log_file) for i in ids)]
        counts = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return sum(map(int, counts.split()))
