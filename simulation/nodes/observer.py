"""Observes a process from outside, for the invariant checker: the bytes of its disk, and its messages."""

from __future__ import annotations

from typing import Any, Protocol

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterResponse
from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.vote import VoteRequest, VoteResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Request, Response
from quorate.raft.core import messages as m
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime.client import RaftClient
from quorate.raft.storage.log_batches import control_values
from quorate.raft.storage.quorum_state import decode_quorum_state
from quorate.raft.storage.snapshots.files import parse_name
from quorate.raft.types import Address, OffsetEpoch, QuorumState, ReplicaKey, Role
from quorate.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD, iter_batches
from simulation.checker.invariants import InvariantError, Keys, ReplicaModel, keys_of
from simulation.checker.log_model import Batch
from simulation.nodes.disk import Directory, Disk, File
from simulation.nodes.environment import Environment

LOG_DIRECTORY = f"{METADATA_TOPIC}-0"
UNLIMITED = 1 << 62


class ObservedIncarnation(Protocol):
    """What the observer uses of an incarnation."""

    @property
    def ready(self) -> bool: ...
    @property
    def client(self) -> RaftClient: ...


class ObservedProcess(Protocol):
    """What the observer uses of a process."""

    @property
    def environment(self) -> Environment: ...
    @property
    def id(self) -> int: ...
    @property
    def key(self) -> ReplicaKey: ...
    @property
    def can_vote(self) -> bool: ...
    @property
    def static_voters(self) -> VoterSet: ...
    @property
    def bootstrap_voters(self) -> VoterSet | None: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def current(self) -> ObservedIncarnation | None: ...
    @property
    def core(self) -> Raft: ...


