"""The active controller dies, and no node waits for a timeout: the timeouts of this quorum are far longer
than those of the tests."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.e2e.campaign_quorum import Quorum, running
from tests.support.cluster import Node, wait_for

pytestmark = pytest.mark.timeout(120)
PATIENT = {
    f"controller.quorum.{what}.timeout.ms": 30_000 for what in ("fetch", "election", "request")
}  # who waits for one of them is too late
SOON_S = 10.0


class Creator:
    """A client that creates one topic after the other and records when each was answered. It repeats no
    request."""

    def __init__(self, broker: Node) -> None:
        self._admin = broker.admin()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answered: list[float] = []
        self.errors: list[Exception] = []

    def _run(self) -> None:
        while not self._over.is_set():
            name = f"topic-{len(self.answered) + len(self.errors)}"
            try:
                self._admin.create_topics(
                    [NewTopic(name, 1, 1)], operation_timeout=SOON_S, request_timeout=SOON_S
                )[name].result()
                self.answered.append(time.perf_counter())
            except Exception as e:
                self.errors.append(e)

    def goes_on(self) -> None:
        before = len(self.answered)
        wait_for("creations", lambda: len(self.answered) >= before + 10, 3 * SOON_S)

    @contextmanager
    def at_work(self) -> Iterator[Creator]:
        self._thread.start()
        try:
            self.goes_on()
            yield self
        finally:
            self._over.set()
            self._thread.join()

    @property
    def longest_wait_s(self) -> float:
        return max(b - a for a, b in pairwise(self.answered))


def test_clients_see_no_error_and_no_timeout_when_the_active_controller_is_killed_or_stopped(
    tmp_path: Path,
) -> None:
    """The client does not even see TOPIC_ALREADY_EXISTS, although its broker repeats requests that the dead
    controller had already carried out."""
    with running(Quorum(tmp_path, settings=PATIENT)) as quorum, Creator(quorum.broker).at_work() as creator:
        for how in (signal.SIGKILL, signal.SIGTERM):
            victim = quorum.controllers[quorum.leader()]
            assert victim.proc is not None
            victim.proc.send_signal(how)
            creator.goes_on()
            victim.proc.wait(20)
            victim.start()
            quorum.settle()
        creator.goes_on()
    assert creator.errors == []
    assert creator.longest_wait_s < SOON_S
