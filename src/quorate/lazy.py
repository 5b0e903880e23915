"""Imports modules on first use.

A console script must start quickly, although one of its commands needs a module that takes long to
import (asyncio, librdkafka, a whole node). Such a module is declared at the top of the file, like any
other import:

    if TYPE_CHECKING:
        from quorate.node.local import cluster as local_cluster
    else:
        local_cluster = lazy_module("quorate.node.local.cluster")

Type checkers and the import contracts see a real import. At run time `local_cluster.LocalCluster`
imports the module. Imports inside functions are not used for this purpose.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """Stands for a module until one of its attributes is read. An error of the import is raised by that
    access."""

    _module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        # Attributes are not copied: a test may replace them in the module itself.
        module = self._module
        if module is None:
            module = self._module = import_module(self.__name__)
        return getattr(module, name)


def lazy_module(name: str) -> ModuleType:
    """The module of that name, imported when one of its attributes is first read."""
    return _LazyModule(name)


def lazy_modules(package: str, *names: str) -> list[ModuleType]:
    """Several modules of one package."""
    return [lazy_module(f"{package}.{name}") for name in names]
