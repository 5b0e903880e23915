"""The shell of the Raft core: files, timers, the network and the listeners (asyncio).

Group commit: whatever is proposed while a write or fsync is under way is the next batch. While fsync is
quick it runs in the loop, so that one record is proposed, durable, committed and delivered in one loop
turn; when it becomes slow it moves to a thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from quorate.log.errors import LogDirFailure, trace_of
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import DecodeError, ErrorCode, KafkaError
from quorate.protocol.schema import Response
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.membership import check_fetched
from quorate.raft.core.raft import Raft
from quorate.raft.runtime import wire
from quorate.raft.runtime.delivery import Delivery, RaftListener
from quorate.raft.runtime.metrics import RaftMeters
from quorate.raft.runtime.peer_monitor import PeerMonitor
from quorate.raft.runtime.ports import Clock, LoopClock, Transport
from quorate.raft.runtime.proposals import Proposals
from quorate.raft.runtime.reachability import Reachability
from quorate.raft.runtime.request_sender import RequestSender
from quorate.raft.runtime.responses import Asked, Upgrade, compare, respond
from quorate.raft.runtime.timers import ConditionWaiter, DeadlineTimer, PeriodicTimer
from quorate.raft.runtime.view import RaftView
from quorate.raft.storage.fsync import Syncer
from quorate.raft.storage.membership_record import MembershipRecordFile
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.storage.quorum_state_writer import QuorumStateWriter
from quorate.raft.storage.recovery import recover_replica
from quorate.raft.storage.recovery_advice import explain_snapshot
from quorate.raft.storage.snapshot_download import SnapshotDownloads
from quorate.raft.storage.snapshot_writer import write_snapshot
from quorate.raft.storage.threads import in_thread
from quorate.raft.storage.voter_marker import VoterMarker
from quorate.raft.types import (
    METADATA_TOPIC,
    CommittedBatch,
    LeaderAndEpoch,
    NotLeaderError,
    OffsetEpoch,
    RaftError,
    Role,
)
from quorate.records.errors import CorruptRecordError, InvalidRecordError

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext

log = logging.getLogger(__name__)
SETTLE_S = 0.25  # a leader that stops waits so long for what it has written to commit
PARSED_AT_ONCE_BYTES = 128 << 10  # of fetched records: two to three milliseconds
REACH_S = 3.0  # so often voters see to it that they are connected


class RaftClient(RaftView):
    """This process's replica of the metadata log: voter, or observer in a broker."""

    def __init__(
        self,
        config: RaftConfig,
        transport: Transport | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        files: Any = None,
    ) -> None:
        self.config = config
        self._transport = transport
        self._clock: Clock = clock if clock is not None else LoopClock()
        self._rng = rng if rng is not None else random.Random()
        self._files = files
        self._directory = config.metadata_dir / f"{METADATA_TOPIC}-0"
        state_file = QuorumStateFile(self._directory / "quorum-state", durable=config.is_controller)
        self._state = QuorumStateWriter(state_file, self._fatal)
        self._standing_file = MembershipRecordFile(self._directory, config.directory_id)
        self._voter_marker = VoterMarker(config.metadata_dir, config.cluster_id, config.directory_id)
        self._queue: deque[m.Event] = deque()
        self._stepping = False
        self._drain_scheduled = False
        self._alarm = DeadlineTimer(self._clock, self._woken)
        self._repeated = [
            PeriodicTimer(config.clean_interval_s, self._clean),
            PeriodicTimer(REACH_S, self._reach),
        ]
        self._reachability = Reachability(self._clock)
        self._reaching = PeerMonitor(self._reachability)
        self._turning = ConditionWaiter(self._clock)
        self._calls: RequestSender
        self._downloads = SnapshotDownloads(self._directory, self._step, self._install, self._fatal)
        self._early: list[RaftListener] = []
        self._told: tuple[Role, int, int | None] | None = None
        self._cut = 0  # how often the log was cut: an fsync that began before says nothing of what came after
        self._proposals = Proposals()
        self.meters: RaftMeters
        self._held: m.Effects | None = (
            None  # its requests are on their way out, its other duties come next turn
        )
        self.failure: BaseException | None = None
        self._sync: Syncer
        self.routes: dict[int, Callable[[RequestContext, Any], Response | Awaitable[Response]]] = (
            dict.fromkeys(_ROUTES, self.handle)
        )

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the log, takes up the stored role. Raises OSError, SnapshotError, QuorumStateError,
        RaftError."""
        config, started = self.config, time.perf_counter()
        self.meters = RaftMeters(self._clock.now())
        opened = await in_thread(
            recover_replica,
            config,
            self._directory,
            self._state,
            self._voter_marker,
            self._files,
            self._clock.now_ms(),
        )
        self.log, members = opened.log, opened.members
        self.core = Raft(config.params(), self.log, opened.stored, members, self._rng, opened.standing)
        self._state.core = self.core
        self._delivery = Delivery(self.log, self._fatal)
        self._sync = Syncer(self.log.flush, config.inline_fsync_s, durable=config.is_controller)
        self._proposals.reset(self.log.end_offset)
        if self._transport is None:
            from quorate.raft.runtime.transport import NetTransport

            self._transport = NetTransport(f"raft-client-{config.node_id}", config.request_timeout_s)
        self._transport.on_lost = lambda address: self._step(m.PeerLost(address))
        self._calls = RequestSender(config, self._transport, self._replied, self._reachability)
        log.info(
            "[RaftClient id=%d] log from %d to %d (epoch %d), voters %s, opened in %.1f ms",
            config.node_id, self.log.start_offset, self.log.end_offset, self.log.last_epoch,
            [str(v.key) for v in members.current], (time.perf_counter() - started) * 1000,
        )  # fmt: skip
        self._stepping = True
        try:
            self._apply(self.core.start(self._clock.now()))
        finally:
            self._stepping = False
        self._run_queue()
        for listener in self._early:
            self._delivery.register(listener)
        self._early.clear()
        self._reach()
        for repeated in self._repeated:
            repeated.start()

    async def shutdown(self, timeout_s: float = 5.0) -> None:
        """Resigns if leading, waits up to timeout_s for another leader, closes the log cleanly."""
        if not hasattr(self, "core"):
            return
        if self.failure is None:
            self._write_proposals()
            if timeout_s > 0:
                # Before a leader resigns: what was written commits, and a successor has all of it, so
                # that nobody asks twice.
                await self._until(lambda: not self.core.has_unsettled, min(timeout_s, SETTLE_S))
            self._step(m.Shutdown())
            await self._until(lambda: self.core.shutdown_complete, timeout_s)
        self._delivery.close()
        self._alarm.cancel()
        for repeated in self._repeated:
            repeated.cancel()
        await self._downloads.close()
        await self._calls.close()
        if self._transport is not None:
            self._transport.close()
        self._sync.close()
        if self.failure is None:
            self._state.save_late()
        if self.failure is None:
            self.log.close()
            self.failure = RuntimeError("closed")

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Returns when the condition holds, looked at after every step, or the time is over, or Raft
        has failed."""
        await self._turning.until(lambda: self.failure is not None or condition(), timeout_s)

    def _fatal(self, error: BaseException) -> None:
        """The metadata directory or a rule of Raft has failed: nothing more is promised."""
        if self.failure is not None:
            return
        self.failure = error
        explain_snapshot(error, self.config, self._directory, self.core.members)
        self._state.forget()
        log.error("[RaftClient id=%d] fatal: %s", self.config.node_id, error, exc_info=trace_of(error))
        self._turning.notice()
        self._delivery.close()
        if self.config.on_fatal is not None:
            self.config.on_fatal(error)

    # --- what state machines use ------------------------------------------------------------------

    def register(self, listener: RaftListener) -> None:
        """From now on `listener` gets all that is committed, from the latest snapshot or the start on."""
        if hasattr(self, "_delivery"):
            self._delivery.register(listener)
        else:
            self._early.append(listener)

    def unregister(self, listener: RaftListener) -> None:
        self._delivery.unregister(listener)

    def append(self, epoch: int, values: Sequence[bytes], *, atomic: bool = True) -> int:
        """Proposes records; the last one's offset. They commit, or leadership is lost: on_leader_change
        tells.

        atomic: all in one batch. Raises NotLeaderError, BatchTooLargeError.
        """
        core = self.core
        if core.role is not Role.LEADER or epoch != core.epoch or self.failure is not None:
            raise NotLeaderError(
                f"append in epoch {epoch}: this replica is {core.role.value} in epoch {core.epoch}"
            )
        last = self._proposals.add(values, atomic)
        if not self._drain_scheduled and not self._sync.running:
            self._drain_scheduled = True
            loop = asyncio.get_running_loop()
            if self.config.append_linger_s > 0:
                loop.call_later(self.config.append_linger_s, self._drain)
            else:
                loop.call_soon(self._drain)
        return last

    def resign(self, epoch: int, reason: str = "asked by the state machine") -> None:
        self._step(m.Resign(epoch, reason))

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool = False) -> None:
        """Raises KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_UPDATE_VERSION. Returns when committed."""
        upgrade = Upgrade(asyncio.get_running_loop().create_future())
        self._step(m.UpgradeKraftVersion(epoch, level, validate_only, upgrade))
        await upgrade.future

    # --- requests of other nodes ------------------------------------------------------------------

    def handle(self, ctx: RequestContext, request: Any) -> Response | Awaitable[Response]:
        """Answers Raft's own requests; the state has changed when this returns, whatever is still to be
        waited for."""
        if self.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata log is closed")
        asked = wire.decode_request(request, ctx.api_version)
        if isinstance(asked, Response):
            return asked
        token = Asked(request, ctx.api_version, ctx.listener)
        self._step(m.Received(asked, token))
        if token.response is not None:
            return token.response
        token.future = asyncio.get_running_loop().create_future()
        return token.future

    def _answer(self, token: Asked | Upgrade, reply: m.Reply) -> None:
        if isinstance(token, Upgrade):
            token.finish(reply)
        elif isinstance(reply, m.SnapshotReply) and reply.compare is not None:
            compared = asyncio.get_running_loop().create_task(compare(self.log, reply))
            compared.add_done_callback(lambda _: self._respond(token, reply))
        else:
            self._respond(token, reply)

    def _respond(self, token: Asked, reply: m.Reply) -> None:
        if isinstance(reply, m.QuorumReply) and reply.error != ErrorCode.NONE:
            reply.message = self._reaching.why_no_leader(self.core, self._clock.now())
        token.finish(respond(self.core, self.log, token, reply, self._clock, self._delivery.hwm))

    # --- proposals and group commit ---------------------------------------------------------------

    def _drain(self) -> None:
        self._drain_scheduled = False
        if self.failure is None and not self._sync.running and self._write_proposals():
            self._run_queue()

    def _write_proposals(self) -> bool:
        """Writes what was proposed and makes it durable; whether there was anything."""
        if not self._proposals.pending or not self.core.is_leader or self._held is not None:
            return False
        try:
            self._append_proposals()
            self._start_sync()
        except Exception as e:  # whatever it is: what was proposed next would leave a hole in the log
            self._fatal(e)
            return False
        return True

    def _append_proposals(self) -> None:
        for batch, data in self._proposals.take(self.core.epoch, self._clock.now_ms()):
            self.log.append(data, self._clock.now_ms())
            self._delivery.appended(batch)
            self.meters.leader_appended(
                batch.last_offset + 1, batch.last_offset + 1 - batch.base_offset, self._clock.now()
            )
        self._queue.append(m.Appended())

    def _start_sync(self) -> None:
        if self._sync.running:  # what is written now goes with the next one
            return
        end, cut = self.log.end_offset, self._cut
        if self._sync.inline:
            self._sync.now()
            self._queue.append(m.Synced(end))
        else:
            self._sync.in_thread(lambda error: self._synced(end, cut, error))

    def _synced(self, end: int, cut: int, error: BaseException | None) -> None:
        """An fsync in the thread has ended; what was proposed meanwhile is the next batch."""
        if error is not None:
            return self._fatal(error)
        if self.failure is not None:
            return None
        if cut == self._cut:
            self._queue.append(m.Synced(end))
        self._run_queue()
        behind = cut != self._cut or self.log.end_offset > end
        if not self._sync.running and not self._write_proposals() and behind:
            self._start_sync()
        return self._run_queue()

    # --- steps of the core ------------------------------------------------------------------------

    def _step(self, event: m.Event) -> None:
        self._queue.append(event)
        if not self._stepping:
            self._run_queue()

    def _run_queue(self) -> None:
        if self._stepping or self._held is not None:
            return
        self._stepping = True
        queue, began = self._queue, time.perf_counter()
        try:
            while queue and self.failure is None and self._held is None:
                self._apply(self.core.step(queue.popleft(), self._clock.now()))
        except Exception as e:
            self._fatal(e)
        finally:
            self._stepping = False
            self.meters.busy.record(time.perf_counter() - began, self._clock.now())
        self._turning.notice()

    def _apply(self, effects: m.Effects) -> None:
        """Duty 1, and the others at once, or in the next turn where a blocking write would hold back
        what was just sent."""
        sent = False
        for outgoing in effects.send:
            sent = self._calls.send(outgoing) or sent
        if sent and effects.save_quorum_state is not None and not effects.save_may_wait:
            self._held = effects
            asyncio.get_running_loop().call_soon(self._resume)
        else:
            self._perform(effects)

    def _resume(self) -> None:
        effects, self._held = self._held, None
        if effects is None or self.failure is not None:
            return
        self._stepping = True
        try:
            self._perform(effects)
        except Exception as e:
            self._fatal(e)
        finally:
            self._stepping = False
        self._run_queue()
        self._drain()

    def _perform(self, effects: m.Effects) -> None:
        core = self.core
        if core.is_voter or (
            effects.save_quorum_state is not None and core.voted is not None and core.params.can_vote
        ):
            self._voter_marker.write(
                core.members.kraft_version
            )  # before a vote, and before a voter's first acknowledgement
        if effects.save_quorum_state is not None:
            self._state.save(effects.save_quorum_state, effects.save_may_wait)
        if effects.save_standing is not None:
            self._standing_file.write(effects.save_standing)
        if effects.role is not None and not core.is_leader:
            self._proposals.clear()
        if effects.truncate_to is not None:
            self._sync.wait()
            self._cut += 1
            self.log.truncate_to(effects.truncate_to)
            self._delivery.truncated(effects.truncate_to)
            self._queue.append(m.Synced(self.log.end_offset))
        if effects.start_snapshot is not None:
            self._downloads.add(effects.start_snapshot)
        if effects.snapshot_chunk is not None:
            self._downloads.add(effects.snapshot_chunk)
        if effects.append_fetched is not None:
            self._append_fetched(effects.append_fetched)
        if effects.append_control is not None:
            self._append_control(effects.append_control)
        for answer in effects.answers:
            self._answer(answer.token, answer.reply)  # type: ignore[arg-type]
        if effects.role is not None:
            self.meters.role(effects.role.role, self._clock.now())
            self._announce()
        if effects.high_watermark is not None:
            self.meters.committed(effects.high_watermark, self._clock.now())
            self._delivery.committed(min(effects.high_watermark, self.log.end_offset))
        self._alarm.set(effects.wake_at)

    def _announce(self) -> None:
        core = self.core
        now = (core.role, core.epoch, core.leader_id)
        if now == self._told:
            return
        self._told = now
        leads = core.leading.epoch_start if core.leading is not None else None
        leader_id = None if core.role is Role.RESIGNED else core.leader_id
        self._delivery.leader_changed(LeaderAndEpoch(leader_id, core.epoch), leads)

    def _append_control(self, records: list[tuple[int, Any]]) -> None:
        """One control batch, behind everything proposed before."""
        if self._proposals.pending:
            self._append_proposals()
        batch, controls, data = self.log.control_batch(records, self.core.epoch, self._clock.now_ms())
        self.log.append(data, self._clock.now_ms())
        self._delivery.appended(batch)
        self.meters.leader_appended(batch.last_offset + 1, len(records), self._clock.now())
        self._proposals.reset(self.log.end_offset)
        self._queue.append(m.Appended(controls))
        self._start_sync()

    def _append_fetched(self, records: bytes | memoryview) -> None:
        try:
            small = len(records) <= PARSED_AT_ONCE_BYTES  # else the listeners read it from the log, in slices
            batches, controls = self.log.parse_fetched(records, small)
            if not batches:
                raise InvalidRecordError("not one whole batch")
            check_fetched(self.core, batches, controls)
            self.log.append(memoryview(records)[: sum(b.size_bytes for b in batches)], self._clock.now_ms())
        except (CorruptRecordError, InvalidRecordError, DecodeError) as e:
            self._queue.append(m.FetchRejected(str(e)))
            return
        self.meters.fetched.record(batches[-1].last_offset + 1 - batches[0].base_offset, self._clock.now())
        if small:
            for batch in batches:
                self._delivery.appended(batch)
        else:
            self._delivery.restarted()
        self._queue.append(m.Appended(controls))
        self._start_sync()

    def _install(self, snapshot: OffsetEpoch) -> None:
        """A downloaded snapshot is durable: it replaces the log."""
        if self.failure is not None:
            return None
        try:
            if self.core.is_leader:
                raise RaftError(f"elected while snapshot {tuple(snapshot)} was being installed")
            self._sync.wait()
            self._cut += 1
            head = self.log.install(snapshot)
        except Exception as e:
            return self._fatal(e)
        self._delivery.restarted()
        return self._step(m.SnapshotInstalled(snapshot, head.voters, head.kraft_version))

    def _replied(self, out: m.Outgoing, reply: m.Reply | m.Failure) -> None:
        if self.failure is None:
            self._step(m.Replied(out.to, out.request, reply))

    def _reach(self) -> None:
        if self.failure is None and self._transport is not None:
            self._reaching.look(self.core, self._transport, self._clock.now())

    def _woken(self) -> None:
        if self.failure is None:
            self._step(m.Timeout())

    def _clean(self) -> None:
        """Old snapshots and the log before them, by size and age."""
        if self.failure is not None:
            return
        try:
            if self.log.clean(self._clock.now_ms(), self._delivery.hwm):
                self.core.members.trim_before(self.log.start_offset)
            following = self.core.following
            if following is None or following.snapshot is None:
                self._downloads.clean(self.log.end_offset)
        except (OSError, LogDirFailure) as e:
            self._fatal(e)

    # --- snapshots of the state machine -----------------------------------------------------------

    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> OffsetEpoch | None:
        """Writes the state below end_offset, given as data batches; header, voters and footer are added here.

        None when an equal or newer snapshot exists, or has come meanwhile. Raises ValueError for an
        offset that is not committed, not on a batch boundary or of another epoch; OSError.
        """
        snapshot = OffsetEpoch(end_offset, epoch)
        if not self.log.may_snapshot(snapshot, self._delivery.hwm):
            return None
        members = self.core.members
        kraft, voters = members.kraft_version_at(end_offset - 1), members.voters_at(end_offset - 1)
        writer = self.log.snapshot_writer(snapshot)
        parts = self.log.snapshot_parts(
            snapshot, last_timestamp_ms, self._clock.now_ms(), kraft, voters, batches
        )
        await write_snapshot(writer, parts)
        if not self.log.add_snapshot(snapshot):
            return None
        log.info(
            "[RaftClient id=%d] snapshot %s: %d bytes", self.config.node_id, tuple(snapshot), writer.size
        )
        return snapshot


_ROUTES = (
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)

__all__ = ["Clock", "CommittedBatch", "RaftClient", "RaftListener", "Transport"]
