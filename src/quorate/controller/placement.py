"""Where replicas of new partitions go: striped over racks, leaders over all unfenced brokers.

The rules are those of Kafka's StripedReplicaPlacer: the leader and each further replica come from successive
racks; within a rack brokers take turns from a random start; a fenced broker is taken only where no unfenced one is
left, and never leads. After as many partitions as there are unfenced brokers everything is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from quorate.protocol.errors import ErrorCode, KafkaError


@dataclass(slots=True, frozen=True)
class UsableBroker:
    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers that take turns; the start moves on by one with every new turn number."""

    __slots__ = ("brokers", "index", "offset", "turn")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.offset = self.index = self.turn = 0

    def start(self, rng: Random) -> None:
        if self.brokers:
            self.brokers.sort()
            self.offset = rng.randrange(len(self.brokers))

    def take(self, turn: int) -> int:
        """The next broker of this turn, -1 when all had theirs."""
        brokers = self.brokers
        if not brokers:
            return -1
        if self.turn != turn:
            self.turn = turn
            self.index = 0
            self.offset = (self.offset + 1) % len(brokers)
        if self.index >= len(brokers):
            return -1
        broker = brokers[(self.index + self.offset) % len(brokers)]
        self.index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.unfenced = _Ring()
        self.fenced = _Ring()

    def take(self, turn: int) -> int:
        broker = self.unfenced.take(turn)
        return broker if broker >= 0 else self.fenced.take(turn)


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


class StripedPlacer:
    """Places the partitions of one topic, one after the other. rng decides where each ring starts."""

    __slots__ = ("_offset", "_order", "_racks", "_rng", "_total", "_turn", "_unfenced")

    def __init__(self, brokers: Iterable[UsableBroker], rng: Random) -> None:
        racks: dict[str | None, _Rack] = {}
        self._total = self._unfenced = 0
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
            self._total += 1
            self._unfenced += not broker.fenced
        self._racks = racks
        self._order = sorted(racks, key=lambda name: (name is not None, name or ""))
        for name in self._order:
            racks[name].fenced.start(rng)
            racks[name].unfenced.start(rng)
        self._rng = rng
        self._turn = 0
        self._offset = rng.randrange(len(self._order)) if self._order else 0

    def check(self, replication_factor: int) -> None:
        """Raises INVALID_REPLICATION_FACTOR when no partition can be placed so."""
        if replication_factor <= 0:
            raise _refuse(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
        if self._unfenced == 0:
            raise _refuse("All brokers are currently fenced.")
        if replication_factor > self._total:
            raise _refuse(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._total} broker(s) are registered."
            )

    def place(self, replication_factor: int) -> list[int]:
        """Replicas of the next partition, the leader first; `check` must have passed."""
        if self._turn == self._unfenced and self._unfenced > 1:
            self._shuffle()
        order = self._order
        count = len(order)
        if self._offset == count:
            self._offset = 0
        turn = self._turn
        leader_rack = self._offset
        while (leader := self._racks[order[leader_rack]].unfenced.take(turn)) < 0:
            leader_rack = (leader_rack + 1) % count
        replicas = [leader]
        rack_index = self._offset
        while len(replicas) < replication_factor:
            if rack_index == leader_rack:
                leader_rack = -1  # the leader's rack has given already: skipped once
            else:
                broker = self._racks[order[rack_index]].take(turn)
                if broker >= 0:
                    replicas.append(broker)
            rack_index = (rack_index + 1) % count
        self._turn += 1
        self._offset += 1
        return replicas

    def _shuffle(self) -> None:
        self._rng.shuffle(self._order)
        for name in self._order:
            for ring in (self._racks[name].fenced, self._racks[name].unfenced):
                self._rng.shuffle(ring.brokers)
                ring.turn = -1  # turn 0 begins anew: everyone has their turn again
        self._turn = 0
