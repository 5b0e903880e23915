"""A broker of one implementation beside a controller of the other, under a static quorum (kraft.version
0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node, wait_for
from tests.support.ledger import Ledger

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]


@pytest.mark.parametrize(("controller_impl", "broker_impl"), [("quorate", "java"), ("java", "quorate")])
def test_a_broker_of_one_serves_under_a_controller_of_the_other(
    tmp_path: Path, controller_impl: str, broker_impl: str
) -> None:
    java.require_java()
    controller = Node(
        tmp_path / "controller",
        node_id=1,
        roles="controller",
        impl=controller_impl,
        static=True,
        release="4.1",
    )
    voters = {1: controller.controller_port}
    broker = Node(
        tmp_path / "broker", node_id=101, roles="broker", impl=broker_impl, static=True, voters=voters
    )
    controller.format()
    broker.format()
    ledger = Ledger(patience_s=10 if "java" in (controller_impl, broker_impl) else 0)
    try:
        controller.start()
        broker.start()
        admin = broker.admin()
        ledger.create(admin, "events", 3, **{"cleanup.policy": "compact,delete"})
        ledger.create(admin, "doomed", 1)
        ledger.produce(broker.bootstrap, "events", 90, "a", "lz4", **{"enable.idempotence": True})
        ledger.commit(broker.bootstrap, "readers", "events", 90)
        ledger.delete(admin, "doomed")
        ledger.add_partitions(admin, "events", 4)
        ledger.set_config(admin, "events", "retention.ms", "86400000")
        ledger.verify(admin, broker.bootstrap)
        assert broker.stop() in (0, 143)
        broker.start()
        wait_for("all topics", lambda: "events" in broker.admin().list_topics(timeout=5).topics)
        ledger.verify(broker.admin(), broker.bootstrap)
    except BaseException:
        print(controller.log_tail(60), broker.log_tail(60))
        raise
    finally:
        broker.kill()
        controller.kill()
