"""Which tests belong into the quick run (`make check`): those without the marks `process` and `slow`.

`process` is set here: on everything in the folders that run whole nodes, on what needs Java or Spark, and on
what is found to start a process. `slow` is set by hand, on tests that take seconds by what they compute.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.garbage import freeze_garbage_collector
from tests.support.processes import refusing_processes, starts_processes

FOLDERS = tuple(f"{Path(__file__).parent / name}{os.sep}" for name in ("e2e", "interop", "testing"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick run does not import the tests in FOLDERS, nor the clients and servers that they import."""
    deselected = "not process" in config.option.markexpr and f"{collection_path}{os.sep}" in FOLDERS
    return True if deselected else None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            str(item.path).startswith(FOLDERS)
            or item.get_closest_marker("java")
            or item.get_closest_marker("spark")
            or (isinstance(item, pytest.Function) and starts_processes(item.function, *_fixtures(item)))
        ):
            item.add_marker(pytest.mark.process)
    # The files that take long come first. `scripts/test` gives them to its processes in this order, so that at
    # the end no process waits for one that has just begun a long file.
    long = {item.path for item in items if any(map(item.get_closest_marker, ("process", "slow")))}
    items.sort(key=lambda item: item.path not in long)


def _fixtures(item: pytest.Function) -> list[object]:
    return [fixture.func for found in item._fixtureinfo.name2fixturedefs.values() for fixture in found]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("process"):
        return (yield)
    with refusing_processes(item.nodeid):
        return (yield)


def pytest_collection_finish() -> None:
    freeze_garbage_collector()
