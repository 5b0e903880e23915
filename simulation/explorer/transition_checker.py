"""Checks each transition between worlds by the invariants of the simulation.

The invariants need history variables: which replicas led, for whom each replica voted, and which records were
committed. These variables are part of a world, as far as later checks depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quorate.raft.types import Role
from simulation.checker.invariants import InvariantChecker, InvariantError, Key, ReplicaModel, keys_of
from simulation.explorer.replica import FIRST_ID
from simulation.explorer.replica_table import Outcome, ReplicaState, ReplicaTable
from simulation.explorer.serialization import Renaming
from simulation.identifiers import directory_id


class ViolationError(Exception):
    """A transition breaks an invariant."""


@dataclass(slots=True)
class History:
    """The history variables of a world, with the meaning that they have in `InvariantChecker`."""

    leaders: dict[int, Key] = field(default_factory=dict)
    votes: dict[int, dict[Key, int]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=lambda: [0])
    digests: list[int] = field(default_factory=lambda: [0])
    epochs: list[int] = field(default_factory=lambda: [0])

    def key(self) -> object:
        votes = tuple(
            sorted((e, tuple(sorted((k[0], v) for k, v in of.items()))) for e, of in self.votes.items())
        )
        leaders = tuple(sorted((e, k[0]) for e, k in self.leaders.items()))
        return (leaders, votes, tuple(self.ends), tuple(self.digests), tuple(self.epochs))


class TransitionChecker:
    """Checks the facts of an outcome, and computes the history after it. Equal histories have one number."""

    def __init__(self, replicas: ReplicaTable) -> None:
        self.serializer = replicas.serializer
        self.first_set = keys_of(replicas.bootstrap_voters)
        self.histories: list[History] = []
        self._numbers: dict[object, int] = {}
        self._checked: dict[object, int | str] = {}
        self._number(History())

    def _number(self, history: History) -> int:
        key = history.key()
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.histories)
            self.histories.append(history)
        return found

    def renamed(self, renaming: Renaming, number: int) -> int:
        """Returns the same history with renamed nodes."""
        history = self.histories[number]

        def key(k: Key) -> Key:
            node = FIRST_ID + renaming[k[0] - FIRST_ID]
            return (node, directory_id(node))

        votes = {
            e: {key(k): FIRST_ID + renaming[v - FIRST_ID] for k, v in of.items()}
            for e, of in history.votes.items()
        }
        leaders = {e: key(k) for e, k in history.leaders.items()}
        digests = [self.serializer.rename_digest(renaming, d) for d in history.digests]
        return self._number(History(leaders, votes, history.ends, digests, history.epochs))

    def after(
        self, history: int, here: Sequence[ReplicaState], i: int, out: Outcome, then: ReplicaState
    ) -> int:
        """Returns the history after this outcome at the replica at place `i`, whose next state is `then`.

        Raises ViolationError.
        """
        ballots = tuple([state.ballot for state in here]) if out.affects_election else None
        key = (history, here[i].serialized, id(out), tuple([state.log for state in here]), ballots)
        found = self._checked.get(key)
        if found is None:
            found = self._checked[key] = self._check(self.histories[history], here, i, out, then)
        if isinstance(found, str):
            raise ViolationError(found)
        return found

    def _check(
        self, history: History, here: Sequence[ReplicaState], i: int, out: Outcome, then: ReplicaState
    ) -> int | str:
        checker, before = InvariantChecker(self.first_set), here[i]
        checker.leaders, checker.votes = dict(history.leaders), {e: dict(v) for e, v in history.votes.items()}
        checker.ends, checker.digests, checker.epochs = (
            list(history.ends),
            list(history.digests),
            list(history.epochs),
        )
        checker.stored_leaders = {epoch: key[0] for epoch, key in history.leaders.items()}
        for state in here:
            checker.seen.update({(b.end, b.epoch): b.digest for b in state.batches})
            if state.stored is not None and state.stored.leader_id is not None:
                checker.stored_leaders.setdefault(state.stored.epoch, state.stored.leader_id)
        model = ReplicaModel(f"n{before.id}", (before.id, directory_id(before.id)), self.first_set)
        for batch in before.batches:
            model.log.append(batch)
        model.voter_sets, model.hwm, model.epoch, model.led = (
            list(before.voter_sets),
            before.hwm if before.alive else -1,
            before.stored_epoch,
            before.led,
        )
        try:
            for name, args in out.facts:
                match name:
                    case "high_watermark_advanced":
                        self._high_watermark_advanced(checker, model, here, i, *args)
                    case "appended":
                        checker.appended(model, args[0], leads=args[1])
                    case _:
                        getattr(checker, name)(model, *args)
        except InvariantError as e:
            return str(e)
        votes = self._relevant_votes(checker, [then if at == i else k for at, k in enumerate(here)])
        return self._number(History(checker.leaders, votes, checker.ends, checker.digests, checker.epochs))

    def _high_watermark_advanced(
        self,
        checker: InvariantChecker,
        model: ReplicaModel,
        here: Sequence[ReplicaState],
        i: int,
        hwm: int,
        durable_end: int,
        epoch: int,
    ) -> None:
        def holds(key: Key, at: int, digest: int) -> bool:
            if key[0] == i + FIRST_ID:
                return durable_end >= at
            state = here[key[0] - FIRST_ID]
            return state.durable_end >= at and state.digests.get(at) == digest

        checker.high_watermark_advanced(model, hwm, holds)
        last = model.log.between(0, hwm)[-1]
        if last.epoch != epoch:
            raise InvariantError(
                f"own epoch: {model.name} commits {hwm} in epoch {epoch}, all below is of epoch {last.epoch}"
            )

    def _relevant_votes(
        self, checker: InvariantChecker, here: Sequence[ReplicaState]
    ) -> dict[int, dict[Key, int]]:
        """Returns the votes that are still relevant.

        A vote is, while its epoch has no leader yet and may get one, or while its voter may vote again in
        the epoch.
        """
        may_lead, may_vote = set(), set()
        for state in here:
            if state.role is Role.CANDIDATE:
                may_lead.add(state.epoch)
            if state.stored is not None and state.stored.leader_id is None:
                may_vote.add((state.id, state.stored.epoch))
                if state.stored.voted is not None and state.stored.voted.id == state.id:
                    may_lead.add(state.stored.epoch)
        may_lead -= set(checker.leaders)
        votes: dict[int, dict[Key, int]] = {}
        for epoch, of in checker.votes.items():
            kept = {key: v for key, v in of.items() if epoch in may_lead or (key[0], epoch) in may_vote}
            if kept:
                votes[epoch] = kept
        return votes
