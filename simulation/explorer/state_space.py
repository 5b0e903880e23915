"""The worlds of a small quorum: which actions are enabled in one, and to which worlds they lead.

A world is a tuple of numbers: one for each replica, one for the history, what is left of each budget, and
the messages in flight, in the order of their numbers. Nothing else distinguishes two worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from quorate.raft.core import messages as m
from quorate.raft.types import Role
from simulation.explorer.bounds import Bounds
from simulation.explorer.in_flight import CURRENT, ORPHAN, STALE, InFlightMessage, describe
from simulation.explorer.replica import BEGIN, CHECK_QUORUM, FIRST_ID, STAND, Event, nodes
from simulation.explorer.replica_table import Outcome, ReplicaState, ReplicaTable
from simulation.explorer.symmetry import SymmetryReduction, WorldState
from simulation.explorer.transition_checker import TransitionChecker, ViolationError


class OutOfBoundsError(Exception):
    """An action leads out of the bounds."""


@dataclass(slots=True)
class Draft:
    """A world while an action is applied to it."""

    replicas: list[int]
    history: int
    messages: list[int]
    budgets: list[int]
    trace: list[str] | None = None
    delivered_pre_votes: int = 0  # whom they reach, if they are answered at once: a bit for each node


ENTRIES, TIMEOUTS, REPEATS = 0, 1, 2  # the places of the budgets; after them come the crashes of each replica


class StateSpace:
    """The worlds within some bounds, with the actions between them."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.n = bounds.replicas
        self.replicas = ReplicaTable(
            bounds.replicas,
            quick=bounds.quick,
            slow_disk=bounds.slow_disk,
            repeats=bounds.repeats > 0 or bounds.timeouts > 0,
            may_crash=bounds.crashes > 0,
        )
        self.checker = TransitionChecker(self.replicas)
        self._variants: dict[tuple[int, str], int] = {}
        self.symmetry = SymmetryReduction(self.replicas, self.checker, self.n, enabled=bounds.symmetric)
        self.canonical = self.symmetry.canonical

    # --- initial world ----------------------------------------------------------------------------

    def initial_world(self) -> WorldState:
        """Returns the world in which all replicas have just been started on formatted directories."""
        b = self.bounds
        fresh = [self.replicas.initial_replica(i) for i in nodes(self.n)]
        draft = Draft(fresh, 0, [], [b.entries, b.timeouts, b.repeats, *[b.crashes] * self.n])
        for i in range(self.n):
            self._step_replica(draft, i, ("start",))
        return self.canonical(self._world_of(draft))

    def _draft_of(self, world: WorldState, trace: list[str] | None) -> Draft:
        n = self.n
        first_message = n + 1 + 3 + n
        budgets, messages = world[n + 1 : first_message], world[first_message:]
        return Draft(list(world[:n]), world[n], list(messages), list(budgets), trace)

    def _world_of(self, draft: Draft) -> WorldState:
        return (*draft.replicas, draft.history, *draft.budgets, *sorted(draft.messages))

    # --- actions ----------------------------------------------------------------------------------

    def successors(self, world: WorldState, trace: list[str] | None = None) -> Iterator[WorldState]:
        """Yields the world after each enabled action.

        With `trace`, that list holds what happens on the way to the world just yielded, and nodes are not
        renamed. Raises ViolationError.
        """
        for i, event, used, budget in self._enabled_actions(world):
            for delivered_pre_votes in self._pre_vote_deliveries(world, i, event):
                if trace is not None:
                    trace.clear()
                draft = self._draft_of(world, trace)
                draft.delivered_pre_votes = delivered_pre_votes
                if budget is not None:
                    draft.budgets[budget] -= 1
                try:
                    self._apply_action(draft, i, event, used)
                except OutOfBoundsError:
                    continue
                after = self._without_ineffective(draft)
                yield after if trace is not None else self.canonical(after)

    def _pre_vote_deliveries(self, world: WorldState, i: int, event: Event) -> list[int]:
        """Returns the sets of replicas that pre-votes sent by this event may reach.

        Each set is an action of its own.
        """
        if self.bounds.late_pre_votes or event[0] in ("refused", "lost", "late"):
            return [0]
        sends = self.replicas.outcome(world[i], event).sends
        asked = [self.replicas.messages.all[s] for s in sends]
        sets = [0]
        for message in asked:
            if isinstance(message.request, m.Vote) and message.request.pre_vote:
                sets += [r | 1 << (message.target - FIRST_ID) for r in sets]
        return sets

    def _enabled_actions(self, world: WorldState) -> Iterator[tuple[int, Event, int | None, int | None]]:
        """Yields (place of the replica, event, message consumed, budget consumed) of each enabled action."""
        n, states, messages = self.n, self.replicas.states, self.replicas.messages.all
        budgets, in_flight = world[n + 1 : n + 4 + n], world[2 * n + 4 :]
        urgent = [at for at in in_flight if messages[at].stage != "held" and not messages[at].late]
        if urgent:
            yield from self._urgent(world, urgent[0])
            return
        for i in range(n):
            number = world[i]
            replica = states[number]
            dies, last_life = budgets[3 + i] > 0, budgets[3 + i] == 1
            if not replica.alive:
                yield i, ("start",), None, None
                continue
            events: list[tuple[Event, int | None, int | None]] = []
            for timer in replica.timers:
                if timer == BEGIN:
                    if budgets[REPEATS]:
                        events.append((("timer", timer), None, REPEATS))
                elif timer != CHECK_QUORUM or self.bounds.check_quorum:
                    events.append((("timer", timer), None, None))
            if replica.syncing:
                events.append((("sync",), None, None))
            if replica.leads and budgets[ENTRIES]:
                events.append((("propose",), None, ENTRIES))
            if budgets[TIMEOUTS]:
                events += [(("timeout", target, kind), None, TIMEOUTS) for target, kind in replica.in_flight]
            events += [(event, at, None) for at, event in self._arrivals(world, i)]
            for event, message_used, budget in events:
                yield i, event, message_used, budget
                if dies and self.bounds.mid_step and event[0] not in ("refused", "timeout"):
                    for duties in self.replicas.outcome(number, event).crash_points:
                        yield i, ("crash mid-step", duties, last_life, event), message_used, 3 + i
            if dies:
                for keep in replica.power_loss_offsets:
                    yield i, ("crash", keep, False, last_life), None, 3 + i
                    if replica.late:
                        yield i, ("crash", keep, True, last_life), None, 3 + i

    def _arrivals(self, world: WorldState, i: int) -> Iterator[tuple[int, Event]]:
        """Yields (message, event) of each message that may arrive at this replica."""
        states, messages = self.replicas.states, self.replicas.messages.all
        last, alive = -1, states[world[i]].alive
        for at in world[2 * self.n + 4 :]:
            if at == last or not alive:
                continue
            last = at
            message = messages[at]
            match message.stage:
                case "request" if message.target == i + FIRST_ID:
                    yield at, ("deliver", at)
                case "request" if message.sender == i + FIRST_ID and message.status != ORPHAN:
                    if not states[world[message.target - FIRST_ID]].alive:
                        yield at, ("refused", at)
                case "reply" if message.sender == i + FIRST_ID:
                    yield at, ("reply", at)
                case "reset" if message.target == i + FIRST_ID:
                    yield at, ("reset", message.sender)

    def _urgent(self, world: WorldState, first: int) -> Iterator[tuple[int, Event, int | None, int | None]]:
        """Yields the actions of a message that is not late.

        Before any other event it arrives, becomes late or is lost.
        """
        for i in range(self.n):
            for at, event in self._arrivals(world, i):
                if at == first:
                    yield i, event, at, None
        yield -1, ("lost", first), first, None
        late = [at for at in world[2 * self.n + 4 :] if self.replicas.messages.all[at].late]
        if self.bounds.late_messages > len(late):
            yield -1, ("late", first, None), first, None
        elif self.bounds.late_messages:
            for other in dict.fromkeys(late):
                yield -1, ("late", first, other), first, None

    def _apply_action(self, draft: Draft, i: int, event: Event, used: int | None) -> None:
        """Applies an action, which consumes the message `used`."""
        if used is not None:
            draft.messages.remove(used)
        match event:
            case ("lost", number):
                if draft.trace is not None:
                    draft.trace.append(f"{self.replicas.messages.all[number].text()} is lost")
            case ("late", number, lost):
                if lost is not None:
                    draft.messages.remove(lost)
                draft.messages.append(self._late_variant(number))
                if draft.trace is not None:
                    draft.trace.append(f"{self.replicas.messages.all[number].text()} is late")
            case ("refused", number):
                message = self.replicas.messages.all[number]
                self._reply(draft, message, m.Failure.DISCONNECTED)
            case ("timeout", target, kind):
                self._time_out_request(draft, i, target, kind)
                self._step_replica(draft, i, event)
            case _:
                self._step_replica(draft, i, event)
                if event[0] in ("crash", "crash mid-step") and not self.bounds.down:
                    self._step_replica(draft, i, ("start",))

    def _step_replica(self, draft: Draft, i: int, event: Event) -> None:
        """Applies an event at one replica, and all that follows from it at once."""
        replicas, messages = self.replicas, self.replicas.messages
        number = draft.replicas[i]
        out = replicas.outcome(number, event)
        if out.violation is not None:
            self._append_trace(draft, i, event, out)
            raise ViolationError(out.violation)
        if out.epoch > self.bounds.epochs:
            raise OutOfBoundsError
        if draft.trace is not None:
            self._append_trace(draft, i, event, out)
        if out.facts:
            states = replicas.states
            draft.history = self.checker.after(
                draft.history, [states[at] for at in draft.replicas], i, out, states[out.after]
            )
        draft.replicas[i] = out.after
        inner = event[3] if event[0] == "crash mid-step" else event
        delivered = messages.all[inner[1]] if inner[0] == "deliver" else None
        if out.lost:
            self._abandon(draft, i + FIRST_ID, out.lost)
        if delivered is not None and delivered.kind == "Fetch":
            self._drop_held(draft, delivered.sender, i + FIRST_ID)
        answers: list[tuple[InFlightMessage, m.Reply]] = []
        for sender, kind, reply in out.answers:
            if (
                delivered is not None
                and not out.held
                and (sender, kind) == (delivered.sender, delivered.kind)
            ):
                answers.append((delivered, reply))
                delivered = None
            else:
                held = self._drop_held(draft, sender, i + FIRST_ID)
                if held is not None:
                    answers.append((held, reply))
        at_once: list[int] = []
        for sent in out.sends:
            request = messages.all[sent].request
            if isinstance(request, m.Vote) and request.pre_vote and not self.bounds.late_pre_votes:
                at_once.append(sent)
            else:
                draft.messages.append(sent)
        if out.held and delivered is not None and replicas.states[out.after].alive:
            if delivered.status == ORPHAN:
                self._step_replica(draft, i, ("expire", delivered.sender, delivered.kind))
            else:
                held = InFlightMessage(
                    "held", delivered.sender, delivered.target, delivered.request, delivered.status
                )
                draft.messages.append(messages.number(held))
        if not replicas.states[out.after].alive and replicas.states[number].alive:
            self._died(draft, i + FIRST_ID)
        for message, reply in answers:
            self._answer(draft, message, reply)
        for sent in at_once:
            asked = messages.all[sent]
            place = asked.target - FIRST_ID
            if draft.delivered_pre_votes & (1 << place) and replicas.states[draft.replicas[place]].alive:
                self._step_replica(draft, place, ("deliver", sent))
        requester = replicas.states[draft.replicas[i]]
        if at_once and requester.role is Role.PROSPECTIVE and STAND not in requester.timers:
            self._step_replica(draft, i, ("end pre-votes",))

    def _answer(self, draft: Draft, message: InFlightMessage, reply: m.Reply) -> None:
        """Sends a response on its way, or lets it arrive where nothing depends on the time."""
        if (
            message.status == ORPHAN
            or not self.replicas.states[draft.replicas[message.sender - FIRST_ID]].alive
        ):
            return
        number = self.replicas.messages.number(
            InFlightMessage("reply", message.sender, message.target, message.request, message.status, reply)
        )  # fmt: skip
        # The response to BeginQuorumEpoch arrives at once: only repetitions depend on when it does.
        acknowledgement = (
            isinstance(reply, m.EpochReply)
            and not reply.error
            and reply.epoch == getattr(message.request, "epoch", -1)
        )
        at_once = (
            isinstance(message.request, m.Vote)
            and message.request.pre_vote
            and not self.bounds.late_pre_votes
        )
        if at_once:
            self._step_replica(
                draft, message.sender - FIRST_ID, ("reply", self._status_variant(number, STALE))
            )
        elif not acknowledgement:
            draft.messages.append(number)
        elif message.status == CURRENT:
            self._step_replica(draft, message.sender - FIRST_ID, ("reply", number))

    def _reply(self, draft: Draft, message: InFlightMessage, reply: m.Failure) -> None:
        number = self.replicas.messages.number(
            InFlightMessage("reply", message.sender, message.target, message.request, message.status, reply)
        )  # fmt: skip
        self._step_replica(draft, message.sender - FIRST_ID, ("reply", number))

    # --- messages ---------------------------------------------------------------------------------

    def _status_variant(self, number: int, status: str) -> int:
        """Returns the same message with another status."""
        found = self._variants.get((number, status))
        if found is None:
            message = self.replicas.messages.all[number]
            found = self.replicas.messages.number(
                InFlightMessage(
                    message.stage,
                    message.sender,
                    message.target,
                    message.request,
                    status,
                    message.reply,
                    message.late,
                )
            )
            self._variants[number, status] = found
        return found

    def _late_variant(self, number: int) -> int:
        """Returns the same message as a late one."""
        found = self._variants.get((number, "late"))
        if found is None:
            message = self.replicas.messages.all[number]
            found = self.replicas.messages.number(replace(message, late=True))
            self._variants[number, "late"] = found
        return found

    def _abandon(self, draft: Draft, sender: int, lost: frozenset[tuple[int, str]]) -> None:
        """Changes the status of requests, (target, kind), that their sender no longer waits for."""
        messages = self.replicas.messages.all
        expired: list[InFlightMessage] = []
        before, draft.messages = draft.messages, []
        for number in before:
            message = messages[number]
            if (
                message.sender == sender
                and message.status == CURRENT
                and message.stage != "reset"
                and (message.target, message.kind) in lost
            ):
                if message.kind != "Fetch":
                    draft.messages.append(self._status_variant(number, STALE))
                elif message.stage == "request":
                    # It may still acknowledge records, but its response would be ignored.
                    draft.messages.append(self._status_variant(number, ORPHAN))
                elif message.stage == "held":
                    expired.append(message)
            else:
                draft.messages.append(number)
        for message in expired:
            self._step_replica(draft, message.target - FIRST_ID, ("expire", sender, message.kind))

    def _drop_held(self, draft: Draft, sender: int, target: int) -> InFlightMessage | None:
        """Removes and returns the request that the target holds of this sender."""
        for number in draft.messages:
            message = self.replicas.messages.all[number]
            if message.stage == "held" and message.sender == sender and message.target == target:
                draft.messages.remove(number)
                return message
        return None

    def _time_out_request(self, draft: Draft, i: int, target: int, kind: str) -> None:
        """Lets a request time out at its sender. It may still arrive."""
        for number in list(draft.messages):
            message = self.replicas.messages.all[number]
            if (
                (message.sender, message.target, message.status) == (i + FIRST_ID, target, CURRENT)
                and message.stage != "reset"
                and message.kind == kind
            ):
                draft.messages.remove(number)
                if message.stage == "request":
                    draft.messages.append(self._status_variant(number, ORPHAN))
                elif message.stage == "held":
                    self._step_replica(draft, target - FIRST_ID, ("expire", i + FIRST_ID, kind))

    def _died(self, draft: Draft, node_id: int) -> None:
        """Lets the messages to and from a replica that died be lost, refused or orphaned, as
        connections are reset."""
        messages, states = self.replicas.messages, self.replicas.states
        for number in list(draft.messages):
            message = messages.all[number]
            if message.stage == "reset":
                if message.target == node_id:
                    draft.messages.remove(number)
            elif message.sender == node_id:
                draft.messages.remove(number)
                if message.stage == "request":
                    draft.messages.append(self._status_variant(number, ORPHAN))
                elif message.stage == "held":
                    self._step_replica(draft, message.target - FIRST_ID, ("expire", node_id, message.kind))
            elif message.stage == "held" and message.target == node_id:
                draft.messages.remove(number)
                failed = InFlightMessage(
                    "reply",
                    message.sender,
                    message.target,
                    message.request,
                    message.status,
                    m.Failure.DISCONNECTED,
                )
                draft.messages.append(messages.number(failed))
        if self.bounds.quick:
            for at in draft.replicas:
                if states[at].follows == node_id:
                    draft.messages.append(
                        messages.number(InFlightMessage("reset", node_id, states[at].id, None))
                    )

    def _without_ineffective(self, draft: Draft) -> WorldState:
        """Returns the world without messages whose arrival would change nothing."""
        here = [self.replicas.states[number] for number in draft.replicas]
        messages = self.replicas.messages.all
        draft.messages = [
            number for number in draft.messages if not self._has_no_effect(messages[number], here)
        ]
        return self._world_of(draft)

    def _has_no_effect(self, message: InFlightMessage, here: list[ReplicaState]) -> bool:
        """Returns whether the arrival of this message would change nothing."""
        if message.stage == "held":
            return False
        if message.stage == "reset":
            return here[message.target - FIRST_ID].follows != message.sender
        if message.stage == "reply":
            return (
                message.status == STALE
                and isinstance(message.reply, m.Reply)
                and message.reply.epoch < here[message.sender - FIRST_ID].epoch
            )
        return (
            message.status == ORPHAN
            and getattr(message.request, "epoch", 0) < here[message.target - FIRST_ID].epoch
        )

    # --- trace ------------------------------------------------------------------------------------

    def _append_trace(self, draft: Draft, i: int, event: Event, out: Outcome) -> None:
        if draft.trace is None:
            return
        draft.trace.append(self._describe_event(i + FIRST_ID, event))
        draft.trace.extend("    " + line for line in out.trace_lines)

    def _describe_event(self, node: int, event: Event) -> str:
        messages = self.replicas.messages.all
        match event:
            case ("deliver" | "reply", number):
                where = "arrives" if event[0] == "deliver" else f"reaches n{node}"
                return f"{messages[number].text()} {where}"
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
            case ("end pre-votes",):
                return f"n{node} has no more answers"
            case ("reset", peer):
                return f"n{node} sees its connection to n{peer} reset"
            case ("crash mid-step", duties, _, inner):
                return f"{self._describe_event(node, inner)}; n{node} dies after duty {duties}"
        return describe(event)
