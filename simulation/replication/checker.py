"""The invariants of replication. They are checked where the state that they are about changes.

| invariant | says | |---|---| | committed stays | every member of the ISR and of the ELR has all
that is committed | | logs match | what a replica has below its high watermark is what is committed
there | | high watermark | it never falls while a replica has one role in one epoch, and is never
above what is committed | | metadata | role, epochs and ISR of a replica are those of one committed
change of its partition | | leader | it was in the ISR or ELR, except for an election that may lose
records | | producer | the batches of an idempotent producer are committed completely, in order and
once | | acknowledged | what was acknowledged with acks=all is committed at the offset of the
response | | consumed | a consumer reads what is committed, and nothing else | | position | the
position of a consumer is out of range only if records at it may have been deleted | | recovery | a
killed broker finds all of its log again |

The guarantee ends where it ends in Kafka: if as many members of the ISR and ELR as min.insync.replicas
requires stop uncleanly before the first of them is back, and one of them lost records with its power or
its disk; and at an unclean election of a replica that lacks records. Such a partition is `forfeited`:
only "metadata" is checked from then on. Without ELR the last member of an ISR is enough (KIP-966).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from quorate.metadata.image import MetadataDelta, MetadataImage, PartitionImage
from simulation.checker.invariants import InvariantError
from simulation.replication.log_model import Batch, CommittedLog, LogModel

Key = tuple[bytes, int]
"""(topic id, partition)"""
NOTHING = LogModel()


class ReplicaView(NamedTuple):
    """What a broker believes about a partition that it hosts."""

    is_leader: bool
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class HostedPartition(Protocol):
    """The part of `Partition` that the checker reads."""

    topic_id: bytes
    partition: int
    is_leader: bool
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class PartitionHistory:
    """All that is known about one partition from the metadata log, its replicas and its clients."""

    name: str
    image: PartitionImage
    min_isr: int
    images: dict[int, PartitionImage]
    """partition epoch -> the state that was committed with it"""
    committed: CommittedLog = field(default_factory=CommittedLog)
    forfeited: str | None = None
    failed: set[int] = field(default_factory=set)
    """Replicas that have stopped uncleanly as members of ISR or ELR, and have not joined the ISR since."""
    incomplete: set[int] = field(default_factory=set)
    """Replicas that may have lost records with power or disk, and were not complete since."""
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """producer id -> the last sequence number that is committed, and its offset"""
    highest_start: int = 0
    """The highest log start that a replica had."""
    deleted: bool = False

    def eligible(self) -> set[int]:
        """The members of ISR and ELR."""
        return {*self.image.isr, *self.image.elr}

    def needed(self) -> int:
        """The effective min.insync.replicas."""
        return min(self.min_isr, len(self.image.replicas))


class ReplicationChecker:
    """Raises InvariantError where an invariant is broken."""

    def __init__(self, has_elr: bool, coverage: Counter[str], trace: Callable[[str, str], None]) -> None:
        self._has_elr = has_elr
        self._coverage = coverage
        self._trace = trace
        self.unclean_elections = False
        """Whether an unclean election is allowed: by configuration, or requested by an operator."""
        self.partitions: dict[Key, PartitionHistory] = {}
        self.logs: dict[tuple[int, Key], LogModel] = {}
        self._views: dict[tuple[int, Key], ReplicaView] = {}
        self._stopped: set[int] = set()
        """Brokers that have stopped uncleanly and do not serve yet. The controller may not know."""
        self._led: dict[tuple[int, Key], tuple[int, int]] = {}
        """(broker, partition) -> (leader epoch, its high watermark)"""
        self.batches_committed = 0
        self.leader_changes = 0
        self.isr_changes = 0
        self.truncations = 0

    # --- the metadata log -------------------------------------------------------------------------

    def metadata_committed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Takes the partitions that a committed batch has changed."""
        for topic, index, _, image in MetadataDelta(old, new).partition_changes():
            key = (topic.id, index)
            history = self.partitions.get(key)
            if image is None:
                if history is not None:
                    history.deleted = True
            elif history is None:
                configs = new.configs.topic(topic.name)
                created = self.partitions[key] = PartitionHistory(
                    f"{topic.name}-{index}",
                    image,
                    int(configs.get("min.insync.replicas", "1")),
                    {image.partition_epoch: image},
                )
                created.failed = created.eligible() & self._stopped
            else:
                self._changed(key, history, image)

    def _changed(self, key: Key, history: PartitionHistory, image: PartitionImage) -> None:
        before = history.image
        history.image = history.images[image.partition_epoch] = image
        self._trace(
            "c",
            f"{history.name} leader {image.leader} epoch {image.leader_epoch}.{image.partition_epoch} isr "
            f"{list(image.isr)} elr {list(image.elr)} of {list(image.replicas)}",
        )
        if image.leader >= 0 and image.leader not in image.isr:
            raise InvariantError(
                f"leader: {history.name} is led by {image.leader}, which is not in its ISR {list(image.isr)}"
            )
        self.leader_changes += image.leader != before.leader
        self.isr_changes += image.isr != before.isr
        if image.leader >= 0 and image.leader not in {*before.isr, *before.elr} and not history.forfeited:
            self._elected_uncleanly(key, history, before, image)
        for member in set(image.isr).difference(before.isr):
            complete = history.committed.match(self._log(member, key)) >= history.committed.end
            if complete and member not in self._stopped:
                history.failed.discard(member)
            elif member in history.incomplete or member in self._stopped:
                history.failed.add(member)
        if not before.isr and image.leader < 0 and image.isr and self.unclean_elections:
            # The cancellation of a reassignment of a partition without ISR (PartitionReassignmentRevert).
            self._forfeit(history, "unclean cancellation")
        history.failed.intersection_update(image.replicas)
        history.incomplete.intersection_update(image.replicas)
        self._judge(history)
        self.check_members(key, history)

    def _elected_uncleanly(
        self, key: Key, history: PartitionHistory, before: PartitionImage, image: PartitionImage
    ) -> None:
        # The change that removes the last member of the ELR, which stopped uncleanly, elects the last leader.
        is_last_known = (
            not before.isr and history.failed.issuperset(before.elr) and image.leader in before.last_known_elr
        )
        if before.is_reassigning and not image.is_reassigning and image.leader in image.isr:
            return  # the change of the ISR that completes a reassignment also moves the leadership
        if not (is_last_known or self.unclean_elections):
            raise InvariantError(
                f"leader: {history.name} is led by {image.leader}, but its ISR was "
                f"{list(before.isr)} and its ELR {list(before.elr)}"
            )
        self._coverage["last known leaders elected" if is_last_known else "unclean elections"] += 1
        if not is_last_known:
            # The leader that was deposed may commit records without the new one until it learns that.
            self._forfeit(history, "unclean election")
        elif history.committed.match(self._log(image.leader, key)) < history.committed.end:
            if image.leader not in history.incomplete:
                raise InvariantError(
                    f"leader: {image.leader}, the last known leader of {history.name}, has only "
                    f"{self._log(image.leader, key).matched} of {history.committed.end} committed records"
                )
            self._forfeit(history, "unclean election")

    def stopped_uncleanly(self, broker: int, *, loses_records: bool) -> None:
        """A broker was killed or lost its power, or a disk of it was replaced."""
        self._stopped.add(broker)
        if loses_records:  # what it still has is known when it has opened its logs again
            for known in [known for known in self.logs if known[0] == broker]:
                del self.logs[known]
        for history in self.partitions.values():
            if history.deleted or broker not in history.image.replicas:
                continue
            if loses_records:
                history.incomplete.add(broker)
            if broker in history.eligible():
                history.failed.add(broker)
                self._judge(history)

    def _judge(self, history: PartitionHistory) -> None:
        """Decides whether the guarantee for a partition has ended."""
        if not history.failed & history.incomplete:
            return
        if len(history.failed) >= history.needed():
            self._forfeit(history, "min.insync.replicas replicas failed")
        elif not self._has_elr and not set(history.image.isr) - history.failed:
            self._forfeit(history, "the last member of the ISR failed")

    def _forfeit(self, history: PartitionHistory, why: str) -> None:
        if history.forfeited is None:
            history.forfeited = why
            self._coverage[f"guarantee ended: {why}"] += 1
            self._trace("c", f"{history.name} is no longer guaranteed: {why}")

    # --- logs -------------------------------------------------------------------------------------

    def _log(self, broker: int, key: Key) -> LogModel:
        return self.logs.get((broker, key), NOTHING)

    def guaranteed(self, key: Key) -> PartitionHistory | None:
        """The history of a partition whose records must not be lost."""
        history = self.partitions.get(key)
        return None if history is None or history.deleted or history.forfeited else history

    def opened(
        self, broker: int, key: Key, log: LogModel, *, may_have_lost: bool, died_in_step: bool
    ) -> None:
        """A broker has opened a log, whose batches were read from its disk."""
        before = self.logs.get((broker, key))
        self.logs[broker, key] = log
        self._trace(f"b{broker}", f"opens {self.name(key)} {log.start}..{log.end}")
        history = self.guaranteed(key)
        if history is None:
            return
        history.highest_start = max(history.highest_start, log.start)
        is_shorter = before is not None and before.directory == log.directory and before.end > log.end
        if before is not None and is_shorter and not may_have_lost and not died_in_step:
            raise InvariantError(
                f"recovery: the log of {history.name} on {broker} ended at {before.end} and now ends at "
                f"{log.end}"
            )
        self.check_members(key, history)

    def moved(self) -> None:
        """A copy of a log has taken its place in another directory."""
        self._coverage["logs moved"] += 1

    def adopted(self, broker: int, key: Key) -> None:
        """A leader has taken a log whose topic id was lost with the power. It may be that of a deleted topic
        of the same name."""
        history = self.guaranteed(key)
        if history is not None:
            self._forfeit(history, "a leader has a log without topic id")

    def appended(self, broker: int, key: Key, batches: list[Batch]) -> None:
        """A replica has appended batches."""
        log = self.logs.setdefault((broker, key), LogModel())
        log.append(batches)
        self._trace(f"b{broker}", f"appends {self.name(key)} {batches[0]} (log {log.start}..{log.end})")

    def truncated(self, broker: int, key: Key, end: int, start: int) -> None:
        """A replica has truncated its log."""
        log = self.logs.setdefault((broker, key), LogModel())
        self.truncations += 1
        dropped = log.truncate(end)
        log.start = min(log.start, start)
        history = self.guaranteed(key)
        if history is not None and dropped:
            self._trace(f"b{broker}", f"truncates {history.name} to {end}")
            self.check_members(key, history)

    def restarted_at(self, broker: int, key: Key, offset: int) -> None:
        """A replica has dropped its log and continues at an offset."""
        self.logs.setdefault((broker, key), LogModel()).restart(offset)
        self.truncations += 1
        history = self.guaranteed(key)
        if history is not None:
            self._trace(f"b{broker}", f"restarts {history.name} at {offset}")
            self.check_members(key, history)

    def serves(self, broker: int, keys: set[Key] | None) -> None:
        """A broker has started. `keys` are the partitions whose logs it has, None if not all are known."""
        self._stopped.discard(broker)
        for known, key in list(self.logs):
            if known == broker and keys is not None and key not in keys:
                self.removed(broker, key)

    def removed(self, broker: int, key: Key) -> None:
        """A broker has deleted a log."""
        self.logs.pop((broker, key), None)
        self._trace(f"b{broker}", f"has no log of {self.name(key)}")
        history = self.guaranteed(key)
        if history is not None:
            self.check_members(key, history)

    def start_moved(self, broker: int, key: Key, start: int) -> None:
        """A replica has deleted its records below `start`."""
        log = self.logs.setdefault((broker, key), LogModel())
        if start > log.start:
            log.start = start
            log.matched = max(log.matched, start)
        history = self.guaranteed(key)
        if history is not None:
            history.highest_start = max(history.highest_start, start)
        if history is not None and start > history.committed.end:
            raise InvariantError(
                f"log start: {history.name} on {broker} starts at {start}, but only {history.committed.end} "
                "is committed"
            )

    def high_watermark_moved(
        self, broker: int, key: Key, high_watermark: int, leader_epoch: int | None
    ) -> None:
        """A replica has raised its high watermark, as the leader of an epoch or as a follower."""
        log = self.logs.setdefault((broker, key), LogModel())
        history = self.guaranteed(key)
        if history is None:
            return
        log.high_watermark = high_watermark
        if leader_epoch is not None:
            epoch, shown = self._led.get((broker, key), (-1, 0))
            if epoch == leader_epoch and high_watermark < shown:
                raise InvariantError(
                    f"high watermark: that of {history.name} on {broker} falls from {shown} to "
                    f"{high_watermark}"
                )
            self._led[broker, key] = (leader_epoch, high_watermark)
            self._commit(broker, key, history, log, high_watermark)
        if history.committed.match(log) < min(high_watermark, log.end):
            raise InvariantError(
                f"logs match: {history.name} on {broker} has the high watermark {high_watermark}, but from "
                f"{log.matched} on another log than the one committed up to {history.committed.end}: "
                f"{log.by_base.get(log.matched)}, not {history.committed.by_base.get(log.matched)}"
            )

    def _commit(
        self, broker: int, key: Key, history: PartitionHistory, log: LogModel, high_watermark: int
    ) -> None:
        committed = history.committed
        while committed.end < high_watermark:
            batch = log.by_base.get(committed.end)
            if batch is None:
                raise InvariantError(
                    f"logs match: the leader {broker} of {history.name} has no batch at "
                    f"{committed.end}, where the committed ones end"
                )
            committed.extend(batch)
            self.batches_committed += 1
            if batch.producer_id >= 0:
                self._check_sequence(history, batch, log.start)
        self.check_members(key, history)

    def _check_sequence(self, history: PartitionHistory, batch: Batch, start: int) -> None:
        count = batch.last - batch.base + 1
        last, offset = history.sequences.get(batch.producer_id, (-1, -1))
        if batch.sequence != last + 1:
            if not 0 <= offset < start:
                raise InvariantError(
                    f"producer: {history.name} commits the sequence {batch.sequence} of producer "
                    f"{batch.producer_id} after {last} at {offset}, at {batch}"
                )
            # A broker that restarts takes the state of producers from the records, as in Kafka.
            self._coverage["producers forgotten with their records"] += 1
        history.sequences[batch.producer_id] = (batch.sequence + count - 1, batch.last)

    def check_members(self, key: Key, history: PartitionHistory) -> None:
        """Checks "committed stays"."""
        if history.forfeited or history.deleted:
            return
        committed = history.committed
        for member in history.eligible():
            log = self._log(member, key)
            if committed.match(log) >= committed.end:
                if member not in self._stopped:
                    history.incomplete.discard(member)
            elif member not in history.incomplete:
                raise InvariantError(
                    f"committed stays: {history.name} is committed up to {committed.end}, but "
                    f"{member} of the ISR {list(history.image.isr)} and ELR "
                    f"{list(history.image.elr)} has it only up to {log.matched} (log "
                    f"{log.start}..{log.end})"
                )

    # --- brokers ----------------------------------------------------------------------------------

    def check_views(self, broker: int, partitions: Iterable[HostedPartition]) -> None:
        """Checks "metadata" for what a broker hosts."""
        for hosted in partitions:
            key = (hosted.topic_id, hosted.partition)
            view = ReplicaView(
                hosted.is_leader,
                hosted.leader_id,
                hosted.leader_epoch,
                hosted.partition_epoch,
                hosted.isr,
            )
            if self._views.get((broker, key)) == view or view.partition_epoch < 0:
                continue
            self._views[broker, key] = view
            history = self.partitions.get(key)
            image = None if history is None else history.images.get(view.partition_epoch)
            if history is None or image is None:
                raise InvariantError(f"metadata: {broker} has a partition that was never committed: {view}")
            expected = ReplicaView(
                image.leader == broker,
                image.leader,
                image.leader_epoch,
                image.partition_epoch,
                image.isr if image.leader == broker else (),
            )
            # A broker whose directory failed stops leading before the metadata says so.
            if view != expected and not (expected.is_leader and not view.is_leader):
                raise InvariantError(
                    f"metadata: {broker} believes {view} of {history.name}, committed was {expected}"
                )

    def forget_views(self, broker: int) -> None:
        """A broker has stopped."""
        for known in [known for known in self._views if known[0] == broker]:
            del self._views[known]
        for known in [known for known in self._led if known[0] == broker]:
            del self._led[known]

    # --- clients ----------------------------------------------------------------------------------

    def name(self, key: Key) -> str:
        history = self.partitions.get(key)
        return "?" if history is None else history.name

    def shown(self, key: Key, high_watermark: int) -> None:
        """A consumer has received a high watermark."""
        history = self.guaranteed(key)
        if history is not None and high_watermark > history.committed.end:
            raise InvariantError(
                f"high watermark: a consumer of {history.name} is shown {high_watermark}, but only "
                f"{history.committed.end} is committed"
            )

    def acknowledged(self, key: Key, base: int, crc: int) -> None:
        """A client has received a success for a Produce with acks=all."""
        history = self.guaranteed(key)
        if history is None:
            return
        batch = history.committed.by_base.get(base)
        if batch is None or batch.crc != crc:
            raise InvariantError(
                f"acknowledged: {history.name} acknowledges crc {crc:08x} at {base}, where {batch} "
                f"is committed (up to {history.committed.end})"
            )

    def consumed(self, key: Key, base: int, epoch: int, crc: int) -> None:
        """A consumer has read a batch."""
        history = self.guaranteed(key)
        if history is None:
            return
        batch = history.committed.by_base.get(base)
        if batch is None or (batch.epoch, batch.crc) != (epoch, crc):
            raise InvariantError(
                f"consumed: a consumer of {history.name} reads epoch {epoch} crc {crc:08x} at {base}, where "
                f"{batch} is committed (up to {history.committed.end})"
            )

    def out_of_range(self, key: Key, position: int) -> None:
        """A consumer has received OFFSET_OUT_OF_RANGE for a position that it reached by reading, in
        the leader epoch of the newest metadata."""
        history = self.guaranteed(key)
        if history is not None and position >= history.highest_start:
            raise InvariantError(
                f"position: {position} of {history.name} is out of range for a consumer, although "
                f"{history.highest_start} to {history.committed.end} were never deleted"
            )

    def committed(self, key: Key) -> tuple[int, int]:
        """The leader epoch of a partition and the end of what is committed."""
        history = self.partitions.get(key)
        return (-1, 0) if history is None else (history.image.leader_epoch, history.committed.end)

    def latest_offset(self, key: Key, offset: int, leader_epoch: int, before: tuple[int, int]) -> None:
        """A client has received the latest offset. `before` is the leader epoch and the end of what was
        committed when it sent its request."""
        history = self.guaranteed(key)
        if history is None or (leader_epoch, leader_epoch) != (before[0], history.image.leader_epoch):
            return  # another leader has answered, which may have been deposed
        if offset < before[1]:
            raise InvariantError(
                f"high watermark: a client of {history.name} gets {offset} as the latest offset from the "
                f"leader of epoch {leader_epoch}, but {before[1]} was committed before"
            )
