"""Reports what the logs and partitions of brokers do to the checker. The code that runs is the real one;
`observing` wraps the methods that change a log or a high watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest import mock

from quorate.broker.replication.partition import Partition
from quorate.log.directories.manager import LogManager
from quorate.log.partition.local_log import FUTURE_SUFFIX
from quorate.log.partition.partition_log import PartitionLog
from quorate.records.batch import iter_batches
from simulation.nodes.loop import CALLBACK_OWNER
from simulation.replication.checker import Key, ReplicationChecker
from simulation.replication.log_model import Batch, LogModel


class ObservedBroker(Protocol):
    """A running broker, as far as the observer knows it."""

    @property
    def broker_id(self) -> int: ...
    @property
    def may_have_lost(self) -> bool: ...
    @property
    def died_in_step(self) -> bool: ...


def _broker() -> ObservedBroker:
    owner: Any = CALLBACK_OWNER.get()
    return owner  # type: ignore[no-any-return]


def _key(log: PartitionLog) -> Key | None:
    """The partition of a log; None for a future log and for one without a topic id."""
    if log.topic_id is None or log.name.endswith(FUTURE_SUFFIX):
        return None
    return log.topic_id, log.partition


def batch_of(header: Any) -> Batch:
    """The identity of a batch with this header."""
    return Batch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.crc,
        header.producer_id,
        header.base_sequence,
    )


def read_log(log: PartitionLog) -> LogModel:
    """Reads all batches of a log from its disk."""
    model = LogModel(log.log_start_offset, log.log_end_offset, directory=str(log.dir.parent))
    model.matched = model.start
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read_bytes(at, 1 << 30)
        if not data:
            break
        for header, _ in iter_batches(data):
            model.by_base[header.base_offset] = batch_of(header)
            at = header.last_offset + 1
    model.end = log.log_end_offset
    model.high_watermark = log.high_watermark
    return model


@contextmanager
def observing(checker: ReplicationChecker, collect: Callable[[BaseException], None]) -> Iterator[None]:
    """Reports to the checker inside the block. `collect` receives its violations, which the code under
    simulation may catch."""

    def reporting(report: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            try:
                report(*args, **options)
            except BaseException as error:
                collect(error)
                raise

        return call

    with ExitStack() as stack:

        def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
            stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name))))

        loading = False
        """While a manager loads its logs, it may open two of one replica."""

        def loading_all(real: Callable[..., Any]) -> Callable[..., Any]:
            def load(self: LogManager, *args: Any, **options: Any) -> Any:
                nonlocal loading
                loading = True
                try:
                    failures = real(self, *args, **options)
                finally:
                    loading = False
                for log in self.all_logs():
                    opened(log)
                return failures

            return load

        wrap(LogManager, "load", loading_all)

        @reporting
        def opened(log: PartitionLog) -> None:
            key = _key(log)
            if key is not None and not loading:
                broker = _broker()
                checker.opened(
                    broker.broker_id,
                    key,
                    read_log(log),
                    may_have_lost=broker.may_have_lost,
                    died_in_step=broker.died_in_step,
                )

        real_open = PartitionLog.open

        def open_log(*args: Any, **options: Any) -> PartitionLog:
            log = real_open(*args, **options)
            opened(log)
            return log

        stack.enter_context(mock.patch.object(PartitionLog, "open", staticmethod(open_log)))

        def promoting(real: Callable[..., Any]) -> Callable[..., Any]:
            def promote(self: PartitionLog, gap_start: int | None) -> None:
                real(self, gap_start)
                checker.moved()
                opened(self)

            return promote

        wrap(PartitionLog, "become_current", promoting)

        @reporting
        def adopted(log: PartitionLog) -> None:
            key = _key(log)
            if key is not None:
                checker.adopted(_broker().broker_id, key)

        def adopting(real: Callable[..., Any]) -> Callable[..., Any]:
            def adopt(self: PartitionLog, topic_id: bytes) -> None:
                real(self, topic_id)
                opened(self)
                if self.log_end_offset > 0:
                    adopted(self)

            return adopt

        wrap(PartitionLog, "adopt_topic_id", adopting)

        @reporting
        def appended(log: PartitionLog, headers: list[Any]) -> None:
            key = _key(log)
            if key is not None:
                checker.appended(_broker().broker_id, key, [batch_of(header) for header in headers])

        def appending(real: Callable[..., Any]) -> Callable[..., Any]:
            def append(self: PartitionLog, valid: Any, *args: Any) -> Any:
                end = self.log_end_offset
                info = real(self, valid, *args)
                if self.log_end_offset != end:
                    appended(self, valid[1])
                return info

            return append

        wrap(PartitionLog, "_append", appending)

        @reporting
        def truncated(log: PartitionLog) -> None:
            key = _key(log)
            if key is not None:
                checker.truncated(_broker().broker_id, key, log.log_end_offset, log.log_start_offset)

        def truncating(real: Callable[..., Any]) -> Callable[..., Any]:
            def truncate(self: PartitionLog, offset: int) -> Any:
                result = real(self, offset)
                if result:
                    truncated(self)
                return result

            return truncate

        wrap(PartitionLog, "truncate_to", truncating)

        @reporting
        def restarted(log: PartitionLog, offset: int) -> None:
            key = _key(log)
            if key is not None:
                checker.restarted_at(_broker().broker_id, key, offset)

        def restarting(real: Callable[..., Any]) -> Callable[..., Any]:
            def restart(self: PartitionLog, offset: int) -> None:
                real(self, offset)
                restarted(self, offset)

            return restart

        wrap(PartitionLog, "truncate_fully_and_start_at", restarting)

        @reporting
        def removed(log: PartitionLog) -> None:
            key = _key(log)
            if key is not None and not loading:
                checker.removed(_broker().broker_id, key)

        def forgetting(real: Callable[..., Any]) -> Callable[..., Any]:
            def forget(self: LogManager, topic: str, partition: int) -> Any:
                log = real(self, topic, partition)
                if log is not None:
                    removed(log)
                return log

            return forget

        wrap(LogManager, "_forget", forgetting)

        @reporting
        def start_moved(log: PartitionLog) -> None:
            key = _key(log)
            if key is not None:
                checker.start_moved(_broker().broker_id, key, log.log_start_offset)

        def moving_start(real: Callable[..., Any]) -> Callable[..., Any]:
            def move(self: PartitionLog, offset: int) -> None:
                real(self, offset)
                start_moved(self)

            return move

        wrap(PartitionLog, "_move_log_start", moving_start)

        @reporting
        def advanced(partition: Partition, offset: int) -> None:
            checker.high_watermark_moved(
                _broker().broker_id,
                (partition.topic_id, partition.partition),
                offset,
                partition.leader_epoch if partition.is_leader else None,
            )

        def advancing(real: Callable[..., Any]) -> Callable[..., Any]:
            def move(self: Partition, log: PartitionLog, offset: int) -> bool:
                reached = min(offset, log.log_end_offset)
                if self.is_leader and reached > log.high_watermark:
                    advanced(self, reached)  # before the requests that wait for it are answered
                return bool(real(self, log, offset))

            return move

        def following(real: Callable[..., Any]) -> Callable[..., Any]:
            def follow(self: Partition, high_watermark: int, log_start_offset: int) -> None:
                before = self.log.high_watermark
                real(self, high_watermark, log_start_offset)
                # After the log start: below it, a follower may have records that the leader no longer has.
                if self.log.high_watermark > before:
                    advanced(self, self.log.high_watermark)

            return follow

        wrap(Partition, "follow_offsets", following)
        wrap(Partition, "_move_high_watermark", advancing)
        yield
