"""A killed broker of Apache Kafka is fenced at once by our controller."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node, wait_for

pytestmark = [pytest.mark.timeout(240), pytest.mark.java]


def test_a_killed_java_broker_leaves_the_metadata_before_its_session_ends(tmp_path: Path) -> None:
    java.require_java()
    controller = Node(
        tmp_path / "c",
        node_id=1,
        roles="controller",
        release="4.1",
        extra={"broker.session.timeout.ms": 120_000, "broker.heartbeat.interval.ms": 40_000},
    )
    ours = Node(tmp_path / "b2", node_id=2, roles="broker", voters=controller.voters)
    victim = Node(tmp_path / "b3", node_id=3, roles="broker", voters=controller.voters, impl="java")
    with contextlib.ExitStack() as stack:
        for node in (controller, ours, victim):
            node.format()
            stack.callback(node.kill)
            node.start()
        log = controller.base / "out.log"
        wait_for("a connection to broker 3", lambda: "Reached broker 3 " in log.read_text())
        assert log.read_text().count("Fencing broker") == 0
        victim.kill()
        wait_for(
            "the killed broker to leave Metadata",
            lambda: 3 not in ours.admin().list_topics(timeout=5).brokers,
            20,
        )
