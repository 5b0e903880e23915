"""The asyncio shell around the shards: one for each offsets partition that this broker leads.

A request's future is its token in the core. For every step: answers go out at once, records are
appended as one batch (the append is done when the call returns, so steps of a shard are in log order),
and what follows runs when the high watermark has passed it. Writes see the newest state. Reads see the
committed one, which follows the high watermark alone: an append that timed out is visible as soon as it
commits, and not before. One timer serves all shards. The same rules as in Kafka's `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from quorate.broker.coordinators.classic_answers import append_error
from quorate.broker.coordinators.loader import ShardLoader
from quorate.broker.coordinators.model import GroupConfig, Instant, Outcome, Record, ShardState
from quorate.broker.coordinators.record_codec import encode_record
from quorate.broker.coordinators.shard import Shard
from quorate.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger("quorate.group")

GROUP_METADATA_TOPIC = "__consumer_offsets"

CHUNK_BYTES = 512 * 1024
"""Tombstones of an expiry that need not be atomic go out in batches of about this size, well below any
`max.message.bytes`."""

RING_S = 0.003
"""After this time the timers of the remaining shards wait for the next turn of the event loop."""

Answer = asyncio.Future[Any]
Step = Callable[[Shard, Answer, Instant], Outcome]


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def now(self) -> float: ...


class Log(Protocol):
    """What is used of a partition's log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def read_bytes(self, offset: int, max_bytes: int) -> bytes: ...


class Replicas(Protocol):
    """What is used of the replica manager."""

    def append_internal(
        self, topic: str, partition_id: int, batch: bytes, *, timeout_s: float = ...
    ) -> asyncio.Future[int]: ...

    def local_log(self, topic: str, partition: int) -> Any: ...

    def partition(self, topic: str, partition: int) -> Any: ...

    def subscribe_leadership(
        self, listener: Callable[[str, int, int | None], None], topic: str | None = ...
    ) -> None: ...


