"""Messages in flight between replicas: requests, responses and resets of connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quorate.raft.core import messages as m
from simulation.explorer.canonical_form import canonical_form

# The status of a request: its sender waits for it; its sender waits no longer; its sender ignores the
# response as well.
CURRENT, STALE, ORPHAN = "current", "stale", "orphan"


@dataclass(frozen=True, slots=True)
class InFlightMessage:
    """A request in flight or held by its receiver, a response in flight, or the reset of a connection."""

    stage: str  # "request", "held", "reply", "reset"
    sender: int  # of the request; for a reset, the replica that died
    target: int
    request: m.RaftRequest | None
    status: str = CURRENT
    reply: m.Reply | m.Failure | None = None
    late: bool = False  # other events may come before its arrival

    @property
    def kind(self) -> str:
        return type(self.request).__name__

    def text(self) -> str:
        """Returns a description for traces."""
        if self.stage == "reset":
            return f"n{self.target} sees its connection to n{self.sender} reset"
        to = f"n{self.sender}'s {describe(self.request)} to n{self.target}"
        return to if self.stage != "reply" else f"n{self.target}'s answer to {to}: {describe(self.reply)}"


def describe(what: object) -> str:
    """Returns a description of a request or a response for traces."""
    match what:
        case m.Vote():
            return (
                f"{'pre-vote' if what.pre_vote else 'Vote'}(epoch {what.epoch}, log "
                f"{what.last.offset}-{what.last.epoch})"
            )
        case m.BeginEpoch():
            return f"BeginQuorumEpoch({what.epoch})"
        case m.EndEpoch():
            return f"EndQuorumEpoch({what.epoch})"
        case m.Fetch():
            return f"Fetch(epoch {what.epoch}, from {what.offset}-{what.last_epoch})"
        case m.VoteReply():
            return ("granted" if what.granted else "refused") + _common(what)
        case m.FetchReply():
            news = what.diverging and f"diverging at {what.diverging.offset}-{what.diverging.epoch}"
            return (
                f"{news or f'{len(what.records)} batches'}, high watermark "
                f"{what.high_watermark}{_common(what)}"
            )
        case m.Reply():
            return "ok" + _common(what)
        case m.Failure():
            return what.value
    return type(what).__name__


def _common(reply: m.Reply) -> str:
    error = f" {reply.error.name}" if reply.error else ""
    return f"{error} (epoch {reply.epoch}, leader {reply.leader_id})"


class MessageTable:
    """Gives numbers to messages. Equal ones have one number."""

    def __init__(self) -> None:
        self.all: list[InFlightMessage] = []
        self._numbers: dict[Any, int] = {}
        self._forms: dict[int, Any] = {}
        self._kept: list[object] = []

    def _form(self, what: object) -> Any:
        if what is None or isinstance(what, m.Failure):
            return what
        found = self._forms.get(id(what))
        if found is None:
            found = self._forms[id(what)] = canonical_form(what)
            self._kept.append(what)
        return found

    def number(self, message: InFlightMessage) -> int:
        what = (message.stage, message.sender, message.target, message.status, message.late)
        key = (what, self._form(message.request), self._form(message.reply))
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(message)
        return found
