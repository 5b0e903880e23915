"""Whether what happens in a small world is allowed, by the same invariants as in the simulations.

What was ever led, voted and committed is part of a world, as far as it can still matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quorate.raft.types import Role
from simulation.explore_frozen import Renaming
from simulation.explore_replica import FIRST_ID
from simulation.explore_states import Known, Outcome, Replicas
from simulation.invariants import History, InvariantError, Key, Subject, keys_of
from simulation.world import directory


class ViolationError(Exception):
    """An invariant is broken."""


@dataclass(slots=True)
class Past:
    leaders: dict[int, Key] = field(default_factory=dict)
    votes: dict[int, dict[Key, int]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=lambda: [0])
    digests: list[int] = field(default_factory=lambda: [0])
    epochs: list[int] = field(default_factory=lambda: [0])

    def key(self) -> object:
        votes = tuple(sorted((e, tuple(sorted((k[0], v) for k, v in of.items()))) for e, of in self.votes.items()))
        leaders = tuple(sorted((e, k[0]) for e, k in self.leaders.items()))
        return (leaders, votes, tuple(self.ends), tuple(self.digests), tuple(self.epochs))


class Judge:
    """Pasts by number, and how facts change them."""

    def __init__(self, replicas: Replicas) -> None:
        self.shared = replicas.shared
        self.first_set = keys_of(replicas.boot)
        self.pasts: list[Past] = []
        self._numbers: dict[object, int] = {}
        self._judged: dict[object, int | str] = {}
        self._number(Past())

    def _number(self, past: Past) -> int:
        key = past.key()
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.pasts)
            self.pasts.append(past)
        return found

    def renamed(self, renaming: Renaming, number: int) -> int:
        """The same with other names."""
        past = self.pasts[number]

        def key(k: Key) -> Key:
            node = FIRST_ID + renaming[k[0] - FIRST_ID]
            return (node, directory(node))

        votes = {e: {key(k): FIRST_ID + renaming[v - FIRST_ID] for k, v in of.items()} for e, of in past.votes.items()}
        leaders = {e: key(k) for e, k in past.leaders.items()}
        digests = [self.shared.rename_digest(renaming, d) for d in past.digests]
        return self._number(Past(leaders, votes, past.ends, digests, past.epochs))

    def after(self, past: int, here: Sequence[Known], i: int, out: Outcome, then: Known) -> int:
        """The past when this outcome has happened to the replica at place i, which is `then` afterwards.

        Raises ViolationError.
        """
        ballots = tuple([k.ballot for k in here]) if out.elects else None
        key = (past, here[i].frozen, id(out), tuple([k.log for k in here]), ballots)
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = self._judge(self.pasts[past], here, i, out, then)
        if isinstance(found, str):
            raise ViolationError(found)
        return found

    def _judge(self, past: Past, here: Sequence[Known], i: int, out: Outcome, then: Known) -> int | str:
        h, before = History(self.first_set), here[i]
        h.leaders, h.votes = dict(past.leaders), {e: dict(v) for e, v in past.votes.items()}
        h.ends, h.digests, h.epochs = list(past.ends), list(past.digests), list(past.epochs)
        h.named = {epoch: key[0] for epoch, key in past.leaders.items()}
        for k in here:
            h.seen.update({(b.end, b.epoch): b.digest for b in k.batches})
            if k.stored is not None and k.stored.leader_id is not None:
                h.named.setdefault(k.stored.epoch, k.stored.leader_id)
        s = Subject(f"n{before.id}", (before.id, directory(before.id)), self.first_set)
        for batch in before.batches:
            s.trail.append(batch)
        s.sets, s.hwm, s.epoch, s.led = list(before.sets), before.hwm if before.alive else -1, before.stored_epoch, before.led
        try:
            for name, args in out.facts:
                match name:
                    case "reached":
                        self._reached(h, s, here, i, *args)
                    case "appended":
                        h.appended(s, args[0], leads=args[1])
                    case _:
                        getattr(h, name)(s, *args)
        except InvariantError as e:
            return str(e)
        votes = self._still_matter(h, [then if at == i else k for at, k in enumerate(here)])
        return self._number(Past(h.leaders, votes, h.ends, h.digests, h.epochs))

    def _reached(self, h: History, s: Subject, here: Sequence[Known], i: int, hwm: int, durable_end: int, epoch: int) -> None:
        def holds(key: Key, at: int, digest: int) -> bool:
            if key[0] == i + FIRST_ID:
                return durable_end >= at
            k = here[key[0] - FIRST_ID]
            return k.durable_end >= at and k.digests.get(at) == digest

        h.reached(s, hwm, holds)
        last = s.trail.between(0, hwm)[-1]
        if last.epoch != epoch:
            raise InvariantError(f"own epoch: {s.name} commits {hwm} in epoch {epoch}, all below is of epoch {last.epoch}")

    def _still_matter(self, h: History, here: Sequence[Known]) -> dict[int, dict[Key, int]]:
        """Votes matter while their epoch has no leader yet and may get one, or their voter may vote again in it."""
        may_lead, may_vote = set(), set()
        for k in here:
            if k.role is Role.CANDIDATE:
                may_lead.add(k.epoch)
            if k.stored is not None and k.stored.leader_id is None:
                may_vote.add((k.id, k.stored.epoch))
                if k.stored.voted is not None and k.stored.voted.id == k.id:
                    may_lead.add(k.stored.epoch)
        may_lead -= set(h.leaders)
        votes: dict[int, dict[Key, int]] = {}
        for epoch, of in h.votes.items():
            kept = {key: v for key, v in of.items() if epoch in may_lead or (key[0], epoch) in may_vote}
            if kept:
                votes[epoch] = kept
        return votes
