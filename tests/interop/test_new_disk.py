"""A broker whose disk was replaced leads again: with controller and broker of either implementation."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import NewTopic

from tests.support import java
from tests.support.cluster import Node, wait_for
from tests.support.ledger import Ledger, read_partition

pytestmark = [pytest.mark.timeout(240), pytest.mark.java]


@pytest.mark.parametrize(
    ("controller_impl", "broker_impl"),
    [
        pytest.param("java", "quorate", id="a Java controller, our broker"),
        pytest.param("quorate", "java", id="our controller, a Java broker"),
    ],
)
def test_a_broker_with_a_new_disk_leads_again(tmp_path: Path, controller_impl: str, broker_impl: str) -> None:
    java.require_java()
    controller = Node(tmp_path / "c", node_id=1, roles="controller", impl=controller_impl, release="4.1")
    first = Node(tmp_path / "b101", node_id=101, roles="broker", voters=controller.voters)
    second = Node(tmp_path / "b102", node_id=102, roles="broker", voters=controller.voters, impl=broker_impl)
    with contextlib.ExitStack() as stack:
        for node in (controller, first, second):
            node.format()
            stack.callback(node.kill)
            node.start()
        admin = first.admin()

        def partition():  # type: ignore[no-untyped-def]
            return admin.list_topics("t", timeout=5).topics["t"].partitions[0]

        topic = NewTopic("t", 1, replica_assignment=[[102, 101]])
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)
        wait_for("both replicas to be in sync", lambda: sorted(partition().isrs) == [101, 102])
        ledger = Ledger(partitions={"t": 1})
        ledger.produce(f"{first.bootstrap},{second.bootstrap}", "t", 50, "x")
        assert second.stop() in (0, 143)
        wait_for("the other one to lead", lambda: partition().leader == 101)
        shutil.rmtree(second.data)
        second.format()
        second.start()
        wait_for("it to be in sync again", lambda: sorted(partition().isrs) == [101, 102])

        def elected() -> bool:
            """A Java broker assigns its directories up to a moment after it has joined the ISR."""
            with contextlib.suppress(KafkaException):
                admin.elect_leaders(ElectionType.PREFERRED, None).result(20)
            return bool(partition().leader == 102)

        wait_for("the preferred leader", elected, every_s=0.2)
        assert read_partition(second.bootstrap, "t", 0) == ledger.records["t", 0]
