"""The small world around replicas: which moves there are, where each leads, and whether what happened is allowed.

A world is a tuple of numbers: one for each replica, one for what was ever led, voted and committed, what is left of the
budgets, and the letters that are under way, in order of their numbers. Nothing else tells two worlds apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations

from quorate.raft import messages as m
from quorate.raft.types import Role
from simulation.explore_frozen import Renaming
from simulation.explore_judge import Judge, ViolationError
from simulation.explore_letters import CURRENT, ORPHAN, STALE, Letter, describe
from simulation.explore_replica import BEGIN, CHECK_QUORUM, FIRST_ID, STAND, Event, nodes
from simulation.explore_states import Known, Outcome, Replicas

World = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is explored, completely."""

    replicas: int = 3
    epochs: int = 2  # nobody goes beyond
    entries: int = 2  # proposed in all, by whoever leads
    crashes: int = 1  # of each replica
    down: bool = False  # who has crashed stays down for a while; else it is up again at once, and hears as little as it may
    letters: int = 1  # requests, answers and resets that may be late at once; others arrive at once, or never
    timeouts: int = 0  # requests given up by their senders, in all
    again: int = 0  # BeginQuorumEpochs repeated to all, in all
    check_quorum: bool = False  # leaders may find that nobody fetches, and resign; those that crash do so in any case
    quick: bool = False  # pre-votes after a reset connection, and giving way
    slow_disk: bool = False  # fsyncs take time, and a crash takes what they have not covered
    late_pre_votes: bool = False  # else a pre-vote is answered at once or never
    symmetric: bool = True  # worlds that differ in the nodes' names alone are one
    mid_step: bool = False  # a replica may also die between the duties of one step


class OutOfBoundsError(Exception):
    """A move leads where nobody looks."""


@dataclass(slots=True)
class Draft:
    """A world while a move is made."""

    replicas: list[int]
    past: int
    letters: list[int]
    budgets: list[int]
    story: list[str] | None = None
    reached: int = 0  # by pre-votes that are answered at once: a bit for each node id


ENTRIES, TIMEOUTS, AGAINS = 0, 1, 2  # budgets; behind them the crashes of each replica


