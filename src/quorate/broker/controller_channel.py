"""Sends requests to the active controller, over the controller listener also in a combined process
(`NodeToControllerChannelManager` and `ForwardingManager` in Kafka).

The leader of the metadata log is the active controller; Raft knows its id and address. A request is retried
until its deadline if the connection is lost or the response is NOT_CONTROLLER. KIP-590 (Envelope), KIP-631.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.api import ApiKey, decode_response
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID, random_uuid
from quorate.threads import in_thread

if TYPE_CHECKING:
    from quorate.broker.metadata.publisher import BrokerMetadataListener
    from quorate.metadata.image import MetadataImage
    from quorate.net import channel
    from quorate.net.channel import NodeChannel
    from quorate.net.client import Connection
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.messages import create_topics, envelope, principal_data
    from quorate.protocol.schema import Request, Response
    from quorate.raft.types import LeaderAndEpoch
else:
    channel = lazy_module("quorate.net.channel")
    create_topics = lazy_module("quorate.protocol.messages.create_topics")
    envelope = lazy_module("quorate.protocol.messages.envelope")
    principal_data = lazy_module("quorate.protocol.messages.principal_data")

logger = logging.getLogger("quorate.broker.controller_channel")

FORWARD_TIMEOUT_S = 60.0
"""How long Kafka's brokers retry a forwarded request."""
_ATTEMPT_TIMEOUT_S: dict[int, float] = {ApiKey.ADD_RAFT_VOTER: 45.0, ApiKey.REMOVE_RAFT_VOTER: 45.0}
"""The time for one attempt. A new voter may have to catch up first, for which the leader waits up to 30 s."""
_RETRY_MIN_S = 0.002
"""A new leader is active some milliseconds after its election is known, so the first retry is early."""
_RETRY_MAX_S = 0.1
_LAST_ANSWERS_S = 0.2
"""The time for a replaced controller to send the responses to what it has committed. After that the request
is sent to its successor, which may find the change done. A controller that is stopped or partitioned never
responds, and its connection is not reset."""
_WARM_S = 3.0
"""The interval of checks that there is a connection to every controller."""
_CACHED_CLIENTS = 256
"""The number of principals and of addresses whose encoded form is kept."""


