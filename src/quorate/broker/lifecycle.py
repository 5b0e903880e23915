"""Registers a broker with the controller, sends heartbeats, and runs the controlled shutdown (KIP-631,
`BrokerLifecycleManager` in Kafka).

NOT_RUNNING -> STARTING (catching up with the metadata) -> RECOVERY (opening logs) -> RUNNING ->
PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN. One task sends one heartbeat at a time. Methods that change
the content of the next heartbeat wake the task.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quorate.broker.early_heartbeats import EarlyHeartbeats
from quorate.lazy import lazy_module
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.broker.metadata.publisher import BrokerMetadataListener
    from quorate.config.kafka_config import KafkaConfig
    from quorate.config.listeners import Endpoint
    from quorate.metadata.image import MetadataDelta
    from quorate.protocol.messages import broker_heartbeat, broker_registration
else:
    broker_heartbeat = lazy_module("quorate.protocol.messages.broker_heartbeat")
    broker_registration = lazy_module("quorate.protocol.messages.broker_registration")

logger = logging.getLogger("quorate.broker.lifecycle")

_SHUTDOWN_RETRY_MIN_S = 0.01
_SHUTDOWN_RETRY_MAX_S = 0.1
"""The longest pause between two heartbeats during a controlled shutdown. It is short because the
other brokers report their metadata offset within milliseconds, if they send early heartbeats
(`early_heartbeats`)."""
_NOT_REGISTERED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Errors of a heartbeat whose sender was unregistered or replaced by another incarnation."""


