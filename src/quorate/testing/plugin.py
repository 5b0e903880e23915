"""The pytest plugin: fixtures for Kafka clusters, and the nodes' logs in the reports of failed tests.

pytest imports this module in every run if Quorate is installed. So `quorate.testing.cluster` is imported
only when the first cluster starts.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quorate.testing.cluster import KafkaCluster

_LOG_LINES = 40


class ClusterFactory:
    """Starts clusters for one test and ends them after it.

    The fixture `kafka_cluster_factory` returns one.
    """

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory
        self.clusters: list[KafkaCluster] = []

    def __call__(
        self,
        controllers: int | None = None,
        brokers: int | None = None,
        *,
        separate_roles: bool = False,
        config: Mapping[str, object] | None = None,
        directory: str | os.PathLike[str] | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> KafkaCluster:
        """Starts a cluster. The arguments are those of `KafkaCluster`; by default it has one node with both
        roles.
        """
        # Not by quorate.lazy: pytest reads an attribute of everything that a plugin has, which would import
        # it.
        from quorate.testing.cluster import KafkaCluster

        cluster = KafkaCluster(
            controllers,
            brokers,
            separate_roles=separate_roles,
            config=config,
            directory=directory,
            snapshot=snapshot,
            folder=self._tmp_path_factory.mktemp("kafka"),
            timeout_s=timeout_s,
        )
        self.clusters.append(cluster)
        return cluster

    def close(self) -> None:
        """Ends all clusters of the factory."""
        for cluster in self.clusters:
            cluster.close()


@pytest.fixture(scope="session")
def kafka_cluster_config() -> Mapping[str, object]:
    """The configuration of `kafka_cluster`. A project overrides this fixture in its conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_cluster_config: Mapping[str, object]
) -> Iterator[KafkaCluster]:
    """A cluster of one node with both roles, which all tests of the session share.

    Under pytest-xdist, the tests of one worker share it. Tests use topics and groups of different names and
    leave the node in its state.
    """
    factory = ClusterFactory(tmp_path_factory)
    try:
        yield factory(config=kafka_cluster_config)
    finally:
        factory.close()


@pytest.fixture
def kafka_cluster_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    """Starts clusters, as in `kafka_cluster_factory(controllers=3, brokers=3, config={...})`.

    They end after the test.
    """
    factory = ClusterFactory(tmp_path_factory)
    try:
        yield factory
    finally:
        factory.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last log lines of the nodes to the report of a failed test."""
    report = yield
    if report.failed:
        for name, cluster in _clusters_of(item):
            for node_id in cluster.node_ids:
                state = "" if cluster.is_running(node_id) else ", not running"
                report.sections.append(
                    (f"log of {name}, node {node_id}{state}", cluster.log_tail(node_id, _LOG_LINES))
                )
    return report


def _clusters_of(item: pytest.Item) -> list[tuple[str, KafkaCluster]]:
    """Returns the names of the fixtures of a test that are clusters, with the clusters."""
    found: list[tuple[str, KafkaCluster]] = []
    for name, value in getattr(item, "funcargs", {}).items():
        clusters = value.clusters if isinstance(value, ClusterFactory) else [value]
        found += [(name, c) for c in clusters if _is_cluster(c)]
    return found


def _is_cluster(value: object) -> bool:
    return any(
        cls.__module__ == "quorate.testing.cluster" and cls.__name__ == "KafkaCluster"
        for cls in type(value).__mro__
    )
