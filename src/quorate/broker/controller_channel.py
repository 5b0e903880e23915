"""The broker's way to the active controller, over the controller listener (also in a combined process).

The leader of the metadata log is the active controller; Raft says who it is and where. A request is
retried elsewhere when the connection breaks or the answer is NOT_CONTROLLER, until its deadline. Facts:
KIP-590 (Envelope), KIP-631.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID, random_uuid

if TYPE_CHECKING:
    from quorate.broker.metadata.publisher import BrokerMetadataListener
    from quorate.metadata.image import MetadataImage
    from quorate.net.client import Connection, NodeChannel
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.schema import Request, Response
    from quorate.raft.types import LeaderAndEpoch

log_ = logging.getLogger("quorate.broker.controller_channel")

FORWARD_TIMEOUT_S = 60.0
"""How long Kafka's brokers retry a forwarded request."""
_PATIENT_S: dict[int, float] = {ApiKey.ADD_RAFT_VOTER: 45.0, ApiKey.REMOVE_RAFT_VOTER: 45.0}
"""A new voter may have to catch up first; the leader answers within thirty seconds at the latest."""
_RETRY_MIN_S = 0.002
"""A new leader is active some milliseconds after it is known: asking again soon costs nothing and saves
start-up time."""
_RETRY_MAX_S = 0.1
_LAST_ANSWERS_S = 0.2
"""A controller that was replaced has so long for the answers to what it has committed; then its
successor is asked, which may find done what it is asked to do. One that is stopped or cut off never
answers, and no reset connection tells."""
_WARM_S = 3.0
"""So often a look is taken whether there is a connection to every controller."""


