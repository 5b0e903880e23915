"""Connects the admin client to a cluster: bootstrap, the choice of the node for a request, retries.

With broker bootstrap, a request goes to the broker with the fewest requests in flight, and brokers forward
what only the controller can do. With controller bootstrap, it goes to the active controller. If that is lost,
the request is sent to all known controllers in turn, with constant back-off, until one names a new active
controller that answers. A request is retried with back-off while its error is retriable and the timeout has
not elapsed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from quorate.admin.errors import NotKafkaError
from quorate.admin.non_kafka_server import foreign_server
from quorate.admin.types import ClusterDescription, Node
from quorate.net.channel import NodeChannel
from quorate.net.client import Connection
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol import messages
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError, listed
from quorate.protocol.schema import Request

logger = logging.getLogger("quorate.admin")

T = TypeVar("T")

BROKERS, CONTROLLERS = 1, 2

CONTROLLER_LISTENER = (
    "it is a controller's listener, and a broker's is wanted: give a broker's port, or name the "
    "controller by --bootstrap-controller (bootstrap_controllers in Python) where that is served"
)
CONTROLLER_CONNECT_TIMEOUT_S = 2.0
"""The timeout of a connection to the active controller. Other nodes are then queried for a newer one."""

HEDGE_S = 0.5
"""The time without an answer after which a second node gets the request, if any node can answer. So a
node that hangs delays a request by this time only.
"""

_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d{1,5})"
)


def parse_servers(text: str | Sequence[str]) -> list[tuple[str, int]]:
    """Parses addresses like "host:port,[::1]:port". Raises ValueError with the invalid address."""
    parts = text.split(",") if isinstance(text, str) else text
    servers = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        match = _ADDRESS.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError(f"Invalid url in bootstrap.servers: {part} (expected host:port)")
        servers.append((match["v6"] or match["host"], int(match["port"])))
    if not servers:
        raise ValueError("No resolvable bootstrap urls given in bootstrap.servers")
    return servers


class Transport:
    """Connections to the nodes of one cluster."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        endpoint_type: int = BROKERS,
        client_id: str = "adminclient",
        request_timeout_s: float = 30.0,
        api_timeout_s: float = 60.0,
        retry_backoff_s: float = 0.1,
        retry_backoff_max_s: float = 1.0,
        ssl: ssl_module.SSLContext | None = None,
        sasl: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self.endpoint_type = endpoint_type
        self._bootstrap = parse_servers(bootstrap)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self.api_timeout_s = api_timeout_s
        self._backoff_s = retry_backoff_s
        self._backoff_max_s = retry_backoff_max_s
        self._ssl = ssl
        self._sasl = sasl
        self._channels: dict[tuple[str, int], NodeChannel] = {}
        self._in_flight: dict[tuple[str, int], int] = {}
        self.cluster: ClusterDescription | None = None
        self._outdated = False
        """Whether `cluster` must be fetched again: a node in it does not answer or has another role."""
        self._described: dict[tuple[str, int], float] = {}  # the times of the last DescribeCluster requests
        self._failed: dict[tuple[str, int], float] = {}  # the times of failures without a later answer
        self._foreign_servers: dict[tuple[str, int], str | None] = {}
        """What listens at an address instead of Kafka. None where that is not certain."""
        self._connect_error: Exception | None = None
        """The error of the last attempt to connect, or None after a success."""
        self._warned: set[tuple[str, int]] = set()

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The addresses that the client was given."""
        return list(self._bootstrap)

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        await asyncio.sleep(0)  # the loop reports aborted transports in its next iteration

    # -- connections
    # ----------------------------------------------------------------------------------------------

    def channel(self, host: str, port: int) -> NodeChannel:
        """Returns the shared channel to an address."""
        found = self._channels.get((host, port))
        if found is None:
            found = self._channels[host, port] = self.new_channel(host, port)
        return found

    def new_channel(self, host: str, port: int) -> NodeChannel:
        """Returns a new channel, which the caller closes. Requests that are answered late need one, because
        later requests of a channel wait for them.
        """
        return NodeChannel(
            host,
            port,
            client_id=self._client_id,
            connect_timeout_s=min(10.0, self._request_timeout_s),
            ssl=self._ssl,
            sasl=self._sasl,
        )

    async def ask(
        self,
        address: tuple[str, int],
        request: Request,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Sends one request to one address, without retries.

        A node that does not answer is tried last later.
        """
        self._in_flight[address] = self._in_flight.get(address, 0) + 1
        try:
            answer = await self.channel(*address).call(request, timeout_s or self._request_timeout_s, version)
            self._failed.pop(address, None)
            return answer
        except (KafkaConnectionError, RequestTimedOut):
            self._failed[address] = asyncio.get_running_loop().time()
            raise
        finally:
            self._in_flight[address] -= 1

    async def connection(self, address: tuple[str, int]) -> Connection:
        return await self.channel(*address).connected()

    # -- the cluster
    # ----------------------------------------------------------------------------------------------

    async def any_address(self) -> tuple[str, int]:
        """Connects to a node and returns its address: the known node with the fewest requests in flight, or a
        bootstrap server.

        Nodes that did not answer are tried last, and so are, while the description is outdated, the nodes
        that gave it. Raises the error of the last node.
        """

        async def connect(address: tuple[str, int]) -> tuple[str, int]:
            await self._reach(address, None)
            return address

        return await self._first(connect)

    def _candidates(self) -> list[tuple[str, int]]:
        known = (
            [(n.host, n.port) for n in self.cluster.nodes if not n.fenced] if self.cluster is not None else []
        )
        candidates = sorted(known, key=lambda a: self._in_flight.get(a, 0))
        candidates += [a for a in self._bootstrap if a not in known]
        if self._outdated:
            candidates.sort(key=lambda a: self._described.get(a, 0.0))
        candidates.sort(key=lambda a: self._failed.get(a, 0.0))
        return candidates

    async def _first(self, attempt: Callable[[tuple[str, int]], Awaitable[T]]) -> T:
        """Makes an attempt at one node after the other and returns the first result.

        The next node is tried when an attempt fails or has no result after HEDGE_S. Raises the error of the
        last node, and any error that is not about the connection at once.
        """
        loop = asyncio.get_running_loop()
        candidates = self._candidates()
        waiting = candidates[::-1]
        tasks: dict[asyncio.Future[T], tuple[str, int]] = {}
        last: Exception | None = None
        strange: NotKafkaError | None = None
        try:
            while waiting or tasks:
                if waiting:
                    address = waiting.pop()
                    tasks[asyncio.ensure_future(attempt(address))] = address
                done, _ = await asyncio.wait(
                    tasks, timeout=HEDGE_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    address = tasks.pop(task)
                    try:
                        result = task.result()
                    except (KafkaConnectionError, RequestTimedOut) as error:
                        last = error
                        self._warn(address, f"{error}; trying again")
                    except NotKafkaError as error:
                        strange = error
                        if len(candidates) > 1:
                            self._warn(address, str(error))
                    else:
                        self._warned.discard(address)
                        for slower in tasks.values():
                            self._failed[slower] = loop.time()
                        return result
        finally:
            for task in tasks:
                if not task.cancel() and not task.cancelled():
                    task.exception()  # marks it as retrieved
        raise last or strange or KafkaConnectionError("no node is known")

    def _warn(self, address: tuple[str, int], what: str) -> None:
        if address not in self._warned:
            self._warned.add(address)
            logger.warning("[AdminClient clientId=%s] %s", self._client_id, what)

    async def _reach(self, address: tuple[str, int], timeout_s: float | None) -> None:
        """Connects unless connected. Raises KafkaConnectionError, NotKafkaError, and RequestTimedOut after
        `timeout_s`.
        """
        channel = self.channel(*address)
        if channel.connection is not None:
            return
        if self._foreign_servers.get(address) is None:
            try:
                async with asyncio.timeout(timeout_s):
                    connection = await channel.connected()
                self._connect_error = None
                if not self._is_controller_only(connection):
                    return
                self._foreign_servers[address] = CONTROLLER_LISTENER
                channel.disconnect()
            except (KafkaConnectionError, RequestTimedOut) as error:
                self._connect_error = error
                self._failed[address] = asyncio.get_running_loop().time()
                accepted = isinstance(error, RequestTimedOut) or error.__cause__ is None
                if self._ssl is not None:  # the server may have closed the connection during the handshake
                    accepted |= not isinstance(error.__cause__, ConnectionRefusedError)
                if accepted and address not in self._foreign_servers:
                    self._foreign_servers[address] = await foreign_server(*address, tls=self._ssl is not None)
                if self._foreign_servers.get(address) is None:
                    raise
            except TimeoutError as error:
                self._failed[address] = asyncio.get_running_loop().time()
                shown = f"{address[0]}:{address[1]} did not complete a connection within {timeout_s:g} s"
                raise RequestTimedOut(shown) from error
        raise NotKafkaError(f"{address[0]}:{address[1]} cannot be used: {self._foreign_servers[address]}")

    def _is_controller_only(self, connection: Connection) -> bool:
        """Whether the listener is a controller's and the client needs a broker's."""
        served = connection.api_versions
        return self.endpoint_type == BROKERS and ApiKey.VOTE in served and ApiKey.METADATA not in served

    async def refresh(self) -> ClusterDescription:
        """Fetches the description of the cluster."""

        async def one() -> ClusterDescription:
            return await self._first(describe)

        async def describe(address: tuple[str, int]) -> ClusterDescription:
            await self._reach(address, None)
            self._described[address] = asyncio.get_running_loop().time()
            try:
                answer = await self.ask(
                    address, messages.DescribeClusterRequest(endpoint_type=self.endpoint_type)
                )
            except UnsupportedVersion:
                if self.endpoint_type == CONTROLLERS:
                    raise
                return await self._by_metadata(address)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            nodes = tuple(
                Node(
                    b.broker_id,
                    b.host,
                    b.port,
                    b.rack,
                    getattr(b, "start_time_ms", 0),
                    getattr(b, "is_fenced", False),
                )
                for b in sorted(answer.brokers, key=lambda b: int(b.broker_id))
            )
            return ClusterDescription(answer.cluster_id, answer.controller_id, nodes, answer.endpoint_type)

        self.cluster = await self.until_answered(one, "a description of the cluster")
        self._outdated = False
        return self.cluster

    async def _by_metadata(self, address: tuple[str, int]) -> ClusterDescription:
        """Describes the cluster by Metadata, for brokers before 2.8, which have no DescribeCluster."""
        answer = await self.ask(address, messages.MetadataRequest(topics=[]))
        nodes = tuple(Node(b.node_id, b.host, b.port, b.rack, b.start_time_ms) for b in answer.brokers)
        return ClusterDescription(answer.cluster_id or "", answer.controller_id, nodes)

    def doubt(self) -> None:
        """Makes the next request fetch the description of the cluster again."""
        self._outdated = True

    async def nodes(self) -> tuple[Node, ...]:
        cluster = self.cluster or await self.refresh()
        return cluster.nodes

    async def address_of(self, node_id: int) -> tuple[str, int]:
        """Returns the address of a node.

        Raises BROKER_NOT_AVAILABLE if the cluster does not have the node.
        """
        for again in (self._outdated, True):
            cluster = await self.refresh() if again or self.cluster is None else self.cluster
            for node in cluster.nodes:
                if node.id == node_id:
                    return node.host, node.port
        raise KafkaError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"Node {node_id} is not available.",
            remedy=f"Those that are: {listed(sorted(node.id for node in cluster.nodes))}.",
        )

    # -- requests with retries
    # ----------------------------------------------------------------------------------------------

    async def until_answered(
        self, attempt: Callable[[], Awaitable[T]], what: str, final: Collection[ErrorCode] = ()
    ) -> T:
        """Repeats an attempt while it fails with a connection error or a retriable error that is not `final`.

        Raises the last error after the timeout.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.api_timeout_s
        backoff = self._backoff_s
        last: Exception | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except (KafkaConnectionError, RequestTimedOut) as error:
                last = error
            except TimeoutError:
                last = last or self._connect_error
                raise timed_out(what, last) from last
            except KafkaError as error:
                if not worth_retrying(error.code) or error.code in final:
                    raise
                last = error
            if loop.time() + backoff >= deadline:
                if isinstance(last, KafkaError):
                    raise last
                raise timed_out(what, last) from last
            await asyncio.sleep(backoff)
            if self.endpoint_type == BROKERS or not self._outdated:
                backoff = min(backoff * 2, self._backoff_max_s)

    async def call(
        self,
        request: Request,
        check: Callable[[Any], None] | None = None,
        *,
        timeout_s: float | None = None,
        final: Collection[ErrorCode] = (),
    ) -> Any:
        """Sends a request to any broker, or with controller bootstrap to the active controller.

        `check` raises the error of a response. `timeout_s` is the timeout of one attempt. `final` are
        retriable errors that are not retried.
        """

        async def one() -> Any:
            try:
                address = (
                    await self.controller_address()
                    if self.endpoint_type == CONTROLLERS
                    else await self.any_address()
                )
                answer = await self.ask(address, request, timeout_s=timeout_s)
                if check is not None:
                    check(answer)
                return answer
            except (KafkaConnectionError, RequestTimedOut):
                self._outdated = True
                raise
            except KafkaError as error:
                self._outdated |= error.code.retriable  # the node is not the controller
                raise

        try:
            return await self.until_answered(
                one, f"an answer to {type(request).__name__.removesuffix('Request')}", final
            )
        except RequestTimedOut as error:
            connected = error.__cause__ is None or isinstance(error.__cause__, RequestTimedOut)
            if self.endpoint_type != BROKERS or not connected:
                raise
            raise RequestTimedOut(f"{str(error).removesuffix('.')}. {_MAYBE_NO_CONTROLLER}") from error

    async def controller_address(self) -> tuple[str, int]:
        """Connects to the active controller and returns its address.

        Raises NOT_CONTROLLER (retriable) while none is known, and KafkaConnectionError or RequestTimedOut if
        the known one cannot be reached.
        """
        cluster = self.cluster if self.cluster is not None and not self._outdated else await self.refresh()
        for node in cluster.nodes:
            if node.id == cluster.controller_id:
                # A follower may still name a leader that is gone.
                await self._reach((node.host, node.port), CONTROLLER_CONNECT_TIMEOUT_S)
                return node.host, node.port
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            "No active controller is known.",
            remedy="kafka-metadata-quorum describe --status shows the voters and which of them fetch.",
        )

    async def call_node(
        self, node_id: int, request: Request, check: Callable[[Any], None] | None = None
    ) -> Any:
        """Sends a request to one node, with retries. `check` raises the error of a response."""

        async def one() -> Any:
            try:
                answer = await self.ask(await self.address_of(node_id), request)
            except (KafkaConnectionError, RequestTimedOut):
                self._outdated = True  # it may have restarted at another address
                raise
            if check is not None:
                check(answer)
            return answer

        return await self.until_answered(
            one, f"an answer to {type(request).__name__.removesuffix('Request')}"
        )


_MAYBE_NO_CONTROLLER = (
    "If it waits for the active controller, "
    "kafka-metadata-quorum describe --status shows whether there is one."
)


def timed_out(what: str, last: Exception | None) -> RequestTimedOut:
    """Returns the error of a timeout, with the error of the last attempt."""
    return RequestTimedOut(f"Timed out waiting for {what}" + (f": {last}" if last is not None else "."))


def worth_retrying(code: ErrorCode) -> bool:
    """Whether the admin client retries an error. Some retriable errors are results: a missing topic is
    reported at once.
    """
    return code.retriable and code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
