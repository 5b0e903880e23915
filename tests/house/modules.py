"""Reads which module imports which from the source files alone; nothing is imported.

An import under TYPE_CHECKING or inside a function counts like any other one: it is written because
one module knows the other, and whoever reads or moves one of the two needs both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def module_files(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Every module below these packages of root, by its dotted name; a package is its `__init__.py`."""
    files = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported_names(module: str, path: Path) -> Iterator[str]:
    """The dotted name of everything that a module imports, anywhere in its file.

    `from a import b` gives `a.b` only: the reader knows whether `b` is a module of its own.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def used_attributes(path: Path, module: str) -> set[str]:
    """What a file uses of a module that it imports whole, as `module.name`; the module alone if nothing
    is."""
    names = {
        f"{module}.{node.attr}"
        for node in _nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }
    return names or {module}


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))


def import_graph(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each module the modules among `files` that it imports."""

    def imported_modules(module: str, path: Path) -> Iterator[str]:
        for name in imported_names(module, path):
            package = name.rpartition(".")[0]
            if name in files or package in files:
                yield name if name in files else package

    return {module: set(imported_modules(module, path)) - {module} for module, path in files.items()}


def import_circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules of which each reaches every other one by its imports."""
    reached = {module: _reached_from(graph, module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def _reached_from(graph: Mapping[str, set[str]], module: str) -> set[str]:
    """What a module imports, directly or through others; the module itself is in it if a circle leads
    back."""
    reached: set[str] = set()
    pending = [module]
    while pending:
        found = graph[pending.pop()] - reached
        reached |= found
        pending.extend(found)
    return reached
