"""A search for small clusters: single steps, pairs and chains of steps that bring an assignment
nearer to its goals.

In a small cluster one replica is a large part of a broker's load, so the way to a better assignment may lead
over a worse one. Steps are: another leader, a replica on another broker, an exchange of two replicas. A step
counts as better if it improves the first goal on which it has an effect, or moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.planner.goals import Goals
from quorate.planner.state import State

EVALUATIONS = 20_000
"""After so many the search ends: about half a second."""

PAIRS = 120
"""The most single steps of which pairs and chains are tried."""

CHAIN = 4
"""The most steps of a chain."""

Step = tuple[tuple[int, int], ...]
"""Slots and their new brokers. A broker of LEAD lets the slot lead instead."""

LEAD = -2

Change = tuple[int, ...]
"""The costs of the goals in their order, or the differences of these. Less is better.

The bytes that move are before the last goal: for the bytes of leaders only leaders change, as in
Cruise Control's LeaderBytesInDistributionGoal.
"""


NO_CHANGE: Change = (0,) * 9


class Search:
    """Improves an assignment until no step, no pair of steps and no chain of the best steps does."""

    def __init__(
        self, state: State, goals: Goals, movable: bytearray | None, may_change: bytearray | None
    ) -> None:
        self._state = state
        self._goals = goals
        eligible = set(state.eligible)
        self._movable = [
            slot
            for slot, b in enumerate(state.broker_of)
            if b in eligible and (movable is None or movable[slot])
        ]
        self._partitions = [p for p in range(len(state.sizes)) if may_change is None or may_change[p]]
        self._left = EVALUATIONS

    def run(self) -> None:
        while (
            self._left > 0
            and any(self.cost())
            and (
                self._improve_by_one()
                or self._improve_by_two()
                or self._improve_by_exchange_of_brokers()
                or self._improve_by_chain()
            )
        ):
            pass

    def cost(self) -> Change:
        """Returns the cost of the assignment."""
        return self._cost(set(range(len(self._state.replicas))), set(range(len(self._state.sizes))))

    def _improve_by_one(self) -> bool:
        improved = False
        for step in self._steps():
            if self._is_possible(step):
                change, undo = self._apply(step)
                if change < NO_CHANGE:
                    improved = True
                else:
                    self._undo(undo)
        return improved

    def _improve_by_two(self) -> bool:
        steps = list(self._steps())
        if len(steps) > PAIRS:
            return False
        for first in steps:
            if not self._is_possible(first):
                continue
            change, undo = self._apply(first)
            for second in steps:
                if self._left <= 0:
                    break
                if self._is_possible(second):
                    more, undo_second = self._apply(second)
                    if tuple(x + y for x, y in zip(change, more, strict=True)) < NO_CHANGE:
                        return True
                    self._undo(undo_second)
            self._undo(undo)
        return False

    def _improve_by_chain(self) -> bool:
        """Takes any step and then, up to CHAIN steps in all, the best one each time, though it may be for the
        worse. Every partition is changed once."""
        steps = list(self._steps())
        if len(steps) > PAIRS:
            return False
        for first in steps:
            if not self._is_possible(first):
                continue
            total, undo = self._apply(first)
            undone = [undo]
            changed = self._partitions_of(first)
            while len(undone) < CHAIN and self._left > 0:
                best = self._best(step for step in steps if not changed & self._partitions_of(step))
                if best is None:
                    break
                change, undo = self._apply(best)
                undone.append(undo)
                changed |= self._partitions_of(best)
                total = tuple(x + y for x, y in zip(total, change, strict=True))
                if total < NO_CHANGE:
                    return True
            for undo in reversed(undone):
                self._undo(undo)
        return False

    def _partitions_of(self, step: Step) -> set[int]:
        return {self._state.partition_of[slot] for slot, _ in step}

    def _best(self, steps: Iterable[Step]) -> Step | None:
        """Returns the step with the best change."""
        best: tuple[Change, Step] | None = None
        for step in steps:
            if self._is_possible(step):
                change, undo = self._apply(step)
                self._undo(undo)
                if best is None or change < best[0]:
                    best = change, step
        return None if best is None else best[1]

    def _improve_by_exchange_of_brokers(self) -> bool:
        """Lets two brokers take each other's replicas. The balance stays, but fewer bytes may move."""
        state = self._state
        receivers = [b for b in state.eligible if state.receives[b]]
        for number, a in enumerate(receivers):
            for b in receivers[number + 1 :]:
                change, undo = self._apply(self._exchange(a, b))
                if change < NO_CHANGE:
                    return True
                self._undo(undo)
        return False

    def _exchange(self, a: int, b: int) -> Step:
        """Returns the step that exchanges the replicas of two brokers, as far as they may move."""
        state = self._state
        step = []
        for slot in self._movable:
            p, there = state.partition_of[slot], state.broker_of[slot]
            if there not in (a, b):
                continue
            other = b if there == a else a
            if state.slot_on(p, other) < 0:
                step.append((slot, other))
            elif state.leader_slot[p] == slot and p in self._partitions:
                step.append((state.slot_on(p, other), LEAD))
        return tuple(step)

    # -- steps

    def _steps(self) -> Iterator[Step]:
        state = self._state
        eligible = set(state.eligible)
        for p in self._partitions:
            for slot in range(state.first[p], state.first[p + 1]):
                yield ((slot, LEAD),)
        for slot in self._movable:
            for b in state.eligible:
                if state.receives[b] or b == state.home[slot]:
                    yield ((slot, b),)
        for number, slot in enumerate(self._movable):
            for other in self._movable[number + 1 :]:
                a, b = state.broker_of[slot], state.broker_of[other]
                if a != b and a in eligible and state.receives[a] and state.receives[b]:
                    yield ((slot, b), (other, a))

    def _is_possible(self, step: Step) -> bool:
        state = self._state
        if len(step) == 2:
            (slot, b), (other, a) = step
            p, q = state.partition_of[slot], state.partition_of[other]
            return (
                p != q
                and state.broker_of[slot] == a
                and state.broker_of[other] == b
                and state.slot_on(p, b) < 0
                and state.slot_on(q, a) < 0
            )
        ((slot, b),) = step
        p = state.partition_of[slot]
        if b == LEAD:
            return state.leader_slot[p] != slot and state.broker_of[slot] in state.eligible
        return state.slot_on(p, b) < 0

    def _apply(self, step: Step) -> tuple[Change, Step]:
        """Takes a step. Returns what it changes and the step that undoes it."""
        self._left -= 1
        state = self._state
        brokers: set[int] = set()
        partitions = {state.partition_of[slot] for slot, _ in step}
        for slot, b in step:
            brokers.add(state.broker_of[slot])
            brokers.add(state.broker_of[state.leader_slot[state.partition_of[slot]]] if b == LEAD else b)
        before = self._cost(brokers, partitions)
        undo = tuple(
            (state.leader_slot[state.partition_of[slot]], LEAD)
            if b == LEAD
            else (slot, state.broker_of[slot])
            for slot, b in step
        )
        self._undo(step)
        after = self._cost(brokers, partitions)
        return tuple(y - x for x, y in zip(before, after, strict=True)), undo

    def _undo(self, step: Step) -> None:
        for slot, b in step:
            if b == LEAD:
                self._state.lead(slot)
            else:
                self._state.move(slot, b)

    def _cost(self, brokers: set[int], partitions: set[int]) -> Change:
        """Returns the costs that depend on some brokers and partitions."""
        state, goals = self._state, self._goals
        topics = {state.topic_of[p] for p in partitions}
        overflow = replicas = size = leaders = spread = leader_bytes = 0
        for b in brokers:
            overflow += goals.overflow(b, state.bytes[b])
            replicas += goals.replicas.excess(b, state.replicas[b]) ** 2
            size += goals.bytes.excess(b, state.bytes[b]) ** 2
            leaders += goals.leaders.excess(b, state.leaders[b]) ** 2
            leader_bytes += goals.leader_bytes.excess(b, state.leader_bytes[b]) ** 2
            spread += sum(goals.topic_excess(topic, b) ** 2 for topic in topics)
        crowded = sum(goals.crowded(p) for p in partitions)
        lost = sum(goals.lost_racks_if_kept(p) for p in partitions)
        return crowded, overflow, lost, replicas, size, leaders, spread, state.moved_bytes, leader_bytes