class BrokerState(enum.IntEnum):
    """The states of a broker, with the numbers of Kafka's metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerLifecycle:
    """The registration and the heartbeats of one incarnation of a broker."""

    def __init__(
        self,
        config: KafkaConfig,
        channel: ControllerChannel,
        publisher: BrokerMetadataListener,
        *,
        cluster_id: str,
        incarnation_id: bytes,
        directory_ids: Sequence[bytes],
        features: Mapping[str, tuple[int, int]],
        previous_broker_epoch: int,
        start_time_ms: int,
        on_fault: Callable[[BaseException], None],
        loop: asyncio.AbstractEventLoop,
        cordoned_directories: Callable[[], list[bytes] | None] = lambda: None,
    ) -> None:
        """`cordoned_directories` returns the ids of the cordoned directories, or None if metadata.version
        does not support them."""
        self._config = config
        self._channel = channel
        self._publisher = publisher
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._directory_ids = tuple(directory_ids)
        self._features = features
        self._previous_broker_epoch = previous_broker_epoch
        self._start_time_ms = start_time_ms
        self._cordoned_directories = cordoned_directories
        self._on_fault = on_fault
        self._loop = loop
        self._listeners: tuple[Endpoint, ...] = ()
        self._interval_s: float = config.get("broker.heartbeat.interval.ms") / 1000
        self._session_s: float = config.get("broker.session.timeout.ms") / 1000
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._registered = False
        self._ready_to_unfence = False
        self._offline_directories: dict[bytes, bool] = {}  # whether reported to the controller
        self._shutdown_retry_s = _SHUTDOWN_RETRY_MIN_S
        self._early = EarlyHeartbeats(config.node_id, self._interval_s)
        self.early_heartbeat: asyncio.TimerHandle | None = None
        """The timer of the next early heartbeat, or None."""
        self.node_id: int = config.node_id
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.caught_up: asyncio.Future[None] = loop.create_future()
        """Done when the controller has confirmed that this broker's metadata is current."""
        self.unfenced: asyncio.Future[None] = loop.create_future()
        self.may_stop: asyncio.Future[None] = loop.create_future()
        """Done when the controller has moved the leaderships, or a controlled shutdown is not possible."""

    # --- requests of the broker -------------------------------------------------------------------

    def start(self, listeners: Iterable[Endpoint]) -> None:
        """Starts the registration with the advertised listeners."""
        self._listeners = tuple(listeners)
        self.state = BrokerState.STARTING
        logger.info(
            "[BrokerLifecycle id=%d] Incarnation of broker %d in cluster %s is now STARTING.",
            self.node_id,
            self.node_id,
            self._cluster_id,
        )
        self._task = self._loop.create_task(self._run())

    def request_unfence(self) -> None:
        """Requests at once that the controller unfence this broker. Called when the logs are open."""
        self._ready_to_unfence = True
        self._wake.set()

    def metadata_applied(self, delta: MetadataDelta) -> None:
        """Plans an early heartbeat if another broker in controlled shutdown waits for this broker to report
        its metadata offset."""
        pause = self._early.metadata_applied(delta, self._loop.time())
        if pause is not None and self.state == BrokerState.RUNNING:
            self._cancel_early_heartbeat()
            self.early_heartbeat = self._loop.call_later(pause, self._send_early_heartbeat)

    def _send_early_heartbeat(self) -> None:
        self.early_heartbeat = None
        self._wake.set()

    def _cancel_early_heartbeat(self) -> None:
        if self.early_heartbeat is not None:
            self.early_heartbeat.cancel()
            self.early_heartbeat = None

    def resend_registration(self) -> None:
        """Registers the same incarnation again, to report its log directories after an upgrade of
        metadata.version."""
        self._registered = False
        self._wake.set()

    def send_heartbeat(self) -> None:
        """Sends the next heartbeat at once, because its content has changed."""
        self._wake.set()

    def directory_failed(self, directory_id: bytes) -> None:
        """Reports a failed log directory. If that is not possible in `log.dir.failure.timeout.ms`, the
        broker stops."""
        if directory_id in self._offline_directories:
            return
        self._offline_directories[directory_id] = False
        self._wake.set()
        limit_s = self._config.get("log.dir.failure.timeout.ms") / 1000
        self._loop.call_later(limit_s, self._directory_unreported, directory_id)

    def _directory_unreported(self, directory_id: bytes) -> None:
        if (
            not self._offline_directories.get(directory_id)
            and self.state < BrokerState.PENDING_CONTROLLED_SHUTDOWN
        ):
            self._on_fault(
                TimeoutError(
                    "a failed log directory could not be reported to the controller in "
                    "log.dir.failure.timeout.ms"
                )
            )

    def begin_controlled_shutdown(self) -> None:
        """Requests that the controller move the leaderships. Skipped if the broker is not RUNNING."""
        if self.state == BrokerState.RUNNING:
            logger.info("[BrokerLifecycle id=%d] Beginning controlled shutdown.", self.node_id)
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._wake.set()
        elif self.state != BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            logger.info(
                "[BrokerLifecycle id=%d] Skipping controlled shutdown in state %s.",
                self.node_id,
                self.state.name,
            )
            self.begin_shutdown()

    def begin_shutdown(self) -> None:
        """Stops heartbeats and ends the waits for the controller."""
        if self.state == BrokerState.SHUTTING_DOWN:
            return
        logger.info(
            "[BrokerLifecycle id=%d] Transitioning from %s to SHUTTING_DOWN.", self.node_id, self.state.name
        )
        self.state = BrokerState.SHUTTING_DOWN
        self._cancel_early_heartbeat()
        for future in (self.caught_up, self.unfenced):
            if not future.done():
                future.cancel()
        if not self.may_stop.done():
            self.may_stop.set_result(None)
        self._wake.set()

    async def close(self) -> None:
        """Stops the task that sends heartbeats."""
        self.begin_shutdown()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._register_first()
            await self._wait_for_own_registration()
            while self.state != BrokerState.SHUTTING_DOWN:
                self._wake.clear()
                pause = await self._communicate()
                if pause > 0:
                    await self._sleep(pause)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("[BrokerLifecycle id=%d] failed", self.node_id)
            self._on_fault(error)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _register_first(self) -> None:
        deadline = self._loop.time() + self._config.get("initial.broker.registration.timeout.ms") / 1000
        while not await self._register(min(self._session_s / 2, max(deadline - self._loop.time(), 0.001))):
            if self._loop.time() >= deadline:
                raise TimeoutError(
                    "Shutting down because we were unable to register with the controller quorum within "
                    "initial.broker.registration.timeout.ms"
                )
            await self._sleep(min(self._interval_s, max(deadline - self._loop.time(), 0.001)))
            if self.state == BrokerState.SHUTTING_DOWN:
                raise asyncio.CancelledError  # `close` may have cancelled just when the sleep ended
            self._wake.clear()

    async def _register(self, timeout_s: float) -> bool:
        make = broker_registration.BrokerRegistrationRequest
        request = make(
            broker_id=self.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                make.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in self._listeners
            ],
            features=[
                make.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self._features.items())
            ],
            rack=self._config.get("broker.rack"),
            log_dirs=sorted(self._directory_ids),
            previous_broker_epoch=self._previous_broker_epoch,
            start_time_ms=self._start_time_ms,
        )
        try:
            answer = await self._channel.send(request, timeout_s)
        except (RequestTimedOut, KafkaConnectionError) as error:
            logger.info("[BrokerLifecycle id=%d] Unable to register the broker: %s", self.node_id, error)
            return False
        except UnsupportedVersion as error:
            logger.error("[BrokerLifecycle id=%d] Unable to register the broker: %s", self.node_id, error)
            return False
        except Exception:  # another controller may be active at the next attempt
            logger.exception("[BrokerLifecycle id=%d] Unable to register the broker", self.node_id)
            return False
        if answer.error_code != ErrorCode.NONE:
            logger.info(
                "[BrokerLifecycle id=%d] Unable to register the broker because the controller returned error "
                "%s",
                self.node_id,
                ErrorCode.of(answer.error_code).name,
            )
            return False
        self.broker_epoch = answer.broker_epoch
        self._registered = True
        logger.info(
            "[BrokerLifecycle id=%d] Successfully registered broker %d with broker epoch %d",
            self.node_id,
            self.node_id,
            self.broker_epoch,
        )
        return True

    async def _wait_for_own_registration(self) -> None:
        """Waits until this broker's metadata contains its registration. An earlier heartbeat has no use."""
        me, epoch = self.node_id, self.broker_epoch

        await self._publisher.wait_until(
            lambda image: (broker := image.cluster.brokers.get(me)) is not None and broker.epoch >= epoch,
            self._session_s / 2,
        )

    async def _communicate(self) -> float:
        """Sends one request and handles its response. Returns the seconds until the next regular one."""
        if not self._registered:
            return 0.0 if await self._register(self._session_s / 2) else self._interval_s
        offline = list(self._offline_directories)
        request = broker_heartbeat.BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.offset,
            want_fence=not self._ready_to_unfence,
            want_shut_down=self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=offline,
            # In STARTING, the metadata is not current, so the cordoned directories may be outdated.
            cordoned_log_dirs=None if self.state == BrokerState.STARTING else self._cordoned_directories(),
        )
        try:
            answer = await self._channel.send(request, self._session_s / 2)
        except (RequestTimedOut, KafkaConnectionError, UnsupportedVersion) as error:
            logger.warning("[BrokerLifecycle id=%d] Unable to send a heartbeat: %s", self.node_id, error)
            return self._interval_s
        except Exception:  # another controller may be active at the next attempt
            logger.exception("[BrokerLifecycle id=%d] Unable to send a heartbeat", self.node_id)
            return self._interval_s
        if answer.error_code != ErrorCode.NONE:
            return self._refused(ErrorCode.of(answer.error_code))
        for directory_id in offline:
            self._offline_directories[directory_id] = True
        return self._answered(answer.is_caught_up, answer.is_fenced, answer.should_shut_down)

    def _refused(self, error: ErrorCode) -> float:
        logger.warning(
            "[BrokerLifecycle id=%d] Broker %d sent a heartbeat request but received error %s.",
            self.node_id,
            self.node_id,
            error.name,
        )
        if self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN and error in _NOT_REGISTERED:
            # The controller took every leadership from this broker when it removed the registration.
            logger.info(
                "[BrokerLifecycle id=%d] Ending the controlled shutdown: this incarnation is no longer "
                "registered.",
                self.node_id,
            )
            self.begin_shutdown()
            return 0.0
        return self._interval_s

    def _answered(self, is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> float:
        match self.state:
            case BrokerState.STARTING:
                if is_caught_up:
                    logger.info(
                        "[BrokerLifecycle id=%d] The broker has caught up. Transitioning from STARTING to "
                        "RECOVERY.",
                        self.node_id,
                    )
                    self.state = BrokerState.RECOVERY
                    if not self.caught_up.done():
                        self.caught_up.set_result(None)
                    return self._interval_s
                return 0.01
            case BrokerState.RECOVERY:
                if not is_fenced:
                    logger.info(
                        "[BrokerLifecycle id=%d] The broker has been unfenced. Transitioning from RECOVERY "
                        "to RUNNING.",
                        self.node_id,
                    )
                    self.state = BrokerState.RUNNING
                    if not self.unfenced.done():
                        self.unfenced.set_result(None)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                if should_shut_down:
                    logger.info(
                        "[BrokerLifecycle id=%d] The controller has asked us to exit controlled shutdown.",
                        self.node_id,
                    )
                    self.begin_shutdown()
                    return 0.0
                pause, self._shutdown_retry_s = (
                    self._shutdown_retry_s,
                    min(self._shutdown_retry_s * 2, _SHUTDOWN_RETRY_MAX_S),
                )
                return pause
            case _:
                pass
        return self._interval_s
