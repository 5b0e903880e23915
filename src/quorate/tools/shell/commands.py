"""The commands of the shell."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from quorate.dataclass import dataclass
from quorate.tools.shell.columns import in_columns
from quorate.tools.shell.nodes import Directory, File, Node
from quorate.tools.shell.paths import Found, find


class Output(Protocol):
    """What prints the results of commands."""

    def line(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...


@dataclass(slots=True)
class State:
    """The tree, and where the shell is in it. `tree` returns the newest one."""

    tree: Callable[[], Directory]
    output: Output
    working_directory: str = "/"
    width: int | None = None
    """The width of the terminal; None prints one name a line."""
    history: Callable[[], Sequence[str]] = tuple
    notice: Callable[[], str | None] = lambda: None
    """Returns a text to print before the next command, such as that the quorum is away."""
    ended: bool = False


@dataclass(slots=True, frozen=True)
class Command:
    """A command: its work, help text and arguments."""

    run: Callable[[State, argparse.Namespace], None]
    description: str
    argument: str | None = None
    nargs: str = "*"
    help: str = ""
    takes_paths: bool = False
    shell_only: bool = False


class CommandError(Exception):
    """Wrong usage of a command."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(message)


def _ls(state: State, args: argparse.Namespace) -> None:
    files: list[str] = []
    directories: list[tuple[str, list[str]]] = []
    for path in [target for target in args.targets if target] or ["."]:
        for found in _found(state, "ls", path, "no such file or directory."):
            if isinstance(found.node, Directory):
                directories.append((found.name, found.node.sorted_names()))
            else:
                files.append(found.name)
    _print_names(state, "", files)
    titled = bool(files) or len(directories) > 1
    first = not files
    for name, children in directories:
        _print_names(state, f"{'' if first else chr(10)}{name}:" if titled else "", children)
        first = False


def _print_names(state: State, title: str, names: Sequence[str]) -> None:
    if names:
        if title:
            state.output.line(title)
        for line in in_columns(names, state.width):
            state.output.line(line)


def _cat(state: State, args: argparse.Namespace) -> None:
    for path in args.targets:
        for found in _found(state, "cat", path, "No such file or directory."):
            if isinstance(found.node, File):
                state.output.line(found.node.text)
            else:
                state.output.error(f"cat: {path}: Is a directory")


def _tree(state: State, args: argparse.Namespace) -> None:
    for path in args.targets:
        for found in _found(state, "tree", path, "No such file or directory."):
            _print_tree(state.output, found.node, 0)


def _print_tree(output: Output, node: Node, depth: int) -> None:
    if isinstance(node, File):
        output.line(f"{'  ' * depth}{node.text}")
        return
    for name in node.sorted_names():
        output.line(f"{'  ' * depth}{name}:")
        child = node.child(name)
        if child is not None:
            _print_tree(output, child, depth + 1)


def _find(state: State, args: argparse.Namespace) -> None:
    for path in [path for path in args.paths if path] or ["."]:
        for found in _found(state, "find", path, "no such file or directory."):
            _print_paths(state.output, path, found.node)


def _print_paths(output: Output, path: str, node: Node) -> None:
    output.line(path)
    if isinstance(node, Directory):
        for name in node.sorted_names():
            child = node.child(name)
            if child is not None:
                _print_paths(output, f"{path}{name}" if path == "/" else f"{path}/{name}", child)


def _found(state: State, command: str, path: str, missing: str) -> list[Found]:
    found = list(find(state.tree(), path, state.working_directory))
    if not found:
        state.output.error(f"{command}: {path}: {missing}")
    return found


def _cd(state: State, args: argparse.Namespace) -> None:
    target = args.target or "/"
    for found in _found(state, "cd", target, "no such directory."):
        if isinstance(found.node, Directory):
            state.working_directory = found.path
        else:
            state.output.error(f"cd: {target}: not a directory.")


def _pwd(state: State, _args: argparse.Namespace) -> None:
    state.output.line(state.working_directory)


def _history(state: State, args: argparse.Namespace) -> None:
    lines = list(enumerate(state.history()))
    shown = lines if args.entries is None else lines[len(lines) - max(0, min(args.entries, len(lines))) :]
    for number, line in shown:
        state.output.line(f"{number: 5d}  {line}")


def _help(state: State, _args: argparse.Namespace) -> None:
    state.output.line("Welcome to the metadata shell.\n")
    for name, command in COMMANDS.items():
        state.output.line(f"  {name:<9} {command.description}")


def _man(state: State, args: argparse.Namespace) -> None:
    command = COMMANDS.get(args.cmd)
    if command is None:
        state.output.error(f"man: unknown command {args.cmd}. Type help to get a list of commands.")
        return
    text = io.StringIO()
    _parser(args.cmd).print_help(text)
    state.output.line(f"{args.cmd}: {command.description}\n\n{text.getvalue().rstrip()}")


def _exit(state: State, _args: argparse.Namespace) -> None:
    state.ended = True


COMMANDS = {
    "cat": Command(
        _cat, "Show the contents of metadata files.", "targets", "+", "The metadata files to display.", True
    ),
    "cd": Command(
        _cd, "Set the current working directory.", "target", "?", "The directory to change to.", True, True
    ),
    "exit": Command(_exit, "Exit the metadata shell.", shell_only=True),
    "find": Command(
        _find, "Search for nodes in the directory hierarchy.", "paths", "*", "The paths to start at.", True
    ),
    "help": Command(_help, "Display this help message.", shell_only=True),
    "history": Command(
        _history, "Print command history.", "entries", "?", "The number of entries to show.", shell_only=True
    ),
    "ls": Command(_ls, "List metadata nodes.", "targets", "*", "The metadata node paths to list.", True),
    "man": Command(
        _man,
        "Show the help text for a specific command.",
        "cmd",
        "",
        "The command to get help text for.",
        shell_only=True,
    ),
    "pwd": Command(_pwd, "Print the current working directory.", shell_only=True),
    "tree": Command(
        _tree,
        "Show the contents of metadata nodes in a tree structure.",
        "targets",
        "+",
        "The metadata nodes to display.",
        True,
    ),
}
"""The commands by name, in the order of `help`."""


def _parser(name: str) -> argparse.ArgumentParser:
    command = COMMANDS[name]
    parser = _Parser(prog=name, add_help=False)
    if command.argument is not None:
        parser.add_argument(
            command.argument,
            nargs=command.nargs or None,
            type=int if command.argument == "entries" else str,
            help=command.help,
        )
    return parser


def execute(state: State, words: Sequence[str], *, in_shell: bool) -> None:
    """Runs a command. Its errors are printed."""
    words = [word for word in words if word]
    if not words:
        return
    name = words[0]
    known = [known for known, command in COMMANDS.items() if in_shell or not command.shell_only]
    if name not in known:
        state.output.error(f"Unknown command: {name} (one of {', '.join(known)})")
        return
    try:
        args = _parser(name).parse_args(list(words[1:]))
    except CommandError as error:
        state.output.error(f"{name}: {error}")
        return
    COMMANDS[name].run(state, args)
