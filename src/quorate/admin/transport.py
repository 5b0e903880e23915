"""How the admin client reaches a cluster: bootstrap, which node to ask, when to try again.

By broker bootstrap any broker is asked (the one with the fewest requests in flight); what only the
controller can do, brokers forward. By controller bootstrap the active controller is asked; when it is
lost, all that are known are asked in turn, without growing back-off, until one names a successor that
answers. A request is repeated, with back-off, while its error is retriable and time is left.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from quorate.admin.diagnosis import what_listens
from quorate.admin.errors import NotKafkaError
from quorate.admin.types import ClusterDescription, Node
from quorate.net.client import Connection, NodeChannel
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol import messages
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Request

log = logging.getLogger("quorate.admin")

T = TypeVar("T")

BROKERS, CONTROLLERS = 1, 2

CONTROLLER_LISTENER = (
    "it is a controller's listener, and a broker's is wanted: give a broker's port, or name the controller "
    "by "
    "--bootstrap-controller (bootstrap_controllers in Python) where that is served"
)
PATIENCE_S = 2.0
"""For a connection to the controller while others could be asked who it is; it goes on being made
meanwhile."""

HEDGE_S = 0.5
"""Silence after which the next node is asked too, where any will do: one that stands still costs this,
not a timeout."""

_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d{1,5})"
)


def parse_servers(text: str | Sequence[str]) -> list[tuple[str, int]]:
    """Host and port of each of "host:port,[::1]:port". Raises ValueError naming the part that is
    wrong."""
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
        self._doubted = False  # the description: someone whom it names does not answer, or says that he is not who it says
        self._described: dict[tuple[str, int], float] = {}  # when each was asked for a description
        self._failed: dict[tuple[str, int], float] = {}  # when, and no answer since
        self._listens: dict[
            tuple[str, int], str | None
        ] = {}  # what is there instead of Kafka, where that is certain
        self._trouble: Exception | None = None  # with the last connection that was wanted, until one is there
        self._warned: set[tuple[str, int]] = set()

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The addresses that the client was given."""
        return list(self._bootstrap)

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        await asyncio.sleep(0)  # aborted transports report their end on the next turn

    # -- connections
    # ----------------------------------------------------------------------------------------------

    def channel(self, host: str, port: int) -> NodeChannel:
        """The shared channel to an address."""
        found = self._channels.get((host, port))
        if found is None:
            found = self._channels[host, port] = self.new_channel(host, port)
        return found

    def new_channel(self, host: str, port: int) -> NodeChannel:
        """A channel of one's own, which its owner closes: for requests that the server answers late, as
        all behind them wait."""
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
        """One request to one address, once. A node that does not answer is asked last from then on."""
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
        """A node that answers: of the known ones the least loaded, else a bootstrap server; those that
        did not answer last, and while the description is in doubt those last that gave it. Raises the
        last one's error."""

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
        if self._doubted:
            candidates.sort(key=lambda a: self._described.get(a, 0.0))
        candidates.sort(key=lambda a: self._failed.get(a, 0.0))
        return candidates

    async def _first(self, attempt: Callable[[tuple[str, int]], Awaitable[T]]) -> T:
        """The first success of an attempt that may be made at several nodes at once: at the next one
        when one fails, or says nothing for HEDGE_S. Raises the last one's error, or what else an attempt
        raises."""
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
                    task.exception()  # seen
        raise last or strange or KafkaConnectionError("no node is known")

    def _warn(self, address: tuple[str, int], what: str) -> None:
        if address not in self._warned:
            self._warned.add(address)
            log.warning("[AdminClient clientId=%s] %s", self._client_id, what)

    async def _reach(self, address: tuple[str, int], patience_s: float | None) -> None:
        """Connects, if need be. Raises KafkaConnectionError, NotKafkaError, and RequestTimedOut when it
        takes longer than `patience_s`."""
        channel = self.channel(*address)
        if channel.connection is not None:
            return
        if self._listens.get(address) is None:
            try:
                async with asyncio.timeout(patience_s):
                    connection = await channel.connected()
                self._trouble = None
                if not self._is_controller_only(connection):
                    return
                self._listens[address] = CONTROLLER_LISTENER
                channel.disconnect()
            except (KafkaConnectionError, RequestTimedOut) as error:
                self._trouble = error
                self._failed[address] = asyncio.get_running_loop().time()
                accepted = isinstance(error, RequestTimedOut) or error.__cause__ is None
                if accepted and self._ssl is None and address not in self._listens:
                    self._listens[address] = await what_listens(*address)
                if self._listens.get(address) is None:
                    raise
            except TimeoutError as error:
                self._failed[address] = asyncio.get_running_loop().time()
                shown = f"{address[0]}:{address[1]} did not complete a connection within {patience_s:g} s"
                raise RequestTimedOut(shown) from error
        raise NotKafkaError(f"{address[0]}:{address[1]} cannot be used: {self._listens[address]}")

    def _is_controller_only(self, connection: Connection) -> bool:
        """Whether a controller listens where a broker is wanted."""
        served = connection.api_versions
        return self.endpoint_type == BROKERS and ApiKey.VOTE in served and ApiKey.METADATA not in served

    async def refresh(self) -> ClusterDescription:
        """Learns the nodes anew."""

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
        self._doubted = False
        return self.cluster

    async def _by_metadata(self, address: tuple[str, int]) -> ClusterDescription:
        """For brokers before 2.8, which have no DescribeCluster."""
        answer = await self.ask(address, messages.MetadataRequest(topics=[]))
        nodes = tuple(Node(b.node_id, b.host, b.port, b.rack, b.start_time_ms) for b in answer.brokers)
        return ClusterDescription(answer.cluster_id or "", answer.controller_id, nodes)

    def doubt(self) -> None:
        """What is known of the cluster may have changed: it is asked for before it is used again."""
        self._doubted = True

    async def nodes(self) -> tuple[Node, ...]:
        cluster = self.cluster or await self.refresh()
        return cluster.nodes

    async def address_of(self, node_id: int) -> tuple[str, int]:
        """Where a node is. Raises BROKER_NOT_AVAILABLE when the cluster does not have it."""
        for again in (self._doubted, True):
            cluster = await self.refresh() if again or self.cluster is None else self.cluster
            for node in cluster.nodes:
                if node.id == node_id:
                    return node.host, node.port
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {node_id} is not available.")

    # -- asking until there is an answer
    # ----------------------------------------------------------------------------------------------

    async def until_answered(
        self, attempt: Callable[[], Awaitable[T]], what: str, final: Collection[ErrorCode] = ()
    ) -> T:
        """Repeats an attempt while it fails for connections or retriable errors, `final` ones aside; the
        last error when the time is over."""
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
                last = last or self._trouble
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
            if self.endpoint_type == BROKERS or not self._doubted:
                backoff = min(backoff * 2, self._backoff_max_s)

    async def call(
        self,
        request: Request,
        check: Callable[[Any], None] | None = None,
        *,
        timeout_s: float | None = None,
        final: Collection[ErrorCode] = (),
    ) -> Any:
        """Asks any broker, or, by controller bootstrap, the active controller; `check` raises what the
        answer says.

        timeout_s: of one attempt, instead of the usual time. final: errors that are answers, though
        others would retry them."""

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
                self._doubted = True
                raise
            except KafkaError as error:
                self._doubted |= error.code.retriable  # no controller any more, or not yet
                raise

        return await self.until_answered(
            one, f"an answer to {type(request).__name__.removesuffix('Request')}", final
        )

    async def controller_address(self) -> tuple[str, int]:
        """The active controller. Raises NOT_CONTROLLER (retriable) while none is known,
        KafkaConnectionError and RequestTimedOut when the one that is named cannot be connected to."""
        cluster = self.cluster if self.cluster is not None and not self._doubted else await self.refresh()
        for node in cluster.nodes:
            if node.id == cluster.controller_id:
                await self._reach(
                    (node.host, node.port), PATIENCE_S
                )  # a follower may go on naming the leader that it had
                return node.host, node.port
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "No active controller is known.")

    async def call_node(
        self, node_id: int, request: Request, check: Callable[[Any], None] | None = None
    ) -> Any:
        """Asks one node."""

        async def one() -> Any:
            try:
                answer = await self.ask(await self.address_of(node_id), request)
            except (KafkaConnectionError, RequestTimedOut):
                self._doubted = True  # it may have come back elsewhere
                raise
            if check is not None:
                check(answer)
            return answer

        return await self.until_answered(
            one, f"an answer to {type(request).__name__.removesuffix('Request')}"
        )


def timed_out(what: str, last: Exception | None) -> RequestTimedOut:
    """The end of the patience, with the reason of the last attempt."""
    return RequestTimedOut(f"Timed out waiting for {what}" + (f": {last}" if last is not None else "."))


def worth_retrying(code: ErrorCode) -> bool:
    """Retriable, and not an answer in itself: a topic that is not there is told at once, not after a
    minute."""
    return code.retriable and code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
