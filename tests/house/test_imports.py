"""No module imports itself through others, and what decides reads no clock and does no I/O.

The contracts in pyproject.toml say which package may import which; these tests look inside of the packages.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from tests.house.modules import import_circles, import_graph, imported_names, module_files, used_attributes

ROOT = Path(__file__).parents[2]
SOURCES = {ROOT / "src": ("quorate",), ROOT: ("simulation",)}


PURE_ROOMS = (
    "quorate.records",
    "quorate.metadata.image",
    "quorate.planner",
    "quorate.security",
    "quorate.raft.core",
    "quorate.controller.handlers",
    "quorate.controller.replication",
    "quorate.broker.coordinators.group.classic",
    "quorate.broker.coordinators.group.offset_metadata_manager",
    "quorate.broker.coordinators.group.shard",
)
"""Modules, and packages with all that is in them, that take time, randomness, files and peers as arguments.
A module that becomes a package of its name, or moves into one that is listed, stays held to it."""

IMPURE_MODULES = {"asyncio", "os", "random", "socket", "ssl", "subprocess", "threading", "time", "uvloop"}
ALLOWED = {"random.Random"}  # the type of a generator that is handed in


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return {
        name: path
        for root, packages in SOURCES.items()
        for name, path in module_files(root, packages).items()
    }


def test_no_circle_of_imports(files: dict[str, Path]) -> None:
    found = sorted(_described(circle) for circle in import_circles(import_graph(files)))
    assert not found, "\n".join(["circles of imports", *found])


def _described(circle: frozenset[str]) -> str:
    """The package that all of a circle is in, and its modules from there on."""
    names = [module.split(".") for module in sorted(circle)]
    shared = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False)))
    return (
        f"{'.'.join(names[0][:shared])}: {' '.join('.'.join(name[shared:]) or '__init__' for name in names)}"
    )


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_has_no_clock_no_randomness_and_no_input_or_output(
    room: str, files: dict[str, Path]
) -> None:
    modules = {name: path for name, path in files.items() if name == room or name.startswith(f"{room}.")}
    assert modules, f"{room} is not there any more: correct PURE_ROOMS"
    assert not {
        f"{module}: {name}" for module, path in modules.items() for name in impure_names(module, path)
    }


def impure_names(module: str, path: Path) -> set[str]:
    """What a module takes from IMPURE_MODULES; an import of a whole module counts with all that is used
    of it."""
    names = set()
    for name in imported_names(module, path):
        if name.partition(".")[0] in IMPURE_MODULES:
            names |= used_attributes(path, name) if name in IMPURE_MODULES else {name}
    return names - ALLOWED


# --- the reader itself ----------------------------------------------------------------------------


def written(root: Path, texts: dict[str, str]) -> dict[str, Path]:
    """A package `p` of these files; its modules by name."""
    for name, text in {"__init__": "", **texts}.items():
        path = root / "p" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return module_files(root, ["p"])


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "import p.a as other",
        "from p import a",
        "from p.a import name",
        "from . import a",
        "from .a import name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import Name",
        "def late():\n    from p.a import name",
        "class C:\n    def late(self):\n        import p.a",
    ],
)
def test_a_circle_is_found_however_the_import_is_written(back: str, tmp_path: Path) -> None:
    files = written(tmp_path, {"a": "import p.b", "b": "from p.c import x", "c": back, "d": "import p.a"})
    assert import_circles(import_graph(files)) == {frozenset({"p.a", "p.b", "p.c"})}


def test_a_package_belongs_to_a_circle_only_by_what_its_init_imports(tmp_path: Path) -> None:
    files = written(tmp_path, {"__init__": "from .a import x", "a": "from . import b", "b": "import json"})
    assert import_circles(import_graph(files)) == set()
    files = written(tmp_path, {"__init__": "from .a import x", "b": "from p import x"})
    assert import_circles(import_graph(files)) == {frozenset({"p", "p.a", "p.b"})}
    assert _described(frozenset({"p", "p.a", "p.b"})) == "p: __init__ a b"


def test_circles_that_only_look_at_each_other_are_two(tmp_path: Path) -> None:
    texts = {
        "a": "import p.b",
        "b": "import p.a\nimport p.s.c",
        "s/__init__": "",
        "s/c": "from . import d",
        "s/d": "from .c import x",
    }
    circles = import_circles(import_graph(written(tmp_path, texts)))
    assert {_described(circle) for circle in circles} == {"p: a b", "p.s: c d"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import asyncio", {"asyncio"}),
        ("def late():\n    import time\n    return time.monotonic()", {"time.monotonic"}),
        ("from os import path, urandom", {"os.path", "os.urandom"}),
        ("import asyncio.events", {"asyncio.events"}),
        ("import random\nrng: random.Random", set()),
        ("from random import Random", set()),
        ("import random\nrng: random.Random = random.SystemRandom()", {"random.SystemRandom"}),
        ("import timeit, json\nfrom p import time", set()),
    ],
)
def test_what_is_not_pure_is_found(text: str, found: set[str], tmp_path: Path) -> None:
    assert impure_names("p.a", written(tmp_path, {"a": text})["p.a"]) == found
