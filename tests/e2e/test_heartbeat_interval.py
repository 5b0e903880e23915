"""A broker's connection to the active controller breaks while the broker is well."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node, running, wait_for

INTERVAL_MS = 6_000


@pytest.mark.parametrize("configured", [True, False], ids=["configured at the controller", "seen by the controller"])
@pytest.mark.parametrize("impl", ["quorate", pytest.param("java", marks=pytest.mark.java)])
def test_a_broker_that_reconnects_for_its_next_heartbeat_is_not_fenced(tmp_path: Path, impl: str, configured: bool) -> None:
    """The controller closes the connection between any two heartbeats, since it is idle: a firewall does the same.

    A controller that is not told the interval may fence the broker once, before it has seen two regular heartbeats.
    """
    if impl == "java":
        java.require_java()
    interval = {"broker.heartbeat.interval.ms": INTERVAL_MS}
    session = {"broker.session.timeout.ms": 18_000}
    idle = {"connections.max.idle.ms": 1_000}
    controller = Node(tmp_path / "c", node_id=1, roles="controller", extra=session | idle | (interval if configured else {}))
    broker = Node(tmp_path / "b", node_id=2, roles="broker", impl=impl, voters=controller.voters, extra=session | interval)

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
