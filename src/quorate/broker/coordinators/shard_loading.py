"""Loads the shards of a coordinator, and begins again when a load has failed.

Kafka leaves a partition without a coordinator until the next election, also after an error that passes,
such as a lack of memory or threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic

from quorate.broker.coordinators.context import CoordinatorContext, ShardT
from quorate.broker.coordinators.high_watermark import HighWatermarks, Replicas
from quorate.broker.coordinators.loader import CoordinatorLoader
from quorate.broker.coordinators.result import CoordinatorResult, StepTime
from quorate.clock import Clock
from quorate.protocol.errors import ErrorCode

logger = logging.getLogger("quorate.group")

RETRY_MIN_S = 1.0
"""The time after which a load that has failed begins again. It doubles with each failure."""

MAX_DOUBLINGS = 8
"""The limit for the doublings of that time."""

LOAD_SLICE_S = 0.003
"""The limit for the steps that end a load, in one turn of the event loop."""


class ShardLoading(Generic[ShardT]):
    """The loads of one coordinator's shards."""

    def __init__(
        self,
        *,
        name: str,
        topic: str,
        make_shard: Callable[[], ShardT],
        decode_record: Callable[[bytes, bytes | None], Any],
        replicas: Replicas,
        clock: Clock,
        has_topic: Callable[[str], bool],
        high_watermarks: HighWatermarks,
        contexts: dict[int, CoordinatorContext[ShardT]],
        apply: Callable[[CoordinatorContext[ShardT], CoordinatorResult, Any], None],
        arm_timer: Callable[[CoordinatorContext[ShardT]], None],
    ) -> None:
        """`contexts` are those of the runtime. `apply` applies the result of a step to a shard, and
        `arm_timer` makes sure that the runtime's timer fires in time for it."""
        self._name = name
        self._topic = topic
        self._make_shard = make_shard
        self._decode_record = decode_record
        self._replicas = replicas
        self._clock = clock
        self._has_topic = has_topic
        self._high_watermarks = high_watermarks
        self._contexts = contexts
        self._apply = apply
        self._arm_timer = arm_timer
        self._retries: dict[int, asyncio.TimerHandle] = {}
        """By partition, the loads that begin again later."""

    def begin(self, partition: int, leader_epoch: int, failures: int = 0) -> None:
        """Begins the load of a partition, in place of one that has failed.

        `failures` is how many have failed in succession. If this one cannot begin, it is tried
        again as well.
        """
        self.cancel(partition)
        try:
            context = CoordinatorContext(partition, leader_epoch, self._make_shard())
            failed = self._contexts.get(partition)
            if failed is not None:
                context.deleted_topics = failed.deleted_topics
            load = self._load(context, failures)
            name = f"load {self._topic}-{partition}"
            context.loader = asyncio.get_running_loop().create_task(load, name=name)
        except Exception as error:  # there is no memory for the state, or for the task
            self._on_failure(partition, leader_epoch, failures, error)
        else:
            self._contexts[partition] = context

    def cancel(self, partition: int) -> None:
        """Makes sure that no load of a partition begins again."""
        retry = self._retries.pop(partition, None)
        if retry is not None:
            retry.cancel()

    def close(self) -> None:
        """Makes sure that no load begins again."""
        for partition in list(self._retries):
            self.cancel(partition)

    def _on_failure(self, partition: int, leader_epoch: int, failures: int, error: Exception) -> None:
        log_prefix = (self._name, self._topic, partition)
        logger.error("[%s] Could not load %s-%d: %s", *log_prefix, str(error) or repr(error))
        # A failed directory must go offline now: nothing else may read these segments for days.
        self._replicas.handle_storage_failure(error)
        delay_s = RETRY_MIN_S * 2 ** min(failures, MAX_DOUBLINGS)
        logger.info("[%s] The load of %s-%d begins again in %.0f s.", *log_prefix, delay_s)
        self._retries[partition] = asyncio.get_running_loop().call_later(
            delay_s, self.begin, partition, leader_epoch, failures + 1
        )

    async def _load(self, context: CoordinatorContext[ShardT], failures: int) -> None:
        started, partition = self._clock.now(), context.partition

        def replayed(end_offset: int) -> None:
            context.update_last_written_offset(end_offset)
            context.committed_state(self._high_watermarks.current(partition))

        try:
            loader = CoordinatorLoader(self._name, context.shard, self._decode_record, replayed)
            end = await loader.load(lambda: self._replicas.local_log(self._topic, partition))
        except Exception as error:
            context.error = ErrorCode.NOT_COORDINATOR
            if self._contexts.get(partition) is context:
                self._on_failure(partition, context.leader_epoch, failures, error)
            else:
                self._replicas.handle_storage_failure(error)
            return
        if self._contexts.get(partition) is not context:
            return
        # Loading does not wait until the end of the log is committed: a follower in the ISR that hangs would
        # delay the failover until it has left the ISR. Reads see the committed state, as in Kafka.
        context.uncommitted_at_load = (end, context.shard.state)

        # A topic that is in the log but not in the metadata was deleted. The former leader knew the topic
        # before this election, so the metadata here includes its creation. Its tombstones may be missing: the
        # former leader stopped before it had written them, or the partition had no leader at the deletion.
        def has_topic(topic: str) -> bool:
            return topic not in context.deleted_topics and self._has_topic(topic)

        slice_ends = self._clock.now() + LOAD_SLICE_S
        now = StepTime(self._clock.now_ms(), self._clock.now())
        try:
            for result in context.shard.loaded(now, has_topic):
                self._apply(context, result, context.shard.state)
                if self._clock.now() >= slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = self._clock.now() + LOAD_SLICE_S
        except Exception:  # a bug in one step must not keep the groups of this partition unavailable
            logger.exception("[%s] The load of %s-%d is incomplete.", self._name, self._topic, partition)
        context.loader = None
        context.error = ErrorCode.NONE
        self._arm_timer(context)
        if loader.records:
            summary, time_ms = context.shard.summary, (self._clock.now() - started) * 1000
            text = "[%s] Loaded %s-%d: %s from %d records in %.0f ms."
            logger.info(text, self._name, self._topic, partition, summary, loader.records, time_ms)
