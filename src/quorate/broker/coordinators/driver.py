"""The asyncio shell around the shards: one for each offsets partition that this broker leads.

A request's future is its token in the core. For every step: answers go out at once, records are appended as one batch (the
append is done when the call
returns, so steps of a shard are in log order), and what follows runs when the high watermark has passed it. Writes see the
newest state, plain reads the
committed one. One timer serves all shards.
"""

from __future__ import annotations

import asyncio
import logging
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
"""Tombstones of an expiry that need not be atomic go out in batches of about this size, well below any `max.message.bytes`."""

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

    def append_internal(self, topic: str, partition_id: int, batch: bytes, *, timeout_s: float = ...) -> asyncio.Future[int]: ...

    def local_log(self, topic: str, partition: int) -> Any: ...

    def partition(self, topic: str, partition: int) -> Any: ...

    def subscribe_leadership(self, listener: Callable[[str, int, int | None], None], topic: str | None = ...) -> None: ...


class ShardRuntime:
    """A shard with its log: loading, then active until the broker stops leading the partition."""

    __slots__ = ("committed", "error", "in_flight", "leader_epoch", "loader", "parked", "partition", "shard")

    def __init__(self, partition: int, leader_epoch: int, shard: Shard) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.committed = ShardState()
        self.in_flight = 0
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """Why requests are refused; NONE when active."""
        self.parked: set[Answer] = set()
        """Answers that are owed: failed with NOT_COORDINATOR when the partition moves away."""
        self.loader: asyncio.Task[None] | None = None


