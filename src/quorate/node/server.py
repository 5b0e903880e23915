"""Starts and stops the parts of a node: directories, Raft replica, controller, broker and listeners.

The order of the start is:

1. All sockets are bound, so that a busy port ends the start before anything is changed. /metrics and
   /health accept requests.
2. The log directories are locked and checked.
3. The Raft replica opens the metadata log.
4. The controller starts, and its listeners accept requests.
5. The broker registers, catches up with the metadata and recovers its logs, and its listeners
   accept requests.

The stop is in reverse order, except that the controller listeners stay open until Raft has stopped. The
broker stops by a controlled shutdown, during which its listeners still accept requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate import __version__
from quorate.config.dynamic_configs import NO_DYNAMIC_CONFIGS, effective_value
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.lazy import lazy_module, lazy_modules
from quorate.log.errors import trace_of
from quorate.log.files import OpenFiles
from quorate.metadata.shared_replay import SharedReplay
from quorate.net.dispatch import Dispatcher, ListenerKind, ServerIdentity
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.node.connection_limits import NodeLimits
from quorate.node.log_directories import LogDirectories
from quorate.node.monitoring.health import Stage, StartupProgress, current_stage, not_ready_reason
from quorate.node.process_setup import (
    disable_garbage_collection,
    enable_garbage_collection,
    log_file_cache_size,
    raise_open_file_limit,
)
from quorate.node.raft_config import raft_config
from quorate.node.unsupported_configs import check_supported
from quorate.protocol.uuids import random_uuid, uuid_text
from quorate.raft.runtime.client import RaftClient

if TYPE_CHECKING:
    from quorate.broker import lifecycle as broker_lifecycle
    from quorate.broker import server as broker_server
    from quorate.controller import config as controller_config
    from quorate.controller import driver as controller_driver
    from quorate.metadata import bootstrap
    from quorate.node.http import endpoint as http_endpoint
    from quorate.node.monitoring import metric_sources
else:  # a node imports only its own roles
    broker_lifecycle, broker_server = lazy_modules("quorate.broker", "lifecycle", "server")
    controller_config, controller_driver = lazy_modules("quorate.controller", "config", "driver")
    bootstrap = lazy_module("quorate.metadata.bootstrap")
    metric_sources = lazy_module("quorate.node.monitoring.metric_sources")
    http_endpoint = lazy_module("quorate.node.http.endpoint")

logger = logging.getLogger(__name__)

ENVELOPE_BYTES = 65_536
"""The room for the fields that an Envelope adds to a request that a broker has accepted. (Kafka's controllers
refuse such an Envelope each time that the broker sends it again.)"""

_LISTENER_GRACE_S = 2.0
"""How long a listener that closes waits for the responses to pending requests."""

_CONTROLLED_SHUTDOWN_S = 300.0
"""How long a controlled shutdown waits for the controller to move the leaderships. Kafka waits as long."""

_RAFT_HANDOVER_S = 5.0
"""How long a leader that resigns waits until another replica is elected."""

_LEADERLESS_S = 1.5
"""How long a broker that stops waits for a leader of the quorum. An election takes less than a second."""


class KafkaServer:
    """A Kafka node: a broker, a controller or both.

    `fault` completes with the error when the node cannot continue. The caller then calls `shutdown`.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.cluster_id = ""
        self.raft: RaftClient
        self.controller: controller_driver.QuorumController | None = None
        self._replay = SharedReplay()
        self.broker: broker_server.BrokerServer | None = None
        self.listeners: dict[str, Listener] = {}
        self.fault: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._directories = LogDirectories(config)
        self._starting: asyncio.Task[None] | None = None
        self._stopping_broker: broker_server.BrokerServer | None = None
        self._raft_started = False
        self.metrics: metric_sources.MetricSources | None = None
        """None if the node serves no metrics."""
        self._http: http_endpoint.HttpEndpoint | None = None
        self._phase_now = "starting"
        self._progress = StartupProgress(time.monotonic)
        self._ready = False
        self.skipping_waits = False
        self._started_at = time.perf_counter()
        self._start_time_ms = time.time_ns() // 1_000_000

    # -- start

    async def start(self) -> None:
        """Starts all parts and returns when every listener serves.

        Raises ConfigError, ListenerError, DirLockedError, MetaPropertiesError, OSError and the errors
        of the roles. The caller then calls `shutdown`, which stops the parts that have started.
        """
        config = self.config
        check_supported(config)
        for warning in (*config.warnings, *config.without_effect):
            self._log(logging.WARNING, "%s", warning)
        self._log(
            logging.INFO, "Quorate %s starts as %s", __version__, " and ".join(sorted(config.process_roles))
        )
        disable_garbage_collection()
        limits = NodeLimits(self.config, raise_open_file_limit())
        for endpoint in config.listeners:
            listener = Listener()
            listener.bind(endpoint.host, endpoint.port, endpoint.name)
            self.listeners[endpoint.name] = listener
        if config.http_listen is not None:
            self.metrics = metric_sources.MetricSources()
            self._http = http_endpoint.HttpEndpoint(
                config.node_id, self.metrics.collector, self.health, self.readiness, self._fail
            )
            self._http.start(*config.http_listen)
        usable = self._directories.lock()
        ensemble = self._directories.identity(usable)
        self.cluster_id = ensemble.cluster_id
        self._phase("directories checked")
        directory_id = ensemble.directory_ids[config.metadata_log_dir]
        self.raft = RaftClient(
            raft_config(
                config,
                cluster_id=self.cluster_id,
                directory_id=directory_id,
                endpoints=self._with_bound_ports(config.advertised_controller_listeners),
                start_time_ms=self._start_time_ms,
                on_fatal=self._fail,
            ),
            files=None,
        )
        await self.raft.start()
        self._raft_started = True
        if self.metrics is not None:
            self.metrics.add_node(self.raft, self.listeners, config)
        self._phase("metadata log open")
        self._warn_if_replaced(directory_id)
        self._warn_if_without_voters()
        if config.is_controller:
            await self._start_controller(limits)
        if config.is_broker:
            self._starting = asyncio.create_task(self._start_broker(ensemble.directory_ids, limits))
            await self._starting
        enable_garbage_collection()
        self._ready, self._phase_now = True, "running"
        self._log(
            logging.INFO, "Kafka Server started in %d ms", (time.perf_counter() - self._started_at) * 1000
        )

    def _warn_if_replaced(self, directory_id: bytes) -> None:
        """Warns if the voter set has another directory id for this node, so that it cannot vote (KIP-853)."""
        voter = self.raft.voters.by_id.get(self.config.node_id)
        if (
            self.config.is_controller
            and voter is not None
            and voter.key.directory_id not in (directory_id, bytes(16))
        ):
            self._log(
                logging.WARNING,
                "The voters know node %d with directory.id=%s, but %s has directory.id=%s: was the disk "
                "replaced, or meta.properties changed? This node does not vote until it is added again "
                "(or the file is restored)",
                self.config.node_id,
                uuid_text(voter.key.directory_id),
                self.config.metadata_log_dir,
                uuid_text(directory_id),
            )

    def _warn_if_without_voters(self) -> None:
        """Warns if controller.quorum.voters was removed before kraft.version 1 put the voters into the
        log.
        """
        if self.config.is_controller and not self.raft.voters.ids and self.raft.log_end_offset > 0:
            self._log(
                logging.WARNING,
                "kraft.version is 0 and controller.quorum.voters is not set: this controller knows no voters "
                "and cannot vote. Set it again, and remove it only after kafka-features upgrade "
                "--feature kraft.version=1",
            )

    def health(self) -> tuple[bool, dict[str, object]]:
        """Returns whether every listener accepts requests, and the fields of the /health response."""
        members: dict[str, object] = {
            "ready": self._ready,
            "phase": self._phase_now,
            "nodeId": self.config.node_id,
            "roles": sorted(self.config.process_roles),
            "clusterId": self.cluster_id,
            "version": __version__,
            "startTimeMs": self._start_time_ms,
        }
        if self._raft_started:
            leader, epoch = self.raft.leader_and_epoch
            members |= {
                "leaderId": -1 if leader is None else leader,
                "epoch": epoch,
                "highWatermark": self.raft.high_watermark,
            }
        if not self._ready and self._phase_now != "stopping":
            members |= self._progress.fields(self._stage())
        return self._ready, members

    def readiness(self) -> tuple[bool, dict[str, object]]:
        """Returns whether clients should use this node, and the fields of the /ready response."""
        if self._ready:
            reason = not_ready_reason(
                self.raft, self.broker, self.config.node_id, is_controller=self.config.is_controller
            )
        else:
            reason = f"the node is not running: {self._phase_now}"
        return reason is None, {"ready": reason is None, **({} if reason is None else {"reason": reason})}

    def _stage(self) -> Stage | None:
        broker = self.broker
        return current_stage(
            self.raft if self._raft_started else None,
            None if broker is None else broker.logs_opened,
            recovers=broker is not None and broker.state == broker_lifecycle.BrokerState.RECOVERY,
        )

    async def _start_controller(self, limits: NodeLimits) -> None:
        config = self.config
        self.controller = controller_driver.QuorumController(
            controller_config.ControllerConfig.from_kafka_config(
                config,
                cluster_id=self.cluster_id,
                incarnation_id=random_uuid(),
                bootstrap=bootstrap.read_bootstrap(config.metadata_log_dir),
                listeners=self._with_bound_ports(config.advertised_controller_listeners),
            ),
            self.raft,
            on_fatal=self._fail,
            replay=self._replay,
        )
        await self.controller.start()
        if self.metrics is not None:
            self.metrics.add_controller(self.controller)
        dispatcher = Dispatcher(
            ListenerKind.CONTROLLER,
            features=self.controller.features,
            metrics=None if self.metrics is None else self.metrics.controller_requests,
        )
        # The controller records the connections of Fetches, which Raft answers.
        dispatcher.register_all({**self.raft.routes, **self.controller.routes})
        await self._serve(config.controller_listeners, dispatcher, limits, ENVELOPE_BYTES)
        if not config.is_broker:  # otherwise the broker applies the dynamic configurations
            self.controller.add_config_listener(
                lambda applied: limits.apply(self.listeners, partial(effective_value, config, applied))
            )
            self.controller.add_image_listener(limits.apply_quotas)
            limits.apply_quotas(self.controller.state.image)
        self._phase("controller serves")

    async def _start_broker(self, directory_ids: dict[Path, bytes], limits: NodeLimits) -> None:
        config = self.config
        broker = self.broker = broker_server.BrokerServer(
            config,
            self.raft,
            cluster_id=self.cluster_id,
            directory_ids=directory_ids,
            files=OpenFiles(log_file_cache_size(limits.open_file_limit)),
            start_time_ms=self._start_time_ms,
            on_fault=self._fail,
            replay=self._replay,
        )
        if self.metrics is not None:
            self.metrics.add_broker(broker, self.raft)
        await broker.start(self._with_bound_ports(config.advertised_broker_listeners))
        self._phase("broker unfenced")
        dispatcher = Dispatcher(
            ListenerKind.BROKER,
            features=broker.features,
            narrow=broker.narrow,
            identity=ServerIdentity(self.cluster_id, config.node_id),
            metrics=None if self.metrics is None else self.metrics.broker_requests,
        )
        dispatcher.register_all(broker.routes)
        dispatcher.frame_routes = broker.frame_routes
        await self._serve(config.broker_listeners, dispatcher, limits)
        broker.subscribe_configs(lambda: limits.apply(self.listeners, broker.config_value))
        broker.publisher.subscribe("quotas of addresses", lambda delta: limits.apply_quotas(delta.new))
        limits.apply_quotas(broker.publisher.image)

    async def _serve(
        self,
        endpoints: tuple[Endpoint, ...],
        dispatcher: Dispatcher,
        node_limits: NodeLimits,
        room_bytes: int = 0,
    ) -> None:
        """Serves some listeners. Their requests may be larger than `socket.request.max.bytes` by so many bytes."""
        get = self.config.get
        idle_ms = get("connections.max.idle.ms")
        idle_s = idle_ms / 1000 if idle_ms >= 0 else float("inf")
        limits = ConnectionLimits(
            max_frame_bytes=get("socket.request.max.bytes") + room_bytes,
            max_idle_s=idle_s,
            first_request_s=min(idle_s, ConnectionLimits.FIRST_REQUEST_S),
            frame_stall_s=min(idle_s, ConnectionLimits.FRAME_STALL_S),
        )
        static = partial(effective_value, self.config, NO_DYNAMIC_CONFIGS)
        for endpoint in endpoints:
            listener = self.listeners[endpoint.name]
            node_limits.apply_rates(listener, endpoint.name, static)
            await listener.start(
                endpoint.host,
                endpoint.port,
                dispatcher,
                endpoint.name,
                node_limits.of(limits, endpoint.name, static),
                security_protocol=endpoint.security_protocol,
            )

    def _with_bound_ports(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Returns the endpoints with the bound port in place of port 0."""
        return tuple(e if e.port else e.with_port(self.listeners[e.name].port) for e in endpoints)

    # -- stop

    async def shutdown(self) -> None:
        """Stops the parts that have started, in order. May be called at any point of `start`, and more
        than once.
        """
        started = time.perf_counter()
        self._ready, self._phase_now = False, "stopping"
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            with contextlib.suppress(BaseException):
                await self._starting
        broker, self.broker = self.broker, None
        broker_names = {e.name for e in self.config.broker_listeners}
        if broker is not None:
            await self._step("broker", self._stop_broker(broker, broker_names))
        await self._step("broker listeners", self._close_listeners(broker_names))
        await self._step("controller", self._close_controller())
        if self._raft_started:
            self._raft_started = False
            # A follower may stop at once. A leader waits until another replica is elected.
            wait_s = _RAFT_HANDOVER_S if self.raft.is_leader and not self.skipping_waits else 0.0
            await self._step("Raft", self.raft.shutdown(wait_s))
        # Last, because a leader that resigns still answers requests of the other voters.
        await self._step("controller listeners", self._close_listeners(set(self.listeners)))
        if self._http is not None:
            await self._http.close()
        self._directories.release()
        self._log(logging.INFO, "Shut down in %d ms", (time.perf_counter() - started) * 1000)

    def skip_waits(self) -> None:
        """Makes a running `shutdown` stop waiting for other nodes and clients.

        Files are still closed cleanly.
        """
        self.skipping_waits = True
        if self._stopping_broker is not None:
            self._stopping_broker.lifecycle.begin_shutdown()

    async def _stop_broker(self, broker: broker_server.BrokerServer, names: set[str]) -> None:
        self._stopping_broker = broker
        watch = asyncio.create_task(self._give_up_without_quorum(broker))
        try:
            wanted = (
                self.config.get("controlled.shutdown.enable")
                and not self.skipping_waits
                and not self._raft_failed
            )
            timeout_s = _CONTROLLED_SHUTDOWN_S if wanted else 0.0
            await broker.shutdown(timeout_s, stop_serving=lambda: self._close_listeners(names))
        finally:
            watch.cancel()
            self._stopping_broker = None

    async def _give_up_without_quorum(self, broker: broker_server.BrokerServer) -> None:
        """Ends the controlled shutdown of the broker when the quorum has no leader any more.

        That is the case when the last nodes of a cluster stop together. Until it gives up, clients
        are served as in Apache Kafka, with one exception. While the broker has no contact with the quorum
        leader, it refuses Produce, because leaderships cannot move and the followers may have stopped.
        """
        loop = asyncio.get_running_loop()
        known_at = heard_at = loop.time()
        # `leader_and_epoch` may still name a leader that this node cannot reach. If a majority of the voters
        # is alive, they elect a new leader within this time.
        unheard_s = (
            _LEADERLESS_S
            + (
                self.config.get("controller.quorum.fetch.timeout.ms")
                + self.config.get("controller.quorum.election.timeout.ms")
            )
            / 1000
        )
        while loop.time() - known_at < _LEADERLESS_S and loop.time() - heard_at < unheard_s:
            await asyncio.sleep(_LEADERLESS_S / 4)  # no event says that the leader is still unknown
            if self.raft.leader_and_epoch.leader_id is not None:
                known_at = loop.time()
            hears_leader = self.raft.hears_leader
            if not broker.lifecycle.may_stop.done():
                broker.replicas.accepts_appends = hears_leader
            if hears_leader:
                heard_at = loop.time()
        self._log(
            logging.WARNING,
            "No controller for %.1f s: stopping without a controlled shutdown",
            loop.time() - heard_at,
        )
        broker.lifecycle.begin_shutdown()

    async def _close_listeners(self, names: set[str]) -> None:
        for name in names & self.listeners.keys():
            await self.listeners.pop(name).close(0.0 if self.skipping_waits else _LISTENER_GRACE_S)

    async def _close_controller(self) -> None:
        if self.controller is not None:
            await self.controller.close()
            self.controller = None

    async def _step(self, what: str, stopping: Any) -> None:
        """Awaits the stop of one part and logs its error, so that the other parts are stopped, too."""
        try:
            await stopping
        except Exception as e:
            logger.error(
                "[KafkaServer id=%d] stopping the %s failed: %s",
                self.config.node_id,
                what,
                e,
                exc_info=trace_of(e),
            )

    # -- helpers

    @property
    def _raft_failed(self) -> bool:
        """Whether the Raft replica has failed, so that this node can no longer find a controller."""
        return self._raft_started and self.raft.failure is not None

    def _fail(self, error: BaseException) -> None:
        if not self.fault.done():
            self._log(logging.CRITICAL, "Cannot continue: %s", error)
            self.fault.set_result(error)
        if self._raft_failed and self._stopping_broker is not None:
            self._stopping_broker.lifecycle.begin_shutdown()

    def _phase(self, what: str) -> None:
        self._phase_now = what
        self._log(logging.INFO, "%s after %d ms", what, (time.perf_counter() - self._started_at) * 1000)

    def _log(self, level: int, text: str, *values: object) -> None:
        logger.log(level, "[KafkaServer id=%d] " + text, self.config.node_id, *values)
