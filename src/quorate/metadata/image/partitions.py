"""The state of one partition."""

from __future__ import annotations

from typing import NamedTuple

MIGRATING_DIRECTORY = bytes(16)
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"

RECOVERED = 0
RECOVERING = 1
NO_LEADER = -1
NO_LEADER_CHANGE = -2


class PartitionImage(NamedTuple):
    """The state of one partition. It is a named tuple because there may be millions of them; `_replace`
    returns a changed copy.

    `directories` has one element for each element of `replicas`. `leader` is -1 if there is no leader.
    `elr` are the eligible leader replicas (KIP-966).
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def has_leader(self) -> bool:
        """Whether the partition has a leader."""
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        """The first replica, or -1 if there is none."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, replica: int) -> bytes:
        """The directory id of a replica. Raises KeyError if the broker is not a replica."""
        for position, broker_id in enumerate(self.replicas):
            if broker_id == replica:
                return self.directories[position]
        raise KeyError(replica)
