"""Runs one node of a test cluster: kafka-server-start with faults that the cluster sets over a control
socket.

    python -m quorate.testing.node CONTROL_FD

The program imports the modules of a node while the cluster is being formatted, and then waits for its
`Launch`.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
import threading
from io import BufferedReader

from quorate.node import main as node_main
from quorate.testing.disk_faults import FaultyDisk
from quorate.testing.link_faults import Links
from quorate.testing.messages import DiskFault, Launch, LinkFault, decode
from quorate.tools import server_start

_LOADED_EARLY = (
    "quorate.broker.server",
    "quorate.controller.driver",
    "quorate.node.logging_config",
    "quorate.node.properties",
)


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in _LOADED_EARLY:
        importlib.import_module(module)
    lines = control.makefile("rb")
    line = lines.readline()
    if not line:
        return 0  # the cluster was closed before this node was launched
    launch = decode(line)
    if not isinstance(launch, Launch):
        raise ValueError("the first message of a cluster is its Launch")
    NodeFaults(launch).follow(control, lines)
    return server_start.main(["--until-input-ends", launch.properties])


class NodeFaults:
    """Applies the faults of this process, beginning with those of its `Launch`."""

    def __init__(self, launch: Launch) -> None:
        self._redirects = launch.redirects
        self._link_fault = launch.links or LinkFault()
        self._links: Links | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._disk = FaultyDisk()
        self._disk.apply(launch.disk)
        self._new_event_loop = node_main.new_event_loop
        if launch.links is not None:
            node_main.new_event_loop = self._loop_with_links

    def _loop_with_links(self) -> asyncio.AbstractEventLoop:
        loop = self._new_event_loop()
        with self._starting:
            self._loop = loop
            self._links = Links(loop, self._redirects)
            self._links.apply(self._link_fault)
        setattr(loop, "create_connection", self._links.create_connection)  # noqa: B010
        return loop

    def follow(self, control: socket.socket, lines: BufferedReader) -> None:
        """Applies and confirms every message, in a thread."""
        confirmed = threading.Event()

        def run() -> None:
            for line in lines:
                match decode(line):
                    case DiskFault() as fault:
                        self._disk.apply(fault)
                    case LinkFault() as fault:
                        self._cut(fault, confirmed)
                control.sendall(b"\n")

        threading.Thread(target=run, name="faults", daemon=True).start()

    def _cut(self, fault: LinkFault, applied: threading.Event) -> None:
        with self._starting:
            self._link_fault = fault
            loop, links = self._loop, self._links
        if loop is None or links is None:
            return
        applied.clear()

        def apply() -> None:
            links.apply(fault)
            applied.set()

        try:
            loop.call_soon_threadsafe(apply)
        except RuntimeError:
            return  # the loop is closed because the node ends
        applied.wait()


if __name__ == "__main__":
    sys.exit(main())
