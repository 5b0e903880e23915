"""A simulated quorum that describes in sentences what happens: who does what, in which epoch, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Effects, Outgoing
from quorate.raft.core.events import Event, PeerLost, Received, Shutdown
from quorate.raft.core.voters import MembershipRecord
from quorate.raft.types import OffsetEpoch, ReplicaKey, Role
from simulation.config import SimulationConfig
from simulation.core.replica import Replica
from simulation.core.world import Call, World

CONTROLS = {2: "LeaderChange", 5: "KRaftVersion", 6: "Voters"}
ROLES = tuple(f"is {role.value} in epoch" for role in Role)


def nodes(ids: Iterable[int]) -> str:
    """Returns the names in the order given, as in `n1, n2 and n3`."""
    names = [f"n{i}" for i in ids]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nobody"


def directory_number(key: ReplicaKey) -> int:
    """Returns which of the node's metadata directories this is, counted from one."""
    return key.directory_id[1] + 1


def position(end: OffsetEpoch) -> str:
    return f"{end.offset}-{end.epoch}"


class NarratedReplica(Replica):
    """Says why its role changes, and which voters it knows."""

    world: NarratedWorld
    why = ""
    starting = False
    reported_voters: tuple[Any, ...] = ()  # the voters that were written last, with their endpoints

    def start(self) -> None:
        self.why, self.starting = "", True
        try:
            super().start()
        finally:
            self.starting = False

    def step(self, event: Event) -> None:
        if self.alive and not self.stepping:
            self.why = self._reason(event) or self._expired_timer()
        super().step(event)

    def _reason(self, event: Event) -> str:
        """Returns why a role may change in this step, as far as the event says it."""
        r = self.core.state
        match event:
            case PeerLost() if r.leader_id is not None and r.address_of(r.leader_id) == event.address:
                self.world.trace(self, f"sees its connection to n{r.leader_id} reset")
            case Shutdown():
                return "it shuts down"
            case Received(request=m.EndEpoch() as end) if (
                end.leader_id,
                end.epoch,
            ) == r.leader_and_epoch:
                return f"n{end.leader_id} has asked it to take over"
            case Received(request=m.Vote() as vote) if vote.epoch > r.epoch:
                return f"n{vote.candidate.id} stands for election"
        return ""

    def _expired_timer(self) -> str:
        """Returns which timeout has expired, as the reason for what follows."""
        r, now = self.core.state, self.world.now * self.rate
        if r.following is not None:
            if now >= r.following.fetch_deadline:
                return f"it has not heard n{r.leader_id} for {r.params.fetch_timeout_s:.0f} s"
            return f"not waiting for n{r.leader_id}" if now >= r.following.quick_pre_vote_at else ""
        if r.leading is not None and now >= r.leading.check_quorum_deadline:
            return f"no majority has fetched for {r.params.check_quorum_s:.0f} s"
        if r.role in (Role.UNATTACHED, Role.RESIGNED) and now >= r.election_deadline:
            return "nobody leads"
        return ""

    def describe_role_change(self, role: Role) -> str:
        """Returns the sentence for a change to this role."""
        r = self.core.state
        match role:
            case Role.LEADER:
                given = [
                    key[0] for key, to in self.world.checker.votes.get(r.epoch, {}).items() if to == self.id
                ]
                return f"becomes leader of epoch {r.epoch}, by the votes of {nodes(sorted(given))}"
            case Role.FOLLOWER:
                return f"becomes follower of n{r.leader_id} in epoch {r.epoch}"
            case Role.CANDIDATE:
                why = (
                    self.why
                    or f"it has the pre-votes of {nodes(sorted(self.world.pre_votes.pop(self.id, [])))}"
                )
            case Role.UNATTACHED:
                why = "it knows no leader" if self.starting else self.why or "it hears of that epoch"
            case Role.RESIGNED if self.starting:
                why = "it led this epoch when it went down"
            case Role.RESIGNED if not self.why and not r.is_voter:
                why = "it is no voter any more"
            case _:
                why = self.why
        return f"becomes {role.value} in epoch {r.epoch}{f': {why}' if why else ''}"

    def perform(self, effects: Effects) -> None:
        with self.world.one_step():
            super().perform(effects)
            if self.alive:
                self._write_voters()
                if effects.save_membership_record is not None:
                    what = (
                        "a voter"
                        if effects.save_membership_record
                        in (MembershipRecord.VOTER, MembershipRecord.UNNAMED)
                        else "removed"
                    )
                    if effects.save_membership_record is MembershipRecord.NEVER:
                        what = "no voter, but another disk of its node"
                    self.world.trace(self, f"notes on its disk that it has been {what}")

    def _write_voters(self) -> None:
        """Writes a line if the voters or their endpoints have changed."""
        now = tuple((v.id, tuple(v.endpoints.items())) for v in self.core.state.voters)
        if now == self.reported_voters:
            return
        if self.reported_voters and now:
            at = self.core.state.members.current_offset
            where = f"by the record at offset {at}" if at is not None and at >= 0 else "as at its start"
            if [v for v, _ in now] == [v for v, _ in self.reported_voters]:
                what = (
                    f"knows new endpoints of {nodes(v for v, e in now if (v, e) not in self.reported_voters)}"
                )
            else:
                what = f"counts {nodes(v for v, _ in now)} as voters"
            self.world.trace(self, f"{what}, {where}")
        self.reported_voters = now

    def _append_fetched(self, records: Any) -> None:
        for batch in records:
            self.world.trace(self, f"appends {describe_batch(batch)}")
        super()._append_fetched(records)

    def _append_control(self, records: list[tuple[int, Any]]) -> None:
        super()._append_control(records)
        self.world.trace(self, f"appends {describe_batch(self.model.log.batches[-1])}")

    def _write_proposals(self) -> None:
        super()._write_proposals()
        self.world.trace(self, f"appends {describe_batch(self.model.log.batches[-1])}")


