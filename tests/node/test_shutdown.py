"""The stop of a node within a process that goes on, as in a test or another program."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from quorate.node.properties import load_config
from quorate.node.server import KafkaServer
from tests.support.cluster import Node


@pytest.mark.parametrize("roles", ["broker,controller", "controller"])
def test_no_port_of_a_node_that_was_stopped_accepts_connections(tmp_path: Path, roles: str) -> None:
    node = Node(tmp_path / "node", roles=roles)
    node.format()

    async def start_and_stop() -> None:
        server = KafkaServer(load_config(node.properties))
        await server.start()
        open_port(node.controller_port)
        await server.shutdown()
        assert not server.listeners

    asyncio.run(start_and_stop())
    for port in {node.broker_port, node.controller_port} - {0}:
        with pytest.raises(ConnectionRefusedError):
            open_port(port)


def open_port(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 5).close()
