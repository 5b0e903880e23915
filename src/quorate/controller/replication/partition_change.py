"""The next state of one partition, as one PartitionChangeRecord: leader election, ISR and ELR,
reassignment.

Rules from Kafka's PartitionChangeBuilder (KIP-455, KIP-858, KIP-966):

- A valid leader is in the target ISR, or in the target ELR if the ISR is empty. It must also be acceptable:
  its broker is active and its replica is in an online directory.
- The partition epoch increases with each record. The leader epoch increases if the record names a leader,
  even the current one. The record repeats the current leader when the leader epoch must increase although
  the leader stays. This is the case when replicas are removed. Below metadata.version 12 (3.6-IV0), it is
  also the case when the ISR shrinks.
- Without ELR, the last member of the ISR stays in it when the partition has no leader. With ELR, the ISR
  may become empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from quorate.controller.context import NO_EPOCH_ON_SHRINK_SINCE, View
from quorate.metadata.features import FIRST_DIRECTORIES
from quorate.metadata.image.partitions import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionImage,
)
from quorate.metadata.image.topics import TopicImage
from quorate.metadata.records import PartitionChangeRecord

NO_RECOVERY_CHANGE = -1

Replicas = tuple[int, ...]


class Election(Enum):
    """How a leader is chosen.

    PREFERRED chooses the first replica if it is valid. ONLINE keeps the leader, or else chooses any
    valid replica. UNCLEAN chooses any acceptable replica as the last resort, which may lose records.
    """

    PREFERRED = 0
    ONLINE = 1
    UNCLEAN = 2


class PartitionChangeBuilder:
    """A change of one partition. The caller sets the wanted fields and calls `build`. `acceptable` returns
    whether a broker may lead, without regard to the directory of its replica."""

    __slots__ = (
        "_acceptable",
        "_elr",
        "_min_isr",
        "_view",
        "adding",
        "directories",
        "election",
        "isr",
        "leader_recovery_state",
        "partition",
        "partition_id",
        "removing",
        "replicas",
        "topic_id",
        "uncleanly_stopped_broker",
    )

    def __init__(
        self,
        view: View,
        topic_id: bytes,
        partition_id: int,
        partition: PartitionImage,
        *,
        acceptable: Callable[[int], bool] | None = None,
        min_isr: int,
        election: Election = Election.ONLINE,
    ) -> None:
        self._view = view
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.partition = partition
        self._acceptable = acceptable or view.is_active
        self._min_isr = min_isr
        self.election = election
        self.isr: Replicas = partition.isr
        self.replicas: Replicas = partition.replicas
        self.removing: Replicas = partition.removing_replicas
        self.adding: Replicas = partition.adding_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self.uncleanly_stopped_broker: int | None = None
        self.directories: dict[int, bytes] | None = None
        """Directories to be set, by broker id."""
        self._elr: Replicas = partition.elr

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None if nothing changes."""
        partition = self.partition
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.partition_id)
        self._complete_reassignment()
        self._target_elr()
        self._elect(record)
        if (
            record.leader == NO_LEADER_CHANGE
            and self.replicas is not partition.replicas
            and not set(partition.replicas) <= set(self.replicas)
        ):
            record.leader = partition.leader  # replicas are removed, so the leader epoch must increase
        self._write_elr(record)
        elr_enabled = self._view.elr_enabled
        if record.isr is None and (self.isr or elr_enabled) and self.isr != partition.isr:
            record.isr = list(self.isr)
        if (
            self._view.metadata_version < NO_EPOCH_ON_SHRINK_SINCE
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader
        self._write_last_known_leader(record)
        self._write_assignment(record)
        if self.leader_recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_no_op(record) else record

    # -- reassignment

    def _complete_reassignment(self) -> None:
        """Completes a reassignment if the ISR without the removed replicas contains every target
        replica."""
        if not self.removing and not self.adding:
            return
        removing = self.removing
        replicas = tuple(r for r in self.replicas if r not in removing)
        isr = tuple(r for r in self.isr if r not in removing)
        if removing and (not isr or not replicas):
            return
        if not set(replicas) <= set(isr):
            return
        self.isr, self.replicas = isr, replicas
        self.removing = self.adding = ()

    # -- election

    def _may_lead(self, replica: int) -> bool:
        """Whether the broker is acceptable and the directory of its replica is online."""
        return self._acceptable(replica) and self._view.has_online_directory(
            replica, self._directory_of(replica)
        )

    def _directory_of(self, replica: int) -> bytes:
        """The directory of a replica: the new one if this change assigns it to an online directory,
        otherwise the current one.

        A replica that is being added has no directory yet, so the result is MIGRATING. If this change
        assigns a replica to an offline directory, another record removes the replica from the ISR.
        """
        assigned = self.directories.get(replica) if self.directories else None
        if assigned is not None and self._view.has_online_directory(replica, assigned):
            return assigned
        partition = self.partition
        try:
            return partition.directories[partition.replicas.index(replica)]
        except (ValueError, IndexError):
            return MIGRATING_DIRECTORY

    def _is_valid(self, replica: int) -> bool:
        """Whether the replica may become the leader in a clean election."""
        if replica in self.isr or (not self.isr and replica in self._elr):
            return self._may_lead(replica)
        return False

    def _choose(self) -> tuple[int, bool]:
        """The leader, and whether its election is unclean."""
        current = self.partition.leader
        if self.election is Election.PREFERRED and self.replicas and self._is_valid(self.replicas[0]):
            return self.replicas[0], False
        if self._is_valid(current):
            return current, False
        for replica in self.replicas:
            if self._is_valid(replica):
                return replica, False
        if self._may_elect_last_known_leader():
            return self.partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_elect_last_known_leader(self) -> bool:
        """Whether the last known leader may be elected because ISR and ELR are empty (KIP-966)."""
        known = self.partition.last_known_elr
        return (
            self._view.elr_enabled
            and not self._elr
            and not self.isr
            and len(known) == 1
            and known[0] in self.replicas
            and self._may_lead(known[0])
        )

    def _elect(self, record: PartitionChangeRecord) -> None:
        """Chooses the leader, and writes it to the record if it is not the current one."""
        partition = self.partition
        leader, unclean = self._choose()
        if leader == partition.leader:
            return
        if leader in self._elr:
            self.isr = (leader,)
            self._elr = tuple(r for r in self._elr if r != leader)
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    # -- eligible leader replicas (KIP-966)

    def _target_elr(self) -> None:
        """Computes the ELR: former members of ISR and ELR, as long as the ISR is smaller than
        min.insync.replicas."""
        if not self._view.elr_enabled:
            return
        if len(self.isr) >= self._min_isr:
            self._elr = ()
            return
        # Only target replicas are candidates. A replica that a completed reassignment removes leaves the
        # ELR as well (Kafka keeps it there).
        candidates = (set(self._elr) | set(self.partition.isr)) & set(self.replicas)
        self._elr = tuple(
            sorted(r for r in candidates if r not in self.isr and r != self.uncleanly_stopped_broker)
        )

    def _write_elr(self, record: PartitionChangeRecord) -> None:
        """Writes the ELR to the record if it changes."""
        if record.isr is not None or not self._view.elr_enabled:
            # After an unclean election, or without KIP-966, there is no ELR.
            self._elr = ()
        if self._elr != self.partition.elr:
            record.eligible_leader_replicas = list(self._elr)

    def _write_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Records the last leader of a partition that becomes leaderless, and removes it when there is a
        leader again.

        If the change removes this leader from the replicas, another replica that was in sync takes its
        place (Kafka keeps it).
        """
        if not self._view.elr_enabled:
            return
        partition = self.partition
        if record.leader >= 0:
            if partition.last_known_elr:
                record.last_known_elr = []
            return
        known = partition.last_known_elr
        if record.leader == NO_LEADER and not known and partition.leader != NO_LEADER:
            known = (partition.leader,)
        if len(known) == 1 and known[0] not in self.replicas:
            in_sync = (r for r in (*self.isr, *self._elr) if r in self.replicas)
            known = (next(in_sync, known[0]),)
        if known != partition.last_known_elr:
            record.last_known_elr = list(known)

    # -- assignment

    def _write_assignment(self, record: PartitionChangeRecord) -> None:
        """Writes replicas, directories and reassignment to the record if they change."""
        partition = self.partition
        moved = self.replicas != partition.replicas
        if self._view.metadata_version >= FIRST_DIRECTORIES and (moved or self.directories):
            known = dict(zip(partition.replicas, partition.directories, strict=False))
            if self.directories:
                known.update(self.directories)
            directories = tuple(
                known[r] if r in known else self._view.default_directory(r) for r in self.replicas
            )
            if directories != tuple(partition.directories):
                record.directories = list(directories)
        if moved and self.replicas:
            record.replicas = list(self.replicas)
        if self.removing != partition.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != partition.adding_replicas:
            record.adding_replicas = list(self.adding)


def _is_no_op(record: PartitionChangeRecord) -> bool:
    """Whether the record changes nothing."""
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.directories is None
    )


def without(replicas: Sequence[int], *excluded: int) -> Replicas:
    """The replicas except the excluded ones."""
    return tuple(r for r in replicas if r not in excluded)


def partition_change_for(
    view: View, topic: TopicImage, partition_id: int, *, election: Election | None = None
) -> PartitionChangeBuilder:
    """A change of one partition with the settings of its topic. `election` overrides the topic's
    setting."""
    min_isr, unclean = view.topic_settings(topic.name, len(topic.partitions[0].replicas))
    if election is None:
        election = Election.UNCLEAN if unclean else Election.ONLINE
    return PartitionChangeBuilder(
        view, topic.id, partition_id, topic.partitions[partition_id], min_isr=min_isr, election=election
    )
