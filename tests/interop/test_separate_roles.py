"""A broker beside a controller in another process, of either implementation: registration, forwarding,
shutdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node
from tests.support.ledger import Ledger

pytestmark = pytest.mark.timeout(120)

OLD, NEW = java.VERSIONS
PAIRS = [
    pytest.param("quorate", "quorate", OLD, id="ours and ours"),
    pytest.param("quorate", "java", OLD, id="our controller, a Java broker", marks=pytest.mark.java),
    pytest.param("java", "quorate", OLD, id="a Java controller, our broker", marks=pytest.mark.java),
]
NEW_PAIRS = [
    pytest.param("quorate", "java", NEW, id="our controller, a broker of 4.4", marks=pytest.mark.java),
    pytest.param("java", "quorate", NEW, id="a controller of 4.4, our broker", marks=pytest.mark.java),
]


def make_pair(tmp_path: Path, controller_impl: str, broker_impl: str, kafka: str) -> tuple[Node, Node]:
    release = None
    if "java" in (controller_impl, broker_impl):
        java.require_java(kafka)
        release = kafka[:3]
    often: dict[str, object] = {"metadata.log.max.record.bytes.between.snapshots": 1000}
    controller = Node(
        tmp_path / "controller",
        node_id=1,
        roles="controller",
        impl=controller_impl,
        extra=often,
        release=release,
        kafka=kafka,
    )
    broker = Node(
        tmp_path / "broker",
        node_id=2,
        roles="broker",
        impl=broker_impl,
        voters=controller.voters,
        extra=often,
        kafka=kafka,
    )
    return controller, broker


@pytest.mark.parametrize(("controller_impl", "broker_impl", "kafka"), [*PAIRS, *NEW_PAIRS])
def test_a_broker_works_with_a_controller_in_another_process(
    tmp_path: Path, controller_impl: str, broker_impl: str, kafka: str
) -> None:
    controller, broker = make_pair(tmp_path, controller_impl, broker_impl, kafka)
    ledger = Ledger(patience_s=10 if broker_impl == "java" else 0)
    try:
        controller.format()
        broker.format()
        controller.start()
        broker.start()
        admin = broker.admin()
        ledger.create(admin, "events", 3)
        ledger.add_partitions(admin, "events", 4)
        ledger.set_config(admin, "events", "retention.ms", "86400000")
        ledger.produce(broker.bootstrap, "events", 50, "first", **{"enable.idempotence": True})
        ledger.commit(broker.bootstrap, "readers", "events", 50)
        ledger.verify(admin, broker.bootstrap)

        assert broker.stop() in (0, 143)  # through controlled shutdown
        broker.start()
        ledger.verify(broker.admin(), broker.bootstrap)

        assert controller.stop() in (0, 143)
        controller.start()
        admin = broker.admin()
        ledger.create(admin, "later", 1)  # the broker finds the controller again by itself
        ledger.produce(broker.bootstrap, "later", 10, "second")
        ledger.verify(admin, broker.bootstrap)
        for node in (controller, broker):  # each writes its own snapshots, or its log would only grow
            if node.impl == "quorate":
                assert list((node.data / "__cluster_metadata-0").glob("*[1-9]-*.checkpoint")), node.roles
    except BaseException:
        print(controller.log_tail(60), broker.log_tail(60), sep="\n----\n")
        raise
    finally:
        broker.kill()
        controller.kill()
