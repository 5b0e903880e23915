"""Runs a shard as the runtime does, with a list for the log and a clock that the test sets. Appends
succeed, fail or wait as the test demands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import Caller, Record
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.result import CoordinatorResult, StepTime
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest

START_MS = 1_700_000_000_000


class Harness:
    def __init__(self, config: GroupCoordinatorConfig | None = None) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.shard = GroupCoordinatorShard(self.config)
        self.now = 100.0
        self.log: list[Record] = []
        self.answers: dict[int, Any] = {}
        self.token = 0
        self.fresh = 0
        self.fail_with = ErrorCode.NONE
        self.hold = False
        self.held: list[CoordinatorResult] = []
        list(self.shard.loaded(self.at))

    @property
    def at(self) -> StepTime:
        return StepTime(START_MS + int(self.now * 1000), self.now)

    def next_token(self) -> int:
        self.token += 1
        return self.token

    def carry_out(self, outcome: CoordinatorResult, before: Any) -> None:
        for token, answer in outcome.replies:
            assert token not in self.answers, f"request {token} answered twice"
            self.answers[token] = answer
        error = ErrorCode.NONE
        if outcome.records:
            if self.fail_with is not ErrorCode.NONE:
                self.shard.state = before
                error = self.fail_with
            else:
                for record in outcome.records:
                    if outcome.replay:
                        self.shard.replay(record, len(self.log))
                    self.log.append(record)
                if self.hold:
                    self.held.append(outcome)
                    return
        elif outcome.after is not None and self.held:
            self.held.append(outcome)  # it may tell of what is not committed
            return
        if outcome.after is not None:
            self.carry_out(outcome.after(error, self.at), self.shard.state)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        held, self.held = self.held, []
        for outcome in held:
            if outcome.after is not None:
                self.carry_out(outcome.after(error, self.at), self.shard.state)

    def step(self, call: Any, *args: Any) -> int:
        """Runs a step of the shard, whose second last argument is the token. Returns the token."""
        token = self.next_token()
        before = self.shard.state
        self.carry_out(call(*args, token, self.at), before)
        return token

    def advance(self, seconds: float) -> None:
        """Advances the clock. Timers fire in order, each at its own time."""
        end = self.now + seconds
        while True:
            deadline = self.shard.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            before = self.shard.state
            for outcome in self.shard.tick(self.at):
                self.carry_out(outcome, before)
                before = self.shard.state
        self.now = end

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = 9,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client: str = "c",
    ) -> int:
        self.fresh += 1
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        caller = Caller(version, client, "/127.0.0.1", f"id{self.fresh}")
        token = self.next_token()
        before = self.shard.state
        self.carry_out(self.shard.groups.join(request, caller, token, self.at), before)
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
    ) -> int:
        entries = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=group, member_id=member_id, generation_id=generation, assignments=entries
        )
        return self.step(self.shard.groups.sync, request)

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g") -> int:
        request = HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation)
        return int(self.shard.groups.heartbeat(request, self.at).error_code)

    def leave(self, *identities: tuple[str, str | None], group: str = "g") -> int:
        members = [LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in identities]
        return self.step(self.shard.groups.leave, LeaveGroupRequest(group_id=group, members=members))

    # -- stories
    # ----------------------------------------------------------------------------------------------

    def new_member(self, **kwargs: Any) -> tuple[str, int]:
        """Joins twice, as a client of KIP-394 does. Returns (member id, token of the second join)."""
        first = self.answers[self.join(**kwargs)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **kwargs)

    def stable_group(self, count: int = 2, **kwargs: Any) -> list[str]:
        """Makes a Stable group of `count` dynamic members. The leader is the first one."""
        joined = [self.new_member(**kwargs) for _ in range(count)]
        self.advance(self.config.initial_rebalance_delay_ms / 1000 * 2 + 0.01)
        answers = [self.answers[token] for _, token in joined]
        generation = answers[0].generation_id
        leader = answers[0].leader
        ids = [leader, *(m for m, _ in joined if m != leader)]
        for member_id in ids[1:]:
            self.sync(member_id, generation)
        self.sync(leader, generation, {member_id: member_id.encode() for member_id in ids})
        return ids
