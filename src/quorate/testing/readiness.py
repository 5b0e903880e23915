"""Waits until nodes serve."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from quorate.node.local.processes import brokers_known_at
from quorate.testing.cluster_node import ClusterNode
from quorate.testing.ports import HOST

_POLL_S = 0.01
"""The interval at which a starting node is polled until it serves. It has no way to notify this process."""


def wait_until_ready(nodes: Sequence[ClusterNode], timeout_s: float) -> None:
    """Waits until each broker of these nodes knows all of them and each controller accepts connections.

    Raises ClusterError.
    """
    brokers = {node.node_id for node in nodes if node.local.broker}
    deadline = time.monotonic() + timeout_s
    failed: list[BaseException] = []

    async def ready(node: ClusterNode) -> bool:
        if node.local.broker:
            return brokers <= await brokers_known_at(HOST, node.local.broker_port)
        try:
            _, writer = await asyncio.open_connection(HOST, node.local.controller_port)
        except OSError:
            return False
        writer.close()
        return True

    async def wait() -> None:
        for node in nodes:
            while not await ready(node):
                if not node.running:
                    raise node.exit_error()
                if time.monotonic() > deadline:
                    raise node.error(f"did not serve within {timeout_s:g} s")
                await asyncio.sleep(_POLL_S)

    def run() -> None:
        try:
            asyncio.run(wait())
        except BaseException as e:
            failed.append(e)

    # In a thread, because the caller may run in an event loop.
    thread = threading.Thread(target=run, name="quorate-testing", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
