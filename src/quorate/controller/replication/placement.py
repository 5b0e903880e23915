"""Chooses the brokers of new partitions: replicas are spread over racks, and leaders over all unfenced
brokers.

The rules are those of Kafka's StripedReplicaPlacer. The leader and each further replica come from
successive racks. Within a rack, brokers take turns from a random start. A fenced broker is chosen only
if no unfenced one is left, and never leads. After as many partitions as there are unfenced brokers, the
order is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from quorate.protocol.errors import ErrorCode, KafkaError


class UsableBroker(NamedTuple):
    """A broker that can get replicas."""

    id: int
    rack: str | None
    fenced: bool


class Racks:
    """The usable brokers by rack, ordered by id. One object serves all topics of a request."""

    __slots__ = ("by_name", "order", "total", "unfenced")

    def __init__(self, brokers: Iterable[UsableBroker]) -> None:
        self.by_name: dict[str | None, tuple[list[int], list[int]]] = {}
        """The (unfenced, fenced) broker ids of each rack."""
        self.total = self.unfenced = 0
        for broker in sorted(brokers, key=lambda broker: broker.id):
            self.by_name.setdefault(broker.rack, ([], []))[broker.fenced].append(broker.id)
            self.total += 1
            self.unfenced += not broker.fenced
        self.order = sorted(self.by_name, key=lambda name: (name is not None, name or ""))


class _Ring:
    """Brokers that take turns. The start advances by one in each turn."""

    __slots__ = ("brokers", "index", "offset", "turn")

    def __init__(self, brokers: Sequence[int], rng: Random) -> None:
        self.brokers = brokers
        self.index = self.turn = 0
        self.offset = rng.randrange(len(brokers)) if brokers else 0

    def shuffle(self, rng: Random) -> None:
        """Brings the brokers into a random order."""
        self.brokers = rng.sample(self.brokers, len(self.brokers))
        self.turn = -1  # the turns start again at 0

    def take(self, turn: int) -> int:
        """The next broker of this turn, or -1 if all brokers have been taken."""
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
    """The rings of one rack."""

    __slots__ = ("fenced", "unfenced")

    def __init__(self, unfenced: Sequence[int], fenced: Sequence[int], rng: Random) -> None:
        self.unfenced = _Ring(unfenced, rng)
        self.fenced = _Ring(fenced, rng)

    def take(self, turn: int) -> int:
        """The next broker of this turn, fenced ones last, or -1."""
        broker = self.unfenced.take(turn)
        return broker if broker >= 0 else self.fenced.take(turn)


def _invalid_factor(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


class StripedPlacer:
    """Places the partitions of one topic, one after the other. `rng` determines the start of each ring.

    The rings of a rack are created when a replica is first placed in it, so that the cost of a topic
    depends on its replicas and not on the size of the cluster.
    """

    __slots__ = ("_made", "_offset", "_order", "_racks", "_rng", "_turn")

    def __init__(self, racks: Racks, rng: Random) -> None:
        self._racks = racks
        self._made: dict[str | None, _Rack] = {}
        self._order = racks.order
        self._rng = rng
        self._turn = 0
        self._offset = rng.randrange(len(self._order)) if self._order else 0

    def _rack(self, name: str | None) -> _Rack:
        """The rings of a rack."""
        rack = self._made.get(name)
        if rack is None:
            rack = self._made[name] = _Rack(*self._racks.by_name[name], self._rng)
        return rack

    def check(self, replication_factor: int) -> None:
        """Raises INVALID_REPLICATION_FACTOR if partitions cannot have this number of replicas."""
        if replication_factor <= 0:
            raise _invalid_factor(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if self._racks.unfenced == 0:
            raise _invalid_factor(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if replication_factor > self._racks.total:
            raise _invalid_factor(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._racks.total} broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, the leader first. `check` must have succeeded before."""
        if self._turn == self._racks.unfenced and self._racks.unfenced > 1:
            self._shuffle()
        order = self._order
        count = len(order)
        if self._offset == count:
            self._offset = 0
        turn = self._turn
        leader_rack = self._offset
        while (leader := self._rack(order[leader_rack]).unfenced.take(turn)) < 0:
            leader_rack = (leader_rack + 1) % count
        replicas = [leader]
        rack_index = self._offset
        while len(replicas) < replication_factor:
            if rack_index == leader_rack:
                leader_rack = -1  # the leader's rack is skipped once, since it has the leader
            else:
                broker = self._rack(order[rack_index]).take(turn)
                if broker >= 0:
                    replicas.append(broker)
            rack_index = (rack_index + 1) % count
        self._turn += 1
        self._offset += 1
        return replicas

    def _shuffle(self) -> None:
        """Brings racks and brokers into a random order."""
        self._order = self._rng.sample(self._order, len(self._order))
        for name in self._order:
            rack = self._rack(name)
            rack.fenced.shuffle(self._rng)
            rack.unfenced.shuffle(self._rng)
        self._turn = 0
