"""Drives the Raft core in an event loop: performs its effects on files, network, timers and listeners.

`RaftDriver` performs the effects of each step in the order that `quorate.raft.core.effects.Effects` states.

Group commit: the records that are proposed while a write or an fsync is running form the next batch.
While fsync is fast, it runs in the loop: one turn of the loop makes proposed records durable. With a single
voter, the same turn also commits and delivers them. When fsync becomes slow, it moves to a thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.clock import Clock
from quorate.lazy import lazy_module
from quorate.log.errors import LogDirFailure, trace_of
from quorate.protocol.errors import DecodeError
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Effects, Outgoing
from quorate.raft.core.events import (
    Appended,
    Event,
    FetchRejected,
    PeerLost,
    Receiving,
    Replied,
    Shutdown,
    SnapshotInstalled,
    Synced,
    Timeout,
)
from quorate.raft.core.follower import check_fetched
from quorate.raft.core.raft import Raft
from quorate.raft.runtime.delivery import Delivery
from quorate.raft.runtime.interfaces import Transport
from quorate.raft.runtime.metrics import RaftMeters
from quorate.raft.runtime.peer_monitor import PeerMonitor
from quorate.raft.runtime.proposals import Proposals
from quorate.raft.runtime.reachability import Reachability
from quorate.raft.runtime.request_sender import RequestSender
from quorate.raft.runtime.responses import Responder
from quorate.raft.runtime.timers import ConditionWaiter, DeadlineTimer, PeriodicTimer
from quorate.raft.storage.fsync import Syncer
from quorate.raft.storage.membership_record import MembershipRecordFile
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.storage.quorum_state_writer import QuorumStateWriter
from quorate.raft.storage.recovery import RecoveredReplica
from quorate.raft.storage.snapshots.download import SnapshotDownloads
from quorate.raft.storage.voter_marker import VoterMarker
from quorate.raft.types import Address, LeaderAndEpoch, OffsetEpoch, RaftError, Role
from quorate.records.errors import CorruptRecordError, InvalidRecordError

if TYPE_CHECKING:
    from quorate.raft.storage import recovery_advice
else:
    recovery_advice = lazy_module("quorate.raft.storage.recovery_advice")

logger = logging.getLogger(__name__)

COMMIT_BEFORE_RESIGN_S = 0.25  # how long a leader that shuts down waits for its records to commit
# Up to this many bytes of fetched records are parsed in one turn of the loop (2 to 3 ms).
INLINE_PARSE_BYTES = 128 << 10
# How often the core learns that a response is arriving, as a share of the fetch timeout.
RECEIVING_SHARE = 0.1
MONITOR_INTERVAL_S = 3.0  # between two checks of the connections to other voters


class RaftDriver:
    """Runs the core of one replica from its recovery until it is closed or fails."""

    def __init__(
        self,
        config: RaftConfig,
        directory: Path,
        recovered: RecoveredReplica,
        state_file: QuorumStateFile,
        voter_marker: VoterMarker,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        meters: RaftMeters,
    ) -> None:
        self.config = config
        self.log = recovered.log
        self.meters = meters
        members = recovered.members
        self.core = Raft(
            config.params(), self.log, recovered.stored, members, rng, recovered.membership_record
        )
        self.state = self.core.state
        self.delivery = Delivery(self.log, self.fail)
        self.proposals = Proposals(self.log.end_offset)
        self.failure: BaseException | None = None
        self._directory = directory
        self._transport = transport
        self._clock = clock
        self._state_writer = QuorumStateWriter(state_file, members, self.fail)
        self._membership_record_file = MembershipRecordFile(directory, config.directory_id)
        self._voter_marker = voter_marker
        self._syncer = Syncer(self.log.flush, config.inline_fsync_s, durable=config.is_controller)
        # The number of times that the log was truncated or replaced. An fsync that began before such a change
        # does not prove that the log is durable up to its new end.
        self._truncations = 0
        self._downloads = SnapshotDownloads(directory, self.step, self._install, self.fail)
        self._queue: deque[Event] = deque()
        self._stepping = False
        self._flush_scheduled = False
        # The effects of a step whose requests have been sent. Its other effects are performed in the next
        # turn of the loop.
        self._deferred: Effects | None = None
        self._last_leader_change: tuple[Role, int, int | None] | None = None
        self._alarm = DeadlineTimer(clock, self._on_alarm)
        self._periodic_timers = [
            PeriodicTimer(config.clean_interval_s, self._clean),
            PeriodicTimer(MONITOR_INTERVAL_S, self._check_peers),
        ]
        reachability = Reachability(clock)
        self._peer_monitor = PeerMonitor(reachability)
        self._step_waiter = ConditionWaiter(clock)
        transport.on_lost = lambda address: self.step(PeerLost(address))
        transport.on_receiving = self._on_receiving
        self._receiving_due: dict[Address, float] = {}
        self._sender = RequestSender(config, transport, self._on_reply, reachability)
        self._responder = Responder(self.state, self.log, self.delivery, self._peer_monitor, clock)

    # --- lifecycle --------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the core in the role that the stored quorum state implies. Performs its first effects."""
        self._stepping = True
        try:
            self._apply(self.core.start(self._clock.now()))
        finally:
            self._stepping = False
        self._run_queue()

    def start_timers(self) -> None:
        self._check_peers()
        for timer in self._periodic_timers:
            timer.start()

    async def close(self, timeout_s: float) -> None:
        """Resigns if leading, waits up to `timeout_s` for another leader, and closes the log cleanly."""
        if self.failure is None:
            self._write_proposals()
            if timeout_s > 0:
                # Before it resigns, the leader waits until its records are committed and one other voter
                # has all of them, so that no client has to retry.
                await self.until(
                    lambda: not self.state.has_unreplicated_records, min(timeout_s, COMMIT_BEFORE_RESIGN_S)
                )
            self.step(Shutdown())
            await self.until(lambda: self.state.shutdown_complete, timeout_s)
        self.delivery.close()
        self._alarm.cancel()
        for timer in self._periodic_timers:
            timer.cancel()
        await self._downloads.close()
        await self._sender.close()
        self._transport.close()
        await self._syncer.close()
        if self.failure is None:
            self._state_writer.save_deferred()
        if self.failure is None:
            self.log.close()
            self.failure = RuntimeError("closed")

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Waits until the condition holds after a step, Raft has failed, or the timeout has elapsed."""
        await self._step_waiter.until(lambda: self.failure is not None or condition(), timeout_s)

    def fail(self, error: BaseException) -> None:
        """Stops this replica for good after a failure of its directory or a violated Raft invariant."""
        if self.failure is not None:
            return
        self.failure = error
        recovery_advice.explain_snapshot(error, self.config, self._directory, self.state.members)
        self._state_writer.discard_deferred()
        logger.error("[RaftClient id=%d] fatal: %s", self.config.node_id, error, exc_info=trace_of(error))
        self._step_waiter.notice()
        self.delivery.close()
        if self.config.on_fatal is not None:
            self.config.on_fatal(error)

    # --- proposals and group commit ---------------------------------------------------------------

    def propose(self, values: Sequence[bytes], atomic: bool) -> int:
        """Queues records of the leader's state machine. Returns the offset of the last one."""
        last = self.proposals.add(values, atomic)
        if not self._flush_scheduled and not self._syncer.running:
            self._flush_scheduled = True
            loop = asyncio.get_running_loop()
            if self.config.append_linger_s > 0:
                loop.call_later(self.config.append_linger_s, self._flush_proposals)
            else:
                loop.call_soon(self._flush_proposals)
        return last

    def _flush_proposals(self) -> None:
        self._flush_scheduled = False
        if self.failure is None and not self._syncer.running and self._write_proposals():
            self._run_queue()

    def _write_proposals(self) -> bool:
        """Appends the proposed records and starts their fsync. Returns whether records were appended."""
        if not self.proposals.pending or not self.state.is_leader or self._deferred is not None:
            return False
        try:
            self._append_proposals()
            self._start_sync()
        except Exception as e:  # after any failure: appending later proposals would leave a gap in the log
            self.fail(e)
            return False
        return True

    def _append_proposals(self) -> None:
        for batch, data in self.proposals.take(self.state.epoch, self._clock.now_ms()):
            self.log.append(data, self._clock.now_ms())
            self.delivery.appended(batch)
            self.meters.leader_appended(
                batch.last_offset + 1, batch.last_offset + 1 - batch.base_offset, self._clock.now()
            )
        self._queue.append(Appended())

    def _start_sync(self) -> None:
        if self._syncer.running:  # the next fsync will cover what is appended now
            return
        end, truncations = self.log.end_offset, self._truncations
        if self._syncer.inline:
            self._syncer.now()
            self._queue.append(Synced(end))
        else:
            self._syncer.in_thread(lambda error: self._on_synced(end, truncations, error))

    def _on_synced(self, end: int, truncations: int, error: BaseException | None) -> None:
        """Handles the end of an fsync in the thread. The records proposed meanwhile form the next batch."""
        if error is not None:
            return self.fail(error)
        if self.failure is not None:
            return None
        if truncations == self._truncations:
            self._queue.append(Synced(end))
        self._run_queue()
        behind = truncations != self._truncations or self.log.end_offset > end
        if not self._syncer.running and not self._write_proposals() and behind:
            self._start_sync()
        return self._run_queue()

    # --- steps of the core ------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Gives an event to the core, after those that are queued."""
        self._queue.append(event)
        if not self._stepping:
            self._run_queue()

    def _run_queue(self) -> None:
        if self._stepping or self._deferred is not None:
            return
        self._stepping = True
        queue, began = self._queue, time.perf_counter()
        try:
            while queue and self.failure is None and self._deferred is None:
                self._apply(self.core.step(queue.popleft(), self._clock.now()))
        except Exception as e:
            self.fail(e)
        finally:
            self._stepping = False
            self.meters.busy.record(time.perf_counter() - began, self._clock.now())
        self._step_waiter.notice()

    def _apply(self, effects: Effects) -> None:
        """Sends the requests (effect 1).

        Performs the other effects at once, or in the next turn of the loop if a blocking save of the
        quorum state would delay those requests.
        """
        sent = False
        for outgoing in effects.send:
            sent = self._sender.send(outgoing) or sent
        if sent and effects.save_quorum_state is not None and not effects.save_may_wait:
            self._deferred = effects
            asyncio.get_running_loop().call_soon(self._perform_deferred)
        else:
            self._perform(effects)

    def _perform_deferred(self) -> None:
        effects, self._deferred = self._deferred, None
        if effects is None or self.failure is not None:
            return
        self._stepping = True
        try:
            self._perform(effects)
        except Exception as e:
            self.fail(e)
        finally:
            self._stepping = False
        self._run_queue()
        self._flush_proposals()

    def _perform(self, effects: Effects) -> None:
        """Performs effects 2 to 7."""
        state = self.state
        if state.is_voter or (
            effects.save_quorum_state is not None and state.voted is not None and state.params.can_vote
        ):
            # The voter marker must be on disk before this replica votes, and before it acknowledges its first
            # record as a voter.
            self._voter_marker.write(state.members.kraft_version)
        if effects.save_quorum_state is not None:
            self._state_writer.save(effects.save_quorum_state, effects.save_may_wait)
        if effects.save_membership_record is not None:
            self._membership_record_file.write(effects.save_membership_record)
        if effects.role is not None and not state.is_leader:
            self.proposals.clear()
        if effects.truncate_to is not None:
            self._syncer.wait()
            self._truncations += 1
            self.log.truncate_to(effects.truncate_to)
            self.delivery.truncated(effects.truncate_to)
            self._queue.append(Synced(self.log.end_offset))
        if effects.start_snapshot is not None:
            self._downloads.add(effects.start_snapshot)
        if effects.snapshot_chunk is not None:
            self._downloads.add(effects.snapshot_chunk)
        if effects.append_fetched is not None:
            self._append_fetched(effects.append_fetched)
        if effects.append_control is not None:
            self._append_control(effects.append_control)
        for answer in effects.answers:
            self._responder.answer(answer.token, answer.reply)  # type: ignore[arg-type]
        if effects.role is not None:
            self.meters.role(effects.role.role, self._clock.now())
            self._announce_leader()
        if effects.high_watermark is not None:
            self.meters.committed(effects.high_watermark, self._clock.now())
            self.delivery.committed(min(effects.high_watermark, self.log.end_offset))
        self._alarm.set(effects.wake_at)

    def _announce_leader(self) -> None:
        state = self.state
        now = (state.role, state.epoch, state.leader_id)
        if now == self._last_leader_change:
            return
        self._last_leader_change = now
        epoch_start = state.leading.epoch_start if state.leading is not None else None
        leader_id = None if state.role is Role.RESIGNED else state.leader_id
        self.delivery.leader_changed(LeaderAndEpoch(leader_id, state.epoch), epoch_start)

    def _append_control(self, records: list[tuple[int, Any]]) -> None:
        """Appends one batch of control records, after all records proposed so far."""
        if self.proposals.pending:
            self._append_proposals()
        batch, controls, data = self.log.control_batch(records, self.state.epoch, self._clock.now_ms())
        self.log.append(data, self._clock.now_ms())
        self.delivery.appended(batch)
        self.meters.leader_appended(batch.last_offset + 1, len(records), self._clock.now())
        self.proposals.reset(self.log.end_offset)
        self._queue.append(Appended(controls))
        self._start_sync()

    def _append_fetched(self, records: bytes | memoryview) -> None:
        try:
            # The record values of a small response are parsed here. The record values of a large response are
            # read from the log later, in slices, when they are delivered to the listeners.
            small = len(records) <= INLINE_PARSE_BYTES
            batches, controls = self.log.parse_fetched(records, small)
            if not batches:
                raise InvalidRecordError("no complete batch")
            check_fetched(self.state, batches, controls)
            self.log.append(memoryview(records)[: sum(b.size_bytes for b in batches)], self._clock.now_ms())
        except (CorruptRecordError, InvalidRecordError, DecodeError) as e:
            self._queue.append(FetchRejected(str(e)))
            return
        self.meters.fetched.record(batches[-1].last_offset + 1 - batches[0].base_offset, self._clock.now())
        if small:
            for batch in batches:
                self.delivery.appended(batch)
        else:
            self.delivery.restarted()
        self._queue.append(Appended(controls))
        self._start_sync()

    def _install(self, snapshot: OffsetEpoch) -> None:
        """Replaces the log with a downloaded snapshot, which is already durable."""
        if self.failure is not None:
            return None
        try:
            if self.state.is_leader:
                raise RaftError(f"elected while snapshot {tuple(snapshot)} was being installed")
            self._syncer.wait()
            self._truncations += 1
            head = self.log.install(snapshot)
        except Exception as e:
            return self.fail(e)
        self.delivery.restarted()
        return self.step(SnapshotInstalled(snapshot, head.voters, head.kraft_version))

    def _on_reply(self, out: Outgoing, reply: m.Reply | m.Failure) -> None:
        if self.failure is None:
            self.step(Replied(out.to, out.request, reply))

    def _on_receiving(self, address: Address) -> None:
        now = self._clock.now()
        if self.failure is None and now >= self._receiving_due.get(address, now):
            self._receiving_due[address] = now + self.config.fetch_timeout_s * RECEIVING_SHARE
            self.step(Receiving(address))

    # --- timers -----------------------------------------------------------------------------------

    def _check_peers(self) -> None:
        if self.failure is None:
            self._peer_monitor.check(self.state, self._transport, self._clock.now())

    def _on_alarm(self) -> None:
        if self.failure is None:
            self.step(Timeout())

    def _clean(self) -> None:
        """Deletes old snapshots by size and age. Deletes the log before the oldest remaining snapshot."""
        if self.failure is not None:
            return
        try:
            if self.log.clean(self._clock.now_ms(), self.delivery.hwm):
                self.state.members.trim_before(self.log.start_offset)
            following = self.state.following
            if following is None or following.snapshot is None:
                self._downloads.clean(self.log.end_offset)
        except (OSError, LogDirFailure) as e:
            self.fail(e)
