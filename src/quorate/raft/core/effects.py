"""The effects of a step of the Raft core, and the order in which the driver performs them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.raft.core.messages import Peer, RaftRequest, Reply, Token
from quorate.raft.core.voters import MembershipRecord
from quorate.raft.types import LeaderAndEpoch, OffsetEpoch, QuorumState, Role

if TYPE_CHECKING:
    from quorate.protocol.schema import Data


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request to send to another replica."""

    to: Peer
    request: RaftRequest


@dataclass(slots=True, eq=False)
class Answer:
    """The reply to the received request with this token."""

    token: Token
    reply: Reply


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """The begin of a snapshot download. A broken-off download of the same file continues, unless `fresh`."""

    snapshot: OffsetEpoch
    leader: LeaderAndEpoch  # the replica that serves the file, which it never changes within an epoch
    fresh: bool = False


@dataclass(slots=True, eq=False)
class SnapshotChunk:
    """Bytes of a snapshot download."""

    snapshot: OffsetEpoch
    position: int
    data: bytes | memoryview
    last: bool
    size: int  # of the whole snapshot, as reported by the leader


@dataclass(slots=True, eq=False)
class RoleChange:
    """This replica has a new role, epoch or leader."""

    role: Role
    epoch: int
    leader_id: int | None


@dataclass(slots=True, eq=False)
class Effects:
    """What the driver must do after a step.

    The order of the fields is the order in which the effects are performed, and it makes Raft safe:
    nothing may be answered, and no response handled, that a crash could still take back.

    1. `send`: these requests may be sent at once, even before effect 2. A response must be handled only
       after all effects of this step are performed. Report each response or failure with `Replied`.
    2. `save_quorum_state`: save it durably before any effect below. A failure is fatal. With
       `save_may_wait` it may be saved a little later, or together with the next one.
    3. `truncate_to`: truncate the log to this offset, and report `Synced`. `start_snapshot`: open the
       download, and report `SnapshotOpened`. `snapshot_chunk`: verify the bytes and write them, and
       report `SnapshotWritten`; after the last chunk freeze the snapshot, restart the log after it and
       report `SnapshotInstalled` instead. Delete a snapshot that is not valid, and report
       `SnapshotRejected`. The work on snapshots may take long: it runs beside the other effects, in order.
    4. `append_fetched`: check the batches and append them, and report `Appended` with their control
       records; make them durable (an observer in a broker need not), and report `Synced`. Report
       `FetchRejected` instead if they cannot be appended. `append_control`: append one batch of control
       records after all records proposed so far, and report `Appended` and later `Synced`. The driver
       appends the records that the state machine proposes itself, and reports the same events.
    5. `answers`: these responses may be sent now. Before it sends one, the driver adds the
       bytes: log records from offset `read_from` on, or `read` bytes of the snapshot from `position` on.
       `save_membership_record`: save it durably, at any time.
    6. `role`: notify the listeners. `high_watermark`: deliver the records below it.
    7. `wake_at`: make a step with `Timeout` at this time at the latest.

    Steps for the events that these effects report come before the next event from outside.
    """

    send: list[Outgoing] = field(default_factory=list)
    save_quorum_state: QuorumState | None = None
    save_may_wait: bool = False  # no message that is sent before the save depends on what it saves
    truncate_to: int | None = None
    start_snapshot: SnapshotStart | None = None
    snapshot_chunk: SnapshotChunk | None = None
    append_fetched: bytes | memoryview | None = None
    append_control: list[tuple[int, Data]] | None = None  # one batch of (type, value)
    answers: list[Answer] = field(default_factory=list)
    save_membership_record: MembershipRecord | None = None
    role: RoleChange | None = None
    high_watermark: int | None = None
    wake_at: float = float("inf")
