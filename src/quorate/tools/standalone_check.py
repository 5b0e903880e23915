"""Checks that `kafka-storage format --standalone` does not create a second quorum for an existing cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quorate.config.listeners import shown_address
from quorate.net.client import Connection
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.tools.command_line import ToolError

RESPONSE_TIMEOUT_S = 2.0
"""A controller answers within milliseconds. If the cluster is new, no server listens and the connections are
refused.
"""

CONNECT_TIMEOUT_S = 1.0


def check_no_existing_quorum(servers: Sequence[tuple[str, int]], cluster_id: str) -> list[str]:
    """Raises ToolError if one of the bootstrap servers is a controller of this cluster.

    Two quorums with the same cluster id would be two clusters that take each other for one. Returns a warning
    for each server that accepts connections but does not answer, because it may be such a controller.
    """
    answering: list[str] = []
    silent: list[str] = []

    async def ask(host: str, port: int) -> None:
        where = shown_address(host, port)
        try:
            connection = await Connection.connect(
                host, port, client_id="kafka-storage", timeout_s=RESPONSE_TIMEOUT_S
            )
            try:
                answer = await connection.call(DescribeClusterRequest(endpoint_type=2), RESPONSE_TIMEOUT_S)
            finally:
                connection.close()
        except (KafkaConnectionError, UnsupportedVersion):  # no server listens there, or a broker does
            return
        except RequestTimedOut:
            failure = "did not take a connection"
            if await accepts(host, port):
                failure = "accepts connections but did not answer"
            silent.append(f"{where} {failure} within {RESPONSE_TIMEOUT_S:g} s")
            return
        if answer.error_code == ErrorCode.NONE and answer.cluster_id == cluster_id:
            answering.append(where)

    async def accepts(host: str, port: int) -> bool:
        try:
            (await Connection.connect(host, port, timeout_s=CONNECT_TIMEOUT_S, negotiate=False)).close()
        except (KafkaConnectionError, RequestTimedOut):
            return False
        return True

    async def ask_all() -> None:
        await asyncio.gather(*(ask(host, port) for host, port in servers))

    asyncio.run(ask_all())
    if answering:
        raise ToolError(
            f"{answering[0]} already answers as a controller of cluster {cluster_id}; --standalone would "
            "make a second quorum under the same id. To add this controller to the one that exists: format "
            "with --no-initial-controllers, start it, then run kafka-metadata-quorum add-controller."
        )
    return [
        f"{server}: if that is a controller of cluster {cluster_id} that hangs, --standalone makes a "
        "second quorum under the same id. In that case do not start this node: remove its directories and "
        "format with --no-initial-controllers"
        for server in silent
    ]
