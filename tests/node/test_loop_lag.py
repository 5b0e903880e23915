"""The lag of the event loop: what the metric says after a callback that ran for too long."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from quorate.node.monitoring import loop_lag
from quorate.node.monitoring.loop_lag import LoopLagMonitor


def blocked_for(seconds: float) -> dict[str, float]:
    """The metrics after one callback has blocked the loop."""

    async def main() -> dict[str, float]:
        monitor = LoopLagMonitor(asyncio.get_running_loop(), 7, interval_s=0.001)
        monitor.start()
        await asyncio.sleep(0.01)
        time.sleep(seconds)  # noqa: ASYNC251 - this is the callback that blocks
        while monitor.highest_ms < seconds * 500:
            await asyncio.sleep(0.001)
        monitor.close()
        return {metric.name: float(metric.value) for metric in monitor.metrics()}

    return asyncio.run(asyncio.wait_for(main(), 10))


def test_a_callback_that_blocks_the_loop_shows_in_maximum_and_highest() -> None:
    metrics = blocked_for(0.2)
    assert metrics["event-loop-lag-ms-max"] == metrics["event-loop-lag-ms-highest"] >= 190
    assert 0 <= metrics["event-loop-lag-ms-avg"] < metrics["event-loop-lag-ms-max"]


def test_a_long_block_is_logged_with_its_length(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_lag, "WARN_S", 0.1)
    with caplog.at_level(logging.WARNING, "quorate.node.loop_lag"):
        blocked_for(0.2)
    assert any(
        "[KafkaServer id=7] The event loop was blocked for 0." in message for message in caplog.messages
    )


@pytest.mark.parametrize(("busy_s", "least", "most"), [(0.0, 0.7, 1.0), (0.3, 0.0, 0.7)])
def test_the_loop_is_idle_while_it_uses_no_cpu(busy_s: float, least: float, most: float) -> None:
    async def main() -> dict[str, float]:
        monitor = LoopLagMonitor(asyncio.get_running_loop(), 7, interval_s=0.01)
        monitor.start()
        if not busy_s:
            await asyncio.sleep(0.5)
        ends = time.thread_time() + busy_s
        while time.thread_time() < ends:
            pass
        while busy_s and monitor.highest_ms < busy_s * 900:
            await asyncio.sleep(0.001)
        monitor.close()
        return {family.name: float(family.series[0][1]) for family in monitor.families()}  # type: ignore[arg-type]

    found = asyncio.run(asyncio.wait_for(main(), 20))
    idle = found["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"]
    assert idle == found["kafka_network_socketserver_networkprocessoravgidle_percent"]
    # A busy thread that shares its core gets a part of the time only, and is idle in the rest.
    assert least <= idle <= (most if not busy_s else 1 - busy_s / 20)
