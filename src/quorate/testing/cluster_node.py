"""One node of a test cluster: its process, its log, its faults and the control socket to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from quorate.node.local.cluster import LocalNode
from quorate.node.local.processes import NodeProcess, start_process
from quorate.testing.errors import ClusterError
from quorate.testing.folders import size_of
from quorate.testing.messages import DiskFault, Launch, LinkFault, Message, encode
from quorate.testing.ports import PortReservation

_CONFIRM_TIMEOUT_S = 30.0
"""How long a node may take to confirm a fault. It takes a millisecond unless its event loop is blocked."""

_LOG_TAIL_BYTES = 64 << 10


class ClusterNode:
    """A node whose process is started and stopped by the cluster. Faults outlast the process."""

    def __init__(self, local: LocalNode, log_file: Path, ports: Sequence[PortReservation] = ()) -> None:
        self.local = local
        self.log_file = log_file
        self.process: NodeProcess | None = None
        self._ports = ports
        self._control: socket.socket | None = None
        self._unconfirmed = 0
        self._watcher: subprocess.Popen[bytes] | None = None
        """Runs while the process is frozen; see `freeze`."""
        self._disk = DiskFault()
        self._full_at_bytes = 0
        """The size of the data at which a disk with a limit is full."""

    @property
    def node_id(self) -> int:
        return self.local.node_id

    @property
    def data_directory(self) -> Path:
        return self.local.folder / "data"

    @property
    def listening_ports(self) -> list[int]:
        roles = (
            (self.local.broker, self.local.broker_port),
            (self.local.controller, self.local.controller_port),
        )
        return [port for has_role, port in roles if has_role]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # -- the process

    def spawn(self, env: Mapping[str, str] | None = None) -> None:
        """Starts the process, which imports its modules and waits for `launch`.

        `env` is added to the environment of this process.
        """
        ours, theirs = socket.socketpair()
        ours.settimeout(_CONFIRM_TIMEOUT_S)
        with theirs, self.log_file.open("ab") as log:
            fd = theirs.fileno()
            self.process = start_process("quorate.testing.node", [str(fd)], log, env=env, pass_fds=[fd])
        self._control = ours
        self._unconfirmed = 0

    def launch(
        self, redirects: Iterable[tuple[str, int, int]] = (), cut_ports: list[int] | None = None
    ) -> None:
        """Makes the spawned process run the node with its current faults.

        Without `cut_ports`, no link of this process can be cut, and its connections are not wrapped.
        """
        for port in self._ports:
            port.lend()
        if self._disk.free_bytes is not None:
            free_bytes = max(0, self._full_at_bytes - size_of(self.data_directory))
            self._disk = replace(self._disk, free_bytes=free_bytes)
        links = LinkFault(cut_ports) if cut_ports is not None else None
        self._send(Launch(str(self.local.properties_file), list(redirects), self._disk, links))

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def release(self) -> None:
        """Waits for the process, which is already ending, and closes its streams and the control socket."""
        if self.process is not None:
            self.process.wait()
        if self._watcher is not None:
            _end_watcher(self._watcher)
            self._watcher = None
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self._control is not None:
            self._control.close()
            self._control = None

    def close_ports(self) -> None:
        """Gives the reserved ports back."""
        for port in self._ports:
            port.close()

    # -- the log

    def log_tail(self, lines: int = 40) -> str:
        """Returns the last lines of the log."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def error(self, what: str) -> ClusterError:
        """Returns the error that the node did `what`, with the end of its log."""
        return ClusterError(f"node {self.node_id} {what}\n{self.log_tail()}")

    def exit_error(self) -> ClusterError:
        """Returns the error that the process has ended, with its status and the end of the log."""
        return self.error(
            f"ended with status {self.process.returncode if self.process is not None else None}"
        )

    # -- faults

    def freeze(self) -> None:
        """Stops the process with SIGSTOP. Does nothing if it is stopped already."""
        if self._watcher is not None or self.process is None:
            return
        pid = self.process.pid
        # A stopped process does not notice that its parent has ended. The watcher does, and kills it.
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 "$1"', "watch", str(pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continues a frozen process."""
        if self._watcher is None:
            return
        watcher, self._watcher = self._watcher, None
        _end_watcher(watcher)
        if self.process is not None and self.running:
            os.kill(self.process.pid, signal.SIGCONT)

    def slow_disk(self, fsync_ms: float, read_ms: float) -> None:
        """Delays each fsync and each read that misses the page cache."""
        self._set_disk(replace(self._disk, fsync_ms=fsync_ms, read_ms=read_ms))

    def limit_disk(self, free_bytes: int | None) -> None:
        """Limits how many bytes can still be written. None removes the limit."""
        if free_bytes is not None:
            self._full_at_bytes = size_of(self.data_directory) + free_bytes
        self._set_disk(replace(self._disk, free_bytes=free_bytes))

    def fail_disk(self, failing: bool, under: str = "") -> None:
        """Makes reads, writes and fsyncs below a directory fail, or ends that."""
        self._set_disk(replace(self._disk, failing=failing, failing_under=under))

    def cut_links(self, ports: Iterable[int]) -> None:
        """Cuts the links to these ports and restores all others. `confirm` waits for the effect."""
        if self.running:
            self._send(LinkFault(list(ports)))

    def confirm(self) -> None:
        """Waits until the process has applied the faults that it was sent, or has ended.

        A frozen process confirms them after `thaw`. Raises ClusterError.
        """
        if self._watcher is not None:
            return
        try:
            while self._unconfirmed and self._control is not None:
                answer = self._control.recv(self._unconfirmed)
                if not answer:
                    break
                self._unconfirmed -= len(answer)
        except ConnectionError:
            pass
        except TimeoutError:
            raise self.error(f"did not confirm a fault within {_CONFIRM_TIMEOUT_S:g} s") from None

    def _set_disk(self, fault: DiskFault) -> None:
        self._disk = fault
        if self.running:
            self._send(fault)
            self.confirm()

    def _send(self, message: Message) -> None:
        if self._control is None:
            return
        with contextlib.suppress(ConnectionError):  # the process ends now; its next launch has all faults
            self._control.sendall(encode(message))
            self._unconfirmed += not isinstance(message, Launch)


def _end_watcher(watcher: subprocess.Popen[bytes]) -> None:
    watcher.kill()
    watcher.wait()
    if watcher.stdin is not None:
        watcher.stdin.close()
