"""The committed offsets of the groups of one partition of `__consumer_offsets`: commit, fetch, deletion and
expiry (`OffsetMetadataManager` in Kafka). Transactional offsets in the log are pending until their marker.

Pure, as `group_metadata_manager.py`. Only `replay_offset` and `replay_end_transaction` change offsets,
during loading and in service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from immutables import Map

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.classic.member_timers import MemberTimers
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import (
    Caller,
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    PartitionKey,
    ShardState,
    StateStore,
    UnsupportedGroup,
)
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, Token, operation_error
from quorate.broker.coordinators.shard import NO_PRODUCER_ID
from quorate.dataclass import dataclass
from quorate.net.turns import run_steps
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from quorate.protocol.uuids import ZERO_UUID

GROUP_NOT_FOUND_VERSION = 9
"""From this OffsetCommit version the error for an unknown group is GROUP_ID_NOT_FOUND. Before it is
ILLEGAL_GENERATION."""
INVALID_OFFSET = -1
MAX_TIMESTAMP_MS = 2**63 - 1
"""The largest timestamp of a record. In Kafka the sum overflows, and such an offset expires at once."""

OFFSET_RECORD_BYTES = 40
"""The least size of the record of an offset, without the names in its key."""

EXPIRY_SLICE = 500
"""Offsets that one step of an expiry checks and may delete: a few milliseconds of the event loop."""

DELETION_SLICE = 5000
"""Offsets that one step of a deletion of topics checks: one to three milliseconds of the event loop."""

TOMBSTONE_COST = 40
"""The share of DELETION_SLICE that a deleted offset takes: its record is encoded, replayed and appended."""

STEP = 20
"""Offsets that one step of a large request handles."""

_NO_OFFSETS: Map[PartitionKey, OffsetAndMetadata] = Map()


@dataclass(slots=True)
class ExpiryCursor:
    """The remainder of an expiry that is done in several steps: the remaining groups, and the remaining
    partitions of the last one (None: not started)."""

    groups: list[str]
    partitions: list[PartitionKey] | None = None

    def next_group(self) -> None:
        """Removes the last group."""
        self.groups.pop()
        self.partitions = None


@dataclass(slots=True)
class TopicsDeletion:
    """The remainder of a deletion of topics that is done in several steps. It deletes the entries of
    `offsets` that were not committed again since, because a topic may be created again under its name
    before the last step."""

    topics: frozenset[str]
    offsets: Map[str, Map[PartitionKey, OffsetAndMetadata]]
    groups: list[str]
    pending: list[tuple[str, str, int]]
    """Offsets of open transactions: (group, topic, partition)."""
    partitions: list[PartitionKey] | None = None
    """The remaining partitions of the last group (None: not started)."""


class OffsetMetadataManager:
    """The committed offsets of a shard."""

    __slots__ = ("_config", "_sessions", "_store")

    def __init__(self, config: GroupCoordinatorConfig, store: StateStore, sessions: MemberTimers) -> None:
        self._config = config
        self._store = store
        self._sessions = sessions

    # --- OffsetCommit -----------------------------------------------------------------------------

    def commit(
        self,
        request: OffsetCommitRequest,
        caller: Caller,
        token: Token,
        at: StepTime,
        max_batch_bytes: int | None = None,
    ) -> CoordinatorResult:
        """Stores offsets. Partitions with too long metadata get an error.

        Raises KafkaError if the member may not commit, or if the records cannot fit into one batch of
        `max_batch_bytes`. This is checked before the records are created, which would take seconds.
        """
        self.validate_commit(request, caller.api_version, at)
        if max_batch_bytes is not None and least_batch_bytes(request) > max_batch_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        out = CoordinatorResult()
        response = OffsetCommitResponse()
        expire_ms = (
            None
            if request.retention_time_ms < 0
            else min(at.wall_ms + request.retention_time_ms, MAX_TIMESTAMP_MS)
        )
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                metadata = partition.committed_metadata
                code = ErrorCode.NONE
                if metadata is not None and java_length(metadata) > self._config.offset_metadata_max_bytes:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    value = OffsetAndMetadata(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata or "",
                        commit_timestamp_ms=at.wall_ms,
                        expire_timestamp_ms=expire_ms,
                        topic_id=topic.topic_id,
                    )
                    out.records.append(
                        OffsetRecord(request.group_id, topic.name, partition.partition_index, value)
                    )
                answers.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            response.topics.append(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )

        def stored(error: ErrorCode, _: StepTime) -> CoordinatorResult:
            if error is not ErrorCode.NONE:
                return CoordinatorResult(replies=[(token, commit_error(request, operation_error(error)))])
            return CoordinatorResult(replies=[(token, response)])

        out.after = stored
        return out

    def validate_commit(self, request: OffsetCommitRequest, api_version: int, at: StepTime) -> None:
        """Restarts the session of a member that may commit. Raises KafkaError if it may not."""
        group = self._store.state.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return  # from an admin client or a consumer without a group: replay makes a simple group
            unknown = api_version >= GROUP_NOT_FOUND_VERSION
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if unknown else ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, UnsupportedGroup):
            if generation < 0 and group.is_empty:
                return
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and group.state is ClassicGroupState.EMPTY:
            return
        if generation >= 0 or request.member_id or request.group_instance_id is not None:
            group.validate_member(request.member_id, request.group_instance_id)
            if generation != group.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif group.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The member knows the newest generation and can commit after its sync. The partitions may be
            # assigned to another member by then.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
            self._sessions.restart(group, request.member_id, at)

    # --- OffsetFetch ------------------------------------------------------------------------------

    def fetch(
        self, state: ShardState, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """Reads offsets of a group from `state`: the committed state, or the newest one for a stable read.
        The caller decides which state is read: see `offset_requests`. Without topics all offsets are
        returned. Unknown offsets are -1."""
        response = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id)
        run_steps(self.fetching(state, request, response, require_stable=require_stable))
        return response

    def fetching(
        self,
        state: ShardState,
        request: OffsetFetchRequest.OffsetFetchRequestGroup,
        response: OffsetFetchResponse.OffsetFetchResponseGroup,
        *,
        require_stable: bool,
    ) -> Iterator[None]:
        """Does the same for a few partitions with each step, and fills the response. The state is a snapshot,
        which later commits do not change."""
        known = (
            state.offsets.get(request.group_id, _NO_OFFSETS)
            if request.group_id in state.groups
            else _NO_OFFSETS
        )
        if request.topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic_name, partition in sorted(known):
                by_topic.setdefault(topic_name, []).append(partition)
            wanted = [(name, ZERO_UUID, partitions) for name, partitions in by_topic.items()]
        else:
            wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
        for name, topic_id, partitions in wanted:
            answers: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = []
            response.topics.append(
                OffsetFetchResponse.OffsetFetchResponseTopics(
                    name=name, topic_id=topic_id, partitions=answers
                )
            )
            yield
            for partition in partitions:
                value = known.get((name, partition))
                if (
                    value is not None
                    and ZERO_UUID not in (value.topic_id, topic_id)
                    and value.topic_id != topic_id
                ):
                    value = None  # committed for an earlier topic of this name
                answer = OffsetFetchResponse.OffsetFetchResponsePartitions(
                    partition_index=partition,
                    committed_offset=INVALID_OFFSET,
                    committed_leader_epoch=-1,
                    metadata="",
                )
                if require_stable and state.has_pending(request.group_id, name, partition):
                    answer.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                elif value is not None:
                    answer.committed_offset = value.offset
                    answer.committed_leader_epoch = value.leader_epoch
                    answer.metadata = value.metadata
                answers.append(answer)
                if not len(answers) % STEP:
                    yield

    # --- deletion and expiry ----------------------------------------------------------------------

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token) -> CoordinatorResult:
        """Deletes offsets of topics to which no member is subscribed. Raises GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        group = self._store.state.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup):
            if group.state is ClassicGroupState.DEAD:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if group.state is not ClassicGroupState.EMPTY and not group.uses_consumer_protocol:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        known = self._store.state.offsets.get(request.group_id, _NO_OFFSETS)
        out = CoordinatorResult()
        response = OffsetDeleteResponse()
        for topic in request.topics:
            # The subscriptions of unsupported groups are not known here.
            subscribed = (
                group.is_subscribed_to(topic.name) if isinstance(group, ClassicGroup) else not group.is_empty
            )
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            answers = []
            for partition in topic.partitions:
                index = partition.partition_index
                answers.append(
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
                if not subscribed and (
                    (topic.name, index) in known
                    or self._store.state.has_pending(request.group_id, topic.name, index)
                ):
                    out.records.append(OffsetRecord(request.group_id, topic.name, index, None))
            response.topics.append(
                OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
            )

        def stored(error: ErrorCode, _: StepTime) -> CoordinatorResult:
            failed = error is not ErrorCode.NONE
            answer = OffsetDeleteResponse(error_code=operation_error(error)) if failed else response
            return CoordinatorResult(replies=[(token, answer)])

        out.after = stored
        return out

    def deletion_of(self, topics: frozenset[str]) -> TopicsDeletion:
        """Starts the deletion of the offsets of deleted topics. Its steps are done by `delete_of_topics`."""
        state = self._store.state
        pending = [key for entries in state.pending.values() for key in sorted(entries) if key[1] in topics]
        return TopicsDeletion(topics, state.offsets, list(state.offsets), pending)

    def delete_of_topics(self, deletion: TopicsDeletion) -> CoordinatorResult:
        """Checks at most `DELETION_SLICE` offsets and removes them from `deletion`."""
        out = CoordinatorResult(atomic=False)
        out.records += [OffsetRecord(group_id, topic, p, None) for group_id, topic, p in deletion.pending]
        deletion.pending = []
        budget = DELETION_SLICE
        while budget > 0 and deletion.groups:
            budget -= 1
            group_id = deletion.groups[-1]
            known = deletion.offsets[group_id]
            current = self._store.state.offsets.get(group_id, _NO_OFFSETS)
            if deletion.partitions is None:
                deletion.partitions = list(known)
            while budget > 0 and deletion.partitions:
                key = deletion.partitions.pop()
                budget -= 1
                if key[0] in deletion.topics and current.get(key) is known[key]:
                    budget -= TOMBSTONE_COST
                    out.records.append(OffsetRecord(group_id, *key, None))
            if not deletion.partitions:
                deletion.groups.pop()
                deletion.partitions = None
        return out

    def expire_offsets(self, cursor: ExpiryCursor, at: StepTime) -> CoordinatorResult:
        """Deletes offsets older than `offsets.retention.minutes`, and empty classic groups without offsets.
        Checks at most `EXPIRY_SLICE` offsets or groups, by their current state, and removes them from
        `cursor`."""
        out = CoordinatorResult(atomic=False)
        state = self._store.state
        budget = EXPIRY_SLICE
        while budget > 0 and cursor.groups:
            budget -= 1
            group_id = cursor.groups[-1]
            group = state.groups.get(group_id)
            if not isinstance(group, ClassicGroup):
                cursor.next_group()
                continue
            since = expiry_clock(group)
            offsets = state.offsets.get(group_id, _NO_OFFSETS)
            if cursor.partitions is None:
                cursor.partitions = [] if since is None else list(offsets)
            count = max(budget, 1)
            piece = cursor.partitions[-count:]
            del cursor.partitions[-count:]
            budget -= len(piece)
            deleted = 0
            for key in piece:
                value = offsets.get(key)
                if value is None or since is None:
                    continue  # changed since the cursor reached this group
                topic, partition = key
                if (
                    self._is_expired(value, since(value), at.wall_ms)
                    and not (group.members and group.is_subscribed_to(topic))
                    and not (state.pending and state.has_pending(group_id, topic, partition))
                ):
                    deleted += 1
                    out.records.append(OffsetRecord(group_id, topic, partition, None))
            if cursor.partitions:
                break
            cursor.next_group()
            if (
                deleted == len(offsets)
                and group.state is ClassicGroupState.EMPTY
                and not group.pending_join
                and not (state.pending and state.pending_partitions(group_id))
            ):
                out.records.append(GroupRecord(group_id, None))
        return out

    def _is_expired(self, value: OffsetAndMetadata, since_ms: int, now_ms: int) -> bool:
        if value.expire_timestamp_ms is not None:
            return now_ms >= value.expire_timestamp_ms  # given by its request
        return now_ms - since_ms >= self._config.offsets_retention_ms

    # --- replay -----------------------------------------------------------------------------------

    def replay_offset(self, record: OffsetRecord, offset: int, producer_id: int) -> None:
        """Applies an offset record at `offset` of the log. With a producer id it is pending until the marker
        of the transaction."""
        state = self._store.state
        group_id, key = record.group_id, (record.topic, record.partition)
        if record.value is None:
            known = state.offsets.get(group_id)
            if known is not None and key in known:
                known = known.delete(key)
                offsets = state.offsets.set(group_id, known) if known else state.offsets.delete(group_id)
                state = state._replace(offsets=offsets)
            if state.pending:
                full = (group_id, *key)
                kept = {pid: e.delete(full) if full in e else e for pid, e in state.pending.items()}
                state = state._replace(
                    pending=Map({pid: entries for pid, entries in kept.items() if entries})
                )
            self._store.state = state
            return
        value = OffsetAndMetadata(*record.value[:-1], offset)
        groups = state.groups
        if group_id not in groups:
            groups = groups.set(
                group_id, ClassicGroup(group_id, state_timestamp_ms=value.commit_timestamp_ms)
            )
        if producer_id == NO_PRODUCER_ID:
            known = state.offsets.get(group_id, _NO_OFFSETS)
            offsets = state.offsets.set(group_id, known.set(key, value))
            self._store.state = ShardState(groups, offsets, state.pending)
        else:
            entries = state.pending.get(producer_id, Map())
            pending = state.pending.set(producer_id, entries.set((group_id, *key), value))
            self._store.state = state._replace(groups=groups, pending=pending)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commits or drops the pending offsets of a producer. A later offset that was committed outside the
        transaction stays, as compaction would keep it."""
        entries = self._store.state.pending.get(producer_id)
        if entries is None:
            return
        offsets = self._store.state.offsets
        if committed:
            for (group_id, topic, partition), value in entries.items():
                known = offsets.get(group_id, _NO_OFFSETS)
                existing = known.get((topic, partition))
                if existing is None or value.record_offset > existing.record_offset:
                    offsets = offsets.set(group_id, known.set((topic, partition), value))
        self._store.state = self._store.state._replace(
            offsets=offsets, pending=self._store.state.pending.delete(producer_id)
        )


def expiry_clock(group: ClassicGroup) -> Callable[[OffsetAndMetadata], int] | None:
    """Returns a function for the start of an offset's retention time: when the group became empty, or when
    the offset was committed. Returns None if no offset of the group may expire now
    (`OffsetExpirationCondition` in Kafka)."""
    if group.protocol_type is not None:
        if group.state is ClassicGroupState.EMPTY:
            emptied = group.state_timestamp_ms
            return lambda value: value.commit_timestamp_ms if emptied is None else emptied
        if (
            group.uses_consumer_protocol
            and group.subscribed_topics is not None
            and group.state is ClassicGroupState.STABLE
        ):
            return lambda value: value.commit_timestamp_ms
        return None
    return lambda value: value.commit_timestamp_ms


def java_length(text: str) -> int:
    """Java's `String.length` in UTF-16 code units, to which Kafka applies `offset.metadata.max.bytes`."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be")) // 2


def least_batch_bytes(request: OffsetCommitRequest) -> int:
    """A lower bound of the size of the batch that stores these offsets, without compression."""
    return sum(
        len(topic.partitions) * (OFFSET_RECORD_BYTES + len(request.group_id) + len(topic.name))
        for topic in request.topics
    )


def commit_error(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The response to an OffsetCommit with the same error for all partitions."""
    response = OffsetCommitResponse()
    run_steps(failing_commit(request, code, response))
    return response


def failing_commit(
    request: OffsetCommitRequest, code: ErrorCode, response: OffsetCommitResponse
) -> Iterator[None]:
    """Fills the response of `commit_error`, a few partitions with each step."""
    for topic in request.topics:
        answers: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=answers
            )
        )
        for partition in topic.partitions:
            answers.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
            if not len(answers) % STEP:
                yield
        yield
