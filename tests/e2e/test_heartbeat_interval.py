"""A broker loses its connection to the active controller, but runs normally."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.support import java
from tests.support.cluster import Node, running, wait_for

INTERVAL_MS = 6_000


@pytest.mark.parametrize(
    "configured", [True, False], ids=["configured at the controller", "seen by the controller"]
)
@pytest.mark.parametrize("impl", ["quorate", pytest.param("java", marks=pytest.mark.java)])
def test_a_broker_that_reconnects_for_its_next_heartbeat_is_not_fenced(
    tmp_path: Path, impl: str, configured: bool
) -> None:
    """The controller closes the idle connection after each heartbeat, as a firewall may do.

    A controller whose configuration does not have the interval may fence the broker once, before it has
    received two regular heartbeats.
    """
    if impl == "java":
        java.require_java()
    interval = {"broker.heartbeat.interval.ms": INTERVAL_MS}
    session = {"broker.session.timeout.ms": 18_000}
    idle = {"connections.max.idle.ms": 1_000}
    controller = Node(
        tmp_path / "c",
        node_id=1,
        roles="controller",
        extra=session | idle | (interval if configured else {}),
        release="4.1",
    )
    broker = Node(
        tmp_path / "b",
        node_id=2,
        roles="broker",
        impl=impl,
        voters=controller.voters,
        extra=session | interval,
    )

    def fenced() -> int:
        return controller.log_tail(100_000).count("Fencing broker 2 ")

    def closed() -> int:
        return controller.log_tail(100_000).count("idle for 1 s")

    with running(controller), running(broker):
        if not configured:
            wait_for("the broker to be fenced", lambda: fenced() == 1, 30, 0.1)
        before, began = closed(), time.monotonic()
        wait_for(
            "connections to break between three heartbeats",
            lambda: time.monotonic() - began > 2.5 * INTERVAL_MS / 1000 or fenced() > (not configured),
            60,
            0.1,
        )
        assert closed() - before >= 2
        assert fenced() == (0 if configured else 1)


@pytest.mark.parametrize("impl", ["quorate", pytest.param("java", marks=pytest.mark.java)])
def test_an_only_controller_that_was_suspended_fences_no_broker_when_it_continues(
    tmp_path: Path, impl: str
) -> None:
    """The controller checks the sessions before it has read the heartbeats that wait in its sockets. In
    Apache Kafka another thread than the fencing one records heartbeats."""
    if impl == "java":
        java.require_java()
    session = {"broker.heartbeat.interval.ms": 500, "broker.session.timeout.ms": 4_000}
    controller = Node(tmp_path / "c", node_id=1, roles="controller", extra=session, release="4.1")
    brokers = [
        Node(
            tmp_path / f"b{i}", node_id=i, roles="broker", impl=impl, voters=controller.voters, extra=session
        )
        for i in (2, 3)
    ]
    with running(controller), running(brokers[0]), running(brokers[1]):
        admin = brokers[0].admin()
        wait_for("both brokers", lambda: set(admin.list_topics(timeout=5).brokers) == {2, 3}, 30)
        (created,) = admin.create_topics([NewTopic("t", 10, 2)]).values()
        created.result(20)

        def leaders() -> dict[int, int]:
            return {p.id: p.leader for p in admin.list_topics("t", timeout=5).topics["t"].partitions.values()}

        wait_for("leaders", lambda: len(leaders()) == 10, 20)
        before = leaders()
        assert controller.proc is not None
        controller.proc.send_signal(signal.SIGSTOP)
        time.sleep(6)  # longer than a session: the subject of this test
        controller.proc.send_signal(signal.SIGCONT)
        went_on = time.monotonic()
        wait_for(
            "a session more",
            lambda: time.monotonic() - went_on > 5 or "Fencing" in controller.log_tail(1_000),
            20,
            0.1,
        )
        assert "Fencing" not in controller.log_tail(1_000)
        assert leaders() == before
