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
    """State of one partition; a named tuple because millions are made (change one with `_replace`).

    `directories` goes with `replicas`, position by position. `leader` is -1 when there is none. `elr`:
    eligible leader replicas.
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
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        """The first replica, -1 without any."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, replica: int) -> bytes:
        """Directory id of a replica. KeyError when the broker is none."""
        for position, broker_id in enumerate(self.replicas):
            if broker_id == replica:
                return self.directories[position]
        raise KeyError(replica)