class ControllerLocator:
    """Who the active controller is, as Raft says, and a way to wait for another one."""

    def __init__(
        self, find: Callable[[], tuple[int, str, int] | None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`find` gives (node id, host, port) or None."""
        self._find = find
        self._loop = loop
        self._change: asyncio.Future[None] | None = None
        self._watchers: list[Callable[[], None]] = []

    def current(self) -> tuple[int, str, int] | None:
        return self._find()

    def leader_changed(self, _leader: LeaderAndEpoch | None = None) -> None:
        for watcher in self._watchers:
            watcher()
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Called at every change from now on, before those who wait for it go on."""
        self._watchers.append(watcher)

    async def changed(self, timeout_s: float) -> None:
        """Returns when the leader changes, at the latest after the time given."""
        if self._change is None:
            self._change = self._loop.create_future()
        await asyncio.wait([self._change], timeout=timeout_s)


class ControllerChannel:
    """One connection to whoever is the active controller. Requests may be in flight together."""

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
        self._replaced: set[NodeChannel] = set()  # may still give their last answers
        self._controllers: Callable[[], Iterable[tuple[str, int]]] = tuple
        self._standbys: dict[tuple[str, int], NodeChannel] = {}
        self._warming: set[asyncio.Task[Any]] = set()
        self._warm_timer: asyncio.TimerHandle | None = None
        self._closed = False
        locator.watch(self._leave_the_replaced)

    @property
    def api_versions(self) -> dict[int, tuple[int, int]] | None:
        """What the active controller advertises, None while that is not known."""
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
        """The active controller's response. Raises RequestTimedOut when none answered in time,
        UnsupportedVersion when the controller does not know the request. patience_s: that long at least
        for one attempt. on_lost: called when an attempt has failed that may have been carried out: a
        controller that loses its office says NOT_CONTROLLER to what it has written, too."""
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
                log_.debug("[ControllerChannel %s] %s: %s", self.name, type(request).__name__, error)
            else:
                if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return response
            if posted and on_lost is not None:
                on_lost()
            if self._locator.current() != leader:  # it has changed meanwhile: nothing to wait for
                pause = _RETRY_MIN_S
                continue
            await self._locator.changed(min(max(deadline - self._loop.time(), 0.0), pause))
            pause = min(pause * 2, _RETRY_MAX_S)
        raise RequestTimedOut(f"no active controller answered {type(request).__name__} in time")

    def keep_warm(self, controllers: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """From now on keeps a connection to each of `controllers`, so that the next active one need not
        be connected to first."""
        self._controllers = controllers
        self._warm()

    def _warm(self) -> None:
        """What fails is tried again at the next look; who is no controller any more is left."""
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
            task.exception()  # seen

    def _channel(self, address: tuple[str, int]) -> NodeChannel:
        from quorate.net.client import NodeChannel

        return NodeChannel(
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

    def _leave_the_replaced(self) -> None:
        leader = self._locator.current()
        if leader is not None and leader[1:] != self._address:
            self._leave()

    def _leave(self) -> None:
        """What is in flight fails soon, and is then sent to the active controller."""
        node, self._node, self._address = self._node, None, None
        if node is not None:
            self._replaced.add(node)
            self._loop.call_later(_LAST_ANSWERS_S, self._forget, node)

    def _forget(self, node: NodeChannel) -> None:
        self._replaced.discard(node)
        node.close()

    def close(self) -> None:
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
        """Carries a client's request to the active controller as it came, and its answer back. The
        answer is held until this broker has applied what it tells of, so that the client finds it here."""
        frame = context.frame
        assert frame is not None, "only requests from a connection are forwarded"
        return await self.forward_frame(context, request, bytes(frame), FORWARD_TIMEOUT_S)

    async def forward_frame(
        self, context: RequestContext, request: Request, frame: bytes, timeout_s: float
    ) -> Response | None:
        """`frame`: request header and body, without the length."""
        from quorate.protocol.api import decode_response
        from quorate.protocol.messages.envelope import EnvelopeRequest

        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=encode_principal(context.principal, context.token_authenticated),
            client_host_address=host_address(context.client_host),
            request_id=random_uuid() if context.api_key == ApiKey.CREATE_TOPICS else ZERO_UUID,
        )

        def lost() -> None:
            """The next try says so, and a controller that finds it done answers as it would have done
            then."""
            envelope.lost_tries = min(envelope.lost_tries + 1, 0x7FFF)

        started = self._loop.time()
        try:
            answer = await self.send(
                envelope, timeout_s, patience_s=_PATIENT_S.get(context.api_key, 0.0), on_lost=lost
            )
        except RequestTimedOut:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time."
            ) from None
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The controller does not know this version although it was advertised: the client must ask again.
            log_.info("[ControllerChannel %s] Closing %s: version refused", self.name, context.connection_id)
            if context.connection is not None:
                context.connection.close()
            return None
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        _, response = decode_response(memoryview(answer.response_data), context.api_key, context.api_version)
        if self._publisher is not None:
            left = max(timeout_s - (self._loop.time() - started), 0.001)
            if answer.committed_offset >= 0:
                await self._publisher.wait_for_offset(answer.committed_offset, left)
            else:
                await self._wait_for_topics(request, response, left)
        return response

    async def _wait_for_topics(self, request: Any, response: Any, timeout_s: float) -> None:
        """Under a controller that gives no committed offset (Apache Kafka's): wait to see the topic
        ids. What was only validated never comes."""
        from quorate.protocol.messages.create_topics import CreateTopicsResponse

        if not isinstance(response, CreateTopicsResponse) or request.validate_only or self._publisher is None:
            return
        ids = [topic.topic_id for topic in response.topics if not topic.error_code and any(topic.topic_id)]

        def visible(image: MetadataImage) -> bool:
            return all(topic_id in image.topics.by_id for topic_id in ids)

        if ids:
            await self._publisher.wait_until(visible, min(timeout_s, 5.0))


def encode_principal(principal: str, token_authenticated: bool) -> bytes:
    """A principal as Envelope carries it: int16 version 0, then Kafka's DefaultPrincipalData."""
    from quorate.protocol.messages.principal_data import DefaultPrincipalData

    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
    return b"\x00\x00" + data.encode(0)


def host_address(host: str) -> bytes:
    """4 or 16 bytes; the loopback address for a peer without an IP address."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).packed
    except ValueError:
        return b"\x7f\x00\x00\x01"
