"""The small world around replicas: which moves there are, where each leads, and whether what happened is allowed.

A world is a tuple of numbers: one for each replica, one for what was ever led, voted and committed, what is left of the
budgets, and the letters that are under way, in order of their numbers. Nothing else tells two worlds apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from quorate.raft import messages as m
from quorate.raft.roles import Election  # noqa: F401
from quorate.raft.types import Role
from quorate.testing.explore_replica import AGAIN, CURRENT, ORPHAN, STALE, Event, Known, Letter, Outcome, Replicas, describe
from quorate.testing.invariants import History, InvariantError, Key, Subject, keys_of
from quorate.testing.world import directory

World = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is explored, completely."""

    replicas: int = 3
    epochs: int = 2  # nobody goes beyond
    entries: int = 2  # proposed in all, by whoever leads
    crashes: int = 1  # of each replica
    letters: int = 3  # requests, answers and resets under way at once; what is more, any of them, is lost
    timeouts: int = 0  # requests given up by their senders, in all
    again: int = 0  # retries and repeated BeginQuorumEpochs, in all
    quick: bool = False  # pre-votes after a reset connection, and giving way
    late_sync: bool = False  # fsyncs take time, and a crash takes what they have not covered
    mid_step: bool = False  # a replica may also die between the duties of one step


class Violation(Exception):
    """An invariant is broken."""


class OutOfBounds(Exception):
    """A move leads where nobody looks."""


@dataclass(slots=True)
class Draft:
    """A world while a move is made."""

    replicas: list[int]
    past: int
    letters: list[int]
    budgets: list[int]
    story: list[str] | None = None


@dataclass(slots=True)
class Past:
    """What was ever led, voted and committed, as far as it can still matter."""

    leaders: dict[int, Key] = field(default_factory=dict)
    votes: dict[int, dict[Key, int]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=lambda: [0])
    digests: list[int] = field(default_factory=lambda: [0])
    epochs: list[int] = field(default_factory=lambda: [0])


ENTRIES, TIMEOUTS, AGAINS = 0, 1, 2  # budgets; behind them the crashes of each replica


