"""Symmetry reduction: worlds that differ in the names of nodes alone count as one."""

from __future__ import annotations

from itertools import permutations

from simulation.explorer.replica_table import ReplicaTable
from simulation.explorer.serialization import Renaming
from simulation.explorer.transition_checker import TransitionChecker

# n replicas, the history, three budgets of all, the crashes of each replica, messages
WorldState = tuple[int, ...]


class SymmetryReduction:
    """Finds the representative of all worlds that differ in the names of nodes alone."""

    def __init__(self, replicas: ReplicaTable, checker: TransitionChecker, n: int, *, enabled: bool) -> None:
        self._replicas = replicas
        self._checker = checker
        self._n = n
        self._renamings: list[Renaming] = list(permutations(range(n)))[1:] if enabled else []
        self._renamed: dict[tuple[Renaming, str], dict[int, int]] = {
            (r, k): {} for r in self._renamings for k in ("replica", "message", "history")
        }

    def canonical(self, world: WorldState) -> WorldState:
        """Returns the least of all worlds that differ from this one in the names of nodes alone."""
        return self.canonical_with_renaming(world)[0]

    def canonical_with_renaming(self, world: WorldState) -> tuple[WorldState, Renaming]:
        """Returns the representative, and the renaming that leads to it."""
        n, best, by = self._n, world, tuple(range(self._n))
        budgets, messages = world[n + 1 : n + 4], world[2 * n + 4 :]
        for renaming in self._renamings:
            places, crashes = [0] * n, [0] * n
            replicas = self._renamed[renaming, "replica"]
            for i in range(n):
                number = world[i]
                new = replicas.get(number)
                if new is None:
                    new = replicas[number] = self._replicas.renamed(renaming, number)
                places[renaming[i]], crashes[renaming[i]] = new, world[n + 4 + i]
            if tuple(places) > best[:n]:
                continue
            renamed_histories, history = self._renamed[renaming, "history"], world[n]
            if history not in renamed_histories:
                renamed_histories[history] = self._checker.renamed(renaming, history)
            renamed_messages, renamed = self._renamed[renaming, "message"], []
            for at in messages:
                found = renamed_messages.get(at)
                if found is None:
                    found = renamed_messages[at] = self._replicas.renamed_message(renaming, at)
                renamed.append(found)
            renamed.sort()
            candidate = (*places, renamed_histories[history], *budgets, *crashes, *renamed)
            if candidate < best:
                best, by = candidate, renaming
        return best, by
