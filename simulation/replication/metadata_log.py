"""The metadata log as a quorum that never errs: what the controller appends is committed after a moment,
and each broker receives it after a delay of its own.

`ControllerRaft` and `BrokerRaft` have the members of `RaftClient` that the controller and a broker use.
A change of the leader drops the records that were not committed.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import (
    CommittedBatch,
    LeaderAndEpoch,
    NotLeaderError,
    OffsetEpoch,
    ReplicaKey,
)

CONTROLLER_ID = 100
CONTROLLER_HOST = "c"
CONTROLLER_ADDRESS = (CONTROLLER_HOST, 9093)


class Surroundings(Protocol):
    """The part of the environment that the metadata log uses."""

    @property
    def now(self) -> float: ...
    def now_ms(self) -> int: ...
    def metadata_delay(self) -> float: ...
    def can_reach_controller(self, host: str) -> bool: ...
    def schedule(self, at: float, action: Callable[[], object]) -> None: ...
    def call_in(self, at: float, context: contextvars.Context, action: Callable[[], object]) -> None: ...


class MetadataLog:
    """The log, its leader, and those who read it."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self.batches: list[CommittedBatch] = []
        self.end = 0
        self.committed = 0
        """The number of batches that are committed."""
        self.leader = LeaderAndEpoch(None, 0)
        self.controller: ControllerRaft | None = None
        self.brokers: dict[BrokerRaft, None] = {}
        self.on_commit: Callable[[], None] = lambda: None
        """Called after each batch that the controller has taken as committed."""
        self._commits_at = 0.0
        self._told = self.leader
        """What the controller knows of the leader."""
        self._announcements: deque[tuple[LeaderAndEpoch, int]] = deque()

    def append(self, epoch: int, values: Sequence[bytes]) -> int:
        """Appends a batch. Returns its last offset."""
        base = self.end
        count = max(1, len(values))
        self.batches.append(
            CommittedBatch(
                base,
                base + count - 1,
                epoch,
                self.surroundings.now_ms(),
                list(values),
                sum(map(len, values)) + 61,
            )
        )
        self.end = base + count
        number, leader = len(self.batches), self.leader
        self._commits_at = max(
            self._commits_at, self.surroundings.now + 0.2 * self.surroundings.metadata_delay()
        )
        controller = self.controller
        assert controller is not None
        self.surroundings.call_in(self._commits_at, controller.context, lambda: self._commit(number, leader))
        return self.end - 1

    def _commit(self, number: int, leader: LeaderAndEpoch) -> None:
        if leader != self.leader or number <= self.committed:
            return
        self._tell_of_lost_term()
        while self.committed < number:
            batch = self.batches[self.committed]
            self.committed += 1
            assert self.controller is not None
            for _ in self.controller.listener.on_commit([batch]) or ():
                pass
            self.on_commit()
        for broker in self.brokers:
            broker.schedule_delivery()

    def _tell_of_lost_term(self) -> None:
        """Lets a controller that was paused know that its term has ended, before it gets batches of
        a later one, as `RaftDelivery` does. It would take them for its own."""
        told, controller = self._told, self.controller
        assert controller is not None
        if told.leader_id is not None and told.epoch < self.leader.epoch:
            self._told = LeaderAndEpoch(None, self.leader.epoch - 1)
            controller.listener.on_leader_change(self._told)

    def elect(self) -> None:
        """Makes the controller the leader of a new epoch. It is active when its first batch is
        committed."""
        self.leader = LeaderAndEpoch(CONTROLLER_ID, self.leader.epoch + 1)
        self.append(self.leader.epoch, [])
        self._announce(self._commits_at + 1e-6, len(self.batches))

    def _announce(self, at: float, number: int) -> None:
        """Lets the controller know the leader, when it has the first `number` batches. In order, also if
        the controller is paused meanwhile."""
        controller = self.controller
        assert controller is not None
        self._announcements.append((self.leader, number))

        def announce() -> None:
            leader, number = self._announcements.popleft()
            self._commit(number, leader)
            if leader == self.leader:
                self._told = leader
                controller.listener.on_leader_change(leader)
                for broker in self.brokers:
                    broker.leader_changed()

        self.surroundings.call_in(at, controller.context, announce)

    def forget(self, context: contextvars.Context) -> None:
        """Removes the broker of a process that has ended."""
        for broker in [broker for broker in self.brokers if broker.context is context]:
            del self.brokers[broker]

    def depose(self, *, keeps_uncommitted: bool) -> None:
        """Ends the term of the controller. Its uncommitted records are lost, or committed by the next
        leader."""
        self.leader = LeaderAndEpoch(None, self.leader.epoch + 1)
        if not keeps_uncommitted:
            del self.batches[self.committed :]
            self.end = self.batches[-1].last_offset + 1 if self.batches else 0
        self._announce(self.surroundings.now, 0)
        for broker in self.brokers:
            broker.leader_changed()