class ShardRuntime:
    """A shard with its log: loading, then active until the broker stops leading the partition."""

    __slots__ = (
        "_committed",
        "_uncommitted",
        "deleted_topics",
        "error",
        "inherited",
        "leader_epoch",
        "loader",
        "parked",
        "partition",
        "shard",
    )

    def __init__(self, partition: int, leader_epoch: int, shard: Shard) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self._committed = ShardState()
        self._uncommitted: deque[tuple[int, ShardState]] = deque()
        """For each batch that was not committed yet: its end offset, and the state with it."""
        self.inherited: tuple[int, ShardState] | None = None
        """End offset of the log that was loaded, and the state there; None once the high watermark has
        passed it. Before, an earlier leader may have acknowledged records that are not known to be
        committed here."""
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """Why requests are refused; NONE when active."""
        self.parked: set[Answer] = set()
        """Answers that are owed: failed with NOT_COORDINATOR when the partition moves away."""
        self.loader: asyncio.Task[None] | None = None
        self.deleted_topics: set[str] = set()
        """Topics that were deleted while this shard was loaded."""

    def written(self, end_offset: int) -> None:
        """The newest state is the one of the log up to `end_offset`."""
        self._uncommitted.append((end_offset, self.shard.state))

    def committed(self, high_watermark: int) -> ShardState:
        """The state of the log up to the high watermark, which never goes back while the shard is led."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            self._committed = uncommitted.popleft()[1]
        if self.inherited is not None and self.inherited[0] <= high_watermark:
            self.inherited = None
        return self._committed

    def is_committed(self, high_watermark: int) -> bool:
        """Whether the newest state is the committed one."""
        self.committed(high_watermark)
        return not self._uncommitted


class GroupDriver:
    """Runs the shards of the offsets partitions that are led here."""

    def __init__(
        self,
        config: GroupConfig,
        replicas: Replicas,
        clock: Clock,
        has_topic: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`has_topic` tells whether the cluster has a topic of this name."""
        self.config = config
        self._replicas = replicas
        self._clock = clock
        self._has_topic = has_topic
        self._shards: dict[int, ShardRuntime] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._next_turn = -1
        """The partition whose timers are looked at first."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # -- life
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes over the partitions that are led already, and follows elections from here on."""
        self._loop = asyncio.get_running_loop()
        self._replicas.subscribe_leadership(self._on_leadership, GROUP_METADATA_TOPIC)

    async def close(self) -> None:
        """Stops serving; what is parked is told to look for another coordinator."""
        self._closed = True
        for partition in list(self._shards):
            self._unload(partition)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_leadership(self, topic: str, partition: int, leader_epoch: int | None) -> None:
        if topic != GROUP_METADATA_TOPIC or self._closed:
            return
        if leader_epoch is None:
            self._unload(partition)
            return
        runtime = self._shards.get(partition)
        if runtime is not None and runtime.error is not ErrorCode.NOT_COORDINATOR:
            # Led already: the log is the one that the state came from, or is being loaded from.
            runtime.leader_epoch = max(runtime.leader_epoch, leader_epoch)
            return
        assert self._loop is not None
        runtime = ShardRuntime(partition, leader_epoch, Shard(self.config))
        self._shards[partition] = runtime
        runtime.loader = self._loop.create_task(
            self._load(runtime), name=f"load {GROUP_METADATA_TOPIC}-{partition}"
        )

    def _unload(self, partition: int) -> None:
        runtime = self._shards.pop(partition, None)
        if runtime is None:
            return
        runtime.error = ErrorCode.NOT_COORDINATOR
        if runtime.loader is not None:
            runtime.loader.cancel()
        for answer in list(runtime.parked):
            if not answer.done():
                answer.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        runtime.parked.clear()
        log.info("[GroupCoordinator] Unloaded %s-%d.", GROUP_METADATA_TOPIC, partition)

    async def _load(self, runtime: ShardRuntime) -> None:
        started = self._clock.now()

        def replayed(end_offset: int) -> None:
            runtime.written(end_offset)
            runtime.committed(self._high_watermark(runtime))

        loader = ShardLoader(runtime.shard, replayed)
        try:
            end = await loader.load(self._replicas.local_log(GROUP_METADATA_TOPIC, runtime.partition))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            runtime.error = ErrorCode.NOT_COORDINATOR
            log.error(
                "[GroupCoordinator] Could not load %s-%d: %s", GROUP_METADATA_TOPIC, runtime.partition, error
            )
            return
        if self._shards.get(runtime.partition) is not runtime:
            return
        runtime.loader = None
        # Not all of the log need be committed yet: a replica in the ISR that hangs would delay the
        # whole failover until it is out of the ISR. Reads see what is committed, as in Kafka's
        # CoordinatorLoader.
        runtime.inherited = (end, runtime.shard.state)
        runtime.error = ErrorCode.NONE
        for outcome in runtime.shard.loaded(self._at()):
            self._carry_out(runtime, outcome, runtime.shard.state)
        # A topic that is not here was deleted: the metadata that made this broker the leader is newer
        # than any with which the former leader could take a commit. That one may have ended before it
        # had deleted all offsets, or nobody led then.
        gone = {topic for topic in loader.topics if not self._has_topic(topic)} | runtime.deleted_topics
        if gone:
            runtime.shard.topics_deleted(frozenset(gone))
        self._arm_timer(runtime)
        if loader.records:
            log.info(
                "[GroupCoordinator] Loaded %s-%d: %d groups from %d records in %.0f ms.",
                GROUP_METADATA_TOPIC,
                runtime.partition,
                len(runtime.shard.state.groups),
                loader.records,
                (self._clock.now() - started) * 1000,
            )

    # -- access
    # ----------------------------------------------------------------------------------------------

    def runtime(self, partition: int) -> ShardRuntime:
        """The active shard. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        runtime = self._shards.get(partition)
        if runtime is None or self._closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if runtime.error is not ErrorCode.NONE:
            raise KafkaError(runtime.error)
        return runtime

    def runtimes(self) -> Iterator[ShardRuntime]:
        """All shards that are led here, loading ones too."""
        return iter(list(self._shards.values()))

    def instant(self) -> Instant:
        return self._at()

    def _at(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.now())

    def _high_watermark(self, runtime: ShardRuntime) -> int:
        """Of the partition's log; -1 when it is gone, which the end of the leadership tells in a moment."""
        try:
            replica_log = self._replicas.local_log(GROUP_METADATA_TOPIC, runtime.partition)
        except KafkaError:
            return -1
        return -1 if replica_log is None else int(replica_log.high_watermark)

    def max_batch_bytes(self, partition: int) -> int | None:
        """What the records of one step may take uncompressed; None when compression decides."""
        if self.config.offsets_compression:
            return None
        replica_log = self._replicas.local_log(GROUP_METADATA_TOPIC, partition)
        return None if replica_log is None else int(replica_log.config.max_message_bytes)

    def committed(self, runtime: ShardRuntime) -> ShardState:
        """The state that no election can take back any more: all that a read may answer."""
        return runtime.committed(self._high_watermark(runtime))

    def _reaches(self, partition: int, offset: int) -> asyncio.Future[bool]:
        """Waits for the high watermark to reach `offset`; False when it did not in
        `offsets.commit.timeout.ms`. Fails with KafkaError when the partition is not led here any more."""
        from quorate.broker.replication.purgatory import DelayedAcks

        assert self._loop is not None
        replica = self._replicas.partition(GROUP_METADATA_TOPIC, partition)
        errors: list[ErrorCode] = []

        def finish() -> bool:
            if errors[0] not in (
                ErrorCode.NONE,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                ErrorCode.REQUEST_TIMED_OUT,
            ):
                raise KafkaError(errors[0])
            return errors[0] is not ErrorCode.REQUEST_TIMED_OUT

        timeout_s = self.config.offsets_commit_timeout_ms / 1000
        return DelayedAcks(
            self._loop, [(replica, offset)], timeout_s, lambda _, error: errors.append(error), finish
        ).future

    def _all_committed(self, partition: int) -> asyncio.Future[bool]:
        """Waits for the high watermark to reach the log's present end."""
        return self._reaches(
            partition, self._replicas.partition(GROUP_METADATA_TOPIC, partition).log.log_end_offset
        )

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def write(self, partition: int, step: Step) -> Answer:
        """Runs a step of a shard. The future carries its answer, or a KafkaError whose code is for the
        client."""
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            runtime = self.runtime(partition)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        before = runtime.shard.state
        try:
            outcome = step(runtime.shard, answer, self._at())
        except KafkaError as error:
            runtime.shard.state = before
            answer.set_exception(KafkaError(append_error(error.code), error.message))
            return answer
        except Exception:
            log.exception("[GroupCoordinator] A request to %s-%d failed.", GROUP_METADATA_TOPIC, partition)
            runtime.shard.state = before
            answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return answer
        self._carry_out(runtime, outcome, before, answer)
        self._arm_timer(runtime)
        if not answer.done():
            self._park(runtime, answer)
        return answer

    def _park(self, runtime: ShardRuntime, answer: Answer) -> None:
        runtime.parked.add(answer)
        answer.add_done_callback(runtime.parked.discard)

    def read_newest(self, partition: int, read: Callable[[Shard, ShardState], Any]) -> Answer:
        """A read of the newest state, answered when all that it may have seen is committed."""
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            runtime = self.runtime(partition)
            value = read(runtime.shard, runtime.shard.state)
            if runtime.is_committed(self._high_watermark(runtime)):
                answer.set_result(value)
                return answer
            settled = self._all_committed(partition)
        except KafkaError as error:
            answer.set_exception(error)
            return answer

        def done(future: asyncio.Future[bool]) -> None:
            error = future.exception()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif future.result():
                answer.set_result(value)
            else:
                answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

        self._park(runtime, answer)
        settled.add_done_callback(done)
        return answer

    def read_committed(
        self, partition: int, group_id: str, read: Callable[[Shard, ShardState], Any]
    ) -> Answer:
        """A read of the committed state of a group.

        Where an earlier leader wrote about the group what is not known to be committed here, it may
        have acknowledged it: the high watermark of a new leader is behind until its followers have
        fetched. Such a read waits for it, for at most `offsets.commit.timeout.ms`; Kafka does not wait
        and may answer an older offset.
        """
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            runtime = self.runtime(partition)
            state = self.committed(runtime)
            inherited = runtime.inherited
            if inherited is None or not differ(state, inherited[1], group_id):
                answer.set_result(read(runtime.shard, state))
                return answer
            reached = self._reaches(partition, inherited[0])
        except KafkaError as error:
            answer.set_exception(error)
            return answer

        def done(future: asyncio.Future[bool]) -> None:
            error = future.exception()
            if answer.done():
                return
            try:
                if error is not None:
                    raise error
                answer.set_result(read(runtime.shard, self.committed(runtime)))
            except Exception as failure:
                answer.set_exception(failure)

        self._park(runtime, answer)
        reached.add_done_callback(done)
        return answer

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Deletes the offsets of topics on every shard: the first ones now, the rest in later turns of
        the event loop."""
        for runtime in self.runtimes():
            if runtime.error is ErrorCode.NONE:
                runtime.shard.topics_deleted(topics)
            elif runtime.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                runtime.deleted_topics |= topics
        if self._timer is not None:
            self._timer.cancel()
        self._ring()

    def _carry_out(
        self, runtime: ShardRuntime, outcome: Outcome, before: ShardState, answer: Answer | None = None
    ) -> None:
        """The duties that `model.Outcome` lists. `answer` is the one that the step owes, should a
        defect keep it from answering."""
        for token, value in outcome.replies:
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(value)
        try:
            if outcome.records:
                pending: asyncio.Future[Any] = self._append(runtime, outcome, before)
            elif outcome.after is None:
                return
            elif runtime.is_committed(self._high_watermark(runtime)):
                self._settled(runtime, outcome, ErrorCode.NONE, answer)
                return
            else:
                # It found nothing to write, in a state that is not all committed: its answer must wait
                # for that.
                pending = self._all_committed(runtime.partition)
        except Exception as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            log.warning(
                "[GroupCoordinator] Could not append to %s-%d: %s",
                GROUP_METADATA_TOPIC,
                runtime.partition,
                code.name,
                exc_info=None if isinstance(error, KafkaError) else error,
            )
            self._settled(runtime, outcome, code, answer)
            return
        if pending.done():
            self._replicated(runtime, outcome, answer, pending)
            return
        pending.add_done_callback(lambda future: self._replicated(runtime, outcome, answer, future))

    def _append(self, runtime: ShardRuntime, outcome: Outcome, stands: ShardState) -> asyncio.Future[int]:
        """Replays the records, appends them, and gives the future of the last batch (those before it
        are committed by then).

        Raises what keeps a batch from being appended, and then leaves the state that the log stands for."""
        from quorate.records.batch import build_batch
        from quorate.records.compression import Compression

        shard = runtime.shard
        codec = Compression(self.config.offsets_compression)
        now_ms = self._clock.now_ms()
        appended: asyncio.Future[int] | None = None
        for records in [outcome.records] if outcome.atomic else in_chunks(outcome.records):
            replica_log, base = None, -1
            try:
                replica_log = self._replicas.local_log(GROUP_METADATA_TOPIC, runtime.partition)
                if replica_log is None:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                base = replica_log.log_end_offset
                if outcome.replay:
                    for index, record in enumerate(records):
                        shard.replay(record, base + index)
                batch = build_batch(
                    [(*encode_record(record), (), now_ms) for record in records], compression=codec
                )
                appended = self._replicas.append_internal(
                    GROUP_METADATA_TOPIC,
                    runtime.partition,
                    batch,
                    timeout_s=self.config.offsets_commit_timeout_ms / 1000,
                )
            except Exception:
                if replica_log is not None and replica_log.log_end_offset > base:
                    runtime.written(
                        replica_log.log_end_offset
                    )  # it failed after the write: the log has the batch
                else:
                    shard.state = stands
                raise
            runtime.written(base + len(records))
            stands = shard.state
        assert appended is not None
        return appended

    def _replicated(
        self, runtime: ShardRuntime, outcome: Outcome, answer: Answer | None, future: asyncio.Future[Any]
    ) -> None:
        """The high watermark has passed a step's records, or the wait for that is over. Then they stand
        in the log and may commit yet: the state stays, only the answer is an error."""
        error = future.exception()
        if self._shards.get(runtime.partition) is not runtime:
            return
        code = ErrorCode.NONE
        if isinstance(error, KafkaError):
            code = error.code
        elif error is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        elif future.result() is False:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            code = ErrorCode.NONE  # the high watermark has passed it: that is what counts for a coordinator
        self.committed(runtime)
        self._settled(runtime, outcome, code, answer)
        self._arm_timer(runtime)

    def _settled(
        self, runtime: ShardRuntime, outcome: Outcome, error: ErrorCode, answer: Answer | None
    ) -> None:
        if outcome.after is None:
            return
        before = runtime.shard.state
        try:
            self._carry_out(runtime, outcome.after(error, self._at()), before)
        except Exception:
            log.exception(
                "[GroupCoordinator] A request to %s-%d failed.", GROUP_METADATA_TOPIC, runtime.partition
            )
            if answer is not None and not answer.done():
                answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    # -- time
    # ----------------------------------------------------------------------------------------------

    def _arm_timer(self, runtime: ShardRuntime) -> None:
        """Makes the timer ring in time for this shard. It may ring early for one that has been put off
        since: cheaper than resetting it for every heartbeat."""
        deadline = runtime.shard.next_deadline()
        if deadline is None or self._closed or self._loop is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.now()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        started = self._clock.now()
        at = self._at()
        active = [runtime for runtime in self._shards.values() if runtime.error is ErrorCode.NONE]
        # Those that had no turn come first the next time, which is at once: their timers are due.
        turn = next((i for i, runtime in enumerate(active) if runtime.partition == self._next_turn), 0)
        try:
            for index, runtime in enumerate(active[turn:] + active[:turn], turn + 1):
                self._tick(runtime, at)
                if self._clock.now() - started >= RING_S:
                    self._next_turn = active[index % len(active)].partition
                    break
        finally:
            for runtime in active:
                self._arm_timer(runtime)

    def _tick(self, runtime: ShardRuntime, at: Instant) -> None:
        before = runtime.shard.state
        try:
            for outcome in runtime.shard.tick(at):
                self._carry_out(runtime, outcome, before)
                before = runtime.shard.state
        except (
            Exception
        ):  # one group's defect must not stop the clock of all; what else is due rings at once again
            log.exception(
                "[GroupCoordinator] A timer of %s-%d failed.", GROUP_METADATA_TOPIC, runtime.partition
            )
            runtime.shard.state = before


def differ(state: ShardState, other: ShardState, group_id: str) -> bool:
    """Whether two states may tell different offsets of a group."""
    if state is other:
        return False
    return (
        (group_id in state.groups) != (group_id in other.groups)
        or state.offsets.get(group_id) != other.offsets.get(group_id)
        or state.pending_partitions(group_id) != other.pending_partitions(group_id)
    )


def in_chunks(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Cuts records that need not be atomic into batches of a modest size."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        key, value = encode_record(record)
        size += len(key) + len(value or b"") + 32
        chunk.append(record)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
