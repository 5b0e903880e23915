"""`GroupDeletion`: the deletion of a group with all its offsets."""

from __future__ import annotations

from collections import deque

from immutables import Map

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.classic.classic_responses import unsupported_group_tombstones
from quorate.broker.coordinators.group.model import (
    GroupRecord,
    OffsetRecord,
    OffsetTombstone,
    PartitionKey,
    ShardState,
    StateStore,
    UnsupportedGroup,
)
from quorate.broker.coordinators.group.record_serde import encode_record
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, Token, operation_error
from quorate.protocol.errors import ErrorCode

_RECORD_OVERHEAD = 16
"""An upper bound of the bytes of a record without its key and value."""


class GroupDeletion:
    """Deletes an empty group and its offsets as one batch, so that a deletion that fails or is refused has
    deleted nothing.

    The tombstones of many offsets take the event loop for longer than a turn may last. Therefore each step
    encodes some of them, and the last step appends all. Only offsets that do not fit into one batch are
    deleted before the others, some in each step; Kafka cannot delete such a group.
    """

    __slots__ = ("_at_once", "_bytes", "_group_id", "_keys", "_missing", "_seen", "finished")

    def __init__(self, group_id: str, at_once: int) -> None:
        """`at_once` is the number of offsets that are encoded or deleted in a step."""
        self._group_id = group_id
        self._at_once = at_once
        self._keys: dict[PartitionKey, bytes] = {}
        self._bytes = 0
        self._missing: deque[PartitionKey] = deque()
        self._seen: tuple[object, object] | None = None
        self.finished = False
        """Whether no further step is needed."""

    def step(self, store: StateStore, token: Token, max_bytes: int) -> CoordinatorResult:
        """Does a part of the deletion and answers with an error code. `max_bytes` is the size of the records
        of a batch."""
        state = store.state
        group = state.groups.get(self._group_id)
        code = _refusal(group)
        if group is None or code is not ErrorCode.NONE:
            self.finished = True
            return _answered(token, code)
        self._find_missing(state)
        for _ in range(min(self._at_once, len(self._missing))):
            self._encode(self._missing.popleft())
        if self._missing:
            return CoordinatorResult(replies=[(token, ErrorCode.NONE)])
        out = _answered(token, ErrorCode.NONE)
        if self._bytes > max_bytes and len(self._keys) > self._at_once:
            part = sorted(self._keys)[: self._at_once]
            out.records = [OffsetRecord(self._group_id, topic, index, None) for topic, index in part]
            return out
        self.finished = True
        out.records = [OffsetTombstone(key) for key in self._keys.values()]
        if isinstance(group, UnsupportedGroup):
            out.records += unsupported_group_tombstones(group)
        else:
            out.records.append(GroupRecord(self._group_id, None))
        out.replay = False
        store.state = _without(state, self._group_id)
        return out

    def _find_missing(self, state: ShardState) -> None:
        """Compares the tombstones with the current offsets of the group, including pending ones."""
        offsets: Map[PartitionKey, object] = state.offsets.get(self._group_id, Map())
        if self._seen is not None and self._seen[0] is offsets and self._seen[1] is state.pending:
            return
        self._seen = offsets, state.pending
        pending = state.pending_partitions(self._group_id) if state.pending else []
        current = {*offsets, *pending}
        for key in [key for key in self._keys if key not in current]:
            self._bytes -= len(self._keys.pop(key)) + _RECORD_OVERHEAD
        self._missing = deque(key for key in current if key not in self._keys)

    def _encode(self, key: PartitionKey) -> None:
        encoded, _ = encode_record(OffsetRecord(self._group_id, *key, None))
        self._keys[key] = encoded
        self._bytes += len(encoded) + _RECORD_OVERHEAD


def _refusal(group: ClassicGroup | UnsupportedGroup | None) -> ErrorCode:
    """Why a group cannot be deleted."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, UnsupportedGroup):
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is ClassicGroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _without(state: ShardState, group_id: str) -> ShardState:
    """The state without a group and its offsets, as after the replay of all tombstones."""
    groups = state.groups.delete(group_id)
    offsets = state.offsets.delete(group_id) if group_id in state.offsets else state.offsets
    pending = state.pending
    for producer_id, entries in state.pending.items():
        mine = [key for key in entries if key[0] == group_id]
        for key in mine:
            entries = entries.delete(key)
        if mine:
            pending = pending.set(producer_id, entries) if entries else pending.delete(producer_id)
    return ShardState(groups, offsets, pending)


def _answered(token: Token, code: ErrorCode) -> CoordinatorResult:
    """Answers with `code`, or with the error of the append."""

    def stored(error: ErrorCode, _: StepTime) -> CoordinatorResult:
        return CoordinatorResult(
            replies=[(token, code if error is ErrorCode.NONE else operation_error(error))]
        )

    return CoordinatorResult(after=stored)
