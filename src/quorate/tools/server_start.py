"""kafka-server-start: runs one node from a properties file."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_modules
from quorate.tools.command_line import Parser, ToolError, run

if TYPE_CHECKING:
    from quorate.node import logging_config, process_setup, properties
    from quorate.node import main as node_main
else:
    logging_config, process_setup, properties, node_main = lazy_modules(
        "quorate.node", "logging_config", "process_setup", "properties", "main"
    )


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser("kafka-server-start", "Runs a Kafka node: a broker, a controller, or both.")
    parser.add_version()
    parser.add_argument(
        "-daemon", "--daemon", dest="daemon", action="store_true", help="detach and run in the background"
    )
    parser.add_argument("-name", dest="name", help="of the daemon's log file (kafkaServer)")
    parser.add_argument("-loggc", action="store_true", help="accepted, and ignored: there is no JVM")
    parser.add_argument("config", type=Path, metavar="server.properties", help="the node's properties file")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="property=value",
        help="sets a property; repeatable",
    )
    parser.add_argument("--log-level", help="INFO, DEBUG, ...; also name=LEVEL,... (or QUORATE_LOG_LEVEL)")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="stop when standard input is closed: not to outlive a parent",
    )
    args = parser.parse_args(argv)

    process_setup.open_standard_streams()
    logging_config.configure(args.log_level)
    config = properties.load_config(args.config, args.override)
    if args.daemon:
        _daemonise(args.name or "kafkaServer")
        logging_config.configure(args.log_level)

    if args.until_input_ends:
        threading.Thread(target=_stop_at_end_of_input, name="parent-watch", daemon=True).start()
    status = node_main.run(config)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a node may be started without them
            with contextlib.suppress(OSError):
                stream.flush()
    # Everything is closed. A normal exit would free a large image object by object, which takes CPU time.
    os._exit(status)


def _stop_at_end_of_input() -> None:
    """Stops the node when standard input ends. The kernel closes the pipe even if the parent is killed."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _daemonise(name: str) -> None:
    """Continues in a child process without a terminal, whose output goes to LOG_DIR/NAME.out.

    The default of LOG_DIR is ./logs.
    """
    folder = Path(os.environ.get("LOG_DIR", "logs"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        out = os.open(folder / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as e:
        raise ToolError(
            f"cannot write {folder}/{name}.out: {e.strerror}; set LOG_DIR to a folder that can be written"
        ) from e
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


if __name__ == "__main__":
    sys.exit(main())
