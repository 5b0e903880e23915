"""What the active controller does by the clock. Each task says when it wants to run next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.metadata.image.topics import TopicImage
from quorate.protocol.schema import Data

if TYPE_CHECKING:
    from quorate.controller.context import Rest
    from quorate.controller.driver import QuorumController
    from quorate.controller.liveness import Session

NEVER = float("inf")
_SLICE = 5_000
"""Partitions that a sweep looks at in one turn of the loop: some 2 ms."""
_PORTION_PAUSE_S = 0.002
"""Between looks whether a portion of changes is committed."""


@dataclass(slots=True)
class Task:
    name: str
    run: Callable[[float], float]
    """(now) -> the next time, monotonic seconds; NEVER to stay idle until the controller is activated anew."""
    due: float = NEVER


class PeriodicTasks:
    """The tasks of one term as active controller."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        config = controller.config
        self._sweep: Iterator[tuple[TopicImage, int]] | None = None
        self._fencing: tuple[Session, Rest, int] | None = None
        """A session whose broker is being fenced, what is left of its partitions, and the offset of the last portion."""
        self._tasks = [Task("fence stale brokers", self._fence_stale)]
        if config.max_idle_interval_s > 0:
            self._tasks.append(Task("write NoOpRecord", self._write_no_op))
        if config.leader_imbalance_check_interval_s is not None:
            self._tasks.append(Task("elect preferred leaders", self._elect_preferred))
        self._tasks.append(Task("elect unclean leaders", self._elect_unclean))
        self._tasks.append(Task("time out requests", self._time_out))
        if config.token_secret is not None:
            self._tasks.append(Task("expire delegation tokens", self._expire_tokens))

    def activate(self, now: float) -> None:
        self._sweep = self._fencing = None
        config = self._controller.config
        first = {
            "elect preferred leaders": config.leader_imbalance_check_interval_s or 0,
            "elect unclean leaders": config.unclean_election_check_interval_s,
            "expire delegation tokens": config.token_expiry_check_interval_s,
        }
        for task in self._tasks:
            task.due = now + first.get(task.name, 0)

    def deactivate(self) -> None:
        for task in self._tasks:
            task.due = NEVER

    def look_for_stale(self, now: float) -> None:
        """A session has been shortened: the look is due earlier."""
        self._tasks[0].due = min(self._tasks[0].due, max(now, self._controller.liveness.next_expiry() + 0.001))

    def next_due(self) -> float:
        return min(task.due for task in self._tasks)

    def run_due(self, now: float) -> None:
        """Runs what is due; a task that loses the leadership ends the round."""
        for task in self._tasks:
            if task.due <= now and self._controller.is_active:
                task.due = NEVER
                due = task.run(now)
                if self._controller.is_active:
                    task.due = due

    def _fence_stale(self, now: float) -> float:
        from quorate.controller.brokers import fence_expired

        controller = self._controller
        while True:
            # One after the other: who is fenced next depends on where the leaderships of the last one went.
            if self._fencing is not None:
                session, rest, written = self._fencing
                if controller.committed_offset < written:
                    return now + _PORTION_PAUSE_S  # others' records wait behind no more than one portion
            else:
                expired = controller.liveness.next_expired(now)
                if expired is None:
                    break
                session, rest = expired, None
            records, left = fence_expired(controller.view(), session, rest)
            if records and rest is None:
                controller.log_info("Fencing broker %d at epoch %d because its session has timed out.", *session)
            self._fencing = None
            controller.liveness.goes_on(rest, left)
            written = controller.write(records) if records else controller.last_written
            if left is not None:
                self._fencing = (session, left, written)
                return now + _PORTION_PAUSE_S
        # Not before the first session can run out, and not later than one that begins now would.
        soonest = controller.liveness.next_expiry() + 0.001
        return min(max(now + 0.001, soonest), now + controller.config.broker_session_timeout_s)

    def _write_no_op(self, now: float) -> float:
        from quorate.metadata.records import NoOpRecord

        controller = self._controller
        idle_since = controller.last_write
        interval = controller.config.max_idle_interval_s
        if now - idle_since >= interval:
            controller.write([NoOpRecord()])
            return now + interval
        return idle_since + interval

    def _elect_preferred(self, now: float) -> float:
        from quorate.controller.partitions import preferred_elections

        controller = self._controller
        view = controller.view()
        if self._sweep is None:
            topics = view.image.topics.by_id.values()
            self._sweep = ((topic, partition_id) for topic in topics for partition_id in topic.partitions.ids())
        taken = list(itertools.islice(self._sweep, _SLICE))
        candidates = []
        for topic, partition_id in taken:
            current = view.image.topics.by_id.get(topic.id)  # what the sweep began with may have changed
            partition = current.partitions.get(partition_id) if current is not None else None
            if current is not None and partition is not None:
                candidates.append((current, partition_id, partition))
        records = preferred_elections(view, candidates, controller.config.max_elections_per_run)
        if records:
            controller.log_info("Electing preferred leaders for %d partition(s).", len(records))
            controller.write(records)
        if len(taken) == _SLICE:
            return now
        self._sweep = None
        return now + (controller.config.leader_imbalance_check_interval_s or NEVER)

    def _elect_unclean(self, now: float) -> float:
        from quorate.controller.partitions import unclean_elections

        controller = self._controller
        view = controller.view()
        topics = view.image.topics
        candidates = (
            (topics.by_id[topic_id], partition_id, topics.by_id[topic_id].partitions[partition_id])
            for topic_id, partition_id in topics.leaderless()
        )
        limit = controller.config.max_elections_per_run
        records: list[Data] = unclean_elections(view, candidates, limit)
        if records:
            controller.write(records)
        return now if len(records) >= limit else now + controller.config.unclean_election_check_interval_s

    def _time_out(self, now: float) -> float:
        pending = self._controller.pending
        pending.expire(now)
        return now + (0.1 if pending else 0.5)

    def _expire_tokens(self, now: float) -> float:
        from quorate.controller.tokens import expired_tokens

        controller = self._controller
        records = expired_tokens(controller.view(), controller.clock.now_ms(), 1_000)
        if records:
            controller.write(records)
        return now if len(records) >= 1_000 else now + controller.config.token_expiry_check_interval_s