def describe_batch(batch: Any) -> str:
    what = ", ".join(CONTROLS[kind] for kind, _ in batch.controls) or ", ".join(map(str, batch.values))
    where = (
        f"offset {batch.base}" if batch.end == batch.base + 1 else f"offsets {batch.base} to {batch.end - 1}"
    )
    return f"{what} at {where} (epoch {batch.epoch})"


class NarratedWorld(World):
    """Writes a line for each event that a reader needs. A Fetch without records or news has none."""

    replica_type = NarratedReplica

    def __init__(self, config: SimulationConfig, write_line: Callable[[str], None]) -> None:
        self.write_line = write_line
        self.pre_votes: dict[int, list[int]] = {}
        self.step_lines: list[tuple[int, str]] | None = None
        self.asked: dict[str, list[int]] = {}
        super().__init__(config, self._write_line)

    def _write_line(self, line: str) -> None:
        self.write_line(f"{self.now * 1000:9.1f} ms  {line}")

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Orders the lines of one step of a replica as a reader expects them.

        First what it learns, then its new role, then its requests, then its responses.
        """
        self.step_lines, self.asked = [], {}
        try:
            yield
        finally:
            lines, self.step_lines = self.step_lines, None
            for text, ids in self.asked.items():
                sender, _, ask = text.partition(" asks ")
                ask = ask.replace("(s)", "s" if len(ids) > 1 else "").replace(
                    "(their)", "their" if len(ids) > 1 else "its"
                )
                lines.append((2, f"{sender} asks {nodes(ids)} {ask}"))
            for _, line in sorted(lines, key=lambda found: found[0]):
                self._write_line(line)

    def trace(self, replica: Replica, what: str) -> None:
        order = 0 if what.startswith(("commits", "truncates", "loads")) else 3
        if what == "is killed" and replica.core.state.shutting_down:
            what = "is down"
        if what.startswith(ROLES):
            assert isinstance(replica, NarratedReplica)
            what, order = replica.describe_role_change(replica.core.state.role), 1
        line = f"{replica.model.name} {what}"
        if self.step_lines is None:
            self._write_line(line)
        else:
            self.step_lines.append((order, line))

    def _asks(self, sender: Replica, to: int | None, what: str) -> None:
        self.asked.setdefault(f"{sender.model.name} asks {what}", []).append(to or 0)

    def send(self, sender: Replica, out: Outgoing) -> None:
        request, to = out.request, self.by_address.get(out.to.address)
        match request:
            case m.Vote(pre_vote=True):
                self.pre_votes[sender.id] = [sender.id]
                self._asks(sender, to, f"for (their) pre-vote(s) in epoch {request.epoch}")
            case m.Vote():
                self._asks(sender, to, f"for (their) vote(s) in epoch {request.epoch}")
            case m.ProbeVersions():
                self._asks(sender, to, "which kraft.version it supports")
            case m.AddVoter():
                self._asks(sender, to, f"to add n{request.voter.id} as a voter")
            case m.RemoveVoter():
                self._asks(
                    sender,
                    to,
                    f"to remove the voter n{request.key.id}, directory {directory_number(request.key)}",
                )
            case m.UpdateVoter():
                where = ", ".join(f"{h}:{p}" for h, p in request.voter.endpoints.values())
                self._asks(sender, to, f"to note that it is at {where}")
        super().send(sender, out)

    def answered(self, target: Replica, token: object, reply: m.Reply) -> None:
        if isinstance(token, Call):
            said = self._answer(target, token.sender, token.out.request, reply)
        else:
            error = "" if not reply.error else f" {reply.error.name}: {reply.message or ''}".rstrip(": ")
            said = f"answers the request:{error or ' done'}"
        if said:
            self.trace(target, said)
        super().answered(target, token, reply)

    def _answer(self, t: Replica, sender: Replica, request: m.RaftRequest, reply: m.Reply) -> str:
        who, error = sender.model.name, reply.error
        match request, reply:
            case m.Vote(), m.VoteReply():
                what = "pre-vote" if request.pre_vote else "vote"
                if reply.granted:
                    if request.pre_vote:
                        self.pre_votes.setdefault(sender.id, [sender.id]).append(t.id)
                    return f"gives {who} its {what} in epoch {request.epoch}"
                return (
                    f"refuses {who} its {what} in epoch {request.epoch}: {self._refusal(t, request, error)}"
                )
            case m.EndEpoch(), _ if not error and t.core.state.role is Role.FOLLOWER:
                order = nodes(k.id for k in request.preferred)
                return (
                    f"hears that {who} no longer leads epoch {request.epoch}, and would be followed by "
                    f"{order}"
                )
            case m.Fetch(), m.FetchReply():
                return self._fetched(who, request, reply)
            case m.FetchSnapshot(), m.SnapshotReply() if not error:
                end = reply.position + min(reply.read, len(reply.data))
                return (
                    f"sends {who} bytes {reply.position} to {end} of {reply.size} of the snapshot "
                    f"{position(reply.snapshot)}"
                )
            case ((m.AddVoter() | m.RemoveVoter() | m.UpdateVoter()), _):
                return (
                    f"answers {who}: "
                    f"{error.name if error else 'done'}{f', {reply.message}' if reply.message else ''}"
                )
        return ""

    def _refusal(self, t: Replica, q: m.Vote, error: ErrorCode) -> str:
        r = t.core.state
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            return f"it is in epoch {r.epoch}"
        if error:
            return error.name
        if q.last.log_order < r.end.log_order:
            return f"its own log ends at {position(r.end)}, that of n{q.candidate.id} at {position(q.last)}"
        if r.is_leader:
            return "it leads"
        if r.role is Role.FOLLOWER and q.pre_vote:
            return f"it hears its leader n{r.leader_id}"
        if r.voted is not None and r.voted.id != q.candidate.id:
            return f"it has voted for n{r.voted.id}"
        return f"it follows n{r.leader_id}"

    def _fetched(self, who: str, q: m.Fetch, reply: m.FetchReply) -> str:
        if reply.diverging is not None:
            end = f"{q.offset}-{q.last_epoch}"
            return (
                f"tells {who} that its log, which ends at {end}, differs from {position(reply.diverging)} on"
            )
        if reply.snapshot is not None:
            return f"tells {who} to load the snapshot {position(reply.snapshot)}"
        if reply.error and reply.leader_id is not None and reply.epoch > q.epoch:
            return (
                f"tells {who}, which fetches in epoch {q.epoch}, that n{reply.leader_id} leads epoch "
                f"{reply.epoch}"
            )
        return ""

    def table(self) -> Iterable[str]:
        """Yields one line for each replica: its role, epoch, voters, high watermark and log."""
        for r in self.replicas.values():
            name = r.model.name
            log = " ".join(
                f"{b.base}{f'..{b.end - 1}' if b.end - 1 > b.base else ''}:e{b.epoch}"
                for b in r.model.log.batches
            )
            start = (
                f"({position(OffsetEpoch(r.disk.start, r.model.log.start_epoch))}) " if r.disk.start else ""
            )
            if not r.alive:
                yield f"{name}  down         log {start}{log or 'empty'}"
                continue
            c = r.core.state
            hwm = "unknown" if c.hwm is None else c.hwm
            yield (
                f"{name}  {c.role.value:<11} epoch {c.epoch}  voters {' '.join(map(str, c.voters.ids))}  "
                f"high watermark {hwm}  log {start}{log or 'empty'}"
            )
