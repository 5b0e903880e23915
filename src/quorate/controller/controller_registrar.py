"""Registers this controller (KIP-919) whenever the metadata has no registration of the current process.

The active controller writes its own registration. A standby sends a ControllerRegistration to the active
controller, and repeats it with growing pauses until the record comes back through the log. Source:
Kafka's ControllerRegistrationManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.metadata.features import FIRST_CONTROLLER_REGISTRATION
from quorate.net.channel import NodeChannel
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.controller_registration import ControllerRegistrationRequest

if TYPE_CHECKING:
    from quorate.controller.handlers import register_controller
    from quorate.controller.state import ControllerState
else:
    register_controller = lazy_module("quorate.controller.handlers.register_controller")

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 120.0
_TIMEOUT_S = 5.0


class ControllerRegistrar:
    """Keeps this controller registered. `check` is called after every change of the image or the leader;
    it is cheap when there is nothing to do."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._task: asyncio.Task[None] | None = None
        self._leader_changed = asyncio.Event()
        self._closed = False

    def needed(self) -> bool:
        """Whether the metadata has no registration of this process and supports one."""
        state = self._state
        image = state.next_image
        if not state.config.listeners or image.features.metadata_version < FIRST_CONTROLLER_REGISTRATION:
            return False
        known = image.cluster.controllers.get(state.config.node_id)
        return known is None or known.incarnation_id != state.config.incarnation_id

    def request(self) -> ControllerRegistrationRequest:
        """The registration of this process."""
        config = self._state.config
        return ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=config.incarnation_id,
            zk_migration_ready=False,
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in config.listeners
            ],
            features=[
                ControllerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in config.features.items()
            ],
        )

    def check(self) -> None:
        """Registers this controller if that is needed and not in progress."""
        if self._closed or not self.needed():
            return
        if self._state.is_active:
            if not self._state.exclusive:  # otherwise the commit of the transaction calls this again
                self._write()
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send())

    def leader_changed(self) -> None:
        """Ends a pause between two attempts, since the new leader may accept the registration."""
        self._leader_changed.set()
        self.check()

    def _write(self) -> None:
        """Writes the registration on the active controller."""
        state = self._state
        try:
            result = register_controller.register_controller(state.view(), self.request(), state.context())
            state.write_own(result.records, "registration of this controller")
        except KafkaError as error:
            state.log_info("Registering this controller failed: %s", error)

    async def _send(self) -> None:
        """Sends the registration until it is no longer needed."""
        pause = _FIRST_PAUSE_S
        state = self._state
        try:
            while not self._closed and not state.is_active and self.needed():
                self._leader_changed.clear()
                try:
                    await self._try()
                except (KafkaConnectionError, RequestTimedOut, UnsupportedVersion, KafkaError) as error:
                    logger.info(
                        "[ControllerRegistrar id=%d] Registration failed: %s; next attempt in %.1f s",
                        state.config.node_id,
                        error,
                        pause,
                    )
                except Exception:  # a task that ended here would start again only when the metadata changes
                    logger.exception(
                        "[ControllerRegistrar id=%d] Registration failed; next attempt in %.1f s",
                        state.config.node_id,
                        pause,
                    )
                if await self._leader_changed_within(pause):
                    pause = _FIRST_PAUSE_S
                else:
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._task = None

    async def _leader_changed_within(self, seconds: float) -> bool:
        """Waits for a change of the leader. Returns whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._leader_changed.wait()
        except TimeoutError:
            return False
        return True

    async def _try(self) -> None:
        """Sends the registration to the leader, if there is one and it is another node."""
        raft = self._state.raft
        address = raft.leader_address()
        if address is not None and raft.leader_and_epoch.leader_id != self._state.config.node_id:
            await self._send_to(*address)

    async def _send_to(self, host: str, port: int) -> None:
        channel = NodeChannel(host, port, client_id=str(self._state.config.node_id))
        try:
            response = await channel.call(self.request(), timeout_s=_TIMEOUT_S)
        finally:
            channel.close()
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)

    async def close(self) -> None:
        """Cancels a registration that is being sent."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
