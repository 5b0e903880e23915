"""Starts the processes of a local cluster so that they end with their parent, stops them, and checks whether
they serve.

`quorate up` and `quorate.testing` run the nodes of a `LocalCluster` with these functions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import IO

from quorate.net.client import Connection, KafkaConnectionError, RequestTimedOut
from quorate.node.local.cluster import LocalNode
from quorate.protocol.messages.metadata import MetadataRequest

NodeProcess = subprocess.Popen[bytes]

STOP_TIMEOUT_S = 1.0
"""How long a node may take to stop when all nodes stop. A node that takes longer has lost its quorum. It gets
a second signal, after which it waits for no other node.
"""


def start_process(
    module: str,
    arguments: Sequence[str],
    output: IO[bytes] | None,
    *,
    env: Mapping[str, str] | None = None,
    pass_fds: Collection[int] = (),
) -> NodeProcess:
    """Runs a Python module that starts a node and stops it when its standard input ends.

    The node has a session of its own, so that Ctrl-C in the terminal reaches only the parent, which
    stops the nodes cleanly. The kernel closes the standard input of a node even if its parent is
    killed with SIGKILL. `env` is added to the environment of this process.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=output,
        stderr=output,
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **env} if env else None,
        pass_fds=tuple(pass_fds),
    )


def stop_processes(nodes: Mapping[NodeProcess, LocalNode], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stops nodes of one cluster and waits for them. Nodes that are only brokers stop first: their
    controlled shutdown needs a controller."""
    for controllers in (False, True):
        group = [p for p, node in nodes.items() if node.controller == controllers and p.poll() is None]
        for process in group:
            process.terminate()
        deadline = time.monotonic() + timeout_s
        for process in group:
            try:
                process.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
        for process in group:
            process.wait()


async def brokers_known_at(host: str, port: int) -> set[int]:
    """Returns the ids of the brokers in the Metadata response of a broker; none while it does not serve."""
    try:
        connection = await Connection.connect(host, port, client_id="quorate-local", timeout_s=1)
    except (KafkaConnectionError, RequestTimedOut):
        return set()
    try:
        answer = await connection.call(MetadataRequest(topics=[]), 2)
        return {broker.node_id for broker in answer.brokers}
    except (KafkaConnectionError, RequestTimedOut):
        return set()
    finally:
        connection.close()
