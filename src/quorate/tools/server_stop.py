"""kafka-server-stop: sends SIGTERM to the nodes of this user on this machine, or to the selected ones.

A node is recognised by its command line, which runs kafka-server-start or its module. `quorate up` starts its
nodes by the module. A process that has the name only among its arguments is not a node.

Nodes of several clusters may run on one machine, and some may have the same id. So the tool prints what it
stops, and if several nodes have the id of --node-id, it stops none of them: --config selects one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.tools.command_line import Parser, ToolError, run

if TYPE_CHECKING:
    import argparse

    from quorate.node import properties as node_properties
else:
    node_properties = lazy_module("quorate.node.properties")

_KILL_SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "KILL": signal.SIGKILL}
_DEFAULT_DIRECTORY = "/tmp/kafka-logs"


@dataclass(slots=True, frozen=True)
class RunningNode:
    """A node of this user, from the process table and its properties file.

    If the file cannot be read, the id is None, and there are no roles and directories.
    """

    pid: int
    config: Path
    node_id: int | None = None
    roles: frozenset[str] = frozenset()
    directories: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """All that is known of the node, on one line."""
        name = "node of unknown id" if self.node_id is None else f"node {self.node_id}"
        roles = f" ({', '.join(sorted(self.roles))})" if self.roles else ""
        where = f", directory {', '.join(map(str, self.directories))}" if self.directories else ""
        return f"{name}{roles}: pid {self.pid}, properties {self.config}{where}"


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser("kafka-server-stop", "Stops the Kafka nodes that run on this machine.")
    parser.add_version()
    parser.add_argument(
        "--process-role", choices=("broker", "controller", "broker,controller"),
        metavar="ROLE", help="only nodes with exactly this role: broker, controller or broker,controller",
    )  # fmt: skip
    parser.add_argument("--node-id", type=int, help="only the node with this id (wins over --process-role)")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="only the node that was started with this properties file"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the nodes, and stop none")
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="wait until they have ended")
    args = parser.parse_args(argv)
    chosen = _selected(args, sorted(running_nodes(), key=lambda node: (node.node_id or 0, node.pid)))
    for node in chosen:
        print(f"{'Would stop' if args.dry_run else 'Stopping'} {node.text}", flush=True)
    if args.dry_run:
        return 0
    number = _KILL_SIGNALS.get(os.environ.get("SIGNAL", "TERM").removeprefix("SIG"), signal.SIGTERM)
    for node in chosen:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(node.pid, number)
    deadline = time.monotonic() + (args.wait or 0)
    while args.wait and any(_alive(n.pid) for n in chosen):
        if time.monotonic() > deadline:
            pids = ", ".join(str(n.pid) for n in chosen if _alive(n.pid))
            raise ToolError(f"still running after {args.wait:g} s: {pids}")
        time.sleep(0.02)
    return 0


def _selected(args: argparse.Namespace, running: list[RunningNode]) -> list[RunningNode]:
    """Returns the nodes that all options select. Raises ToolError if there are none, or several of one id."""
    chosen, wanted = running, ""
    if args.config is not None:
        config = args.config.resolve()
        chosen = [node for node in chosen if node.config.resolve() == config]
        wanted = f" with the properties file {config}"
    if args.node_id is not None:
        if args.process_role is not None:
            print(
                "When both node-id and process-role are provided, the value for node-id will take precedence"
            )
        chosen = [node for node in chosen if node.node_id == args.node_id]
        wanted += f" with node.id {args.node_id}"
    elif args.process_role is not None:
        roles = frozenset(args.process_role.split(","))
        chosen = [node for node in chosen if node.roles == roles]
        wanted += f" with the role {args.process_role}"
    if not chosen:
        others = f". These run:{_lines(running)}" if running else ""
        raise ToolError(f"No kafka server{wanted} to stop{others}")
    if args.node_id is not None and len(chosen) > 1:
        raise ToolError(
            f"{len(chosen)} nodes have node.id {args.node_id}. Select one by --config:{_lines(chosen)}"
        )
    return chosen


def _lines(nodes: list[RunningNode]) -> str:
    return "".join(f"\n  {node.text}" for node in nodes)


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
            folder = (entry / "cwd").readlink()
            config = folder / names[0]
        except (OSError, ValueError, IndexError):
            continue
        yield _running_node(int(entry.name), folder, config, rest)


def _running_node(pid: int, folder: Path, config: Path, arguments: list[str]) -> RunningNode:
    """Describes a process that runs in a folder, by its properties file and its other arguments."""
    try:
        properties = node_properties.read_properties(config) | node_properties.parse_overrides(
            arguments[i + 1] for i, word in enumerate(arguments) if word == "--override"
        )
    except (OSError, ValueError, IndexError):
        return RunningNode(pid, config)
    text = properties.get("node.id", properties.get("broker.id", "")).strip()
    roles = (role.strip() for role in properties.get("process.roles", "").split(","))
    listed = properties.get("log.dirs") or properties.get("log.dir") or _DEFAULT_DIRECTORY
    names = [*listed.split(","), properties.get("metadata.log.dir", "")]
    return RunningNode(
        pid,
        config,
        int(text) if text.isdigit() else None,
        frozenset(role for role in roles if role),
        tuple(dict.fromkeys(folder / name.strip() for name in names if name.strip())),
    )


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