class ControllerRaft:
    """The Raft client of the controller."""

    def __init__(self, log: MetadataLog, context: contextvars.Context) -> None:
        self._log = log
        self.context = context
        self.voters = VoterSet.of([Voter(ReplicaKey(CONTROLLER_ID))])
        self.kraft_version = self.kraft_version_finalised = 1
        self.listener: Any = None
        log.controller = self

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self._log.leader

    @property
    def log_end_offset(self) -> int:
        return self._log.end

    @property
    def is_leader(self) -> bool:
        return self._log.leader.leader_id is not None

    def register(self, listener: Any) -> None:
        self.listener = listener

    def append(self, epoch: int, values: Sequence[bytes], *, atomic: bool = True) -> int:
        if self._log.leader != LeaderAndEpoch(CONTROLLER_ID, epoch):
            raise NotLeaderError("not the leader")
        return self._log.append(epoch, values)

    def leader_address(self) -> tuple[str, int] | None:
        return CONTROLLER_ADDRESS if self.is_leader else None

    async def create_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, batches: Iterable[bytes]
    ) -> OffsetEpoch | None:
        return None


class BrokerRaft:
    """The Raft client of one incarnation of a broker: an observer, which reads the log from its start."""

    def __init__(self, log: MetadataLog, host: str, context: contextvars.Context) -> None:
        self._log = log
        self._host = host
        self.context = context
        self._listener: Any = None
        self._known = LeaderAndEpoch(None, 0)
        self._delivered = 0
        self._delivers_at = 0.0
        self.kraft_version_finalised = 1

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self._known

    def leader_address(self) -> tuple[str, int] | None:
        return None if self._known.leader_id is None else CONTROLLER_ADDRESS

    def node_endpoints(self, _listener: str) -> dict[int, tuple[str, int]]:
        return {}

    def register(self, listener: Any) -> None:
        self._listener = listener
        self._log.brokers[self] = None
        self.schedule_delivery()
        self.leader_changed()

    def unregister(self, _listener: Any) -> None:
        self._listener = None
        self._log.brokers.pop(self, None)

    def leader_changed(self) -> None:
        """Lets the broker know the leader, after a delay."""
        surroundings = self._log.surroundings

        def announce() -> None:
            if self._listener is not None and self._known != self._log.leader:
                self._known = self._log.leader
                self._listener.on_leader_change(self._known)

        surroundings.call_in(surroundings.now + surroundings.metadata_delay(), self.context, announce)

    def schedule_delivery(self) -> None:
        """Delivers what is committed by then, after a delay."""
        surroundings = self._log.surroundings
        self._delivers_at = max(self._delivers_at, surroundings.now + surroundings.metadata_delay())
        surroundings.call_in(self._delivers_at, self.context, self._deliver)

    def _deliver(self) -> None:
        log = self._log
        if self._listener is None or self._delivered == log.committed:
            return
        if not log.surroundings.can_reach_controller(self._host):
            surroundings = log.surroundings
            surroundings.call_in(
                surroundings.now + max(surroundings.metadata_delay(), 0.05), self.context, self._deliver
            )
            return
        batches = log.batches[self._delivered : log.committed]
        self._delivered = log.committed
        for _ in self._listener.on_commit(batches) or ():
            pass
