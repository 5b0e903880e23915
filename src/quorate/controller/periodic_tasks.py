"""What the active controller does by the clock. Each task says when it wants to run next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.metadata.image.topics import TopicsImage
from quorate.protocol.errors import KafkaError
from quorate.protocol.schema import Data

if TYPE_CHECKING:
    from quorate.controller.broker_sessions import Session
    from quorate.controller.context import Continuation, View
    from quorate.controller.driver import QuorumController
    from quorate.controller.replication.broker_changes import Located

    _Elections = Callable[[View, Iterable[Located], int], list[Data]]
    """(view, candidates, limit) -> the records of at most so many elections."""

log = logging.getLogger(__name__)

NEVER = float("inf")
_SLICE = 5_000
"""Partitions that a sweep looks at in one turn of the loop: some 2 ms."""
_PORTION_PAUSE_S = 0.002
"""Between looks whether a portion of changes is committed."""
_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0
"""A task that fails runs again after a pause that doubles with each failure. Kafka waits five minutes
after every failure (PeriodicTaskControlManager); a dead broker must not lead partitions for so long."""


@dataclass(slots=True)
class Task:
    name: str
    run: Callable[[float], float]
    """(now) -> the next time, monotonic seconds; NEVER to stay idle until the controller is activated
    anew."""
    due: float = NEVER
    retry_s: float = _FIRST_RETRY_S
    """The pause after the next failure."""


class _Sweep:
    """A walk over partitions that takes as many turns as it needs."""

    __slots__ = ("_places", "ended", "written")

    def __init__(self, cursor: Iterator[tuple[bytes, int]]) -> None:
        """places: (topic id, partition id) as they are when the sweep begins."""
        self._places = cursor
        self.ended = False
        self.written = -1
        """The offset of the last election."""

    def turn(self, topics: TopicsImage) -> Iterator[Located]:
        """The next partitions, as they are by now; those that are gone are left out. Who stops early
        goes on there next time."""
        for _ in range(_SLICE):
            place = next(self._places, None)
            if place is None:
                self.ended = True
                return
            topic = topics.by_id.get(place[0])
            partition = topic.partitions.get(place[1]) if topic is not None else None
            if topic is not None and partition is not None:
                yield topic, place[1], partition


class PeriodicTasks:
    """The tasks of one term as active controller."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        config = controller.config
        self._preferred: _Sweep | None = None
        self._unclean: _Sweep | None = None
        self._clean: _Sweep | None = None
        self._fencing: tuple[Session, Continuation, int] | None = None
        """A session whose broker is being fenced, what is left of its partitions, and the offset of the
        last portion."""
        self._repair = Task("elect leaders that an interrupted change has left out", self._elect_clean)
        self._tasks = [Task("fence stale brokers", self._fence_stale), self._repair]
        if config.max_idle_interval_s > 0:
            self._tasks.append(Task("write NoOpRecord", self._write_no_op))
        if config.leader_imbalance_check_interval_s is not None:
            self._tasks.append(Task("elect preferred leaders", self._elect_preferred))
        self._tasks.append(Task("elect unclean leaders", self._elect_unclean))
        self._tasks.append(Task("time out requests", self._time_out))
        if config.token_secret is not None:
            self._tasks.append(Task("expire delegation tokens", self._expire_tokens))

    def activate(self, now: float) -> None:
        self._preferred = self._unclean = self._clean = self._fencing = None
        config = self._controller.config
        first = {
            "elect preferred leaders": config.leader_imbalance_check_interval_s or 0,
            "elect unclean leaders": config.unclean_election_check_interval_s,
            "expire delegation tokens": config.token_expiry_check_interval_s,
        }
        for task in self._tasks:
            task.due = now + first.get(task.name, 0)
            task.retry_s = _FIRST_RETRY_S

    def deactivate(self) -> None:
        for task in self._tasks:
            task.due = NEVER

    def look_for_stale(self, now: float) -> None:
        """A session has been shortened: the look is due earlier."""
        self._tasks[0].due = min(
            self._tasks[0].due, max(now, self._controller.broker_sessions.next_expiry() + 0.001)
        )

    def next_due(self) -> float:
        return min(task.due for task in self._tasks)

    def run_due(self, now: float) -> None:
        """Runs what is due. A task that loses the leadership ends the round; one that fails is tried
        again."""
        for task in self._tasks:
            if task.due <= now and self._controller.is_active:
                task.due = NEVER
                due = self._run(task, now)
                if self._controller.is_active:
                    task.due = due

    def _run(self, task: Task, now: float) -> float:
        """When the task wants to run next, whether it succeeds or fails."""
        try:
            due = task.run(now)
        except KafkaError as error:
            self._controller.log_info("Periodic task '%s' failed: %s", task.name, error)
        except Exception:
            log.exception(
                "[QuorumController id=%d] Periodic task '%s' failed",
                self._controller.config.node_id,
                task.name,
            )
        else:
            task.retry_s = _FIRST_RETRY_S
            return due
        pause_s, task.retry_s = task.retry_s, min(2 * task.retry_s, _LONGEST_RETRY_S)
        return now + pause_s

    def _fence_stale(self, now: float) -> float:
        from quorate.controller.replication.fencing import fence_expired

        controller = self._controller
        while True:
            # One after the other: who is fenced next depends on where the leaderships of the last one went.
            if self._fencing is not None:
                session, continuation, written = self._fencing
                if controller.committed_offset < written:
                    return now + _PORTION_PAUSE_S  # others' records wait behind no more than one portion
            else:
                expired = controller.broker_sessions.next_expired(now)
                if expired is None:
                    break
                session, continuation = expired, None
            self._fencing = None
            try:
                records, left = fence_expired(controller.view(), session, continuation)
                if records and continuation is None:
                    controller.log_info(
                        "Fencing broker %d at epoch %d because its session has timed out.", *session
                    )
                written = controller.write(records) if records else controller.last_written
            except BaseException:
                # The next try begins with the first partition again: what this one was to change is
                # still unchanged.
                controller.broker_sessions.goes_on(continuation, None)
                controller.broker_sessions.expire(session, now)
                if continuation is not None:  # who is heard of before the next try is not fenced at all
                    self._repair.due = now + _LONGEST_RETRY_S
                raise
            controller.broker_sessions.goes_on(continuation, left)
            if left is not None:
                self._fencing = (session, left, written)
                return now + _PORTION_PAUSE_S
        # Not before the first session can run out, and not later than one that begins now would.
        soonest = controller.broker_sessions.next_expiry() + 0.001
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
        from quorate.controller.handlers.elect_leaders import preferred_elections

        sweep, self._preferred = self._preferred, None  # one that fails begins anew
        if sweep is not None and self._controller.committed_offset < sweep.written:
            self._preferred = sweep
            return now + _PORTION_PAUSE_S
        if sweep is None:
            topics = self._controller.next_image.topics.by_id.values()
            sweep = _Sweep(
                (topic.id, partition_id) for topic in topics for partition_id in topic.partitions.ids()
            )
        self._preferred = self._elect(sweep, preferred_elections, "preferred leaders")
        interval_s = self._controller.config.leader_imbalance_check_interval_s or NEVER
        return now + interval_s if self._preferred is None else now

    def _elect_unclean(self, now: float) -> float:
        from quorate.controller.handlers.elect_leaders import unclean_elections

        sweep, self._unclean = self._unclean, None  # one that fails begins anew
        if sweep is not None and self._controller.committed_offset < sweep.written:
            self._unclean = sweep
            return now + _PORTION_PAUSE_S
        if sweep is None:
            sweep = _Sweep(self._controller.next_image.topics.leaderless())
        self._unclean = self._elect(sweep, unclean_elections, "leaders uncleanly")
        interval_s = self._controller.config.unclean_election_check_interval_s
        return now + interval_s if self._unclean is None else now

    def _elect_clean(self, now: float) -> float:
        """What changes of many portions do to partitions and to the broker is not one batch. A term that
        ends between two portions leaves partitions without a leader whose broker is active: nothing else
        would elect it, since it neither comes nor goes."""
        from quorate.controller.handlers.elect_leaders import clean_elections

        sweep, self._clean = self._clean, None  # one that fails begins anew
        if sweep is not None and self._controller.committed_offset < sweep.written:
            self._clean = sweep
            return now + _PORTION_PAUSE_S
        if sweep is None:
            sweep = _Sweep(self._controller.next_image.topics.leaderless())
        self._clean = self._elect(sweep, clean_elections, "leaders")
        return NEVER if self._clean is None else now

    def _elect(self, sweep: _Sweep, elections: _Elections, what: str) -> _Sweep | None:
        """One turn of a sweep; what is left of it, None when it came to its end.

        The next turn waits until this one is committed, so that others' records wait behind no more
        than one turn.
        """
        controller = self._controller
        view = controller.view()
        limit = controller.config.max_elections_per_run
        records = elections(view, sweep.turn(view.image.topics), limit)
        if records:
            controller.log_info("Electing %s for %d partition(s).", what, len(records))
            sweep.written = controller.write(records)
        return sweep if len(records) >= limit or not sweep.ended else None

    def _time_out(self, now: float) -> float:
        pending = self._controller.pending
        pending.expire(now)
        return now + (0.1 if pending else 0.5)

    def _expire_tokens(self, now: float) -> float:
        from quorate.controller.handlers.delegation_tokens import expired_tokens

        controller = self._controller
        records = expired_tokens(controller.view(), controller.clock.now_ms(), 1_000)
        if records:
            controller.write(records)
        return now if len(records) >= 1_000 else now + controller.config.token_expiry_check_interval_s