class ProcessObserver:
    """Follows one process and reports to the invariant checker what it writes, sends and commits.

    `check` is called after each event in which the process ran, the other methods where it exchanges
    messages or dies.
    """

    def __init__(self, process: ObservedProcess, first_set: Keys) -> None:
        self.process = process
        self.model = ReplicaModel(f"n{process.id}", (process.id, process.key.directory_id), first_set)
        self.hears_leader = False  # the last contact with the leader that it follows was a successful Fetch
        self.durable_at_death = 0  # a restart must find the log at least up to there
        self.truncating_to = UNLIMITED  # the new end, while the log is being truncated
        self._heard_role: tuple[Any, int] = (
            None,
            -1,
        )  # the follower state and epoch in which it had contact with the leader
        self._state_node: Any = None  # the file that `quorum-state` was when it was read last
        self._stored: QuorumState | None = None  # the content of that file

    def before_death(self) -> None:
        """Notes what is durable, before the disk forgets what was not synced."""
        incarnation = self.process.current
        # The process may have written and acknowledged records in this event.
        if incarnation is not None and incarnation.ready:
            with self.process.environment.collecting_violations():
                self._read_log(incarnation)
        self.durable_at_death = (
            min(self.durable_end(), self.model.log.end, self.truncating_to) if self.process.can_vote else 0
        )
        self.truncating_to = UNLIMITED

    def before_request(self, request: Request) -> None:
        """Checks a Fetch of this process: it acknowledges all records before its offset."""
        if isinstance(request, FetchRequest) and self.process.can_vote and self.process.current is not None:
            self.process.environment.checker.fetches(
                self.model, request.topics[0].partitions[0].fetch_offset, self.durable_end()
            )

    def before_response(self, request: Request, answer: Response) -> None:
        """Checks a granted vote or pre-vote."""
        if isinstance(request, VoteRequest) and isinstance(answer, VoteResponse) and answer.topics:
            asked, given = request.topics[0].partitions[0], answer.topics[0].partitions[0]
            if given.vote_granted and asked.pre_vote:
                f = self.process.core.state.following
                hears = (
                    self.hears_leader
                    and f is not None
                    and f.has_fetched
                    and (f, self.process.core.state.epoch) == self._heard_role
                )
                self.process.environment.checker.granted_pre_vote(self.model, hears)
            elif given.vote_granted:
                self._read_quorum_state()
                state = self._state()
                voted = None if state is None or state.voted is None else (state.epoch, state.voted.id)
                if voted != (asked.replica_epoch, asked.replica_id):
                    what = f"n{self.process.id} votes for n{asked.replica_id} in epoch {asked.replica_epoch}"
                    raise InvariantError(f"one vote an epoch: {what}, but its disk has {state}")

    def request_received(self, request: Request) -> None:
        """Notes that the leader has resigned by EndQuorumEpoch."""
        if isinstance(request, EndQuorumEpochRequest) and request.topics:
            part = request.topics[0].partitions[0]
            if (part.leader_id, part.leader_epoch) == self.process.core.state.leader_and_epoch:
                self.hears_leader = False

    def response_received(self, address: Address, request: Request, answer: Response, current: bool) -> None:
        """Notes a response before the process handles it.

        `current`: its current incarnation sent the request.
        """
        r = self.process.core.state
        if isinstance(answer, AddRaftVoterResponse) and not answer.error_code and current:
            self.process.environment.coverage["joins by oneself"] += 1
        if isinstance(request, FetchRequest) and isinstance(answer, FetchResponse) and not answer.error_code:
            part, asked = answer.responses[0].partitions[0], request.topics[0].partitions[0]
            follows = r.role is Role.FOLLOWER and r.leader_and_epoch == (
                part.current_leader.leader_id,
                asked.current_leader_epoch,
            )
            if part.error_code == ErrorCode.NONE and follows and self._waits_for_fetch(address):
                self.hears_leader = True
                self._heard_role = (r.following, r.epoch)

    def _waits_for_fetch(self, address: Address) -> bool:
        link = self.process.core.state.links.get(address)
        return link is not None and m.Fetch in link.in_flight

    def unreachable(self, address: Address) -> None:
        """Notes that the connection to this address was refused or reset."""
        if (
            self.process.current is not None
            and self.process.current.ready
            and self.process.core.state.leader_id is not None
            and self.process.core.state.address_of(self.process.core.state.leader_id) == address
        ):
            self.hears_leader = False

    def check(self) -> None:
        """Checks log, role, high watermark and quorum state after an event in which the process ran."""
        incarnation = self.process.current
        if incarnation is None or not incarnation.ready or incarnation.client.failure is not None:
            return
        checker, r, model = self.process.environment.checker, incarnation.client.core.state, self.model
        if self.hears_leader and (r.following, r.epoch) != self._heard_role:
            self.hears_leader = False
        sets = [model.voters]
        self._read_log(incarnation)
        sets += [keys for _, keys in model.voter_sets[-2:]]
        self._read_quorum_state()
        if self.process.can_vote and incarnation.client.driver._deferred is None:
            checker.check_epoch(model, self._stored, r.epoch)
        if r.is_leader and model.led != r.epoch:
            state = self._state()
            if (
                state is None
                or state.epoch != r.epoch
                or self.process.key.id not in (state.leader_id, state.voted and state.voted.id)
            ):
                raise InvariantError(
                    f"one vote an epoch: n{self.process.id} leads epoch {r.epoch}, but its disk has {state}"
                )
            checker.became_leader(model, r.epoch)
        hwm = incarnation.client.high_watermark
        if hwm > model.hwm:
            if r.leading is not None and r.hwm is not None:
                # The voters may have changed in this event: it rose before that or after.
                checker.high_watermark_advanced(model, hwm, self.process.environment.holds, sets)
            checker.committed(model, hwm, r.epoch)
            self.process.environment.trace(self.process.id, f"commits up to {hwm}")
        elif hwm < model.hwm:
            raise InvariantError(
                f"high watermark: that of n{self.process.id} falls from {model.hwm} to {hwm}"
            )

    def _read_log(self, incarnation: ObservedIncarnation) -> None:
        """Reads the batches that were appended since the last call."""
        model, files, r = self.model, incarnation.client.log, incarnation.client.core.state
        before = model.hwm
        while model.log.end < files.end_offset:
            data = files._log.read_bytes(model.log.end, 1 << 20, upper_offset=None, min_one=True)
            for header, batch in iter_batches(data):
                if header.base_offset < model.log.end:
                    continue
                controls = (
                    [(c.type, c.value) for c in control_values(header.base_offset, batch)]
                    if header.is_control
                    else []
                )
                hwm = min(incarnation.client.high_watermark, model.log.end)
                if model.hwm < hwm:  # the records below were committed before this batch was written
                    self.process.environment.checker.committed(model, hwm, r.epoch)
                    model.hwm = before
                count = range(header.last_offset - header.base_offset + 1)
                seen = Batch(
                    model.log.end_digest, header.base_offset, header.leader_epoch, count, controls, header.crc
                )
                self.process.environment.checker.appended(
                    model, seen, leads=r.is_leader and header.leader_epoch == r.epoch
                )

    def after_start(self, incarnation: ObservedIncarnation) -> None:
        """Reads the recovered log anew after a start, and follows its changes from then on."""
        environment, files = self.process.environment, incarnation.client.log
        old, model = (
            self.model,
            ReplicaModel(self.model.name, self.model.key, keys_of(self.process.static_voters)),
        )
        model.epoch, model.led = old.epoch, old.led
        self.model = model
        self._state_node = None
        start = files.start_offset
        if start > 0 or self.process.bootstrap_voters is not None:
            model.initial_voters = environment.checker.set_at(start)
        if start > 0:
            digest = environment.checker.committed_digest(start)
            if digest is None:
                raise InvariantError(
                    f"log of n{self.process.id}: starts at {start}, where nothing committed ends"
                )
            model.log.restart(OffsetEpoch(start, 0), digest)
        if files.end_offset < self.durable_at_death:
            raise InvariantError(
                f"recovery: n{self.process.id} finds its log up to {files.end_offset}, "
                f"{self.durable_at_death} was durable"
            )
        self._wrap_log_changes(incarnation)
        self._read_log(incarnation)
        environment.checker.check_log_start(model, files)

    def _wrap_log_changes(self, incarnation: ObservedIncarnation) -> None:
        """Wraps the methods of the log that truncate, replace and clean it, so that the model follows."""
        files, model, checker = incarnation.client.log, self.model, self.process.environment.checker
        truncate_to, install, clean = files.truncate_to, files.install, files.clean

        def truncates(offset: int) -> None:
            self._read_log(incarnation)
            self.truncating_to = offset
            truncate_to(offset)
            self.truncating_to = UNLIMITED
            self.process.environment.trace(
                self.process.id, f"truncates from {model.log.end} to {files.end_offset}"
            )
            if files.end_offset < model.log.end:
                checker.truncated(model, files.end_offset)

        def installs(snapshot: OffsetEpoch) -> Any:
            self._read_log(incarnation)
            head = install(snapshot)
            digest = checker.committed_digest(snapshot.offset)
            checker.snapshot_installed(
                model,
                snapshot,
                -1 if digest is None else digest,
                None if head.voters is None else keys_of(head.voters),
            )
            self.process.environment.trace(
                self.process.id, f"loads the snapshot {snapshot.offset}-{snapshot.epoch}"
            )
            self.process.environment.coverage["snapshots loaded"] += 1
            checker.check_log_start(model, files)
            return head

        def cleans(now_ms: int, hwm: int) -> bool:
            self._read_log(incarnation)
            changed = clean(now_ms, hwm)
            if files.start_offset > model.log.start:
                checker.cleaned(model, OffsetEpoch(files.start_offset, 0))
                checker.check_log_start(model, files)
                self.process.environment.trace(
                    self.process.id, f"forgets its log before {files.start_offset}"
                )
            return changed

        files.truncate_to, files.install, files.clean = truncates, installs, cleans  # type: ignore[method-assign]

    # --- disk -------------------------------------------------------------------------------------

    def _state(self) -> QuorumState | None:
        """Returns the quorum state that a power failure would leave."""
        node = self.process.disk.durable("meta", LOG_DIRECTORY, "quorum-state")
        return decode_quorum_state(bytes(node.durable)) if isinstance(node, File) and node.durable else None

    def _read_quorum_state(self) -> None:
        """Reports the durable quorum state if it has changed."""
        if not self.process.can_vote:  # that of a broker is a hint for its next start, and not synced
            return
        node = self.process.disk.durable("meta", LOG_DIRECTORY, "quorum-state")
        if node is self._state_node:
            return
        self._state_node = node
        state = self._stored = self._state()
        if state is not None:
            self.process.environment.checker.stored(self.model, state)

    def durable_end(self) -> int:
        """Returns the offset below which all records are durable.

        They are in the durable bytes of segments whose names are durable, or in a snapshot.
        """
        directory = self.process.disk.durable("meta", LOG_DIRECTORY)
        if not isinstance(directory, Directory):
            return 0
        end = None
        for name in sorted(directory.durable):
            if not name.endswith(".log"):
                continue
            base, file = int(name.removesuffix(".log")), directory.durable[name]
            if not isinstance(file, File) or (end is not None and base > end):
                break
            end = self._durable_segment_end(base, file)
        named = [parse_name(name) for name in directory.durable]
        snapshot_end = max((n[0].offset for n in named if n is not None and n[1] == "snapshot"), default=0)
        return max(snapshot_end, end or 0)

    def _durable_segment_end(self, base: int, file: File) -> int:
        """Returns the end of the last complete batch in a segment's durable bytes.

        Continues where the last call stopped.
        """
        data = file.durable
        position: int
        offset: int
        position, offset = file.observer_cache if isinstance(file.observer_cache, tuple) else (0, base)
        # Truncated or overwritten bytes belong to an earlier log, even while they are still durable.
        limit = min((at for at, _ in file.writes), default=len(data))
        if limit < position:
            position, offset = 0, base
        while position + BATCH_OVERHEAD <= len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD
            if size < BATCH_OVERHEAD or position + size > min(limit, len(data)):
                break
            first, delta = (
                int.from_bytes(data[position : position + 8], "big"),
                data[position + 23 : position + 27],
            )
            offset = first + int.from_bytes(delta, "big") + 1
            position += size
        file.observer_cache = (position, offset)
        return offset
