"""What the invariants see of a process from outside: its log as bytes, what of it is durable, what it tells its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterResponse
from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.vote import VoteRequest, VoteResponse
from quorate.protocol.schema import Request, Response
from quorate.raft import messages as m
from quorate.raft.log import control_values
from quorate.raft.quorum_state import QuorumState, decode_quorum_state
from quorate.raft.snapshots import parse_name
from quorate.raft.types import METADATA_TOPIC, Address, OffsetEpoch, Role
from quorate.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD, iter_batches
from simulation.disk import Directory, File
from simulation.invariants import InvariantError, Keys, Subject, keys_of
from simulation.trail import Batch

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.network import Exchange
    from simulation.process import Process

LOG = f"{METADATA_TOPIC}-0"
WHOLE = 1 << 62


class Witness:
    """Looks at one process after each event in which it ran."""

    def __init__(self, process: Process, first_set: Keys) -> None:
        self.process = process
        self.subject = Subject(f"n{process.id}", (process.id, process.key.directory_id), first_set)
        self.hears = False
        self.must_have = 0  # what a restart must find: it was durable
        self.cutting_to = WHOLE  # where the log is being truncated just now
        self._heard_role: tuple[Any, int] = (None, -1)
        self._state_node: Any = None
        self._stored: QuorumState | None = None  # in that file

    def dies(self) -> None:
        """Before the disk forgets what was not synced."""
        life = self.process.now_living
        if life is not None and life.ready:  # it may have written and acknowledged in this very event
            with self.process.cluster.reporting():
                self._look_at_log(life)
        self.must_have = min(self.durable_end(), self.subject.trail.end, self.cutting_to) if self.process.can_vote else 0
        self.cutting_to = WHOLE

    def sends(self, request: Request) -> None:
        if isinstance(request, FetchRequest) and self.process.can_vote and self.process.now_living is not None:
            self.process.cluster.history.fetches(self.subject, request.topics[0].partitions[0].fetch_offset, self.durable_end())

    def answers(self, request: Request, answer: Response) -> None:
        if isinstance(request, VoteRequest) and isinstance(answer, VoteResponse) and answer.topics:
            asked, given = request.topics[0].partitions[0], answer.topics[0].partitions[0]
            if given.vote_granted and asked.pre_vote:
                f = self.process.core.following
                hears = self.hears and f is not None and f.heard and (f, self.process.core.epoch) == self._heard_role
                self.process.cluster.history.granted_pre_vote(self.subject, hears)
            elif given.vote_granted:
                self._look_at_state()
                state = self._state()
                voted = None if state is None or state.voted is None else (state.epoch, state.voted.id)
                if voted != (asked.replica_epoch, asked.replica_id):
                    what = f"n{self.process.id} votes for n{asked.replica_id} in epoch {asked.replica_epoch}"
                    raise InvariantError(f"one vote an epoch: {what}, but its disk has {state}")

    def asked(self, request: Request) -> None:
        if isinstance(request, EndQuorumEpochRequest) and request.topics:
            part = request.topics[0].partitions[0]
            if (part.leader_id, part.leader_epoch) == self.process.core.leader_and_epoch:
                self.hears = False

    def hears_answer(self, exchange: Exchange, answer: Response) -> None:
        """A good Fetch answer of the leader that it follows is about to be taken."""
        core = self.process.core
        if isinstance(answer, AddRaftVoterResponse) and not answer.error_code and exchange.sender is self.process.now_living:
            self.process.cluster.happened["joins by oneself"] += 1
        if isinstance(exchange.request, FetchRequest) and isinstance(answer, FetchResponse) and not answer.error_code:
            part, asked = answer.responses[0].partitions[0], exchange.request.topics[0].partitions[0]
            follows = core.role is Role.FOLLOWER and core.leader_and_epoch == (
                part.current_leader.leader_id,
                asked.current_leader_epoch,
            )
            if part.error_code == ErrorCode.NONE and follows and self._current(exchange):
                self.hears = True
                self._heard_role = (core.following, core.epoch)

    def _current(self, exchange: Exchange) -> bool:
        link = self.process.core.links.get(exchange.address)
        return link is not None and m.Fetch in link.in_flight

    def unreachable(self, address: Address) -> None:
        if (
            self.process.started
            and self.process.core.leader_id is not None
            and self.process.core.address_of(self.process.core.leader_id) == address
        ):
            self.hears = False

    def look(self) -> None:
        """After an event in which it ran: log, role, high watermark, quorum state."""
        life = self.process.now_living
        if life is None or not life.ready or life.client.failure is not None:
            return
        history, core, s = self.process.cluster.history, life.client.core, self.subject
        if self.hears and (core.following, core.epoch) != self._heard_role:
            self.hears = False
        sets = [s.voters]
        self._look_at_log(life)
        sets += [keys for _, keys in s.sets[-2:]]
        self._look_at_state()
        if self.process.can_vote and life.client._held is None:
            history.is_stored(s, self._stored, core.epoch)
        if core.is_leader and s.led != core.epoch:
            state = self._state()
            if (
                state is None
                or state.epoch != core.epoch
                or self.process.key.id not in (state.leader_id, state.voted and state.voted.id)
            ):
                raise InvariantError(f"one vote an epoch: n{self.process.id} leads epoch {core.epoch}, but its disk has {state}")
            history.leads(s, core.epoch)
        hwm = life.client.high_watermark
        if hwm > s.hwm:
            if core.leading is not None and core.hwm is not None:
                history.reached(
                    s, hwm, self.process.cluster.holds, sets
                )  # it rose before or after the voters changed in this event
            history.committed(s, hwm, core.epoch)
            self.process.cluster.note(self.process, f"commits up to {hwm}")
        elif hwm < s.hwm:
            raise InvariantError(f"high watermark: that of n{self.process.id} falls from {s.hwm} to {hwm}")

    def _look_at_log(self, life: Life) -> None:
        s, files, core = self.subject, life.client.log, life.client.core
        before = s.hwm
        while s.trail.end < files.end_offset:
            data = files._log.read_bytes(s.trail.end, 1 << 20, upper_offset=None, min_one=True)
            for header, batch in iter_batches(data):
                if header.base_offset < s.trail.end:
                    continue
                controls = [(c.type, c.value) for c in control_values(header.base_offset, batch)] if header.is_control else []
                hwm = min(life.client.high_watermark, s.trail.end)
                if s.hwm < hwm:  # it was committed before this was written
                    self.process.cluster.history.committed(s, hwm, core.epoch)
                    s.hwm = before
                count = range(header.last_offset - header.base_offset + 1)
                seen = Batch(s.trail.end_digest, header.base_offset, header.leader_epoch, count, controls, header.crc)
                self.process.cluster.history.appended(s, seen, leads=core.is_leader and header.leader_epoch == core.epoch)

    def reread(self, life: Life) -> None:
        """A start: the log as recovered. Follows every cut from now on."""
        cluster, files = self.process.cluster, life.client.log
        old, s = self.subject, Subject(self.subject.name, self.subject.key, keys_of(self.process.static))
        s.epoch, s.led = old.epoch, old.led
        self.subject = s
        self._state_node = None
        start = files.start_offset
        if start > 0 or self.process.boot is not None:
            s.base_set = cluster.history.set_at(start)
        if start > 0:
            digest = cluster.history.committed_digest(start)
            if digest is None:
                raise InvariantError(f"log of n{self.process.id}: starts at {start}, where nothing committed ends")
            s.trail.restart(OffsetEpoch(start, 0), digest)
        if files.end_offset < self.must_have:
            raise InvariantError(
                f"recovery: n{self.process.id} finds its log up to {files.end_offset}, {self.must_have} was durable"
            )
        self._watch(life)
        self._look_at_log(life)
        cluster.history.starts_at(s, files)

    def _watch(self, life: Life) -> None:
        files, s, history = life.client.log, self.subject, self.process.cluster.history
        truncate_to, install, clean = files.truncate_to, files.install, files.clean

        def truncates(offset: int) -> None:
            self._look_at_log(life)
            self.cutting_to = offset
            truncate_to(offset)
            self.cutting_to = WHOLE
            self.process.cluster.note(self.process, f"truncates from {s.trail.end} to {files.end_offset}")
            if files.end_offset < s.trail.end:
                history.truncated(s, files.end_offset)

        def installs(snapshot: OffsetEpoch) -> Any:
            self._look_at_log(life)
            head = install(snapshot)
            digest = history.committed_digest(snapshot.offset)
            history.restarted(
                s, snapshot, -1 if digest is None else digest, None if head.voters is None else keys_of(head.voters)
            )
            self.process.cluster.note(self.process, f"loads the snapshot {snapshot.offset}-{snapshot.epoch}")
            self.process.cluster.happened["snapshots loaded"] += 1
            history.starts_at(s, files)
            return head

        def cleans(now_ms: int, hwm: int) -> bool:
            self._look_at_log(life)
            changed = clean(now_ms, hwm)
            if files.start_offset > s.trail.start:
                history.cleaned(s, OffsetEpoch(files.start_offset, 0))
                history.starts_at(s, files)
                self.process.cluster.note(self.process, f"forgets its log before {files.start_offset}")
            return changed

        files.truncate_to, files.install, files.clean = truncates, installs, cleans  # type: ignore[method-assign]

    # --- its disk ---------------------------------------------------------------------------------------------------

    def _state(self) -> QuorumState | None:
        node = self.process.disk.durable("meta", LOG, "quorum-state")
        return decode_quorum_state(bytes(node.durable)) if isinstance(node, File) and node.durable else None

    def _look_at_state(self) -> None:
        if not self.process.can_vote:  # a broker's is only a hint, and not synced
            return
        node = self.process.disk.durable("meta", LOG, "quorum-state")
        if node is self._state_node:
            return
        self._state_node = node
        state = self._stored = self._state()
        if state is not None:
            self.process.cluster.history.stored(self.subject, state)

    def durable_end(self) -> int:
        """Everything below is on the platter: in the durable bytes of segments with a durable name, or in a snapshot."""
        directory = self.process.disk.durable("meta", LOG)
        if not isinstance(directory, Directory):
            return 0
        end = None
        for name in sorted(directory.durable):
            if not name.endswith(".log"):
                continue
            base, file = int(name.removesuffix(".log")), directory.durable[name]
            if not isinstance(file, File) or (end is not None and base > end):
                break
            end = self._count(base, file)
        named = [parse_name(name) for name in directory.durable]
        frozen = max((n[0].offset for n in named if n is not None and n[1] == "snapshot"), default=0)
        return max(frozen, end or 0)

    def _count(self, base: int, file: File) -> int:
        data = file.durable
        position: int
        offset: int
        position, offset = file.note if isinstance(file.note, tuple) else (0, base)
        # What is cut or written over, although not yet on the platter, is of a log that is no more.
        limit = min((at for at, _ in file.writes), default=len(data))
        if limit < position:
            position, offset = 0, base
        while position + BATCH_OVERHEAD <= len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD
            if size < BATCH_OVERHEAD or position + size > min(limit, len(data)):
                break
            first, delta = int.from_bytes(data[position : position + 8], "big"), data[position + 23 : position + 27]
            offset = first + int.from_bytes(delta, "big") + 1
            position += size
        file.note = (position, offset)
        return offset
