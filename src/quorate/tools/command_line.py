"""Parts of every console script: the parser of options, the exit status and message of an error, printable
text."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from quorate import __version__

KAFKA_VERSION = "4.4.0"
"""The release of Apache Kafka whose formats and protocol this implementation has."""


class ToolError(Exception):
    """Ends a tool with a non-zero status. `run` prints its message on stderr."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class ParserCreated(BaseException):
    """Ends a tool in `parser_of` before it parses its arguments."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """A parser of options that ends with status 1 on wrong usage, as Kafka's tools do."""

    inspected: ClassVar[bool] = False
    """Whether `parser_of` wants the parser, instead of a run of the tool."""

    def __init__(self, prog: str | None = None, description: str | None = None, **options: Any) -> None:
        super().__init__(prog=prog, description=description, **options)

    def add_version(self) -> None:
        self.add_argument(
            "--version",
            action="version",
            version=f"{__version__} (speaks Apache Kafka {KAFKA_VERSION})",
            help="print the version and end",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if Parser.inspected:
            raise ParserCreated(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {message}\n")


def printable(text: str) -> str:
    """The text, in which characters that would change the terminal are escaped."""
    return text if text.isprintable() else "".join([c if c.isprintable() else ascii(c)[1:-1] for c in text])


def parser_of(main: Callable[[Sequence[str]], int]) -> Parser:
    """Returns the parser of a tool, which is not run. `main` is the function of that name of its module."""
    Parser.inspected = True
    try:
        main(["--help"])
    except ParserCreated as created:
        return created.parser
    finally:
        Parser.inspected = False
    raise AssertionError("the tool parsed no arguments")


def run(main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Runs a tool and returns its exit status. An expected error is printed as one line on stderr.

    The status is 1 after ToolError, ValueError, OSError and the errors of this package, 130 after Ctrl-C, and
    0 if the reader of the output has closed it (`| head`). Other exceptions are bugs and are not caught.
    """
    try:
        return main(sys.argv[1:] if argv is None else argv) or 0
    except ToolError as e:
        print(e, file=sys.stderr)
        return e.status
    except BrokenPipeError:
        sys.stderr.close()  # otherwise the interpreter reports the error again when it exits
        return 0
    except KeyboardInterrupt:
        # What was interrupted half-way, such as an event loop in its constructor, is not reported when it is
        # freed.
        warnings.simplefilter("ignore")
        sys.unraisablehook = lambda _: None
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
