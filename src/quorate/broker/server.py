"""The broker role of a node: wires this room together, takes it through its states, and closes it in
order."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.broker.clock import Clock, SystemClock
from quorate.broker.controller_channel import ControllerChannel, ControllerLocator
from quorate.broker.handlers import BrokerHandlers, Services
from quorate.broker.lifecycle import BrokerLifecycle, BrokerState
from quorate.broker.log_maintenance import LogMaintenance
from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.metadata.config_view import ConfigView
from quorate.broker.metadata.publisher import BrokerMetadataListener
from quorate.broker.replication.alter_partition import AlterPartitionManager
from quorate.broker.replication.directory_assignments import DirectoryAssignments
from quorate.broker.replication.fetch_session import FetchSessionCache, FetchSessions
from quorate.broker.replication.replica_manager import FollowerFetching, ReplicaManager
from quorate.broker.topic_creation import TopicCreator
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.metadata.features import FIRST_DIRECTORIES, KRAFT_VERSION, supported_features
from quorate.metadata.image import MetadataDelta
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import random_uuid

if TYPE_CHECKING:
    from quorate.config.kafka_config import KafkaConfig
    from quorate.config.listeners import Endpoint
    from quorate.log.files import OpenFiles
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.shared_replay import SharedReplay
    from quorate.metadata.snapshot_emitter import SnapshotEmitter
    from quorate.net.dispatch import FeatureState, Handler
    from quorate.raft.runtime.client import RaftClient

log_ = logging.getLogger("quorate.broker.server")

_SESSION_EVICTION_MS = 120_000
"""A fetch session unused for two minutes may be pushed out, as in Kafka."""
_SEES_ITSELF_S = 5.0
_CONTROLLERS_ONLY = frozenset({ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT})
"""Answered with NOT_CONTROLLER where they reach a broker, and not advertised (KIP-631)."""
TOPIC, BROKER = 2, 4


class BrokerServer:
    """One broker. `routes` are there from the beginning; whoever serves them opens the listeners when
    `start` has returned.

    `on_fault` is told what this broker cannot go on with: the node has to stop.
    """

    def __init__(
        self,
        config: KafkaConfig,
        raft: RaftClient,
        *,
        cluster_id: str,
        directory_ids: Mapping[Path, bytes],
        files: OpenFiles,
        clock: Clock | None = None,
        start_time_ms: int | None = None,
        on_fault: Callable[[BaseException], None] | None = None,
        replay: SharedReplay | None = None,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._config = config
        self._raft = raft
        self._clock = clock or SystemClock()
        self._on_fault_given = on_fault
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.directory_ids = dict(directory_ids)
        self.metadata = MetadataCache()
        self._snapshots = (
            None if config.is_controller else self._emitter()
        )  # a combined node's controller writes them
        self._publisher = BrokerMetadataListener(
            self.node_id, self.metadata, loop, self._fault, replay, self._snapshots
        )
        self._view = ConfigView(config, lambda: self._publisher.image)
        self.configs_changed: Callable[[], None] | None = None
        """Told when dynamic configurations of this broker have changed."""
        self.logs = LogManager(
            list(config.log_dirs),
            self._view.log_defaults(),
            files,
            now_ms=self._clock.now_ms,
            directory_ids=self.directory_ids,
        )
        self._locator = ControllerLocator(self._find_controller, loop)
        self._publisher.on_leader(self._locator.leader_changed)
        self._channels: list[ControllerChannel] = []
        self.channel = self._new_channel("forwarding")
        self.replicas = ReplicaManager(
            node_id=self.node_id,
            metadata=self.metadata,
            logs=self.logs,
            clock=self._clock,
            loop=loop,
            replica_lag_max_s=config.get("replica.lag.time.max.ms") / 1000,
        )
        self.creator = TopicCreator(config, self.channel, self._publisher, loop)
        self.replicas.create_topic = self.creator.create
        sessions = FetchSessions(
            FetchSessionCache(
                config.get("max.incremental.fetch.session.cache.slots"),
                _SESSION_EVICTION_MS,
                lambda: secrets.randbelow(0x7FFFFFFF) + 1,
            ),
            self.metadata.topic_name,
        )
        self.lifecycle = BrokerLifecycle(
            config,
            self._new_channel("heartbeat"),
            self._publisher,
            cluster_id=cluster_id,
            incarnation_id=random_uuid(),
            directory_ids=[self.directory_ids[d] for d in config.log_dirs if d in self.directory_ids],
            features=supported_features(),
            previous_broker_epoch=self.logs.previous_broker_epoch,
            start_time_ms=start_time_ms if start_time_ms is not None else self._clock.now_ms(),
            snapshot_end_offset=self._snapshot_end_offset,
            on_fault=self._fault,
            loop=loop,
        )
        self._isr_sender = AlterPartitionManager(
            self.node_id, self._new_channel("alter-partition"), lambda: self.lifecycle.broker_epoch, loop
        )
        self.replicas.isr_sender = self._isr_sender
        self.replicas.make_fetchers = self._make_fetchers
        self._assignments = DirectoryAssignments(
            self.node_id,
            self._new_channel("directory-assignments"),
            lambda: self.lifecycle.broker_epoch,
            loop,
        )
        self.replicas.assign_directory = self._assign_directory
        self.replicas.directory_id_of = self.directory_ids.__getitem__
        self.replicas.storage_failed = self._storage_failed
        self._loading: asyncio.Future[list[LogDirFailure]] | None = None
        self._upkeep = LogMaintenance(config, self.logs, self.replicas, self._storage_failed, loop)
        self._groups: Any = None
        self.routes: dict[int, Handler] = BrokerHandlers(
            Services(
                config=config,
                cluster_id=cluster_id,
                node_id=self.node_id,
                metadata=self.metadata,
                replicas=self.replicas,
                logs=self.logs,
                sessions=sessions,
                channel=self.channel,
                creator=self.creator,
                clock=self._clock,
                loop=loop,
            )
        ).routes
        for key in _CONTROLLERS_ONLY:
            self.routes[int(key)] = _not_controller
        self._add_groups()

    def _add_groups(self) -> None:
        from quorate.broker.coordinators import GroupService

        self._groups = GroupService(self._config, self.replicas, self.metadata, self.channel, self._clock)
        self.routes.update(self._groups.routes)

    # --- what others ask --------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    def features(self) -> FeatureState:
        """For ApiVersions: what is supported here, and what is finalised as of the metadata that this
        broker has."""
        from quorate.net.dispatch import FeatureLevel, FeatureRange, FeatureState

        image = self.metadata.image
        finalized = dict(image.features.finalized)
        kraft_version = self._raft.kraft_version_finalised
        if kraft_version > 0:
            finalized[KRAFT_VERSION] = kraft_version
        return FeatureState(
            supported=[
                FeatureRange(name, low, high) for name, (low, high) in sorted(supported_features().items())
            ],
            finalized=[FeatureLevel(name, level) for name, level in sorted(finalized.items())],
            epoch=image.provenance.offset,
        )

    def narrow(self, api_key: int, low: int, high: int) -> tuple[int, int] | None:
        """For ApiVersions: of what is forwarded, only what the active controller takes too."""
        if api_key in _CONTROLLERS_ONLY:
            return None
        known = self.channel.api_versions
        if known is None or not REGISTRY[api_key].forwardable:
            return low, high
        theirs = known.get(api_key)
        if theirs is None:
            return None
        low, high = max(low, theirs[0]), min(high, theirs[1])
        return (low, high) if low <= high else None

    # --- start ------------------------------------------------------------------------------------

    def _emitter(self) -> SnapshotEmitter:
        from quorate.metadata.snapshot_emitter import SnapshotEmitter

        get = self._config.get
        return SnapshotEmitter(
            self._raft,
            self.node_id,
            max_bytes=get("metadata.log.max.record.bytes.between.snapshots"),
            interval_s=get("metadata.log.max.snapshot.interval.ms") / 1000,
            now_ms=self._clock.now_ms,
        )

    async def start(self, advertised: Iterable[Endpoint]) -> None:
        """Registers, catches up, recovers the logs, and returns when the controller has unfenced this broker.

        Raises what makes it impossible: TimeoutError (no controller), KafkaError or OSError (logs),
        CancelledError when it is shut down meanwhile.
        """
        self._raft.register(self._publisher)
        self.lifecycle.start(advertised)
        await self.lifecycle.caught_up
        await self._load_logs()
        self._take_over(self._publisher.start_publishing())
        self._publisher.subscribe("topic configurations", self._configs_changed)
        self._publisher.subscribe("replica manager", self.replicas.apply_delta)
        self._publisher.subscribe("registration", self._registration_changed)
        if self._groups is not None:
            self._publisher.subscribe("group coordinator", self._groups.apply_delta)
            await self._groups.start()
        # The last one: what a heartbeat reports has been applied by all others.
        self._publisher.subscribe("lifecycle", self.lifecycle.metadata_applied)
        self._upkeep.start()
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.unfenced
        me = self.node_id
        # Clients that come now must find this broker in its own answers.
        await self._publisher.wait_until(
            lambda image: (broker := image.cluster.brokers.get(me)) is not None and not broker.fenced,
            _SEES_ITSELF_S,
        )
        listener = self._config.controller_listener_names[0]
        self.channel.keep_warm(lambda: self._raft.node_endpoints(listener).values())

    async def _load_logs(self) -> None:
        """RECOVERY: opens the logs on disk in a thread, so that Raft and heartbeats go on meanwhile."""
        started = self._clock.now()
        image = self._publisher.image
        self.logs.reconfigure_defaults(self._view.log_defaults())
        last_told = started

        def progress(directory: Path, done: int, found: int) -> None:
            nonlocal last_told
            now = self._clock.now()
            if now - last_told >= 1.0:
                last_told = now
                log_.info(
                    "[BrokerServer id=%d] %d of %d logs of %s opened", self.node_id, done, found, directory
                )

        def load() -> list[LogDirFailure]:
            return self.logs.load(
                overrides_of=image.configs.topic,
                progress=progress,
                is_stray=functools.partial(_is_stray, image, self.node_id),
            )

        self._loading = self._loop.run_in_executor(None, load)
        failures = await asyncio.shield(self._loading)
        for failure in failures:
            self._report_directory(failure)
        self._configs_changed(MetadataDelta(image, self._publisher.image))
        log_.info(
            "[BrokerServer id=%d] Opened %d logs in %d ms",
            self.node_id,
            len(self.logs),
            (self._clock.now() - started) * 1000,
        )

    def _take_over(self, image: MetadataImage) -> None:
        """Deletes the logs whose topic is gone, takes over the replicas that the metadata gives to this
        broker."""

        def wants_name(topic: str, partition: int) -> bool:
            known = image.topics.by_name.get(topic)
            return known is not None and self.node_id in _replicas(known.partitions.get(partition))

        strays = self.logs.delete_strays(functools.partial(_is_stray, image, self.node_id), wants_name)
        # The metadata directory, which may be one more, has an id as well.
        readable = [directory for directory in self._config.log_dirs if directory in self.directory_ids]
        if len(readable) < len(self._config.log_dirs):
            self.replicas.online_directories = frozenset(
                self.directory_ids[directory] for directory in readable
            )
        # Before the replicas are taken over: those in a directory that could not be loaded are not
        # those of a replaced disk.
        for directory in self._config.log_dirs:
            if not self.logs.is_online(directory):
                self.replicas.go_offline((), self.directory_ids.get(directory))
        self.replicas.apply_image(image)
        log_.info(
            "[BrokerServer id=%d] Hosting %d partitions; %d logs of deleted topics removed",
            self.node_id,
            len(self.replicas.partitions),
            strays,
        )

    # --- metadata ---------------------------------------------------------------------------------

    def config_value(self, name: str) -> str | None:
        """A key of this broker as it is in force now: dynamic, or from its properties file, or the
        default."""
        return self._view.broker_value(name)

    def _configs_changed(self, delta: MetadataDelta) -> None:
        changed = delta.configs_changed
        if not changed:
            return
        topics = {name for kind, name in changed if kind == TOPIC}
        if any(kind == BROKER and name in ("", str(self.node_id)) for kind, name in changed):
            self.logs.reconfigure_defaults(self._view.log_defaults())
            topics.update(log.topic for log in self.logs.all_logs())
            if self.configs_changed is not None:
                self.configs_changed()
        for name in topics:
            self.logs.reconfigure(name, delta.new.configs.topic(name))

    def _assign_directory(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Below that metadata.version the controller knows no directories and refuses the request."""
        if self._publisher.image.features.metadata_version >= FIRST_DIRECTORIES:
            self._assignments.submit(topic_id, partition, directory_id)

    def _registration_changed(self, delta: MetadataDelta) -> None:
        """A registration from before metadata.version knew log directories is sent again with them."""
        if delta.new.features.metadata_version < FIRST_DIRECTORIES or not (
            delta.features_changed or self.node_id in delta.brokers_changed
        ):
            return
        mine = delta.new.cluster.brokers.get(self.node_id)
        if mine is not None and mine.epoch == self.lifecycle.broker_epoch and not mine.log_dirs:
            self.lifecycle.resend_registration()

    # --- shutdown ---------------------------------------------------------------------------------

    async def shutdown(
        self,
        controlled_timeout_s: float = 300.0,
        *,
        stop_serving: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Controlled shutdown where the broker runs, then everything is closed and the logs are marked clean.

        stop_serving closes the listeners: clients are served until the leaderships have moved, and not
        while logs close.
        """
        self.replicas.is_shutting_down = True
        self.lifecycle.begin_controlled_shutdown()
        try:
            async with asyncio.timeout(controlled_timeout_s):
                await asyncio.shield(self.lifecycle.may_stop)
        except TimeoutError:
            log_.warning(
                "[BrokerServer id=%d] The controller did not finish the controlled shutdown in time",
                self.node_id,
            )
        self.replicas.accepts_appends = False
        if stop_serving is not None:
            await stop_serving()
        await self.lifecycle.close()
        if self._loading is not None:
            await asyncio.wait(
                [self._loading]
            )  # a thread cannot be stopped; what it opens has to be closed in order
        self._raft.unregister(self._publisher)
        if self._snapshots is not None:
            await self._snapshots.close()
        if self._groups is not None:
            await self._groups.close()
        await self._upkeep.close()
        if self.replicas.fetchers is not None:
            await self.replicas.fetchers.close()
        await self._isr_sender.close()
        await self._assignments.close()
        for channel in self._channels:
            channel.close()
        # In a thread: flushing takes long on a slow disk, and this node's controller may still lead the
        # quorum.
        epoch = self.lifecycle.broker_epoch
        await self._loop.run_in_executor(None, lambda: self.logs.close(broker_epoch=epoch))

    # --- helpers ----------------------------------------------------------------------------------

    def _new_channel(self, name: str) -> ControllerChannel:
        channel = ControllerChannel(
            name, self._locator, client_id=str(self.node_id), publisher=self._publisher, loop=self._loop
        )
        self._channels.append(channel)
        return channel

    def _make_fetchers(self) -> FollowerFetching:
        from quorate.broker.replication.replica_fetcher import ReplicaFetchers

        return ReplicaFetchers(self._config, self.replicas, lambda: self.lifecycle.broker_epoch, self._loop)

    def _find_controller(self) -> tuple[int, str, int] | None:
        leader = self._raft.leader_and_epoch.leader_id
        address = self._raft.leader_address()
        return None if leader is None or address is None else (leader, address[0], address[1])

    def _snapshot_end_offset(self) -> int:
        latest = self._raft.latest_snapshot()
        return -1 if latest is None else latest.offset

    def _storage_failed(self, failure: LogDirFailure) -> None:
        """A directory broke: its partitions go offline, the others go on; without any directory left
        the broker stops."""
        directory = Path(failure.directory)
        if not self.logs.is_online(directory):
            return
        log_.error("[BrokerServer id=%d] Log directory %s failed: %s", self.node_id, directory, failure)
        self.replicas.go_offline(self.logs.mark_offline(directory), self.directory_ids[directory])
        self._report_directory(failure)

    def _report_directory(self, failure: LogDirFailure) -> None:
        if not self.logs.online_dirs():
            self._fault(failure)
        else:
            self.lifecycle.directory_failed(self.directory_ids[Path(failure.directory)])

    def _fault(self, error: BaseException) -> None:
        log_.error("[BrokerServer id=%d] Cannot go on: %s", self.node_id, error)
        if self._on_fault_given is not None:
            self._on_fault_given(error)


def _not_controller(_context: Any, _request: Any) -> Any:
    raise KafkaError(
        ErrorCode.NOT_CONTROLLER,
        "This is a broker: registrations and heartbeats go to the active controller.",
    )


def _is_stray(image: MetadataImage, node_id: int, topic: str, partition: int, topic_id: bytes | None) -> bool:
    """Whether the metadata gives this log to no broker, or to another one."""
    found = image.topics.by_name.get(topic) if topic_id is None else image.topics.by_id.get(topic_id)
    return found is None or node_id not in _replicas(found.partitions.get(partition))


def _replicas(partition: Any) -> tuple[int, ...]:
    return () if partition is None else partition.replicas
