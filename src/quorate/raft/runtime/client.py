"""This process's replica of the metadata log, as the rest of the process sees it (`KafkaRaftClient`)."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from quorate.clock import Clock, LoopClock
from quorate.lazy import lazy_module
from quorate.metrics import Quantiles, quantiles
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Response
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.events import Abandoned, Received, Resign, UpgradeKraftVersion
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime.delivery import RaftListener
from quorate.raft.runtime.driver import RaftDriver
from quorate.raft.runtime.hang_ups import HangUps
from quorate.raft.runtime.interfaces import Transport
from quorate.raft.runtime.metrics import Metric, RaftMeters, ignored_static_voters, raft_metrics
from quorate.raft.runtime.responses import InboundRequest, UpgradeToken
from quorate.raft.runtime.transport import NetTransport
from quorate.raft.storage.metadata_log import MetadataLog
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.storage.recovery import recover_replica
from quorate.raft.storage.voter_marker import VoterMarker
from quorate.raft.types import Address, CommittedBatch, LeaderAndEpoch, NotLeaderError, OffsetEpoch, Role
from quorate.threads import in_thread

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext
    from quorate.raft.runtime.wire import requests
    from quorate.raft.storage.snapshots import writer as snapshot_writer
else:
    requests = lazy_module("quorate.raft.runtime.wire.requests")  # the only voter needs no messages
    snapshot_writer = lazy_module("quorate.raft.storage.snapshots.writer")

logger = logging.getLogger(__name__)


PRE_VOTE_PATIENCE_S = 0.015
"""How long a follower waits with the refusal of a pre-vote. The refused one repeats it after 20 to 50 ms."""


class RaftClient:
    """A voter, or the observer of a broker.

    Apart from `register`, its methods and properties may be used when `start` has returned.
    """

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
        self.driver: RaftDriver
        self._transport = transport
        self._clock: Clock = clock if clock is not None else LoopClock()
        self._rng = rng if rng is not None else random.Random()
        self._files = files
        self._directory = config.metadata_dir / f"{METADATA_TOPIC}-0"
        self._registered_early: list[RaftListener] = []
        self._hang_ups = HangUps(self._abandoned)
        self.routes: dict[int, Callable[[RequestContext, Any], Response | Awaitable[Response]]] = (
            dict.fromkeys(_ROUTES, self.handle)
        )

    # --- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the log and takes up the stored role.

        Raises OSError, SnapshotError, QuorumStateError, RaftError.
        """
        config, started = self.config, time.perf_counter()
        meters = RaftMeters(self._clock.now())
        state_file = QuorumStateFile(self._directory / "quorum-state", durable=config.is_controller)
        voter_marker = VoterMarker(config.metadata_dir, config.cluster_id, config.directory_id)
        recovered = await in_thread(
            recover_replica,
            config,
            self._directory,
            state_file,
            voter_marker,
            self._files,
            self._clock.now_ms(),
        )
        transport = self._transport
        if transport is None:
            transport = NetTransport(f"raft-client-{config.node_id}", config.request_timeout_s)
        self.driver = driver = RaftDriver(
            config,
            self._directory,
            recovered,
            state_file,
            voter_marker,
            transport,
            self._clock,
            self._rng,
            meters,
        )
        log = recovered.log
        logger.info(
            "[RaftClient id=%d] log from %d to %d (epoch %d), voters %s, opened in %.1f ms",
            config.node_id, log.start_offset, log.end_offset, log.last_epoch,
            [str(v.key) for v in recovered.members.current], (time.perf_counter() - started) * 1000,
        )  # fmt: skip
        driver.start()
        for listener in self._registered_early:
            driver.delivery.register(listener)
        self._registered_early.clear()
        driver.start_timers()

    @property
    def _started(self) -> bool:
        return hasattr(self, "driver")

    async def shutdown(self, timeout_s: float = 5.0) -> None:
        """Resigns if leading, waits up to `timeout_s` for another leader, and closes the log cleanly."""
        if self._started:
            await self.driver.close(timeout_s)

    @property
    def failure(self) -> BaseException | None:
        """The error that has stopped this replica, if any."""
        return self.driver.failure if self._started else None

    # --- the state machine's interface ------------------------------------------------------------

    def register(self, listener: RaftListener) -> None:
        """Delivers all committed records to `listener`, from the latest snapshot or the log start on."""
        if self._started:
            self.driver.delivery.register(listener)
        else:
            self._registered_early.append(listener)

    def unregister(self, listener: RaftListener) -> None:
        self.driver.delivery.unregister(listener)

    def append(self, epoch: int, values: Sequence[bytes], *, atomic: bool = True) -> int:
        """Proposes records and returns the offset of the last one.

        They will commit unless this replica loses leadership, which `on_leader_change` reports. With
        `atomic` they are in one batch. Raises NotLeaderError, BatchTooLargeError.
        """
        driver = self.driver
        state = driver.state
        if state.role is not Role.LEADER or epoch != state.epoch or driver.failure is not None:
            raise NotLeaderError(
                f"append in epoch {epoch}: this replica is {state.role.value} in epoch {state.epoch}"
            )
        return driver.propose(values, atomic)

    def resign(self, epoch: int, reason: str = "asked by the state machine") -> None:
        self.driver.step(Resign(epoch, reason))

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool = False) -> None:
        """Upgrades kraft.version, and returns when that is committed.

        Raises KafkaError with NOT_LEADER_OR_FOLLOWER or INVALID_UPDATE_VERSION.
        """
        token = UpgradeToken(asyncio.get_running_loop().create_future())
        self.driver.step(UpgradeKraftVersion(epoch, level, validate_only, token))
        await token.future

    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> OffsetEpoch | None:
        """Writes a snapshot of the state below `end_offset`, which is given as data batches.

        Adds the header, the voters and the footer. Returns None if an equal or newer snapshot exists, or
        has arrived meanwhile. Raises ValueError if the offset is not committed, is not at a batch
        boundary or is of another epoch; OSError.
        """
        driver, log = self.driver, self.log
        snapshot = OffsetEpoch(end_offset, epoch)
        if not log.may_snapshot(snapshot, driver.delivery.hwm):
            return None
        members = driver.state.members
        kraft, voters = members.kraft_version_at(end_offset - 1), members.voters_at(end_offset - 1)
        writer = log.snapshot_writer(snapshot)
        parts = log.snapshot_parts(snapshot, last_timestamp_ms, self._clock.now_ms(), kraft, voters, batches)
        await snapshot_writer.write_snapshot(writer, parts)
        if not log.add_snapshot(snapshot):
            return None
        logger.info(
            "[RaftClient id=%d] snapshot %s: %d bytes", self.config.node_id, tuple(snapshot), writer.size
        )
        return snapshot

    # --- requests of other nodes ------------------------------------------------------------------

    def handle(self, ctx: RequestContext, request: Any) -> Response | Awaitable[Response]:
        """Answers one of Raft's own requests. The state has changed when this returns, even if the
        response comes later."""
        if self.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata log is closed")
        decoded = requests.decode_request(request, ctx.api_version)
        if isinstance(decoded, Response):
            return decoded
        token = InboundRequest(request, ctx.api_version, ctx.listener)
        if isinstance(decoded, m.Vote) and decoded.pre_vote and self._fetches_in_epoch(decoded.epoch):
            return self._handle_pre_vote(decoded, token)
        self.driver.step(Received(decoded, token))
        if token.response is not None:
            return token.response
        token.future = asyncio.get_running_loop().create_future()
        if isinstance(decoded, m.AddVoter) and ctx.connection is not None:
            self._hang_ups.watch(ctx.connection, token, token.future)
        return token.future

    def _fetches_in_epoch(self, epoch: int) -> bool:
        """Whether this replica has contact with the leader of this epoch, as far as it knows."""
        state = self.driver.state
        f = state.following
        return state.epoch == epoch and f is not None and f.has_fetched

    async def _handle_pre_vote(self, vote: m.Vote, token: InboundRequest) -> Response:
        """Answers a pre-vote that this follower would refuse, unless it loses its leader in a moment.

        The connections of a leader that dies are reset one after the other. If the pre-vote of a voter that
        has noticed it arrives before the reset, a refusal would delay the election by another round.
        """
        await self.driver.until(lambda: not self._fetches_in_epoch(vote.epoch), PRE_VOTE_PATIENCE_S)
        if self.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata log is closed")
        self.driver.step(Received(vote, token))
        if token.response is None:
            token.future = asyncio.get_running_loop().create_future()
            return await token.future
        return token.response

    def _abandoned(self, token: m.Token) -> None:
        if self.failure is None:
            self.driver.step(Abandoned(token))

    # --- state ------------------------------------------------------------------------------------

    @property
    def core(self) -> Raft:
        return self.driver.core

    @property
    def log(self) -> MetadataLog:
        return self.driver.log

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self.driver.state.leader_and_epoch

    @property
    def epoch(self) -> int:
        return self.driver.state.epoch

    @property
    def is_leader(self) -> bool:
        return self.driver.state.is_leader

    @property
    def hears_leader(self) -> bool:
        """Whether this replica leads, or the leader has answered a Fetch within the fetch timeout."""
        state = self.driver.state
        f = state.following
        return state.is_leader or (f is not None and f.has_fetched and self._clock.now() < f.fetch_deadline)

    @property
    def high_watermark(self) -> int:
        """The offset below which records are known to be committed; 0 if none are."""
        return self.driver.delivery.hwm

    @property
    def snapshot_progress(self) -> tuple[int, int] | None:
        """The bytes of a snapshot that have been loaded, and its size, while one is loaded."""
        return self.driver.delivery.loading

    @property
    def delivered_offset(self) -> int:
        """The offset up to which all listeners have got the log; -1 if none has begun."""
        return self.driver.delivery.delivered

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record that is proposed."""
        return self.driver.proposals.next_offset if self.is_leader else self.log.end_offset

    @property
    def voters(self) -> VoterSet:
        return self.driver.state.voters

    @property
    def kraft_version(self) -> int:
        """The current level, committed or not."""
        return self.driver.state.members.kraft_version

    @property
    def kraft_version_finalised(self) -> int:
        """The committed level, which ApiVersions reports."""
        return self.driver.state.members.kraft_version_at(self.driver.delivery.hwm - 1)

    def leader_address(self, listener: str | None = None) -> Address | None:
        """The address of the leader's controller listener; None while no leader is known."""
        return self.driver.state.leader_address(
            listener if listener is not None else self.config.listener_name
        )

    def node_endpoints(self, listener: str) -> dict[int, Address]:
        """The address of every voter under one listener name."""
        state = self.driver.state
        out = {v.id: v.endpoints[listener] for v in state.voters if listener in v.endpoints}
        leader = self.leader_address(listener)
        if leader is not None and state.leader_id is not None:
            out[state.leader_id] = leader
        return out

    def latest_snapshot(self) -> OffsetEpoch | None:
        return self.log.latest_snapshot()

    # --- metrics ----------------------------------------------------------------------------------

    def metrics(self) -> list[Metric]:
        """The current values of Kafka's raft-metrics group (`KafkaRaftMetrics`, KIP-595, KIP-853)."""
        driver = self.driver
        return list(raft_metrics(driver.state, driver.log, self.config, driver.meters, self._clock.now()))

    def commit_latency_ms(self) -> Quantiles:
        """The times from append to commit of the batches of this leader."""
        meters = self.driver.meters
        rows = meters.commit_sample.rows(self._clock.now())
        return quantiles(meters.commits, [row[0] for row in rows])

    def broker_metrics(self) -> list[Metric]:
        """Raft's part of kafka.server:type=broker-metadata-metrics."""
        return [ignored_static_voters("ignored-static-voters", self.driver.state, self.config)]

    def controller_metrics(self) -> list[Metric]:
        """Raft's part of kafka.controller:type=KafkaController."""
        return [ignored_static_voters("IgnoredStaticVoters", self.driver.state, self.config)]


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
