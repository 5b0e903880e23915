"""The input of a plan from the tables of a lake equals the one from the running cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.client import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.planning import planned_cluster
from quorate.pipeline.tables.update import update
from quorate.planner.cluster import Cluster
from quorate.testing import KafkaCluster
from quorate.tools.plan.collect import collect

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


async def running(servers: str) -> Cluster:
    """Creates topics, and collects the partitions and brokers of the cluster."""
    async with AdminClient(servers) as admin:
        created = await admin.create_topics(
            [
                NewTopic("planned-b", assignment={0: [2, 1], 1: [1, 2], 2: [2, 1]}),
                NewTopic("planned-a", assignment={0: [2]}),
            ]
        )
        assert set(created.values()) == {None}
        return await collect(admin, 1.0)


def test_the_lake_gives_the_cluster_that_the_brokers_give(lake: Lake, brokers: KafkaCluster) -> None:
    expected = asyncio.run(running(brokers.bootstrap_servers))
    update(lake, open_source(str(brokers.data_directory(1))), "c", report=lambda _: None)
    sizes = {
        (expected.topics[topic], index): size
        for topic, index, size in zip(expected.topic_of, expected.index_of, expected.sizes, strict=True)
    }
    capacities = {broker.id: broker.capacity for broker in expected.brokers}
    found = planned_cluster(lake, "c", sizes=sizes, capacities=capacities)
    assert vars(found) == vars(expected)
    assert planned_cluster(lake, "c").sizes.tolist() == [0] * len(expected)
