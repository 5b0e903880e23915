"""The mark `process` is on every test that starts a process, and on no other one outside of the folders
for them."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from quorate.testing import ClusterFactory, KafkaCluster
from tests.support.cluster import CLUSTER_ID, Node, free_ports, running, wait_for
from tests.support.processes import refusing_processes, starts_processes


def directly() -> None:
    subprocess.run(["true"], check=True)


def by_a_helper() -> None:
    directly()


def by_a_closure() -> Callable[[], None]:
    return lambda: by_a_helper()


def by_an_import() -> None:
    import multiprocessing

    multiprocessing.active_children()


def by_a_node() -> Node:
    return Node.__new__(Node)


def by_a_running_node() -> Iterator[Node]:
    with running(by_a_node()) as node:
        yield node


@functools.lru_cache
def decorated() -> None:
    directly()


class Tools:
    @property
    def attribute(self) -> None:
        directly()

    @classmethod
    def factory(cls) -> None:
        directly()


class Derived(Tools):
    pass


def by_a_class() -> type[Tools]:
    return Derived


def by_a_cluster() -> None:
    with KafkaCluster():
        pass


def by_a_factory(factory: ClusterFactory) -> None:
    ClusterFactory.__call__(factory)


def not_at_all() -> tuple[str, list[int]]:
    wait_for("nothing", lambda: True)
    return CLUSTER_ID, free_ports(1)


STARTING = (
    by_a_cluster,
    by_a_factory,
    directly,
    by_a_helper,
    by_a_closure,
    by_an_import,
    by_a_node,
    by_a_running_node,
    decorated.__wrapped__,
    by_a_class,
)


@pytest.mark.parametrize("function", STARTING)
def test_what_starts_a_process_is_found(function: Callable[..., object]) -> None:
    assert starts_processes(function)


def test_what_only_shares_a_file_with_it_is_not() -> None:
    assert not starts_processes(not_at_all)


def test_a_process_that_our_own_code_starts_fails_a_test_that_is_not_marked() -> None:
    """However it is started: a name that is put together is nothing that can be found in the code."""
    module = importlib.import_module("sub" + "process")
    with (
        refusing_processes("this test"),
        pytest.raises(pytest.fail.Exception, match="this test starts a process"),
    ):
        module.run(["true"], check=True)
    with refusing_processes("this test"), pytest.raises(pytest.fail.Exception, match=r"os\.fork"):
        os.fork()


def test_every_test_is_watched_that_is_not_marked() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"test_every_test_is_watched_that_is_not_marked starts a process"
    ):
        os.posix_spawn("/bin/true", ["true"], {})