class GroupDriver:
    """Runs the shards of the offsets partitions that are led here."""

    def __init__(self, config: GroupConfig, replicas: Replicas, clock: Clock) -> None:
        self.config = config
        self._replicas = replicas
        self._clock = clock
        self._shards: dict[int, ShardRuntime] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # -- life ------------------------------------------------------------------------------------------------------------

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
        runtime.loader = self._loop.create_task(self._load(runtime), name=f"load {GROUP_METADATA_TOPIC}-{partition}")

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
        loader = ShardLoader(runtime.shard)
        try:
            end = await loader.load(self._replicas.local_log(GROUP_METADATA_TOPIC, runtime.partition))
            # Served only when all of it is committed: an offset that is told must not be lost by the next election.
            while not await self._committed(runtime.partition, end):
                pass
        except asyncio.CancelledError:
            raise
        except Exception as error:
            runtime.error = ErrorCode.NOT_COORDINATOR
            log.error("[GroupCoordinator] Could not load %s-%d: %s", GROUP_METADATA_TOPIC, runtime.partition, error)
            return
        if self._shards.get(runtime.partition) is not runtime:
            return
        runtime.loader = None
        runtime.error = ErrorCode.NONE
        runtime.committed = runtime.shard.state
        for outcome in runtime.shard.loaded(self._at()):
            self._carry_out(runtime, outcome, runtime.shard.state)
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

    # -- access ----------------------------------------------------------------------------------------------------------

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

    def _committed(self, partition: int, offset: int) -> asyncio.Future[bool]:
        """Waits for the high watermark to reach `offset`; False when it did not in `offsets.commit.timeout.ms`. Fails with
        KafkaError
        when the partition is not led here any more."""
        from quorate.broker.delayed import DelayedAcks

        assert self._loop is not None
        replica = self._replicas.partition(GROUP_METADATA_TOPIC, partition)
        if replica.log.high_watermark >= offset:
            reached: asyncio.Future[bool] = self._loop.create_future()
            reached.set_result(True)
            return reached
        errors: list[ErrorCode] = []

        def finish() -> bool:
            if errors[0] not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT):
                raise KafkaError(errors[0])
            return errors[0] is not ErrorCode.REQUEST_TIMED_OUT

        timeout_s = self.config.offsets_commit_timeout_ms / 1000
        return DelayedAcks(self._loop, [(replica, offset)], timeout_s, lambda _, error: errors.append(error), finish).future

    # -- steps -----------------------------------------------------------------------------------------------------------

    def write(self, partition: int, step: Step) -> Answer:
        """Runs a step of a shard. The future carries its answer, or a KafkaError whose code is for the client."""
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
        self._carry_out(runtime, outcome, before)
        self._arm_timer(runtime)
        if not answer.done():
            runtime.parked.add(answer)
            answer.add_done_callback(runtime.parked.discard)
        return answer

    def after_commits(self, partition: int, read: Callable[[ShardRuntime], Any]) -> Answer:
        """A read of the newest state, answered when all that it may have seen is committed."""
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            runtime = self.runtime(partition)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        value = read(runtime)
        if not runtime.in_flight:
            answer.set_result(value)
            return answer
        replica_log = self._replicas.local_log(GROUP_METADATA_TOPIC, partition)
        settled = self._committed(partition, replica_log.log_end_offset)
        runtime.parked.add(answer)
        answer.add_done_callback(runtime.parked.discard)

        def done(future: asyncio.Future[bool]) -> None:
            if answer.done():
                return
            error = future.exception()
            if error is not None:
                answer.set_exception(error)
            elif future.result():
                answer.set_result(value)
            else:
                answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

        settled.add_done_callback(done)
        return answer

    def run_everywhere(self, step: Callable[[Shard, Instant], Outcome]) -> None:
        """Runs a step without an answer on every active shard (deleted topics)."""
        for runtime in self.runtimes():
            if runtime.error is ErrorCode.NONE:
                before = runtime.shard.state
                self._carry_out(runtime, step(runtime.shard, self._at()), before)
                self._arm_timer(runtime)

    def _carry_out(self, runtime: ShardRuntime, outcome: Outcome, before: ShardState) -> None:
        """The duties that `model.Outcome` lists."""
        for token, answer in outcome.replies:
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(answer)
        if not outcome.records:
            self._settled(runtime, outcome, ErrorCode.NONE)
            return
        try:
            appended = self._append(runtime, outcome, before)
        except KafkaError as error:
            log.warning(
                "[GroupCoordinator] Could not append to %s-%d: %s", GROUP_METADATA_TOPIC, runtime.partition, error.code.name
            )
            self._settled(runtime, outcome, error.code)
            return
        newest = runtime.shard.state
        if appended.done():
            self._appended(runtime, outcome, newest, appended)
            return
        runtime.in_flight += 1

        def later(future: asyncio.Future[int]) -> None:
            runtime.in_flight -= 1
            self._appended(runtime, outcome, newest, future)
            self._arm_timer(runtime)

        appended.add_done_callback(later)

    def _append(self, runtime: ShardRuntime, outcome: Outcome, stands: ShardState) -> asyncio.Future[int]:
        """Appends the records, replays them, and gives the future of the last batch (those before it are committed by then).

        Raises KafkaError when a batch is not appended, and then leaves the state that the log stands for."""
        from quorate.records.batch import build_batch
        from quorate.records.compression import Compression

        codec = Compression(self.config.offsets_compression)
        now_ms = self._clock.now_ms()
        replica_log = self._replicas.local_log(GROUP_METADATA_TOPIC, runtime.partition)
        if replica_log is None:
            runtime.shard.state = stands
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended: asyncio.Future[int] | None = None
        for records in [outcome.records] if outcome.atomic else in_chunks(outcome.records):
            batch = build_batch([(*encode_record(record), (), now_ms) for record in records], compression=codec)
            base = replica_log.log_end_offset
            try:
                appended = self._replicas.append_internal(
                    GROUP_METADATA_TOPIC, runtime.partition, batch, timeout_s=self.config.offsets_commit_timeout_ms / 1000
                )
            except KafkaError:
                runtime.shard.state = stands
                raise
            if outcome.replay:
                for index, record in enumerate(records):
                    runtime.shard.replay(record, base + index)
            stands = runtime.shard.state
        assert appended is not None
        return appended

    def _appended(self, runtime: ShardRuntime, outcome: Outcome, newest: ShardState, future: asyncio.Future[int]) -> None:
        if self._shards.get(runtime.partition) is not runtime:
            future.exception()
            return
        error = future.exception()
        if error is None:
            runtime.committed = newest
            self._settled(runtime, outcome, ErrorCode.NONE)
        else:
            # It stands in the log and may commit yet: the state stays, only the answer is an error.
            self._settled(runtime, outcome, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    def _settled(self, runtime: ShardRuntime, outcome: Outcome, error: ErrorCode) -> None:
        if outcome.after is not None:
            before = runtime.shard.state
            self._carry_out(runtime, outcome.after(error, self._at()), before)
        if not runtime.in_flight:
            runtime.committed = runtime.shard.state

    # -- time ------------------------------------------------------------------------------------------------------------

    def _arm_timer(self, runtime: ShardRuntime) -> None:
        """Makes the timer ring in time for this shard. It may ring early for one that has been put off since: cheaper than
        resetting it
        for every heartbeat."""
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
        at = self._at()
        active = [runtime for runtime in self._shards.values() if runtime.error is ErrorCode.NONE]
        try:
            for runtime in active:
                before = runtime.shard.state
                for outcome in runtime.shard.tick(at):
                    self._carry_out(runtime, outcome, before)
                    before = runtime.shard.state
        finally:
            for runtime in active:  # one group's defect must not stop the clock of all
                self._arm_timer(runtime)


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
