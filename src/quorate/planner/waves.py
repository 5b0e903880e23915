"""Cuts a plan into waves that a cluster carries out one after the other.

The first waves move no data: they change the order of replicas, and remove replicas. In the others no broker
sends and receives more bytes and replicas than the limits, unless a single partition has more.

A broker gets no more bytes than it has room for after the waves before. Where brokers have to make
room for one another, the moves that free a scarce broker come before those that only fill one. If
none fits even so, because brokers without room are to exchange replicas, the smallest goes first,
and its broker has too much for a wave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set

from quorate.dataclass import dataclass

MOST_PARTITIONS = 5_000
"""Of a wave without data: what a controller changes in one request (MAX_RECORDS_PER_USER_OP is 10,000)."""


@dataclass(frozen=True, slots=True)
class Move:
    """The change of one partition: the broker that is copied from, those that get replicas and
    those that lose theirs."""

    partition: int
    size: int
    source: int
    added: tuple[int, ...]
    removed: tuple[int, ...]


def cut(
    moves: Iterable[Move],
    held: Sequence[int],
    capacity: Sequence[int | None],
    *,
    wave_bytes: int,
    wave_moves: int,
) -> list[list[Move]]:
    """Returns the moves of each wave. `held` are the bytes on each broker now."""
    queues: dict[tuple[tuple[int, ...], ...], deque[Move]] = {}
    free: list[Move] = []
    copying: list[Move] = []
    used = list(held)
    for move in moves:
        (copying if move.added else free).append(move)
    waves = [free[at : at + MOST_PARTITIONS] for at in range(0, len(free), MOST_PARTITIONS)]
    for move in free:
        for b in move.removed:
            used[b] -= move.size
    scarce = _scarce(copying, used, capacity)
    for move in copying:
        freed = tuple(sorted(scarce.intersection(move.removed)))
        queues.setdefault((freed, (move.source, *sorted(move.added))), deque()).append(move)
    pending = [queues[key] for key in sorted(queues)]
    for queue in pending:
        moves_of = sorted(queue, key=lambda move: (-move.size, move.partition))
        queue.clear()
        queue.extend(moves_of)
    while pending:
        wave = _Wave(used, capacity, wave_bytes, wave_moves)
        wave.fill(pending, scarce)
        if not wave.moves:
            wave.take_one(pending)
        waves.append(wave.moves)
        for move in wave.moves:
            for b in move.added:
                used[b] += move.size
            for b in move.removed:
                used[b] -= move.size
        pending = [queue for queue in pending if queue]
    return waves


def _scarce(moves: Iterable[Move], used: Sequence[int], capacity: Sequence[int | None]) -> set[int]:
    """Returns the brokers that have no room for all that comes before anything goes."""
    coming = [0] * len(used)
    for move in moves:
        for b in move.added:
            coming[b] += move.size
    return {
        b for b, most in enumerate(capacity) if most is not None and coming[b] and used[b] + coming[b] > most
    }


class _Wave:
    """The moves of one wave and what they cost each broker."""

    def __init__(
        self, used: Sequence[int], capacity: Sequence[int | None], wave_bytes: int, wave_moves: int
    ) -> None:
        self.moves: list[Move] = []
        self._used = used
        self._capacity = capacity
        self._wave_bytes = wave_bytes
        self._wave_moves = wave_moves
        self._bytes = [0] * len(used)
        self._counts = [0] * len(used)
        self._incoming = [0] * len(used)

    def fill(self, pending: Sequence[deque[Move]], scarce: Set[int]) -> None:
        """Takes moves from queues of moves between the same brokers, while they fit.

        Those that only fill a scarce broker wait for those that free one, unless nothing else can be done.
        """
        freeing: list[deque[Move]] = []
        filling: list[deque[Move]] = []
        others: list[deque[Move]] = []
        for queue in pending:
            if not scarce.isdisjoint(queue[0].removed):
                freeing.append(queue)
            else:
                (others if scarce.isdisjoint(queue[0].added) else filling).append(queue)
        self._take_in_turn(freeing)
        self._take_in_turn(others)
        if not self.moves or not any(freeing):
            self._take_in_turn(filling)

    def take_one(self, pending: Sequence[deque[Move]]) -> None:
        """Takes a move that fits although larger ones of its queue do not, or the smallest that there is."""
        for queue in pending:
            for move in queue:
                if self._fits(move):
                    queue.remove(move)
                    self.take(move)
                    return
        self.take(min(pending, key=lambda queue: (queue[-1].size, queue[-1].partition)).pop())

    def _take_in_turn(self, pending: Sequence[deque[Move]]) -> None:
        active = [queue for queue in pending if queue]
        while active:
            going_on = []
            for queue in active:
                if self._fits(queue[0]):
                    self.take(queue.popleft())
                    if queue:
                        going_on.append(queue)
            active = going_on

    def _fits(self, move: Move) -> bool:
        for b, count in _load(move).items():
            if self._counts[b] == 0:
                continue  # a move over the limit is the only one of its brokers
            if self._counts[b] + count > self._wave_moves:
                return False
            if self._bytes[b] + count * move.size > self._wave_bytes:
                return False
        for b in move.added:
            capacity = self._capacity[b]
            if capacity is not None and self._used[b] + self._incoming[b] + move.size > capacity:
                return False
        return True

    def take(self, move: Move) -> None:
        self.moves.append(move)
        for b, count in _load(move).items():
            self._counts[b] += count
            self._bytes[b] += count * move.size
        for b in move.added:
            self._incoming[b] += move.size


def _load(move: Move) -> Mapping[int, int]:
    """Returns how many replicas each broker sends or receives in a move."""
    load = dict.fromkeys(move.added, 1)
    load[move.source] = load.get(move.source, 0) + len(move.added)
    return load
