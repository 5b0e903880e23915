"""What every console script shares: one clear line on stderr for an error, exit codes, `--version` and
`--help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from quorate import __version__

KAFKA_VERSION = "4.1.1"
"""The release of Apache Kafka whose formats and protocol this one speaks."""


class ToolError(Exception):
    """Ends a tool with its message, one line, on stderr and a non-zero status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    """Usage errors end with status 1, as in Kafka's tools; `--version` is there for every tool."""

    def __init__(self, prog: str | None = None, description: str | None = None, **options: Any) -> None:
        super().__init__(prog=prog, description=description, **options)

    def add_version(self) -> None:
        self.add_argument(
            "--version",
            action="version",
            version=f"{__version__} (speaks Apache Kafka {KAFKA_VERSION})",
            help="print the version and end",
        )

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {message}\n")


def run(main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Runs a tool: its status; what it raises as one line on stderr, without a traceback.

    ToolError, ValueError, OSError and the errors of our own rooms end with status 1; Ctrl-C with 130; a reader that
    went away (`| head`) with 0. Anything else is a defect and keeps its traceback.
    """
    try:
        return main(sys.argv[1:] if argv is None else argv) or 0
    except ToolError as e:
        print(e, file=sys.stderr)
        return e.status
    except BrokenPipeError:
        sys.stderr.close()  # the interpreter would complain once more at its end
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as e:
        if not _expected(e):
            raise
        reason = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename else str(e)
        print(f"Error: {reason}", file=sys.stderr)
        return 1


def _expected(error: Exception) -> bool:
    if isinstance(error, (OSError, ValueError)):
        return True
    return type(error).__module__.startswith("quorate.")
