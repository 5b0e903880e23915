"""Clusters whose topics have the same names share a lake, and their states stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata import records as r
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.tables.update import update
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text

from .asked_states import check_states
from .conftest import change, config, partition, topic, write_log
from .oracle import images, log_records

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(500)]

CLUSTERS = {"emea": 1, "apac": 2, "amer": 3}


def first(number: int) -> list[list[Data]]:
    """A log in which each cluster has the topics `orders` and `payments`, with states of its own."""
    orders, payments = bytes([number] * 16), bytes([number + 16] * 16)
    return [
        [topic("orders", orders), partition(orders, leader=number, isr=[number, 9]), partition(orders, 1)],
        [topic("payments", payments), partition(payments, leader_epoch=number)],
        [config("orders", "retention.ms", str(number)), config("payments", "retention.ms", "7")],
    ]


def later(number: int) -> list[list[Data]]:
    """In the first two clusters `orders` is deleted and created anew, at other offsets."""
    orders, anew = bytes([number] * 16), bytes([number + 32] * 16)
    found: list[list[Data]] = [[change(orders, leader=number + 3)] for _ in range(number)]
    if number < 3:
        found += [
            [r.RemoveTopicRecord(topic_id=orders)],
            [topic("orders", anew), partition(anew, leader=number)],
        ]
        found += [[config("orders", "cleanup.policy", "compact")]]
    return found


def test_three_clusters_with_the_same_topic_names_keep_their_states(lake: Lake, tmp_path: Path) -> None:
    for batches in (lambda n: first(n), lambda n: [*first(n), *later(n)]):
        for cluster, number in CLUSTERS.items():  # the runs of the clusters take turns
            write_log(tmp_path / cluster, 0, batches(number))
            update(lake, open_source(str(tmp_path / cluster)), cluster, report=lambda _: None)
    assert set(lake.clusters()) == set(CLUSTERS)
    for cluster in CLUSTERS:
        every = list(images(log_records(tmp_path / cluster)))
        check_states(lake, cluster, [every[2], every[7], every[-3], every[-1]])
    for cluster, number in CLUSTERS.items():
        rows = lake.read("topics", cluster).where("topic = 'orders'").collect()
        histories = {row["topic_id"]: (row["valid_from_offset"], row["valid_to_offset"]) for row in rows}
        old, anew = uuid_text(bytes([number] * 16)), uuid_text(bytes([number + 32] * 16))
        if number == 3:
            assert histories == {old: (0, None)}
        else:
            deleted = 7 + number  # after the seven records of `first` and the changes
            assert histories == {old: (0, deleted), anew: (deleted + 1, None)}