class SmallWorld:
    """The moves of the worlds within some bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.n = bounds.replicas
        self.replicas = Replicas(bounds.replicas, quick=bounds.quick, late_sync=bounds.late_sync)
        self.first_set = keys_of(self.replicas.boot)
        self.pasts: list[Past] = [Past()]
        self._past_numbers: dict[object, int] = {self._past_key(self.pasts[0]): 0}
        self._judged: dict[object, int | str] = {}
        self._other: dict[tuple[int, str], int] = {}

    # --- the beginning ----------------------------------------------------------------------------------------------

    def first(self) -> World:
        """All have just been started on formatted directories."""
        b = self.bounds
        fresh = [self.replicas.fresh(i) for i in range(1, self.n + 1)]
        draft = Draft(fresh, 0, [], [b.entries, b.timeouts, b.again, *[b.crashes] * self.n])
        for i in range(self.n):
            self._act(draft, i, ("start",))
        return self._close(draft)

    def _open(self, world: World, story: list[str] | None) -> Draft:
        n = self.n
        k = n + 1 + 3 + n
        return Draft(list(world[:n]), world[n], list(world[k:]), list(world[n + 1 : k]), story)

    def _close(self, draft: Draft) -> World:
        return (*draft.replicas, draft.past, *draft.budgets, *sorted(draft.letters))

    # --- moves ------------------------------------------------------------------------------------------------------

    def moves(self, world: World, story: list[str] | None = None) -> Iterator[World]:
        """Worlds one move on. With `story`, that list holds what happens on the way to the world just given.

        Raises Violation.
        """
        for i, event, letter, budget in self._enabled(world):
            if story is not None:
                story.clear()
            draft = self._open(world, story)
            if budget is not None:
                draft.budgets[budget] -= 1
            try:
                self._move(draft, i, event, letter)
            except OutOfBounds:
                continue
            yield from self._within(draft)

    def _enabled(self, world: World) -> Iterator[tuple[int, Event, int | None, int | None]]:
        """(replica, event, letter used up, budget used up)."""
        n, known, letters = self.n, self.replicas.known, self.replicas.letters.all
        budgets = world[n + 1 : n + 4 + n]
        for i in range(n):
            number = world[i]
            k = known[number]
            dies = budgets[3 + i] > 0
            if not k.alive:
                yield i, ("start",), None, None
                continue
            events: list[tuple[Event, int | None, int | None]] = []
            for timer in k.timers:
                if timer not in AGAIN:
                    events.append((("timer", timer), None, None))
                elif budgets[AGAINS]:
                    events.append((("timer", timer), None, AGAINS))
            if k.syncing:
                events.append((("sync",), None, None))
            if k.leads and budgets[ENTRIES]:
                events.append((("propose",), None, ENTRIES))
            if budgets[TIMEOUTS]:
                events += [(("timeout", target, kind), None, TIMEOUTS) for target, kind in k.under_way]
            last = -1
            for at in world[2 * n + 4 :]:
                if at == last:
                    continue
                last = at
                letter = letters[at]
                if letter.stage == "request" and letter.target == i + 1:
                    events.append((("deliver", at), at, None))
                elif letter.stage == "reply" and letter.sender == i + 1:
                    events.append((("reply", at), at, None))
                elif letter.stage == "reset" and letter.target == i + 1:
                    events.append((("reset", letter.sender), at, None))
                elif letter.stage == "request" and letter.sender == i + 1 and not known[world[letter.target - 1]].alive:
                    if letter.status != ORPHAN:
                        events.append((("refused", at), at, None))
            for event, letter_used, budget in events:
                yield i, event, letter_used, budget
                if dies and self.bounds.mid_step and event[0] not in ("refused", "timeout"):
                    for duties in self.replicas.outcome(number, event).dooms:
                        yield i, ("doom", duties, event), letter_used, 3 + i
            if dies:
                for keep in k.keeps:
                    yield i, ("crash", keep, False), None, 3 + i
                    if k.late:
                        yield i, ("crash", keep, True), None, 3 + i

    def _move(self, draft: Draft, i: int, event: Event, used: int | None) -> None:
        if used is not None:
            draft.letters.remove(used)
        match event:
            case ("refused", number):
                letter = self.replicas.letters.all[number]
                self._reply(draft, letter, m.Failure.DISCONNECTED)
            case ("timeout", target, kind):
                self._give_up(draft, i, target, kind)
                self._act(draft, i, event)
            case _:
                self._act(draft, i, event)

    def _act(self, draft: Draft, i: int, event: Event) -> None:
        """One replica's event, and all that follows at once."""
        replicas, letters = self.replicas, self.replicas.letters
        number = draft.replicas[i]
        out = replicas.outcome(number, event)
        if out.violation is not None:
            self._tell(draft, i, event, out)
            raise Violation(out.violation)
        if out.epoch > self.bounds.epochs:
            raise OutOfBounds
        if draft.story is not None:
            self._tell(draft, i, event, out)
        if out.facts:
            self._judge(draft, i, out)
        draft.replicas[i] = out.after
        inner = event[2] if event[0] == "doom" else event
        delivered = letters.all[inner[1]] if inner[0] == "deliver" else None
        if out.lost:
            self._turn_away(draft, i + 1, out.lost)
        if delivered is not None and delivered.kind == "Fetch":
            self._drop_held(draft, delivered.sender, i + 1)
        answers: list[tuple[Letter, m.Reply]] = []
        for sender, kind, reply in out.answers:
            if delivered is not None and not out.held and (sender, kind) == (delivered.sender, delivered.kind):
                answers.append((delivered, reply))
                delivered = None
            else:
                held = self._drop_held(draft, sender, i + 1)
                if held is not None:
                    answers.append((held, reply))
        for sent in out.sends:
            draft.letters.append(sent)
        if out.held and delivered is not None and replicas.known[out.after].alive:
            if delivered.status == ORPHAN:
                self._act(draft, i, ("expire", delivered.sender, delivered.kind))
            else:
                held = Letter("held", delivered.sender, delivered.target, delivered.request, delivered.status)
                draft.letters.append(letters.number(held))
        if not replicas.known[out.after].alive and replicas.known[number].alive:
            self._died(draft, i + 1)
        for letter, reply in answers:
            self._answer(draft, letter, reply)

    def _answer(self, draft: Draft, letter: Letter, reply: m.Reply) -> None:
        if letter.status == ORPHAN or not self.replicas.known[draft.replicas[letter.sender - 1]].alive:
            return
        number = self.replicas.letters.number(
            Letter("reply", letter.sender, letter.target, letter.request, letter.status, reply)
        )  # fmt: skip
        # That a leader's announcement was heard is no news: it is known at once. Only a repetition depends on it.
        no_news = isinstance(reply, m.EpochReply) and not reply.error and reply.epoch == getattr(letter.request, "epoch", -1)
        if not no_news:
            draft.letters.append(number)
        elif letter.status == CURRENT:
            self._act(draft, letter.sender - 1, ("reply", number))

    def _reply(self, draft: Draft, letter: Letter, reply: m.Failure) -> None:
        number = self.replicas.letters.number(
            Letter("reply", letter.sender, letter.target, letter.request, letter.status, reply)
        )  # fmt: skip
        self._act(draft, letter.sender - 1, ("reply", number))

    # --- letters ----------------------------------------------------------------------------------------------------

    def _with_status(self, number: int, status: str) -> int:
        found = self._other.get((number, status))
        if found is None:
            a = self.replicas.letters.all[number]
            found = self.replicas.letters.number(Letter(a.stage, a.sender, a.target, a.request, status, a.reply))
            self._other[number, status] = found
        return found

    def _turn_away(self, draft: Draft, sender: int, lost: frozenset[tuple[int, str]]) -> None:
        letters = self.replicas.letters.all
        for at, number in enumerate(draft.letters):
            a = letters[number]
            if a.sender == sender and a.status == CURRENT and a.stage != "reset" and (a.target, a.kind) in lost:
                draft.letters[at] = self._with_status(number, STALE)

    def _drop_held(self, draft: Draft, sender: int, target: int) -> Letter | None:
        for number in draft.letters:
            a = self.replicas.letters.all[number]
            if a.stage == "held" and a.sender == sender and a.target == target:
                draft.letters.remove(number)
                return a
        return None

    def _give_up(self, draft: Draft, i: int, target: int, kind: str) -> None:
        """The sender hears nothing more of its request; it may arrive."""
        for number in list(draft.letters):
            a = self.replicas.letters.all[number]
            if (a.sender, a.target, a.status) == (i + 1, target, CURRENT) and a.stage != "reset" and a.kind == kind:
                draft.letters.remove(number)
                if a.stage == "request":
                    draft.letters.append(self._with_status(number, ORPHAN))
                elif a.stage == "held":
                    self._act(draft, target - 1, ("expire", i + 1, kind))

    def _died(self, draft: Draft, node_id: int) -> None:
        letters, known = self.replicas.letters, self.replicas.known
        for number in list(draft.letters):
            a = letters.all[number]
            if a.stage == "reset":
                if a.target == node_id:
                    draft.letters.remove(number)
            elif a.sender == node_id:
                draft.letters.remove(number)
                if a.stage == "request":
                    draft.letters.append(self._with_status(number, ORPHAN))
                elif a.stage == "held":
                    self._act(draft, a.target - 1, ("expire", node_id, a.kind))
            elif a.stage == "held" and a.target == node_id:
                draft.letters.remove(number)
                failed = Letter("reply", a.sender, a.target, a.request, a.status, m.Failure.DISCONNECTED)
                draft.letters.append(letters.number(failed))
        if self.bounds.quick:
            for at in draft.replicas:
                if known[at].follows == node_id:
                    draft.letters.append(letters.number(Letter("reset", node_id, known[at].id, None)))

    def _within(self, draft: Draft) -> Iterator[World]:
        """Without what can have no effect any more; and where too much is under way, any of it lost."""
        letters, known = self.replicas.letters.all, self.replicas.known
        here = [known[number] for number in draft.replicas]
        moving: list[int] = []
        resting: list[int] = []
        for number in draft.letters:
            a = letters[number]
            if a.stage == "held":
                resting.append(number)
            elif not self._dead_letter(a, here):
                moving.append(number)
        excess = len(moving) - self.bounds.letters
        start = (*draft.replicas, draft.past, *draft.budgets)
        if excess <= 0:
            yield (*start, *sorted(resting + moving))
            return
        for kept in set(combinations(sorted(moving), self.bounds.letters)):
            yield (*start, *sorted([*resting, *kept]))

    def _dead_letter(self, a: Letter, here: list[Known]) -> bool:
        if a.stage == "reset":
            return here[a.target - 1].follows != a.sender
        if a.stage == "reply":
            return a.status == STALE and isinstance(a.reply, m.Reply) and a.reply.epoch < here[a.sender - 1].epoch
        return a.status == ORPHAN and getattr(a.request, "epoch", 0) < here[a.target - 1].epoch

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, draft: Draft, i: int, out: Outcome) -> None:
        logs = tuple(self.replicas.known[number].log for number in draft.replicas)
        key = (draft.past, draft.replicas[i], id(out), logs, tuple(draft.replicas) if self._elects(out) else None)
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = self._judge_anew(draft, i, out)
        if isinstance(found, str):
            raise Violation(found)
        draft.past = found

    def _elects(self, out: Outcome) -> bool:
        return any(name in ("stored", "leads") for name, _ in out.facts)

    def _judge_anew(self, draft: Draft, i: int, out: Outcome) -> int | str:
        known = self.replicas.known
        past, before = self.pasts[draft.past], known[draft.replicas[i]]
        h = History(self.first_set)
        h.leaders, h.votes = dict(past.leaders), {e: dict(v) for e, v in past.votes.items()}
        h.ends, h.digests, h.epochs = list(past.ends), list(past.digests), list(past.epochs)
        for number in draft.replicas:
            h.seen.update({(b.end, b.epoch): b.digest for b in known[number].batches})
        s = Subject(f"n{before.id}", (before.id, directory(before.id)), self.first_set)
        for batch in before.batches:
            s.trail.append(batch)
        s.sets, s.hwm, s.epoch, s.led = list(before.sets), before.hwm, before.stored_epoch, before.led
        if draft.replicas[i] != out.after and out.facts and not before.alive:
            s.hwm = -1
        try:
            for name, args in out.facts:
                if name == "reached":
                    self._reached(h, s, draft, i, *args)
                elif name == "appended":
                    h.appended(s, args[0], leads=args[1])
                else:
                    getattr(h, name)(s, *args)
        except InvariantError as e:
            return str(e)
        new = Past(h.leaders, h.votes, h.ends, h.digests, h.epochs)
        self._forget_votes(new, draft, i, out)
        key = self._past_key(new)
        found = self._past_numbers.get(key)
        if found is None:
            found = self._past_numbers[key] = len(self.pasts)
            self.pasts.append(new)
        return found

    def _reached(self, h: History, s: Subject, draft: Draft, i: int, hwm: int, durable_end: int, epoch: int) -> None:
        known = self.replicas.known

        def holds(key: Key, at: int, digest: int) -> bool:
            if key[0] == i + 1:
                return durable_end >= at
            k = known[draft.replicas[key[0] - 1]]
            return k.durable_end >= at and k.digests.get(at) == digest

        h.reached(s, hwm, holds)
        last = s.trail.between(0, hwm)[-1]
        if last.epoch != epoch:
            raise InvariantError(f"own epoch: {s.name} commits {hwm} in epoch {epoch}, all below is of epoch {last.epoch}")

    def _forget_votes(self, past: Past, draft: Draft, i: int, out: Outcome) -> None:
        """Votes matter while their epoch may still get a leader, and to their voter until it stores a later epoch."""
        known = self.replicas.known
        here = [known[out.after if at == i else number] for at, number in enumerate(draft.replicas)]
        open_epochs = set()
        for k in here:
            if k.role is Role.CANDIDATE:
                open_epochs.add(k.epoch)
            if k.stored is not None and k.stored.voted is not None and k.stored.voted.id == k.id:
                open_epochs.add(k.stored.epoch)
        votes: dict[int, dict[Key, int]] = {}
        for epoch, of in past.votes.items():
            kept = {key: v for key, v in of.items() if epoch in open_epochs or here[key[0] - 1].stored_epoch <= epoch}
            if kept:
                votes[epoch] = kept
        past.votes = votes

    def _past_key(self, p: Past) -> object:
        votes = tuple(sorted((e, tuple(sorted((k[0], v) for k, v in of.items()))) for e, of in p.votes.items()))
        leaders = tuple(sorted((e, k[0]) for e, k in p.leaders.items()))
        return (leaders, votes, tuple(p.ends), tuple(p.digests), tuple(p.epochs))

    # --- telling ----------------------------------------------------------------------------------------------------

    def _tell(self, draft: Draft, i: int, event: Event, out: Outcome) -> None:
        if draft.story is None:
            return
        draft.story.append(self._text(i + 1, event))
        draft.story.extend("    " + line for line in out.told)

    def _text(self, node: int, event: Event) -> str:
        letters = self.replicas.letters.all
        match event:
            case ("deliver" | "reply", number):
                where = "arrives" if event[0] == "deliver" else f"reaches n{node}"
                return f"{letters[number].text()} {where}"
            case ("timer", name):
                return f"n{node}'s {name} timer goes off"
            case ("sync",):
                return f"n{node}'s fsync is done"
            case ("propose",):
                return f"n{node} is asked to append an entry"
            case ("crash", keep, _):
                return f"n{node} crashes, its log is kept up to {keep}"
            case ("start",):
                return f"n{node} starts again"
            case ("expire", sender, _):
                return f"n{node} drops the waiting Fetch of n{sender}"
            case ("timeout", target, kind):
                return f"n{node} gives up its {kind} to n{target}"
            case ("reset", peer):
                return f"n{node} sees its connection to n{peer} reset"
            case ("doom", duties, inner):
                return f"{self._text(node, inner)}; n{node} dies after duty {duties}"
        return describe(event)
