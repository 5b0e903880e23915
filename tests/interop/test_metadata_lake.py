"""The lake of a live quorum of Java controllers, followed through a failover, against the
controllers' log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.errors import KafkaError
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.tables.update import update
from tests.pipeline.asked_states import check_states
from tests.pipeline.conftest import LOG, lakes, spark
from tests.pipeline.oracle import images, log_records
from tests.support.cluster import wait_for
from tests.support.mixed import MixedQuorum

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

__all__ = ["lakes", "spark"]  # fixtures

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(600)]


def test_the_states_of_a_java_quorum_are_those_of_its_log(tmp_path: Path, lakes: Callable[[], Lake]) -> None:
    lake = lakes()
    quorum = MixedQuorum(tmp_path / "quorum", "jjj", brokers_of="j")
    quorum.format()
    with quorum.killed_at_the_end():
        quorum.start(180)
        with AdminClient(quorum.broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 3), NewTopic("payments", 1)]) == {
                "orders": None, "payments": None,
            }  # fmt: skip
            with closing(open_source(f"controllers://{quorum.bootstrap}")) as source:
                begun = update(lake, source, "java", report=lambda _: None)
                led = quorum.leader()
                led.kill()
                wait_for("another leader", lambda: quorum.leader() is not led, 60)
                assert admin.delete_topics(["orders"]) == {"orders": None}

                def created() -> bool:
                    try:
                        return admin.create_topics([NewTopic("orders", 2)]) == {"orders": None}
                    except KafkaError:
                        return False

                wait_for("the topic", created, 60)
                done = update(lake, source, "java", report=lambda _: None)
        assert done.end > begun.end
        log = quorum.leader().data / LOG
        wait_for("the log", lambda: max(offset for offset, _ in log_records(log)) >= done.end)
        every = [found for found in images(log_records(log)) if found[0] < done.end]
    epochs = {row["epoch"] for row in lake.read("events").select("epoch").distinct().collect()}
    assert len(epochs) > 1, "the log goes through a failover"
    ids = {row["topic_id"] for row in lake.read("topics", "java").where("topic = 'orders'").collect()}
    assert len(ids) == 2, "the topic has two histories"
    # All that changed something, but not the records without content, of which there are two a second.
    steps = [b for a, b in pairwise(every) if a[1].topics is not b[1].topics]
    check_states(lake, "java", [*steps[:: max(1, len(steps) // 6)], every[begun.end - 1], every[-1]])