class SmallWorld:
    """The moves of the worlds within some bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.n = bounds.replicas
        self.replicas = Replicas(
            bounds.replicas,
            quick=bounds.quick,
            slow_disk=bounds.slow_disk,
            again=bounds.again > 0 or bounds.timeouts > 0,
            mortal=bounds.crashes > 0,
        )
        self.judge = Judge(self.replicas)
        self._other: dict[tuple[int, str], int] = {}
        self.renamings: list[Renaming] = list(permutations(range(self.n)))[1:] if bounds.symmetric else []
        self._as: dict[tuple[Renaming, str], dict[int, int]] = {
            (r, k): {} for r in self.renamings for k in ("replica", "letter", "past")
        }

    # --- the beginning ----------------------------------------------------------------------------------------------

    def first(self) -> World:
        """All have just been started on formatted directories."""
        b = self.bounds
        fresh = [self.replicas.fresh(i) for i in nodes(self.n)]
        draft = Draft(fresh, 0, [], [b.entries, b.timeouts, b.again, *[b.crashes] * self.n])
        for i in range(self.n):
            self._act(draft, i, ("start",))
        return self.standing_for(self._close(draft))

    def _open(self, world: World, story: list[str] | None) -> Draft:
        n = self.n
        k = n + 1 + 3 + n
        return Draft(list(world[:n]), world[n], list(world[k:]), list(world[n + 1 : k]), story)

    def _close(self, draft: Draft) -> World:
        return (*draft.replicas, draft.past, *draft.budgets, *sorted(draft.letters))

    # --- one for all that are alike ---------------------------------------------------------------------------------

    def standing_for(self, world: World) -> World:
        """The same for worlds that differ in the nodes' names alone."""
        return self.renamed(world)[0]

    def renamed(self, world: World) -> tuple[World, Renaming]:
        """`standing_for`, and who is who in it."""
        n, best, by = self.n, world, tuple(range(self.n))
        budgets, letters = world[n + 1 : n + 4], world[2 * n + 4 :]
        for renaming in self.renamings:
            places, crashes = [0] * n, [0] * n
            replicas = self._as[renaming, "replica"]
            for i in range(n):
                number = world[i]
                new = replicas.get(number)
                if new is None:
                    new = replicas[number] = self.replicas.renamed(renaming, number)
                places[renaming[i]], crashes[renaming[i]] = new, world[n + 4 + i]
            if tuple(places) > best[:n]:
                continue
            as_past, past = self._as[renaming, "past"], world[n]
            if past not in as_past:
                as_past[past] = self.judge.renamed(renaming, past)
            as_letter, renamed = self._as[renaming, "letter"], []
            for at in letters:
                found = as_letter.get(at)
                if found is None:
                    found = as_letter[at] = self.replicas.renamed_letter(renaming, at)
                renamed.append(found)
            renamed.sort()
            candidate = (*places, as_past[past], *budgets, *crashes, *renamed)
            if candidate < best:
                best, by = candidate, renaming
        return best, by

    # --- moves ------------------------------------------------------------------------------------------------------

    def moves(self, world: World, story: list[str] | None = None) -> Iterator[World]:
        """Worlds one move on. With `story`, that list holds what happens on the way to the world just given, and nobody is
        renamed.

        Raises ViolationError.
        """
        for i, event, letter, budget in self._enabled(world):
            for reached in self._reaches(world, i, event):
                if story is not None:
                    story.clear()
                draft = self._open(world, story)
                draft.reached = reached
                if budget is not None:
                    draft.budgets[budget] -= 1
                try:
                    self._move(draft, i, event, letter)
                except OutOfBoundsError:
                    continue
                after = self._without_dead_letters(draft)
                yield after if story is not None else self.standing_for(after)

    def _reaches(self, world: World, i: int, event: Event) -> list[int]:
        """Whom pre-votes sent by this event reach: every set of others is a move of its own."""
        if self.bounds.late_pre_votes or event[0] in ("refused", "lost", "late"):
            return [0]
        sends = self.replicas.outcome(world[i], event).sends
        asked = [self.replicas.letters.all[s] for s in sends]
        sets = [0]
        for letter in asked:
            if isinstance(letter.request, m.Vote) and letter.request.pre_vote:
                sets += [r | 1 << (letter.target - FIRST_ID) for r in sets]
        return sets

    def _enabled(self, world: World) -> Iterator[tuple[int, Event, int | None, int | None]]:
        """(replica, event, letter used up, budget used up)."""
        n, known, letters = self.n, self.replicas.known, self.replicas.letters.all
        budgets, under_way = world[n + 1 : n + 4 + n], world[2 * n + 4 :]
        urgent = [at for at in under_way if letters[at].stage != "held" and not letters[at].late]
        if urgent:
            yield from self._urgent(world, urgent[0])
            return
        for i in range(n):
            number = world[i]
            k = known[number]
            dies, last_life = budgets[3 + i] > 0, budgets[3 + i] == 1
            if not k.alive:
                yield i, ("start",), None, None
                continue
            events: list[tuple[Event, int | None, int | None]] = []
            for timer in k.timers:
                if timer == BEGIN:
                    if budgets[AGAINS]:
                        events.append((("timer", timer), None, AGAINS))
                elif timer != CHECK_QUORUM or self.bounds.check_quorum:
                    events.append((("timer", timer), None, None))
            if k.syncing:
                events.append((("sync",), None, None))
            if k.leads and budgets[ENTRIES]:
                events.append((("propose",), None, ENTRIES))
            if budgets[TIMEOUTS]:
                events += [(("timeout", target, kind), None, TIMEOUTS) for target, kind in k.under_way]
            events += [(event, at, None) for at, event in self._arrivals(world, i)]
            for event, letter_used, budget in events:
                yield i, event, letter_used, budget
                if dies and self.bounds.mid_step and event[0] not in ("refused", "timeout"):
                    for duties in self.replicas.outcome(number, event).dooms:
                        yield i, ("doom", duties, last_life, event), letter_used, 3 + i
            if dies:
                for keep in k.keeps:
                    yield i, ("crash", keep, False, last_life), None, 3 + i
                    if k.late:
                        yield i, ("crash", keep, True, last_life), None, 3 + i

    def _arrivals(self, world: World, i: int) -> Iterator[tuple[int, Event]]:
        """What may arrive at this replica: (letter, event)."""
        known, letters = self.replicas.known, self.replicas.letters.all
        last, alive = -1, known[world[i]].alive
        for at in world[2 * self.n + 4 :]:
            if at == last or not alive:
                continue
            last = at
            letter = letters[at]
            match letter.stage:
                case "request" if letter.target == i + FIRST_ID:
                    yield at, ("deliver", at)
                case "request" if letter.sender == i + FIRST_ID and letter.status != ORPHAN:
                    if not known[world[letter.target - FIRST_ID]].alive:
                        yield at, ("refused", at)
                case "reply" if letter.sender == i + FIRST_ID:
                    yield at, ("reply", at)
                case "reset" if letter.target == i + FIRST_ID:
                    yield at, ("reset", letter.sender)

    def _urgent(self, world: World, first: int) -> Iterator[tuple[int, Event, int | None, int | None]]:
        """Before anything else this letter arrives, is late or is lost."""
        for i in range(self.n):
            for at, event in self._arrivals(world, i):
                if at == first:
                    yield i, event, at, None
        yield -1, ("lost", first), first, None
        late = [at for at in world[2 * self.n + 4 :] if self.replicas.letters.all[at].late]
        if self.bounds.letters > len(late):
            yield -1, ("late", first, None), first, None
        elif self.bounds.letters:
            for other in dict.fromkeys(late):
                yield -1, ("late", first, other), first, None

    def _move(self, draft: Draft, i: int, event: Event, used: int | None) -> None:
        if used is not None:
            draft.letters.remove(used)
        match event:
            case ("lost", number):
                if draft.story is not None:
                    draft.story.append(f"{self.replicas.letters.all[number].text()} is lost")
            case ("late", number, lost):
                if lost is not None:
                    draft.letters.remove(lost)
                draft.letters.append(self._as_late(number))
                if draft.story is not None:
                    draft.story.append(f"{self.replicas.letters.all[number].text()} is late")
            case ("refused", number):
                letter = self.replicas.letters.all[number]
                self._reply(draft, letter, m.Failure.DISCONNECTED)
            case ("timeout", target, kind):
                self._give_up(draft, i, target, kind)
                self._act(draft, i, event)
            case _:
                self._act(draft, i, event)
                if event[0] in ("crash", "doom") and not self.bounds.down:
                    self._act(draft, i, ("start",))

    def _act(self, draft: Draft, i: int, event: Event) -> None:
        """One replica's event, and all that follows at once."""
        replicas, letters = self.replicas, self.replicas.letters
        number = draft.replicas[i]
        out = replicas.outcome(number, event)
        if out.violation is not None:
            self._tell(draft, i, event, out)
            raise ViolationError(out.violation)
        if out.epoch > self.bounds.epochs:
            raise OutOfBoundsError
        if draft.story is not None:
            self._tell(draft, i, event, out)
        if out.facts:
            known = replicas.known
            draft.past = self.judge.after(draft.past, [known[at] for at in draft.replicas], i, out, known[out.after])
        draft.replicas[i] = out.after
        inner = event[3] if event[0] == "doom" else event
        delivered = letters.all[inner[1]] if inner[0] == "deliver" else None
        if out.lost:
            self._turn_away(draft, i + FIRST_ID, out.lost)
        if delivered is not None and delivered.kind == "Fetch":
            self._drop_held(draft, delivered.sender, i + FIRST_ID)
        answers: list[tuple[Letter, m.Reply]] = []
        for sender, kind, reply in out.answers:
            if delivered is not None and not out.held and (sender, kind) == (delivered.sender, delivered.kind):
                answers.append((delivered, reply))
                delivered = None
            else:
                held = self._drop_held(draft, sender, i + FIRST_ID)
                if held is not None:
                    answers.append((held, reply))
        at_once: list[int] = []
        for sent in out.sends:
            request = letters.all[sent].request
            if isinstance(request, m.Vote) and request.pre_vote and not self.bounds.late_pre_votes:
                at_once.append(sent)
            else:
                draft.letters.append(sent)
        if out.held and delivered is not None and replicas.known[out.after].alive:
            if delivered.status == ORPHAN:
                self._act(draft, i, ("expire", delivered.sender, delivered.kind))
            else:
                held = Letter("held", delivered.sender, delivered.target, delivered.request, delivered.status)
                draft.letters.append(letters.number(held))
        if not replicas.known[out.after].alive and replicas.known[number].alive:
            self._died(draft, i + FIRST_ID)
        for letter, reply in answers:
            self._answer(draft, letter, reply)
        for sent in at_once:
            asked = letters.all[sent]
            if draft.reached & (1 << (asked.target - FIRST_ID)) and replicas.known[draft.replicas[asked.target - FIRST_ID]].alive:
                self._act(draft, asked.target - FIRST_ID, ("deliver", sent))
        asker = replicas.known[draft.replicas[i]]
        if at_once and asker.role is Role.PROSPECTIVE and STAND not in asker.timers:
            self._act(draft, i, ("over",))

    def _answer(self, draft: Draft, letter: Letter, reply: m.Reply) -> None:
        if letter.status == ORPHAN or not self.replicas.known[draft.replicas[letter.sender - FIRST_ID]].alive:
            return
        number = self.replicas.letters.number(
            Letter("reply", letter.sender, letter.target, letter.request, letter.status, reply)
        )  # fmt: skip
        # That a leader's announcement was heard is no news: it is known at once. Only a repetition depends on it.
        no_news = isinstance(reply, m.EpochReply) and not reply.error and reply.epoch == getattr(letter.request, "epoch", -1)
        at_once = isinstance(letter.request, m.Vote) and letter.request.pre_vote and not self.bounds.late_pre_votes
        if at_once:
            self._act(draft, letter.sender - FIRST_ID, ("reply", self._with_status(number, STALE)))
        elif not no_news:
            draft.letters.append(number)
        elif letter.status == CURRENT:
            self._act(draft, letter.sender - FIRST_ID, ("reply", number))

    def _reply(self, draft: Draft, letter: Letter, reply: m.Failure) -> None:
        number = self.replicas.letters.number(
            Letter("reply", letter.sender, letter.target, letter.request, letter.status, reply)
        )  # fmt: skip
        self._act(draft, letter.sender - FIRST_ID, ("reply", number))

    # --- letters ----------------------------------------------------------------------------------------------------

    def _with_status(self, number: int, status: str) -> int:
        found = self._other.get((number, status))
        if found is None:
            a = self.replicas.letters.all[number]
            found = self.replicas.letters.number(Letter(a.stage, a.sender, a.target, a.request, status, a.reply, a.late))
            self._other[number, status] = found
        return found

    def _as_late(self, number: int) -> int:
        found = self._other.get((number, "late"))
        if found is None:
            a = self.replicas.letters.all[number]
            found = self.replicas.letters.number(replace(a, late=True))
            self._other[number, "late"] = found
        return found

    def _turn_away(self, draft: Draft, sender: int, lost: frozenset[tuple[int, str]]) -> None:
        letters = self.replicas.letters.all
        expired: list[Letter] = []
        before, draft.letters = draft.letters, []
        for number in before:
            a = letters[number]
            if a.sender == sender and a.status == CURRENT and a.stage != "reset" and (a.target, a.kind) in lost:
                if a.kind != "Fetch":
                    draft.letters.append(self._with_status(number, STALE))
                elif a.stage == "request":  # it may still acknowledge something; its answer would be put aside
                    draft.letters.append(self._with_status(number, ORPHAN))
                elif a.stage == "held":
                    expired.append(a)
            else:
                draft.letters.append(number)
        for a in expired:
            self._act(draft, a.target - FIRST_ID, ("expire", sender, a.kind))

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
            if (a.sender, a.target, a.status) == (i + FIRST_ID, target, CURRENT) and a.stage != "reset" and a.kind == kind:
                draft.letters.remove(number)
                if a.stage == "request":
                    draft.letters.append(self._with_status(number, ORPHAN))
                elif a.stage == "held":
                    self._act(draft, target - FIRST_ID, ("expire", i + FIRST_ID, kind))

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
                    self._act(draft, a.target - FIRST_ID, ("expire", node_id, a.kind))
            elif a.stage == "held" and a.target == node_id:
                draft.letters.remove(number)
                failed = Letter("reply", a.sender, a.target, a.request, a.status, m.Failure.DISCONNECTED)
                draft.letters.append(letters.number(failed))
        if self.bounds.quick:
            for at in draft.replicas:
                if known[at].follows == node_id:
                    draft.letters.append(letters.number(Letter("reset", node_id, known[at].id, None)))

    def _without_dead_letters(self, draft: Draft) -> World:
        here = [self.replicas.known[number] for number in draft.replicas]
        letters = self.replicas.letters.all
        draft.letters = [number for number in draft.letters if not self._dead_letter(letters[number], here)]
        return self._close(draft)

    def _dead_letter(self, a: Letter, here: list[Known]) -> bool:
        """Whether it can have no effect any more."""
        if a.stage == "held":
            return False
        if a.stage == "reset":
            return here[a.target - FIRST_ID].follows != a.sender
        if a.stage == "reply":
            return a.status == STALE and isinstance(a.reply, m.Reply) and a.reply.epoch < here[a.sender - FIRST_ID].epoch
        return a.status == ORPHAN and getattr(a.request, "epoch", 0) < here[a.target - FIRST_ID].epoch

    # --- telling ----------------------------------------------------------------------------------------------------

    def _tell(self, draft: Draft, i: int, event: Event, out: Outcome) -> None:
        if draft.story is None:
            return
        draft.story.append(self._text(i + FIRST_ID, event))
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
            case ("crash", keep, _, _):
                return f"n{node} crashes, its log is kept up to {keep}"
            case ("start",):
                return f"n{node} starts again"
            case ("expire", sender, _):
                return f"n{node} drops the waiting Fetch of n{sender}"
            case ("timeout", target, kind):
                return f"n{node} gives up its {kind} to n{target}"
            case ("over",):
                return f"n{node} has no more answers"
            case ("reset", peer):
                return f"n{node} sees its connection to n{peer} reset"
            case ("doom", duties, _, inner):
                return f"{self._text(node, inner)}; n{node} dies after duty {duties}"
        return describe(event)