class ControllerLocator:
    """Finds the active controller and waits for changes of it."""

    def __init__(
        self, find: Callable[[], tuple[int, str, int] | None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`find` returns (node id, host, port) of the active controller, or None."""
        self._find = find
        self._loop = loop
        self._change: asyncio.Future[None] | None = None
        self._watchers: list[Callable[[], None]] = []

    def current(self) -> tuple[int, str, int] | None:
        """The (node id, host, port) of the active controller, or None."""
        return self._find()

    def leader_changed(self, _leader: LeaderAndEpoch | None = None) -> None:
        """Called by Raft when the leader has changed."""
        for watcher in self._watchers:
            watcher()
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls `watcher` at every change, before `changed` returns."""
        self._watchers.append(watcher)

    async def changed(self, timeout_s: float) -> None:
        """Waits for the next change, for at most `timeout_s`."""
        if self._change is None:
            self._change = self._loop.create_future()
        await asyncio.wait([self._change], timeout=timeout_s)


class ControllerChannel:
    """A connection to the active controller. Several requests may be in flight."""

    def __init__(
        self,
        name: str,
        locator: ControllerLocator,
        *,
        client_id: str,
        publisher: BrokerMetadataListener | None = None,
        request_timeout_s: float = 30.0,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._locator = locator
        self._client_id = client_id
        self._publisher = publisher
        self._request_timeout_s = request_timeout_s
        self._loop = loop
        self._node: NodeChannel | None = None
        self._address: tuple[str, int] | None = None
        self._replaced: set[NodeChannel] = set()  # they may still send their last responses
        self._controllers: Callable[[], Iterable[tuple[str, int]]] = tuple
        self._standbys: dict[tuple[str, int], NodeChannel] = {}
        self._warming: set[asyncio.Task[Any]] = set()
        self._warm_timer: asyncio.TimerHandle | None = None
        self._closed = False
        locator.watch(self._leave_replaced_controller)

    @property
    def api_versions(self) -> dict[int, tuple[int, int]] | None:
        """The API versions of the active controller, or None while they are unknown."""
        connection = None if self._node is None else self._node.connection
        return None if connection is None else connection.api_versions

    async def send(
        self,
        request: Request,
        timeout_s: float | None = None,
        *,
        patience_s: float = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> Any:
        """Sends a request and returns the response of the active controller. Raises RequestTimedOut after
        the timeout, UnsupportedVersion if the controller does not support the request.

        `patience_s` is the minimum time for one attempt. `on_lost` is called after a failed attempt that
        may have been carried out: a controller that loses the leadership answers NOT_CONTROLLER also for
        changes that it has written.
        """
        deadline = self._loop.time() + (FORWARD_TIMEOUT_S if timeout_s is None else timeout_s)
        once_s = max(self._request_timeout_s, patience_s)
        pause = _RETRY_MIN_S
        while not self._closed:
            left = deadline - self._loop.time()
            if left <= 0:
                break
            leader = self._locator.current()
            if leader is None:
                await self._locator.changed(min(left, _RETRY_MAX_S))
                continue
            try:
                posted = False
                async with asyncio.timeout(left):
                    connection = await self._connection(leader[1], leader[2])
                posted = True
                left = deadline - self._loop.time()
                response = await connection.call(request, min(once_s, max(left, 0.001)))
            except UnsupportedVersion:
                raise
            except (KafkaConnectionError, RequestTimedOut, TimeoutError, OSError) as error:
                logger.debug("[ControllerChannel %s] %s: %s", self.name, type(request).__name__, error)
            else:
                if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return response
            if posted and on_lost is not None:
                on_lost()
            if self._locator.current() != leader:  # it has changed meanwhile
                pause = _RETRY_MIN_S
                continue
            await self._locator.changed(min(max(deadline - self._loop.time(), 0.0), pause))
            pause = min(pause * 2, _RETRY_MAX_S)
        raise RequestTimedOut(f"no active controller answered {type(request).__name__} in time")

    def keep_warm(self, controllers: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """Keeps connections to all `controllers`, so that the next active one is reached without delay."""
        self._controllers = controllers
        self._warm()

    def _warm(self) -> None:
        """Opens missing connections, and closes those to nodes that are no longer controllers. Failures are
        retried in the next call."""
        self._warm_timer = self._loop.call_later(_WARM_S, self._warm)
        wanted = set(self._controllers()) - {self._address}
        for address in self._standbys.keys() - wanted:
            self._standbys.pop(address).close()
        for address in wanted:
            node = self._standbys.get(address)
            if node is None:
                node = self._standbys[address] = self._channel(address)
            if node.connection is None:
                task = self._loop.create_task(node.connected())
                self._warming.add(task)
                task.add_done_callback(self._warmed)

    def _warmed(self, task: asyncio.Task[Any]) -> None:
        self._warming.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, as asyncio logs it otherwise

    def _channel(self, address: tuple[str, int]) -> NodeChannel:
        return channel.NodeChannel(
            *address, client_id=self._client_id, backoff_min_s=_RETRY_MIN_S, backoff_max_s=_RETRY_MAX_S
        )

    async def _connection(self, host: str, port: int) -> Connection:
        if self._node is None or self._address != (host, port):
            self._leave()
            standby = self._standbys.pop((host, port), None)
            if standby is not None and standby.connection is None:  # it may be backing off
                standby.close()
                standby = None
            self._address = (host, port)
            self._node = self._channel(self._address) if standby is None else standby
        return await self._node.connected()

    def _leave_replaced_controller(self) -> None:
        leader = self._locator.current()
        if leader is not None and leader[1:] != self._address:
            self._leave()

    def _leave(self) -> None:
        """Leaves the current controller.

        Requests in flight to it get `_LAST_ANSWERS_S` for their answers, and are then sent to the active
        one. Requests that wait for a connection to it are sent to the active one at once, because a
        controller that has ended would only be tried again after a back-off.
        """
        node, self._node, self._address = self._node, None, None
        if node is not None and node.connection is None:
            node.close()
        elif node is not None:
            self._replaced.add(node)
            self._loop.call_later(_LAST_ANSWERS_S, self._forget, node)

    def _forget(self, node: NodeChannel) -> None:
        self._replaced.discard(node)
        node.close()

    def close(self) -> None:
        """Closes all connections. Requests in flight fail."""
        self._closed = True
        if self._warm_timer is not None:
            self._warm_timer.cancel()
        for standby in self._standbys.values():
            standby.close()
        self._locator.leader_changed()
        if self._node is not None:
            self._node.close()
            self._node = None
        for node in tuple(self._replaced):
            self._forget(node)

    # --- forwarding -------------------------------------------------------------------------------

    async def forward(self, context: RequestContext, request: Request) -> Response | None:
        """Forwards a client's request to the active controller and returns its response. The response waits
        until this broker has applied the change, so that the client sees it here."""
        frame = context.frame
        assert frame is not None, "only requests from a connection are forwarded"
        return await self.forward_frame(context, request, bytes(frame), FORWARD_TIMEOUT_S)

    async def forward_frame(
        self, context: RequestContext, request: Request, frame: bytes, timeout_s: float
    ) -> Response | None:
        """Forwards a request. `frame` is its header and body, without the length."""
        request_in_envelope = envelope.EnvelopeRequest(
            request_data=frame,
            request_principal=encode_principal(context.principal, context.token_authenticated),
            client_host_address=host_address(context.client_host),
            request_id=random_uuid() if context.api_key == ApiKey.CREATE_TOPICS else ZERO_UUID,
        )

        def lost() -> None:
            """Notes a lost attempt in the next one. A controller that finds the change done then answers as
            if it had done it now."""
            request_in_envelope.unanswered_attempts = min(request_in_envelope.unanswered_attempts + 1, 0x7FFF)

        started = self._loop.time()
        try:
            answer = await self.send(
                request_in_envelope,
                timeout_s,
                patience_s=_ATTEMPT_TIMEOUT_S.get(context.api_key, 0.0),
                on_lost=lost,
            )
        except RequestTimedOut:
            leader = self._locator.current()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "The active controller did not answer in time.",
                remedy=f"{'None is known' if leader is None else f'The last known one is node {leader[0]}'}. "
                "The change may still be made. kafka-metadata-quorum describe --status shows the "
                "voters.",
            ) from None
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The controller does not support a version that was advertised: the client must request the
            # versions again.
            logger.info(
                "[ControllerChannel %s] Closing %s: version refused", self.name, context.connection_id
            )
            if context.connection is not None:
                context.connection.close()
            return None
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The active controller refused the Envelope: {ErrorCode.of(answer.error_code).name}.",
                remedy="The log of the active controller has the reason.",
            )
        data = (memoryview(answer.response_data), context.api_key, context.api_version)
        _, response = await in_thread(decode_response, *data) if context.is_large else decode_response(*data)
        if self._publisher is not None:
            left = max(timeout_s - (self._loop.time() - started), 0.001)
            if answer.committed_offset >= 0:
                await self._publisher.wait_for_offset(answer.committed_offset, left)
            else:
                await self._wait_for_topics(request, response, left)
        return response

    async def _wait_for_topics(self, request: Any, response: Any, timeout_s: float) -> None:
        """Waits until the metadata has the created topics. Used if the controller returns no committed
        offset, as Apache Kafka's."""
        if (
            not isinstance(response, create_topics.CreateTopicsResponse)
            or request.validate_only
            or self._publisher is None
        ):
            return
        ids = [topic.topic_id for topic in response.topics if not topic.error_code and any(topic.topic_id)]

        def visible(image: MetadataImage) -> bool:
            return all(topic_id in image.topics.by_id for topic_id in ids)

        if ids:
            await self._publisher.wait_until(visible, min(timeout_s, 5.0))


@lru_cache(_CACHED_CLIENTS)
def encode_principal(principal: str, token_authenticated: bool) -> bytes:
    """Encodes a principal for an Envelope: int16 version 0, then Kafka's DefaultPrincipalData."""
    kind, _, name = principal.partition(":")
    data = principal_data.DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
    return b"\x00\x00" + data.encode(0)


@lru_cache(_CACHED_CLIENTS)
def host_address(host: str) -> bytes:
    """The 4 or 16 bytes of an address, or those of the loopback address for a peer without an IP address."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).packed
    except ValueError:
        return b"\x7f\x00\x00\x01"
