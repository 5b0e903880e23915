"""The user's own command that stops, starts or restarts a node.

The command is run by /bin/sh. It must end by itself when the node has been stopped or started, and it must
not ask for anything. It has a session of its own, so that Ctrl-C does not interrupt it between stop and
start.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import string
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Cluster

PLACEHOLDERS: Mapping[str, str] = {
    "id": "the node id",
    "host": "the host of the node's first listener, as registered",
    "port": "the port of that listener",
    "rack": "the rack, or nothing",
    "roles": "broker, controller or broker,controller",
    "cluster_id": "the cluster id",
}

POLL_S = 0.02


def check_command(option: str, command: str | None) -> None:
    """Raises ToolError if a command is empty or has a placeholder that does not exist."""
    if command is not None:
        if not command.strip():
            raise ToolError(f"{option} is empty: the shell would do nothing and report success")
        _fill(option, command, dict.fromkeys(PLACEHOLDERS, ""))


def placeholder_values(cluster: Cluster, node_id: int) -> dict[str, str]:
    """The values of the placeholders for a node."""
    broker, controller = cluster.brokers.get(node_id), cluster.controllers.get(node_id)
    known = broker or controller
    is_controller = controller is not None or cluster.voter(node_id) is not None
    roles = (["broker"] if broker is not None else []) + (["controller"] if is_controller else [])
    return {
        "id": str(node_id),
        "host": known.host if known is not None else "",
        "port": str(known.port) if known is not None else "",
        "rack": (broker.rack or "") if broker is not None else "",
        "roles": ",".join(roles),
        "cluster_id": cluster.cluster_id,
    }


def filled(option: str, command: str, values: Mapping[str, str]) -> str:
    """Returns the command with values in place of the placeholders, quoted for the shell. Raises
    ToolError."""
    return _fill(option, command, {name: shlex.quote(value) for name, value in values.items()})


def _fill(option: str, command: str, values: Mapping[str, str]) -> str:
    try:
        parts = list(string.Formatter().parse(command))
    except ValueError as error:
        raise ToolError(f"{option}: {error}; write {{{{ and }}}} for braces of the shell") from error
    text = ""
    for literal, name, form, conversion in parts:
        text += literal
        if name is None:
            continue
        if name not in values or form or conversion:
            raise ToolError(
                f"{option}: {{{name}}} is no placeholder; there are "
                f"{', '.join(f'{{{n}}}' for n in PLACEHOLDERS)} (write {{{{ and }}}} for braces of the shell)"
            )
        text += values[name]
    return text


async def run_command(option: str, command: str, timeout_s: float) -> None:
    """Runs a command. Its output goes to stderr. Raises ToolError if it fails or takes longer.

    It is no subprocess of asyncio, which would kill it when the event loop is closed.
    """
    process = subprocess.Popen(  # noqa: ASYNC220 - see above
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while (status := process.poll()) is None:
        if loop.time() >= deadline:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise ToolError(f"{option} has not ended after {timeout_s:g} s and was killed: {command}")
        await asyncio.sleep(POLL_S)
    if status:
        raise ToolError(f"{option} failed with status {status}: {command}")
