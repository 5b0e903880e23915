"""Finds the tests that start processes, so that a quick run can leave them out.

A test starts processes if its own code, a fixture that it uses, or a helper in `tests` or
`quorate.testing` that one of these names does so, that is, names the module `subprocess` or
`multiprocessing`, or starts a cluster. What Quorate's own code starts otherwise cannot be seen this
way, so `refusing_processes` watches each test that was not found.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType

import pytest

STARTS = {"subprocess", "multiprocessing", "quorate.testing.cluster"}
"""The names of modules. `ClusterFactory` imports the last one when it is called."""
FOLLOWED = ("tests.", "quorate.testing.")
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
"""What CPython reports to audit hooks when a process is started (PEP 578)."""

_start_nothing: dict[int, object] = {}
"""By its id what was found to start no process, so that nothing is looked at for each test anew."""

_refused_for: list[str] = []
_hooked = False


def starts_processes(*roots: object) -> bool:
    """Whether one of these functions, or what it names in `FOLLOWED`, names a module that starts
    processes."""
    seen: dict[int, object] = {}  # the objects too: an id is given again when its object is gone
    pending = list(roots)
    while pending:
        found = pending.pop()
        if id(found) in seen or id(found) in _start_nothing:
            continue
        seen[id(found)] = found
        if isinstance(found, str | ModuleType):
            if (found if isinstance(found, str) else found.__name__) in STARTS:
                return True
        elif isinstance(found, MethodType | staticmethod | classmethod):
            pending.append(found.__func__)
        elif isinstance(found, property):
            pending += [found.fget, found.fset]
        elif isinstance(found, type | FunctionType) and (found.__module__ or "").startswith(FOLLOWED):
            pending += [*vars(found).values(), *found.__bases__] if isinstance(found, type) else _named(found)
    _start_nothing.update(seen)
    return False


def _named(function: FunctionType) -> Iterator[object]:
    """What a function's code, and the code inside of it, takes from its module; what it imports itself
    by its name."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            yield function.__globals__.get(name, name)


@contextlib.contextmanager
def refusing_processes(test: str) -> Iterator[None]:
    """Fails the test, at the line that starts a process, until the end of the block."""
    global _hooked
    if not _hooked:  # an audit hook stays until Python ends
        sys.addaudithook(_on_event)
        _hooked = True
    _refused_for.append(test)
    try:
        yield
    finally:
        _refused_for.pop()


def _on_event(event: str, args: tuple[object, ...]) -> None:
    if _refused_for and event in EVENTS:
        test = _refused_for[-1]
        pytest.fail(
            f"{test} starts a process ({event} {args[0] if args else ''}): mark it with pytest.mark.process"
        )
