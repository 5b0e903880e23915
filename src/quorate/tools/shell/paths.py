"""Paths with wildcards: `*`, `?`, `{a,b}` and `\\` before a character that stands for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from quorate.dataclass import dataclass
from quorate.tools.shell.nodes import Directory, Node


@dataclass(slots=True, frozen=True)
class Found:
    """A node and the names that lead to it from the root."""

    names: tuple[str, ...]
    node: Node

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else "/"

    @property
    def path(self) -> str:
        return "/" + "/".join(self.names)


def components(path: str, working_directory: str) -> list[str]:
    """Returns the names in a path from the root, without `.` and `..`."""
    found: list[str] = []
    for name in (path if path.startswith("/") else f"{working_directory}/{path}").split("/"):
        if name == "..":
            del found[-1:]
        elif name not in ("", "."):
            found.append(name)
    return found


def find(root: Directory, path: str, working_directory: str) -> Iterator[Found]:
    """Yields the nodes that match a path, in the order of their names."""
    yield from _walk(components(path, working_directory), 0, Found((), root))


def _walk(names: Sequence[str], depth: int, here: Found) -> Iterator[Found]:
    if depth == len(names):
        yield here
        return
    if not isinstance(here.node, Directory):
        return
    pattern = compiled(names[depth])
    matches = (
        [names[depth]] if pattern is None else [n for n in here.node.sorted_names() if pattern.fullmatch(n)]
    )
    for name in matches:
        child = here.node.child(name)
        if child is not None:
            yield from _walk(names, depth + 1, Found((*here.names, name), child))


def compiled(glob: str) -> re.Pattern[str] | None:
    """Returns the expression of a name with wildcards, or None for a name without, or with an open group."""
    out: list[str] = []
    literal, group, position = True, False, 0
    while position < len(glob):
        char = glob[position]
        position += 1
        if char == "\\" and position < len(glob):
            out.append(re.escape(glob[position]))
            position += 1
        elif char in "?*":
            literal = False
            out.append("." if char == "?" else ".*")
        elif char == "{" and not group:
            literal, group = False, True
            out.append("(?:(?:")
        elif char == "{":
            return None
        elif char == "," and group:
            out.append(")|(?:")
        elif char == "}" and group:
            group = False
            out.append("))")
        else:
            out.append(re.escape(char))
    return None if literal or group else re.compile("".join(out), re.DOTALL)


def completions(root: Directory, prefix: str, working_directory: str) -> list[str]:
    """Returns the paths that a prefix may become. Those of directories end with a slash."""
    names = components(prefix, working_directory)
    last = "" if prefix == "" or prefix.endswith("/") or not names else names.pop()
    directory: Node | None = root
    for name in names:
        directory = directory.child(name) if isinstance(directory, Directory) else None
    if not isinstance(directory, Directory):
        return []
    before = prefix[: prefix.rfind("/") + 1]
    found = []
    for name in directory.sorted_names():
        if name.startswith(last):
            slash = "/" if isinstance(directory.child(name), Directory) else ""
            found.append(f"{before}{name}{slash}")
    return found
