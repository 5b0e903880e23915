"""Runs the shards of a coordinator, one for each partition of its internal topic that this broker leads
(`CoordinatorRuntime` in Kafka).

A shard identifies a request by a token: the future of its response. A step returns a `CoordinatorResult`:

- Its responses are sent at once.
- Its records are in the log when `write` returns: as one batch, or as several if the result is not atomic.
  Records that need no step (`batches`) are in the log after the turn of the event loop.
- Its `after` sends what depends on the records. It is called when the high watermark has passed the batch.

Writes and `read_newest` see the newest state, `read_committed` the committed one. The committed state
follows only the high watermark: records whose append timed out are visible as soon as they are
committed. One timer serves all shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic

from quorate.broker.coordinators.batch_writer import BatchWriter, chunks
from quorate.broker.coordinators.context import Answer, CoordinatorContext, ShardT
from quorate.broker.coordinators.high_watermark import HighWatermarks, Replicas
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, operation_error
from quorate.broker.coordinators.shard_loading import ShardLoading
from quorate.clock import Clock
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import BATCH_OVERHEAD, build_batch
from quorate.records.compression import Compression

logger = logging.getLogger("quorate.group")

TIMER_SLICE_S = 0.003
"""The limit for expired timers in one turn of the event loop. After a restart all members may expire."""


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of one coordinator on this broker."""

    def __init__(
        self,
        *,
        name: str,
        topic: str,
        make_shard: Callable[[], ShardT],
        encode_record: Callable[[Any], tuple[bytes, bytes | None]],
        decode_record: Callable[[bytes, bytes | None], Any],
        compression: int,
        append_timeout_s: float,
        replicas: Replicas,
        clock: Clock,
        has_topic: Callable[[str], bool],
    ) -> None:
        """`name` is for log messages. `has_topic` returns whether the cluster has a topic."""
        self._name = name
        self._topic = topic
        self._encode_record = encode_record
        self._compression = Compression(compression)
        self._append_timeout_s = append_timeout_s
        self._replicas = replicas
        self._clock = clock
        self._high_watermarks = HighWatermarks(replicas, topic, append_timeout_s)
        self._contexts: dict[int, CoordinatorContext[ShardT]] = {}
        self.batches = BatchWriter[ShardT](clock, self._batch_limit, self._apply)
        """Writes the records of several requests as one batch."""
        self._loading = ShardLoading[ShardT](
            name=name,
            topic=topic,
            make_shard=make_shard,
            decode_record=decode_record,
            replicas=replicas,
            clock=clock,
            has_topic=has_topic,
            high_watermarks=self._high_watermarks,
            contexts=self._contexts,
            apply=self._apply,
            arm_timer=self._arm_timer,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._next_turn = -1
        """The partition whose timers come first when the timer fires."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # --- loading ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Loads the partitions that this broker leads, and follows later elections."""
        self._loop = asyncio.get_running_loop()
        self._replicas.subscribe_leadership(self._on_leadership, self._topic)

    async def close(self) -> None:
        """Unloads all shards. Unanswered requests fail with NOT_COORDINATOR."""
        self._closed = True
        for partition in list(self._contexts):
            self._unload(partition)
        self._loading.close()
        if self._timer is not None:
            self._timer.cancel()

    def _on_leadership(self, topic: str, partition: int, leader_epoch: int | None) -> None:
        if topic != self._topic or self._closed:
            return
        if leader_epoch is None:
            self._unload(partition)
            return
        context = self._contexts.get(partition)
        if context is not None and context.error is not ErrorCode.NOT_COORDINATOR:
            # This broker was the leader before: the state is that of the log, or is being loaded from it.
            context.leader_epoch = max(context.leader_epoch, leader_epoch)
            return
        self._loading.begin(partition, leader_epoch)

    def _unload(self, partition: int) -> None:
        self._loading.cancel(partition)
        context = self._contexts.pop(partition, None)
        if context is None:
            return
        context.error = ErrorCode.NOT_COORDINATOR
        if context.loader is not None:
            context.loader.cancel()
        context.fail_pending(ErrorCode.NOT_COORDINATOR)
        logger.info("[%s] Unloaded %s-%d.", self._name, self._topic, partition)

    # --- access -----------------------------------------------------------------------------------

    def context(self, partition: int) -> CoordinatorContext[ShardT]:
        """The context of an active shard. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        context = self._contexts.get(partition)
        if context is None or self._closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if context.error is not ErrorCode.NONE:
            raise KafkaError(context.error)
        return context

    def max_batch_bytes(self, partition: int) -> int | None:
        """The limit for the uncompressed records of one step, or None if it is unknown or depends on
        compression."""
        replica_log = None if self._compression else self._replicas.local_log(self._topic, partition)
        return None if replica_log is None else int(replica_log.config.max_message_bytes)

    def _batch_limit(self, partition: int) -> int:
        """The limit for the records of several requests. No codec doubles the size of what it compresses."""
        if (replica_log := self._replicas.local_log(self._topic, partition)) is None:
            return 0
        config = replica_log.config
        return (min(int(config.max_message_bytes), int(config.segment_bytes)) - BATCH_OVERHEAD) // 2

    def records_bytes(self, partition: int) -> int:
        """The size of uncompressed records that fit into one batch, with any codec."""
        return self._batch_limit(partition) * (1 if self._compression else 2)

    def contexts(self) -> Iterator[CoordinatorContext[ShardT]]:
        """All shards of this broker, also those that are loading."""
        return iter(list(self._contexts.values()))

    def step_time(self) -> StepTime:
        """The time of a step that starts now."""
        return StepTime(self._clock.now_ms(), self._clock.now())

    def committed_state(self, context: CoordinatorContext[ShardT]) -> Any:
        """The state up to the high watermark, which no election can revert. Reads are answered from it."""
        return context.committed_state(self._high_watermarks.current(context.partition))

    # --- operations -------------------------------------------------------------------------------

    def write(self, partition: int, step: Callable[[ShardT, Answer, StepTime], CoordinatorResult]) -> Answer:
        """Runs a step of a shard. The future returns its response, or fails with a KafkaError whose code is
        meant for the client."""
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            context = self.context(partition)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        self.batches.flush(context)
        before = context.shard.state
        try:
            result = step(context.shard, answer, self.step_time())
        except Exception as error:
            context.shard.state = before
            if isinstance(error, KafkaError):
                answer.set_exception(KafkaError(operation_error(error.code), error.message))
            else:
                logger.exception("[%s] A request to %s-%d failed.", self._name, self._topic, partition)
                answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return answer
        self._apply(context, result, before, answer)
        self._arm_timer(context)
        if not answer.done():
            context.add_pending(answer)
        return answer

    def write_marker(
        self, partition: int, producer_id: int, batch: bytes, *, committed: bool, timeout_s: float
    ) -> asyncio.Future[int]:
        """Appends the marker of a transaction, and applies it to the producer's pending records. The future
        completes when the marker is committed. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, errors of
        the append."""
        context = self.context(partition)
        self.batches.flush(context)
        replica_log = self._replicas.local_log(self._topic, partition)
        if replica_log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        base = replica_log.log_end_offset
        try:
            return self._replicas.append_internal(self._topic, partition, batch, timeout_s=timeout_s)
        finally:
            if replica_log.log_end_offset > base:
                context.shard.replay_end_transaction(producer_id, committed=committed)
                context.update_last_written_offset(replica_log.log_end_offset)

    def read_newest(self, partition: int, read: Callable[[ShardT, Any], Any]) -> Answer:
        """Reads the newest state. The future completes when all records in that state are committed."""
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            context = self.context(partition)
            self.batches.flush(context)
            value = read(context.shard, context.shard.state)
            if context.is_committed(self._high_watermarks.current(partition)):
                answer.set_result(value)
                return answer
            reached = self._high_watermarks.reach_log_end(partition)
        except KafkaError as error:
            answer.set_exception(error)
            return answer

        def done(future: asyncio.Future[bool]) -> None:
            error = future.exception()
            if error is None and not future.result():
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)

        context.add_pending(answer)
        reached.add_done_callback(done)
        return answer

    def read_committed(
        self, partition: int, read: Callable[[ShardT, Any], Any], differs: Callable[[Any, Any], bool]
    ) -> Answer:
        """Reads the committed state.

        An earlier leader may have acknowledged records that are not known to be committed here, because
        the high watermark of a new leader lags until its followers have fetched. If `differs` says
        that the result depends on such records, the read waits for the high watermark, for at most the
        append timeout. Kafka does not wait and may return an older state.
        """
        assert self._loop is not None
        answer: Answer = self._loop.create_future()
        try:
            context = self.context(partition)
            state = self.committed_state(context)
            uncommitted = context.uncommitted_at_load
            if uncommitted is None or not differs(state, uncommitted[1]):
                answer.set_result(read(context.shard, state))
                return answer
            reached = self._high_watermarks.reach(partition, uncommitted[0])
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
                answer.set_result(read(context.shard, self.committed_state(context)))
            except Exception as failure:
                answer.set_exception(failure)

        context.add_pending(answer)
        reached.add_done_callback(done)
        return answer

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Removes the state about deleted topics from every shard: a first part now, the rest in later turns
        of the event loop."""
        for context in self.contexts():
            if context.error is ErrorCode.NONE:
                self.batches.flush(context)
                context.shard.topics_deleted(topics)
            else:
                context.deleted_topics |= topics
        if self._timer is not None:
            self._timer.cancel()
        self._on_timer()

    # --- effects ----------------------------------------------------------------------------------

    def _apply(
        self,
        context: CoordinatorContext[ShardT],
        result: CoordinatorResult,
        before: Any,
        answer: Answer | None = None,
    ) -> None:
        """Applies a result as `CoordinatorResult` describes. `answer` fails if a bug prevents the step from
        answering."""
        for token, value in result.replies:
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(value)
        partition = context.partition
        try:
            if result.records:
                pending: asyncio.Future[Any] = self._append(context, result, before)
            elif result.after is None:
                return
            elif context.is_committed(self._high_watermarks.current(partition)):
                self._run_after(context, result, ErrorCode.NONE, answer)
                return
            else:
                # The step wrote nothing, but it saw records that are not committed.
                pending = self._high_watermarks.reach_log_end(partition)
        except Exception as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            text = "[%s] Could not append to %s-%d: %s"
            cause = None if isinstance(error, KafkaError) else error
            logger.warning(text, self._name, self._topic, partition, code.name, exc_info=cause)
            self._run_after(context, result, code, answer)
            return
        if pending.done():
            self._on_committed(context, result, answer, pending)
            return
        pending.add_done_callback(lambda future: self._on_committed(context, result, answer, future))

    def _append(
        self, context: CoordinatorContext[ShardT], result: CoordinatorResult, before: Any
    ) -> asyncio.Future[int]:
        """Replays and appends the records. The returned future completes when all batches are committed. If
        this method raises, the shard's state still matches the log."""
        shard, encode = context.shard, self._encode_record
        now_ms = self._clock.now_ms()
        appended: asyncio.Future[int] | None = None
        limit = self._batch_limit(context.partition)
        for records in [result.records] if result.atomic else chunks(result.records, encode, limit):
            replica_log, base = None, -1
            try:
                replica_log = self._replicas.local_log(self._topic, context.partition)
                if replica_log is None:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                base = replica_log.log_end_offset
                if result.replay:
                    for index, record in enumerate(records):
                        shard.replay(record, base + index)
                batch = build_batch(
                    [(*encode(record), (), now_ms) for record in records], compression=self._compression
                )
                appended = self._replicas.append_internal(
                    self._topic, context.partition, batch, timeout_s=self._append_timeout_s
                )
            except Exception:
                if replica_log is not None and replica_log.log_end_offset > base:
                    # The append failed after the write: the batch is in the log.
                    context.update_last_written_offset(replica_log.log_end_offset)
                else:
                    shard.state = before
                raise
            context.update_last_written_offset(base + len(records))
            before = shard.state
        assert appended is not None
        return appended

    def _on_committed(
        self,
        context: CoordinatorContext[ShardT],
        result: CoordinatorResult,
        answer: Answer | None,
        future: asyncio.Future[Any],
    ) -> None:
        """Continues a step when its records are committed or the wait has failed. After a failure the
        records are in the log and may be committed later. Therefore the state stays, and only the
        response is an error."""
        error = future.exception()
        if self._contexts.get(context.partition) is not context:
            return
        if error is not None:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if future.result() is False else ErrorCode.NONE
        if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            # The high watermark has passed the batch, which is enough for a coordinator.
            code = ErrorCode.NONE
        self.committed_state(context)
        self._run_after(context, result, code, answer)

    def _run_after(
        self,
        context: CoordinatorContext[ShardT],
        result: CoordinatorResult,
        error: ErrorCode,
        answer: Answer | None,
    ) -> None:
        if result.after is None:
            return
        self.batches.flush(context)
        before = context.shard.state
        try:
            self._apply(context, result.after(error, self.step_time()), before)
        except Exception:
            logger.exception("[%s] A request to %s-%d failed.", self._name, self._topic, context.partition)
            if answer is not None and not answer.done():
                answer.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._arm_timer(context)

    # --- timer ------------------------------------------------------------------------------------

    def _arm_timer(self, context: CoordinatorContext[ShardT]) -> None:
        """Makes sure that the timer fires in time for a shard. It may fire too early for a deadline that
        was postponed: that costs less than a new timer for every heartbeat."""
        deadline = context.shard.next_deadline()
        if deadline is None or self._closed or self._loop is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        started = self._clock.now()
        at = self.step_time()
        active = [context for context in self._contexts.values() if context.error is ErrorCode.NONE]
        # Shards that had no turn come first in the next call, which follows at once because their timers
        # have already expired.
        turn = next((i for i, context in enumerate(active) if context.partition == self._next_turn), 0)
        try:
            for index, context in enumerate(active[turn:] + active[:turn], turn + 1):
                self._tick(context, at, started + TIMER_SLICE_S)
                if self._clock.now() - started >= TIMER_SLICE_S:
                    self._next_turn = active[index % len(active)].partition
                    break
        finally:
            for context in active:
                self._arm_timer(context)

    def _tick(self, context: CoordinatorContext[ShardT], at: StepTime, until: float) -> None:
        """Runs the expired timers of a shard: at least one, and no further one after the time `until`."""
        self.batches.flush(context)
        before = context.shard.state
        try:
            for result in context.shard.tick(at):
                self._apply(context, result, before)
                before = context.shard.state
                if self._clock.now() >= until:
                    return
        except Exception:  # a bug in one shard must not stop the timers of the others
            logger.exception("[%s] A timer of %s-%d failed.", self._name, self._topic, context.partition)
            context.shard.state = before
