"""`quorate up`: runs a local cluster until Ctrl-C.

One node runs in this process. Several run in processes of their own, which end with this one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    import asyncio
    import logging

    from quorate.node import logging_config, properties
    from quorate.node import main as node_main
    from quorate.node.local import cluster as local_cluster
    from quorate.node.local import processes as local_processes

    Nodes = dict[local_processes.NodeProcess, local_cluster.LocalNode]
else:
    asyncio, logging = lazy_module("asyncio"), lazy_module("logging")
    local_cluster, local_processes = lazy_modules("quorate.node.local", "cluster", "processes")
    logging_config, properties, node_main = lazy_modules(
        "quorate.node", "logging_config", "properties", "main"
    )

DEFAULT_FOLDER = "quorate-data"

_UP = """Formats new directories, starts every node, prints the addresses, and stops all nodes on Ctrl-C.
Started again with the same folder, it continues with the same data."""


def add_up(commands: Any) -> None:
    """Adds the command to the subparsers of `quorate`."""
    up = commands.add_parser("up", help="run a complete local cluster until Ctrl-C", description=_UP)
    up.add_argument("--controllers", type=int, default=1, help="how many controllers (1)")
    up.add_argument("--brokers", type=int, default=1, help="how many brokers (1); the first nodes are both")
    up.add_argument("--data", type=Path, help=f"the folder that keeps the data (./{DEFAULT_FOLDER})")
    up.add_argument(
        "--ephemeral", action="store_true", help="keep nothing: a temporary folder, removed at the end"
    )
    up.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on and to be reached by (127.0.0.1)"
    )
    up.add_argument(
        "--port", type=int, default=9092, help="the first broker's port (9092); others follow above it"
    )
    up.add_argument(
        "--http", type=int, default=0, metavar="PORT",
        help="serve /metrics and /health: the first node at PORT, the others above it (nowhere)",
    )  # fmt: skip
    up.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="property=value",
        help="sets a property on every node",
    )
    up.add_argument("--verbose", action="store_true", help="show the nodes' logs here too")
    up.add_argument("--log-level", help="INFO, DEBUG, ... (or QUORATE_LOG_LEVEL)")
    up.set_defaults(run=_up)


def _up(args: argparse.Namespace) -> int:
    if args.ephemeral and args.data is not None:
        raise ToolError("--ephemeral keeps nothing, --data names where to keep it: choose one")
    for number in (signal.SIGTERM, signal.SIGHUP):  # until a node installs its own handlers
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda n, _: sys.exit(128 + n))
    temporary = tempfile.TemporaryDirectory(prefix="quorate-") if args.ephemeral else None
    folder = Path(temporary.name) if temporary is not None else (args.data or Path(DEFAULT_FOLDER))
    cluster = local_cluster.LocalCluster(
        folder,
        args.controllers,
        args.brokers,
        args.host.strip("[]"),
        args.port,
        args.http,
        properties.parse_overrides(args.override),
    )
    try:
        cluster.prepare(lambda text: None)
        if len(cluster.nodes) == 1:
            return _run_here(cluster, args)
        return _run_children(cluster, args)
    except local_cluster.LocalClusterError as e:
        raise ToolError(str(e)) from e
    finally:
        if temporary is not None:
            temporary.cleanup()


def _since_start() -> float:
    """Returns the seconds since the start of this process, which include the start of the interpreter."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.process_time()


def _announce(cluster: local_cluster.LocalCluster, kept: bool) -> None:
    count = len(cluster.nodes)
    kind = "one node, broker and controller"
    if count > 1:
        some = ((cluster.brokers, "broker"), (cluster.controllers, "controller"))
        kind = ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for n, what in some)
    shown = os.path.relpath(cluster.folder) if kept else f"{cluster.folder} (removed at the end)"
    first = cluster.bootstrap.split(",")[0]
    print(f"Kafka is up: {kind}, ready in {_since_start():.2f} s")
    print(f"  bootstrap servers   {cluster.bootstrap}")
    if cluster.http:
        print(f"  /metrics, /health   {cluster.http}")
    print(f"  data and logs       {shown}")
    print(f"  try                 kafka-topics --bootstrap-server {first} --create --topic hello")
    print(f"                      kafka-console-producer --bootstrap-server {first} --topic hello")
    print(
        f"                      kafka-console-consumer --bootstrap-server {first} --topic hello "
        "--from-beginning"
    )
    print("  stop                Ctrl-C", flush=True)


