"""The events that drive the Raft core. A field named `epoch` is always the Raft epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.raft.core.messages import Failure, Peer, RaftRequest, Reply, Token
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import Address, LeaderAndEpoch, OffsetEpoch

if TYPE_CHECKING:
    from quorate.protocol.schema import Data


@dataclass(slots=True, eq=False)
class Received:
    """A request has arrived. Its answer carries the same token."""

    request: RaftRequest
    token: Token


@dataclass(slots=True, eq=False)
class Replied:
    """A request of this replica was answered, or has failed."""

    to: Peer
    request: RaftRequest
    reply: Reply | Failure


@dataclass(slots=True, eq=False)
class PeerLost:
    """The other side has reset or closed a connection to this address."""

    address: Address


@dataclass(slots=True, eq=False)
class Receiving:
    """A part of a response to a Fetch or FetchSnapshot has arrived from this address, and the rest of it is
    still to come."""

    address: Address


@dataclass(slots=True, eq=False)
class Timeout:
    """Only time has passed. Every other event handles deadlines as well."""


@dataclass(slots=True, eq=False)
class ControlRecord:
    """A control record of the metadata log: its type (`ControlRecordType`) and its decoded value."""

    offset: int
    type: int
    value: Data


@dataclass(slots=True, eq=False)
class Appended:
    """Records were appended to the log, but are not durable yet. `controls` are the control records."""

    controls: Sequence[ControlRecord] = ()


@dataclass(slots=True, eq=False)
class Synced:
    """The log below `offset` is as durable as this replica makes it."""

    offset: int


@dataclass(slots=True, eq=False)
class FetchRejected:
    """Fetched records could not be appended, because they are corrupt or do not continue the log."""

    reason: str


@dataclass(slots=True, eq=False)
class SnapshotOpened:
    """A download is open, and continues at `position`.

    A digest means that the bytes before it came from another leader. The snapshots of two replicas with
    the same id may differ, so the current leader has to confirm them. `leader` is the leader for which
    the download was opened, or None if no other leader can have named the snapshot since.
    """

    snapshot: OffsetEpoch
    position: int
    prefix_digest: bytes | None = None
    leader: LeaderAndEpoch | None = None


@dataclass(slots=True, eq=False)
class SnapshotWritten:
    """The bytes of the download below `position` are verified and written."""

    snapshot: OffsetEpoch
    position: int


@dataclass(slots=True, eq=False)
class SnapshotRejected:
    """The download is not a valid snapshot, or does not fit on the disk. It has been deleted."""

    snapshot: OffsetEpoch
    reason: str


@dataclass(slots=True, eq=False)
class SnapshotInstalled:
    """The downloaded snapshot is frozen, and the log restarted after it."""

    snapshot: OffsetEpoch
    voters: VoterSet | None
    kraft_version: int | None


@dataclass(slots=True, eq=False)
class Resign:
    """The controller gives up its leadership of `epoch`."""

    epoch: int
    reason: str


@dataclass(slots=True, eq=False)
class Shutdown:
    """This replica stops. A leader resigns first."""


@dataclass(slots=True, eq=False)
class UpgradeKraftVersion:
    """A request to upgrade kraft.version from 0 to 1, which writes the voter set into the log."""

    epoch: int
    level: int
    validate_only: bool
    token: Token


@dataclass(slots=True, eq=False)
class Abandoned:
    """The sender of an AddVoter request no longer waits for its answer."""

    token: Token


Event = (
    Received
    | Replied
    | PeerLost
    | Receiving
    | Timeout
    | Appended
    | Synced
    | FetchRejected
    | SnapshotOpened
    | SnapshotWritten
    | SnapshotRejected
    | SnapshotInstalled
    | Resign
    | Shutdown
    | UpgradeKraftVersion
    | Abandoned
)
