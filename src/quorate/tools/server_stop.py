"""kafka-server-stop: sends SIGTERM to the nodes of this user on this machine, or to the selected ones.

A node is recognised by its command line, which runs kafka-server-start or its module. `quorate up` starts its
nodes by the module. A process that has the name only among its arguments is not a node.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.tools.command_line import Parser, ToolError, run

if TYPE_CHECKING:
    from quorate.node import properties as node_properties
else:
    node_properties = lazy_module("quorate.node.properties")

_KILL_SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "KILL": signal.SIGKILL}


@dataclass(slots=True, frozen=True)
class RunningNode:
    """A node of this user, from the process table."""

    pid: int
    node_id: int | None
    roles: frozenset[str]
    config: Path


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser("kafka-server-stop", "Stops the Kafka nodes that run on this machine.")
    parser.add_version()
    parser.add_argument("--process-role", choices=("broker", "controller"), help="only nodes with this role")
    parser.add_argument("--node-id", type=int, help="only the node with this id (wins over --process-role)")
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="wait until they have ended")
    args = parser.parse_args(argv)
    found = list(running_nodes())
    if args.node_id is not None:
        chosen = [n for n in found if n.node_id == args.node_id]
        missing = f"No kafka server with node.id {args.node_id} to stop"
    elif args.process_role is not None:
        chosen = [n for n in found if args.process_role in n.roles]
        missing = f"No kafka server with the role {args.process_role} to stop"
    else:
        chosen, missing = found, "No kafka server to stop"
    if not chosen:
        raise ToolError(missing)
    number = _KILL_SIGNALS.get(os.environ.get("SIGNAL", "TERM").removeprefix("SIG"), signal.SIGTERM)
    for node in chosen:
        os.kill(node.pid, number)
    deadline = time.monotonic() + (args.wait or 0)
    while args.wait and any(_alive(n.pid) for n in chosen):
        if time.monotonic() > deadline:
            pids = ", ".join(str(n.pid) for n in chosen if _alive(n.pid))
            raise ToolError(f"still running after {args.wait:g} s: {pids}")
        time.sleep(0.02)
    return 0


def running_nodes() -> Iterator[RunningNode]:
    """Yields the nodes of this user, from the process table."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            rest = _arguments(words)
            names = [
                w
                for i, w in enumerate(rest)
                if w and not w.startswith("-") and rest[i - 1] not in _TAKES_VALUE
            ]
            config = Path(names[0])
            if not config.is_absolute():
                config = (entry / "cwd").readlink() / config
            properties = node_properties.read_properties(config)
            properties |= node_properties.parse_overrides(
                rest[i + 1] for i, w in enumerate(rest) if w == "--override"
            )
        except (OSError, ValueError, IndexError):
            continue
        text = properties.get("node.id", properties.get("broker.id", "")).strip()
        roles = frozenset(r.strip() for r in properties.get("process.roles", "").split(","))
        yield RunningNode(int(entry.name), int(text) if text.isdigit() else None, roles, config)


def _arguments(words: list[str]) -> list[str]:
    """Returns the arguments of kafka-server-start in a command line.

    Raises ValueError for another program.
    """
    at = 0
    if Path(words[0]).name.startswith("python"):
        at = next((i for i, w in enumerate(words[1:], 1) if not w.startswith("-") or w in ("-m", "-c")), 0)
    if words[at] == "-m" and words[at + 1] == _MODULE:
        return words[at + 2 :]
    if Path(words[at]).name in _SCRIPTS:
        return words[at + 1 :]
    raise ValueError("not a node")


_SCRIPTS = frozenset({"kafka-server-start", "kafka-server-start.sh"})
_MODULE = "quorate.tools.server_start"
_TAKES_VALUE = frozenset({"--override", "--log-level", "-name"})


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


if __name__ == "__main__":
    sys.exit(main())
