"""The tasks that the active controller runs on a schedule. Each task returns the time of its next run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from quorate.clock import NEVER
from quorate.dataclass import dataclass
from quorate.lazy import lazy_module, lazy_modules
from quorate.metadata.image.topics import TopicsImage
from quorate.metadata.records import NoOpRecord
from quorate.protocol.errors import KafkaError
from quorate.protocol.schema import Data

if TYPE_CHECKING:
    from quorate.controller.brokers.sessions import Session
    from quorate.controller.changes.batched_change import Continuation
    from quorate.controller.context import View
    from quorate.controller.handlers import delegation_tokens, elect_leaders
    from quorate.controller.replication import fencing
    from quorate.controller.replication.broker_changes import Located
    from quorate.controller.state import ControllerState

    _Elections = Callable[[View, Iterable[Located], int], list[Data]]
    """(view, candidates, limit) -> the records of at most `limit` elections."""
else:
    fencing = lazy_module("quorate.controller.replication.fencing")
    delegation_tokens, elect_leaders = lazy_modules(
        "quorate.controller.handlers", "delegation_tokens", "elect_leaders"
    )

logger = logging.getLogger(__name__)

_SLICE = 5_000
"""The partitions that a scan visits in one turn of the event loop, which takes about 2 ms."""
_PORTION_PAUSE_S = 0.002
"""The time between two checks whether a portion of a change is committed."""
_NAMED_SESSIONS = 5
"""The expired sessions that the reason of a change names."""
_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0
"""A task that fails runs again after a pause that doubles with each failure. Kafka waits five minutes
after every failure (PeriodicTaskControlManager), but a dead broker must not lead partitions for
that long."""


@dataclass(slots=True)
class Task:
    """A periodic task and the time of its next run."""

    name: str
    run: Callable[[float], float]
    """Takes the current time and returns the time of the next run, in monotonic seconds, or NEVER."""
    due: float = NEVER
    retry_s: float = _FIRST_RETRY_S
    """The pause after the next failure."""
    writes: bool = True


class _PartitionScan:
    """Visits all partitions, over as many turns of the event loop as necessary."""

    __slots__ = ("_places", "ended", "last_offset")

    def __init__(self, cursor: Iterator[tuple[bytes, int]]) -> None:
        """`cursor` has the (topic id, partition id) pairs that existed when the scan began."""
        self._places = cursor
        self.ended = False
        self.last_offset = -1
        """The offset of the last record that this scan wrote, or -1."""

    def turn(self, topics: TopicsImage) -> Iterator[Located]:
        """The next partitions in their current state, without those that were deleted. A caller that
        stops early continues there in the next turn."""
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
    """The tasks of the active controller."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        config = state.config
        self._scans: dict[str, _PartitionScan] = {}
        """The unfinished scans, by what they elect."""
        self._fencing: tuple[list[Session], str, Continuation, int] | None = None
        """The sessions whose brokers are being fenced and the reason, the continuation of this change, and
        the offset of its last portion."""
        self._fence_singly = False
        """Whether brokers are fenced one at a time, because the last attempt has failed."""
        self._elect_leaderless = Task(
            "elect leaders for partitions that an interrupted change left leaderless", self._elect_clean
        )
        self._tasks = [Task("fence stale brokers", self._fence_stale), self._elect_leaderless]
        if config.max_idle_interval_s > 0:
            self._tasks.append(Task("write NoOpRecord", self._write_no_op))
        if config.leader_imbalance_check_interval_s is not None:
            self._tasks.append(Task("elect preferred leaders", self._elect_preferred))
        self._tasks.append(Task("elect unclean leaders", self._elect_unclean))
        self._tasks.append(Task("time out requests", self._expire_requests, writes=False))
        if config.token_secret is not None:
            self._tasks.append(Task("expire delegation tokens", self._expire_tokens))

    def activate(self, now: float) -> None:
        """Schedules all tasks at the beginning of a term."""
        self._scans.clear()
        self._fencing = None
        config = self._state.config
        first = {
            "elect preferred leaders": config.leader_imbalance_check_interval_s or 0,
            "elect unclean leaders": config.unclean_election_check_interval_s,
            "expire delegation tokens": config.token_expiry_check_interval_s,
        }
        for task in self._tasks:
            task.due = now + first.get(task.name, 0)
            task.retry_s = _FIRST_RETRY_S

    def deactivate(self) -> None:
        """Cancels the next run of all tasks."""
        for task in self._tasks:
            task.due = NEVER

    def reschedule_fencing(self, now: float) -> None:
        """Schedules the fencing earlier, because a session was shortened."""
        self._tasks[0].due = min(
            self._tasks[0].due, max(now, self._state.broker_sessions.next_expiry() + 0.001)
        )

    def next_due(self) -> float:
        """The time at which the next task is due, or NEVER on a standby."""
        return min(task.due for task in self._tasks) if self._state.is_active else NEVER

    def run_due(self, now: float) -> None:
        """Runs the tasks that are due. The round ends if a task loses the leadership. A task that fails
        is scheduled again. While a metadata transaction is being written, tasks that may write wait."""
        for task in self._tasks:
            if task.due <= now and self._state.is_active:
                task.due = NEVER
                if self._state.exclusive and task.writes:
                    due = now + _PORTION_PAUSE_S
                else:
                    due = self._run(task, now)
                if self._state.is_active:
                    task.due = due

    def _run(self, task: Task, now: float) -> float:
        """Runs a task. Returns the time of its next run, whether it succeeds or fails."""
        try:
            due = task.run(now)
        except KafkaError as error:
            self._state.log_info("Periodic task '%s' failed: %s", task.name, error)
        except Exception:
            logger.exception(
                "[QuorumController id=%d] Periodic task '%s' failed",
                self._state.config.node_id,
                task.name,
            )
        else:
            task.retry_s = _FIRST_RETRY_S
            return due
        pause_s, task.retry_s = task.retry_s, min(2 * task.retry_s, _LONGEST_RETRY_S)
        return now + pause_s

    def _fence_stale(self, now: float) -> float:
        """Fences the brokers whose session has expired."""
        state = self._state
        while True:
            if self._fencing is not None:
                sessions, reason, continuation, written = self._fencing
                if state.committed_offset < written:
                    # Only one portion is in flight at a time. Records of requests wait for at most that one.
                    return now + _PORTION_PAUSE_S
            else:
                sessions, continuation = self._next_expired(now), None
                if not sessions:
                    break
                reason = self._fencing_reason(sessions)
            self._fencing = None
            try:
                records, left = fencing.fence_expired(state.view(), sessions, continuation)
                if records and continuation is None:
                    self._log_fencing(sessions)
                written = state.write_own(records, reason) if records else state.last_written
            except BaseException:
                # The next attempt starts with the first partition again, since the changes of this portion
                # were not made.
                state.broker_sessions.replace_continuation(continuation, None)
                for session in sessions:
                    state.broker_sessions.put_back_expired(session, now)
                self._fence_singly = True
                if continuation is not None:
                    # If a broker sends a heartbeat before the next attempt, it stays unfenced and nothing
                    # else would elect leaders for the partitions already changed.
                    self._elect_leaderless.due = now + _LONGEST_RETRY_S
                raise
            state.broker_sessions.replace_continuation(continuation, left)
            if left is not None:
                self._fencing = (sessions, reason, left, written)
                return now + _PORTION_PAUSE_S
        # The next run is when the earliest session can expire. It is at the latest one session timeout from
        # now, because a session that begins now can expire then.
        soonest = state.broker_sessions.next_expiry() + 0.001
        return min(max(now + 0.001, soonest), now + state.config.broker_session_timeout_s)

    def _next_expired(self, now: float) -> list[Session]:
        """Removes and returns the sessions whose brokers are fenced next: all expired ones, or one after
        a failure, which another broker may have caused."""
        sessions: list[Session] = []
        while (session := self._state.broker_sessions.next_expired(now)) is not None:
            sessions.append(session)
            if self._fence_singly:
                break
        else:
            self._fence_singly = False
        return sessions

    def _log_fencing(self, sessions: Iterable[Session]) -> None:
        state = self._state
        for session in sessions:
            ended = session in state.broker_sessions.ended
            state.log_info(
                "Fencing broker %d at epoch %d because its %s.",
                *session,
                "process has ended" if ended else "session has timed out",
            )

    def _fencing_reason(self, sessions: list[Session]) -> str:
        """The reason of a change that fences the brokers of these sessions."""
        ended = self._state.broker_sessions.ended
        texts = [
            f"process of broker {session[0]} ended"
            if session in ended
            else f"session of broker {session[0]} at epoch {session[1]} expired"
            for session in sessions[:_NAMED_SESSIONS]
        ]
        more = len(sessions) - len(texts)
        return "; ".join([*texts, f"and {more} more"] if more else texts)

    def _write_no_op(self, now: float) -> float:
        """Writes a NoOpRecord if no record was written for some time (KIP-835)."""
        state = self._state
        idle_since = state.last_write
        interval = state.config.max_idle_interval_s
        if now - idle_since >= interval:
            state.write([NoOpRecord()])
            return now + interval
        return idle_since + interval

    def _elect_preferred(self, now: float) -> float:
        """Elects preferred leaders, one portion in each run."""

        def partitions() -> Iterator[tuple[bytes, int]]:
            topics = self._state.next_image.topics.by_id.values()
            return ((topic.id, partition_id) for topic in topics for partition_id in topic.partitions.ids())

        interval_s = self._state.config.leader_imbalance_check_interval_s or NEVER
        return self._elect(
            now,
            partitions,
            elect_leaders.preferred_elections,
            "preferred leaders",
            "preferred leader election",
            interval_s,
        )

    def _elect_unclean(self, now: float) -> float:
        """Elects leaders uncleanly for topics that allow it, one portion in each run."""
        interval_s = self._state.config.unclean_election_check_interval_s
        return self._elect(
            now,
            self._leaderless,
            elect_leaders.unclean_elections,
            "leaders uncleanly",
            "unclean leader election",
            interval_s,
        )

    def _elect_clean(self, now: float) -> float:
        """Elects leaders for partitions that an interrupted change has left without one.

        Fencing a broker of many partitions takes several batches. If a term ends between two of them,
        partitions have no leader although a broker in their ISR is active. No other event would elect one,
        because the state of that broker does not change.
        """
        return self._elect(
            now,
            self._leaderless,
            elect_leaders.clean_elections,
            "leaders",
            "leader election for partitions that an interrupted change left leaderless",
            NEVER,
        )

    def _leaderless(self) -> Iterator[tuple[bytes, int]]:
        return self._state.next_image.topics.leaderless()

    def _elect(
        self,
        now: float,
        partitions: Callable[[], Iterator[tuple[bytes, int]]],
        elections: _Elections,
        what: str,
        reason: str,
        interval_s: float,
    ) -> float:
        """Runs one turn of a scan of `partitions`. Returns the time of the next turn, or of the next scan.

        The next turn waits until the elections of this one are committed, so that records of requests
        wait for at most one turn.
        """
        state = self._state
        scan = self._scans.pop(what, None)  # a scan that fails starts over
        if scan is None:
            scan = _PartitionScan(partitions())
        elif state.committed_offset < scan.last_offset:
            self._scans[what] = scan
            return now + _PORTION_PAUSE_S
        view = state.view()
        limit = state.config.max_elections_per_run
        records = elections(view, scan.turn(view.image.topics), limit)
        if records:
            state.log_info("Electing %s for %d partition(s).", what, len(records))
            scan.last_offset = state.write_own(records, reason)
        if len(records) < limit and scan.ended:
            return now + interval_s
        self._scans[what] = scan
        return now

    def _expire_requests(self, now: float) -> float:
        """Fails the requests whose timeout has expired."""
        pending = self._state.pending
        pending.expire(now)
        return now + (0.1 if pending else 0.5)

    def _expire_tokens(self, now: float) -> float:
        """Removes expired delegation tokens."""
        state = self._state
        records = delegation_tokens.expired_tokens(state.view(), state.clock.now_ms(), 1_000)
        if records:
            state.write_own(records, "expiry of delegation tokens")
        return now if len(records) >= 1_000 else now + state.config.token_expiry_check_interval_s
