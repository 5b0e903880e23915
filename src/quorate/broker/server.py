"""The broker role of a node: creates the parts of a broker, starts them, and closes them in order
(`BrokerServer` in Kafka)."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from quorate.broker.alter_log_dirs.manager import ReplicaAlterLogDirsManager
from quorate.broker.controller_channel import ControllerChannel, ControllerLocator
from quorate.broker.handlers import BrokerHandlers, Services
from quorate.broker.lifecycle import BrokerLifecycle, BrokerState
from quorate.broker.log_assignment import assigned_directory, is_stray, replicas_of
from quorate.broker.log_maintenance import LogMaintenance
from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.metadata.config_view import ConfigView
from quorate.broker.metadata.publisher import BrokerMetadataListener
from quorate.broker.replication.alter_partition import AlterPartitionManager
from quorate.broker.replication.directory_assignments import DirectoryAssignments
from quorate.broker.replication.fetch_session import FetchSessionCache, FetchSessions
from quorate.broker.replication.replica_manager import ReplicaManager
from quorate.broker.replication.replication_quota import ReplicationQuotas
from quorate.broker.topic_creation import TopicCreator
from quorate.clock import Clock, SystemClock
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS, parse_cordoned_dirs
from quorate.config.definitions import ConfigError
from quorate.lazy import lazy_module
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.metadata.features import (
    FIRST_CORDONED_DIRECTORIES,
    FIRST_DIRECTORIES,
    KRAFT_VERSION,
    supported_features,
)
from quorate.metadata.image import EMPTY, MetadataDelta
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import random_uuid

if TYPE_CHECKING:
    from quorate.broker.coordinators import service as coordinators
    from quorate.broker.replication.fetcher import replica_fetcher_manager
    from quorate.config.kafka_config import KafkaConfig
    from quorate.config.listeners import Endpoint
    from quorate.log.files import OpenFiles
    from quorate.metadata import snapshot_generator
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.shared_replay import SharedReplay
    from quorate.metadata.snapshot_generator import SnapshotGenerator
    from quorate.net import dispatch
    from quorate.net.dispatch import FeatureState
    from quorate.raft.runtime.client import RaftClient
else:
    snapshot_generator = lazy_module("quorate.metadata.snapshot_generator")
    dispatch = lazy_module("quorate.net.dispatch")
    coordinators = lazy_module("quorate.broker.coordinators.service")
    replica_fetcher_manager = lazy_module("quorate.broker.replication.fetcher.replica_fetcher_manager")

logger = logging.getLogger("quorate.broker.server")

_SESSION_EVICTION_MS = 120_000
"""A fetch session that was not used for two minutes may be evicted, as in Kafka."""
_OWN_UNFENCING_WAIT_S = 5.0
_CONTROLLERS_ONLY = frozenset({ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT})
"""APIs that a broker does not advertise and answers with NOT_CONTROLLER (KIP-631)."""
TOPIC, BROKER = 2, 4


class BrokerServer:
    """One broker. `routes` are its handlers by API key. The listeners must not be opened before `start` has
    returned. `on_fault` is called with an error after which the node must stop.
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
        self.clock = clock or SystemClock()
        self._on_fault_given = on_fault
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.directory_ids = dict(directory_ids)
        self.metadata = MetadataCache()
        self.snapshots = (
            None if config.is_controller else self._emitter()
        )  # a combined node's controller writes them
        self.publisher = BrokerMetadataListener(
            self.node_id, self.metadata, loop, self._fault, replay, self.snapshots
        )
        self._view = ConfigView(config, lambda: self.publisher.image, warns=True)
        self._config_listeners: list[Callable[[], None]] = []
        self.logs = LogManager(
            list(config.log_dirs),
            self._view.log_defaults(),
            files,
            now_ms=self.clock.now_ms,
            directory_ids=self.directory_ids,
        )
        self._locator = ControllerLocator(self._find_controller, loop)
        self.publisher.on_leader(self._locator.leader_changed)
        self._channels: list[ControllerChannel] = []
        self.channel = self._new_channel("forwarding")
        self.isr_changes = AlterPartitionManager(
            self.node_id, self._new_channel("alter-partition"), lambda: self.lifecycle.broker_epoch, loop
        )
        self.assignments = DirectoryAssignments(
            self.node_id,
            self._new_channel("directory-assignments"),
            lambda: self.lifecycle.broker_epoch,
            loop,
        )
        self.replicas = ReplicaManager(
            node_id=self.node_id,
            metadata=self.metadata,
            logs=self.logs,
            clock=self.clock,
            loop=loop,
            replica_lag_max_s=config.get("replica.lag.time.max.ms") / 1000,
            isr_sender=self.isr_changes,
            make_fetchers=self._make_fetchers,
            storage_failed=self._storage_failed,
            assign_directory=self._assign_directory,
            directory_id_of=self.directory_ids.__getitem__,
            quotas=ReplicationQuotas(self.node_id, config),
        )
        self.moves = ReplicaAlterLogDirsManager(config, self.replicas, self.logs)
        self.creator = TopicCreator(config, self.channel, self.publisher, loop)
        self.sessions = FetchSessions(
            FetchSessionCache(
                config.get("max.incremental.fetch.session.cache.slots"),
                _SESSION_EVICTION_MS,
                lambda: SystemRandom().randint(1, 0x7FFFFFFF),
            ),
            self.metadata.topic_name,
        )
        self.lifecycle = BrokerLifecycle(
            config,
            self._new_channel("heartbeat"),
            self.publisher,
            cluster_id=cluster_id,
            incarnation_id=random_uuid(),
            directory_ids=[self.directory_ids[d] for d in config.log_dirs if d in self.directory_ids],
            features=supported_features(),
            previous_broker_epoch=self.logs.previous_broker_epoch,
            start_time_ms=start_time_ms if start_time_ms is not None else self.clock.now_ms(),
            on_fault=self._fault,
            loop=loop,
            cordoned_directories=self._cordoned_ids,
        )
        self._loading: asyncio.Future[list[LogDirFailure]] | None = None
        self.logs_opened: dict[Path, tuple[int, int]] = {}
        """How many logs of each directory have been opened, and how many there are. For `/health`."""
        self._upkeep = LogMaintenance(config, self.logs, self.replicas, self._storage_failed, loop)
        self.coordinators = coordinators.CoordinatorService(
            config, self.replicas, self.metadata, self.creator, self.channel, self.clock
        )
        handlers = BrokerHandlers(
            Services(
                config=config,
                cluster_id=cluster_id,
                node_id=self.node_id,
                metadata=self.metadata,
                replicas=self.replicas,
                logs=self.logs,
                sessions=self.sessions,
                channel=self.channel,
                creator=self.creator,
                moves=self.moves,
                clock=self.clock,
                loop=loop,
            )
        )
        self.routes, self.frame_routes = handlers.routes, handlers.frame_routes
        for key in _CONTROLLERS_ONLY:
            self.routes[int(key)] = _not_controller
        self.routes.update(self.coordinators.routes)
        self.frame_routes.update(self.coordinators.frame_routes)

    # --- queries ----------------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """The state of the broker."""
        return self.lifecycle.state

    def features(self) -> FeatureState:
        """The features for ApiVersions: those that this node supports, and those that are finalized in this
        broker's metadata."""
        image = self.metadata.image
        finalized = dict(image.features.finalized)
        kraft_version = self._raft.kraft_version_finalised
        if kraft_version > 0:
            finalized[KRAFT_VERSION] = kraft_version
        return dispatch.FeatureState(
            supported=[
                dispatch.FeatureRange(name, low, high)
                for name, (low, high) in sorted(supported_features().items())
            ],
            finalized=[dispatch.FeatureLevel(name, level) for name, level in sorted(finalized.items())],
            epoch=image.provenance.offset,
        )

    def narrow(self, api_key: int, low: int, high: int) -> tuple[int, int] | None:
        """The versions of an API for ApiVersions, or None. Those of a forwarded API are limited to the active
        controller's."""
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

    def _emitter(self) -> SnapshotGenerator:
        get = self._config.get
        return snapshot_generator.SnapshotGenerator(
            self._raft,
            self.node_id,
            max_bytes=get("metadata.log.max.record.bytes.between.snapshots"),
            interval_s=get("metadata.log.max.snapshot.interval.ms") / 1000,
            now_ms=self.clock.now_ms,
        )

    async def start(self, advertised: Iterable[Endpoint]) -> None:
        """Registers, catches up, recovers the logs, and returns when the controller has unfenced this broker.

        Raises TimeoutError (no controller), KafkaError or OSError (logs), CancelledError (shutdown).
        """
        self._raft.register(self.publisher)
        self.lifecycle.start(advertised)
        await self.lifecycle.caught_up
        self.subscribe_configs(self._update_cordoned)
        await self._load_logs()
        self._take_over(self.publisher.start_publishing())
        self.moves.resume()
        self.publisher.subscribe("topic configurations", self._configs_changed)
        self.publisher.subscribe("replication quotas", self.replicas.quotas.apply_delta)
        self.publisher.subscribe("replica manager", self.replicas.apply_delta)
        self.publisher.subscribe("registration", self._registration_changed)
        self.publisher.subscribe("coordinators", self.coordinators.apply_delta)
        await self.coordinators.start()
        # The last subscriber: all others have applied the offset that a heartbeat reports.
        self.publisher.subscribe("lifecycle", self.lifecycle.metadata_applied)
        self._upkeep.start()
        self.lifecycle.request_unfence()
        await self.lifecycle.unfenced
        me = self.node_id
        # Clients must find this broker in its own responses.
        await self.publisher.wait_until(
            lambda image: (broker := image.cluster.brokers.get(me)) is not None and not broker.fenced,
            _OWN_UNFENCING_WAIT_S,
        )
        listener = self._config.controller_listener_names[0]
        self.channel.keep_warm(lambda: self._raft.node_endpoints(listener).values())

    @property
    def recovery_threads(self) -> int:
        """The number of logs of a directory that the next unclean start recovers at the same time."""
        return int(self.config_value("num.recovery.threads.per.data.dir") or 1)

    async def _load_logs(self) -> None:
        """Opens the logs on disk (RECOVERY) in a thread, so that Raft and heartbeats continue."""
        started = self.clock.now()
        image = self.publisher.image
        self.logs.reconfigure({}, self._view.log_defaults())
        last_told = started

        def progress(directory: Path, done: int, found: int) -> None:
            nonlocal last_told
            self.logs_opened[directory] = (done, found)
            now = self.clock.now()
            if now - last_told >= 1.0:
                last_told = now
                logger.info(
                    "[BrokerServer id=%d] %d of %d logs of %s opened", self.node_id, done, found, directory
                )

        def load() -> list[LogDirFailure]:
            return self.logs.load(
                overrides_of=image.configs.topic,
                progress=progress,
                is_stray=functools.partial(is_stray, image, self.node_id),
                assigned_directory=functools.partial(assigned_directory, image, self.node_id),
                threads=self.recovery_threads,
            )

        self._loading = self._loop.run_in_executor(None, load)
        failures = await asyncio.shield(self._loading)
        for failure in failures:
            self._report_directory(failure)
        self._configs_changed(MetadataDelta(image, self.publisher.image))
        logger.info(
            "[BrokerServer id=%d] Opened %d logs in %d ms",
            self.node_id,
            len(self.logs),
            (self.clock.now() - started) * 1000,
        )

    def _take_over(self, image: MetadataImage) -> None:
        """Deletes stray logs and starts the replicas that the metadata assigns to this broker."""

        def wants_name(topic: str, partition: int) -> bool:
            known = image.topics.by_name.get(topic)
            return known is not None and self.node_id in replicas_of(known.partitions.get(partition))

        strays = self.logs.delete_strays(
            functools.partial(is_stray, image, self.node_id), wants_name, self._storage_failed
        )
        # `directory_ids` may also have the id of a separate metadata directory.
        readable = [directory for directory in self._config.log_dirs if directory in self.directory_ids]
        if len(readable) < len(self._config.log_dirs):
            self.replicas.directories.online = frozenset(self.directory_ids[path] for path in readable)
        # Before the replicas are started: a directory that could not be loaded is not a replaced disk.
        for directory in self._config.log_dirs:
            if not self.logs.is_online(directory):
                self.replicas.directories.has_unread = True
                self.replicas.go_offline((), self.directory_ids.get(directory))
        self.replicas.quotas.apply_delta(MetadataDelta(EMPTY, image))
        self.replicas.apply_image(image)
        logger.info(
            "[BrokerServer id=%d] Hosting %d partitions; %d logs of deleted topics removed",
            self.node_id,
            len(self.replicas.partitions),
            strays,
        )

    # --- metadata ---------------------------------------------------------------------------------

    def config_value(self, name: str) -> str | None:
        """The effective value of a broker key: dynamic, from the properties file, or default."""
        return self._view.broker_value(name)

    def subscribe_configs(self, listener: Callable[[], None]) -> None:
        """Calls `listener` now, and whenever dynamic configurations of this broker have changed."""
        self._config_listeners.append(listener)
        listener()

    def _configs_changed(self, delta: MetadataDelta) -> None:
        changed = delta.configs_changed
        if not changed:
            return
        topics = {name: delta.new.configs.topic(name) for kind, name in changed if kind == TOPIC}
        mine = any(kind == BROKER and name in ("", str(self.node_id)) for kind, name in changed)
        self.logs.reconfigure(topics, self._view.log_defaults() if mine else None)
        if mine:
            for listener in self._config_listeners:
                listener()

    def _update_cordoned(self) -> None:
        """Takes the cordoned log directories from the configuration, and reports a change of them."""
        try:
            cordoned = frozenset(
                parse_cordoned_dirs(self.config_value(CORDONED_LOG_DIRS) or "", self._config.log_dirs)
            )
        except ConfigError as error:  # a controller cannot check the paths
            logger.warning("[BrokerServer id=%d] Ignoring a dynamic config: %s", self.node_id, error)
            return
        if cordoned != self.logs.cordoned:
            self.logs.cordoned = cordoned
            self.lifecycle.send_heartbeat()

    def _cordoned_ids(self) -> list[bytes] | None:
        """The ids of the cordoned log directories, or None if metadata.version does not support them."""
        if self.publisher.image.features.metadata_version < FIRST_CORDONED_DIRECTORIES:
            return None
        return [id_ for directory, id_ in self.directory_ids.items() if directory in self.logs.cordoned]

    def _assign_directory(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Reports the directory of a replica, if metadata.version supports directories (KIP-858)."""
        if self.publisher.image.features.metadata_version >= FIRST_DIRECTORIES:
            self.assignments.submit(topic_id, partition, directory_id)

    def _registration_changed(self, delta: MetadataDelta) -> None:
        """Registers again when metadata.version has come to support log directories, to report them."""
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
        """Runs a controlled shutdown if the broker is running, closes everything, and marks the logs clean.

        `stop_serving` closes the listeners. It is called when the leaderships have moved, before the logs
        are closed.
        """
        self.replicas.is_shutting_down = True
        self.lifecycle.begin_controlled_shutdown()
        try:
            async with asyncio.timeout(controlled_timeout_s):
                await asyncio.shield(self.lifecycle.may_stop)
        except TimeoutError:
            logger.warning(
                "[BrokerServer id=%d] The controller did not finish the controlled shutdown in time",
                self.node_id,
            )
        self.replicas.accepts_appends = False
        if stop_serving is not None:
            await stop_serving()
        await self.lifecycle.close()
        if self._loading is not None:
            # The thread cannot be stopped, and the logs that it opens must be closed below.
            await asyncio.wait([self._loading])
        self._raft.unregister(self.publisher)
        if self.snapshots is not None:
            await self.snapshots.close()
        await self.coordinators.close()
        await self._upkeep.close()
        await self.moves.close()
        if self.replicas.fetchers is not None:
            await self.replicas.fetchers.close()
        await self.isr_changes.close()
        await self.assignments.close()
        for channel in self._channels:
            channel.close()
        # In a thread, as flushing may take long, and this node's controller may still lead the quorum.
        epoch = self.lifecycle.broker_epoch
        await self._loop.run_in_executor(None, lambda: self.logs.close(broker_epoch=epoch))

    # --- helpers ----------------------------------------------------------------------------------

    def _new_channel(self, name: str) -> ControllerChannel:
        channel = ControllerChannel(
            name, self._locator, client_id=str(self.node_id), publisher=self.publisher, loop=self._loop
        )
        self._channels.append(channel)
        return channel

    def _make_fetchers(self, replicas: ReplicaManager) -> replica_fetcher_manager.Fetchers:
        return replica_fetcher_manager.ReplicaFetcherManager(
            self._config, replicas, lambda: self.lifecycle.broker_epoch, self._loop
        )

    def _find_controller(self) -> tuple[int, str, int] | None:
        leader = self._raft.leader_and_epoch.leader_id
        address = self._raft.leader_address()
        return None if leader is None or address is None else (leader, address[0], address[1])

    def _storage_failed(self, failure: LogDirFailure) -> None:
        """Takes the partitions of a failed directory offline. The broker stops if it was the last one."""
        directory = Path(failure.directory)
        if not self.logs.is_online(directory):
            return
        logger.error("[BrokerServer id=%d] Log directory %s failed: %s", self.node_id, directory, failure)
        self.replicas.go_offline(self.logs.mark_offline(directory), self.directory_ids[directory])
        self.moves.directory_failed(directory)
        self._report_directory(failure)

    def _report_directory(self, failure: LogDirFailure) -> None:
        if not self.logs.online_dirs():
            self._fault(failure)
        else:
            self.lifecycle.directory_failed(self.directory_ids[Path(failure.directory)])

    def _fault(self, error: BaseException) -> None:
        logger.error("[BrokerServer id=%d] Cannot continue: %s", self.node_id, error)
        if self._on_fault_given is not None:
            self._on_fault_given(error)


def _not_controller(_context: Any, _request: Any) -> Any:
    raise KafkaError(
        ErrorCode.NOT_CONTROLLER, "Registrations and heartbeats go to the active controller, not to a broker."
    )