def _run_here(cluster: local_cluster.LocalCluster, args: argparse.Namespace) -> int:
    """Runs the only node in this process and returns its exit status. Raises ToolError if it fails."""
    node = cluster.nodes[0]
    if args.verbose:
        logging_config.configure(args.log_level)
    else:
        logging_config.configure(args.log_level, node.log_file.open("a", buffering=1))
    config = properties.load_config(node.properties_file)
    last_error: list[str] = []

    class LastError(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            last_error[:] = [record.getMessage()]

    handler = LastError(logging.CRITICAL)
    logging.getLogger().addHandler(handler)
    status = node_main.run(config, on_ready=lambda: _announce(cluster, not args.ephemeral))
    if status and not args.verbose:
        reason = last_error[0] if last_error else "the node ended"
        raise ToolError(f"{reason} (log: {node.log_file})", status)
    return status


def _run_children(cluster: local_cluster.LocalCluster, args: argparse.Namespace) -> int:
    """Runs every node in a process of its own and returns the exit status."""
    children: Nodes = {}
    stopping: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if stopping:
            for child in children:
                child.kill()
        stopping.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    level = ["--log-level", args.log_level] if args.log_level else []
    for node in cluster.nodes:
        arguments = ["--until-input-ends", *level, str(node.properties_file)]
        with node.log_file.open("ab") as out:
            child = local_processes.start_process(
                "quorate.tools.server_start", arguments, None if args.verbose else out
            )
        children[child] = node
    running = dict(children)
    status = 0
    try:
        if not stopping:
            _wait_ready(cluster, running, stopping)
        if running and not stopping:
            _announce(cluster, not args.ephemeral)
        while running and not stopping:
            _drop_stopped(running)
            time.sleep(0.2)
        if not running:
            print("Every node was stopped", flush=True)
    except ToolError as e:
        print(e, file=sys.stderr)
        status = 1
    local_processes.stop_processes(children)
    return status


def _drop_stopped(running: Nodes) -> None:
    """Removes the nodes that were stopped with status 0 and prints their names. Raises ToolError if a node
    failed.
    """
    for child, node in [(c, n) for c, n in running.items() if c.poll() is not None]:
        if child.returncode:
            raise ToolError(f"node {node.node_id} ended with status {child.returncode}: {_last_error(node)}")
        del running[child]
        if running:
            others = "the others run on" if len(running) > 1 else "the other runs on"
            again = f"kafka-server-start {os.path.relpath(node.properties_file)}"
            print(f"Node {node.node_id} was stopped; {others}. To start it again: {again}", flush=True)


def _wait_ready(
    cluster: local_cluster.LocalCluster,
    running: Nodes,
    stopping: list[int],
) -> None:
    """Waits until every broker is registered that was not stopped meanwhile. Raises ToolError if a node
    fails.
    """

    async def ready() -> bool:
        ports = [n.broker_port for n in running.values() if n.broker]
        return bool(ports) and len(await local_processes.brokers_known_at(cluster.host, ports[0])) >= len(
            ports
        )

    async def wait() -> None:
        while running and not stopping and not await ready():
            _drop_stopped(running)
            await asyncio.sleep(0.02)

    asyncio.run(wait())


def _last_error(node: local_cluster.LocalNode) -> str:
    lines = node.log_file.read_text(errors="replace").splitlines()
    errors = [line for line in lines if " FATAL " in line or " ERROR " in line] or lines[-1:]
    return f"{errors[-1] if errors else 'it logged nothing'} (log: {node.log_file})"
