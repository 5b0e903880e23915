"""A controller makes itself known (KIP-919): whenever the metadata lacks a registration of this very process.

The active controller writes its own; a standby sends a ControllerRegistration to the active one, and
again with growing pauses until the record comes back through the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from quorate.metadata.features import FIRST_CONTROLLER_REGISTRATION
from quorate.net.client import NodeChannel
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.controller_registration import ControllerRegistrationRequest

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 120.0
_TIMEOUT_S = 5.0


class ControllerRegistrar:
    """`check` is called after every change of image or leader, and costs a look at two maps."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._task: asyncio.Task[None] | None = None
        self._leader_changed = asyncio.Event()
        self._closed = False

    def needed(self) -> bool:
        controller = self._controller
        image = controller.next_image
        if not controller.config.listeners or image.features.metadata_version < FIRST_CONTROLLER_REGISTRATION:
            return False
        known = image.cluster.controllers.get(controller.config.node_id)
        return known is None or known.incarnation_id != controller.config.incarnation_id

    def request(self) -> ControllerRegistrationRequest:
        config = self._controller.config
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
        if self._closed or not self.needed():
            return
        if self._controller.is_active:
            self._controller.register_self(self.request())
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send())

    def leader_changed(self) -> None:
        """Ends a pause: what failed because there was no leader, or at another one, is tried at once."""
        self._leader_changed.set()
        self.check()

    async def _send(self) -> None:
        pause = _FIRST_PAUSE_S
        controller = self._controller
        try:
            while not self._closed and not controller.is_active and self.needed():
                self._leader_changed.clear()
                try:
                    await self._try()
                except (KafkaConnectionError, RequestTimedOut, UnsupportedVersion, KafkaError) as error:
                    log.info(
                        "[ControllerRegistrar id=%d] Registration failed: %s; next attempt in %.1f s",
                        controller.config.node_id,
                        error,
                        pause,
                    )
                except Exception:  # a task that ends by it is not begun anew before the metadata changes
                    log.exception(
                        "[ControllerRegistrar id=%d] Registration failed; next attempt in %.1f s",
                        controller.config.node_id,
                        pause,
                    )
                if await self._leader_changed_within(pause):
                    pause = _FIRST_PAUSE_S
                else:
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._task = None

    async def _leader_changed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._leader_changed.wait()
        except TimeoutError:
            return False
        return True

    async def _try(self) -> None:
        """Registers at the leader, if there is one. When this node is about to lead, it writes its own
        registration instead."""
        raft = self._controller.raft
        address = raft.leader_address()
        if address is not None and raft.leader_and_epoch.leader_id != self._controller.config.node_id:
            await self._send_to(*address)

    async def _send_to(self, host: str, port: int) -> None:
        channel = NodeChannel(host, port, client_id=str(self._controller.config.node_id))
        try:
            response = await channel.call(self.request(), timeout_s=_TIMEOUT_S)
        finally:
            channel.close()
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
