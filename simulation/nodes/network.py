"""The network between simulated processes: Kafka's bytes, with delays, losses and cut links as configured.

A lost message does not break its connection: the sender notices it when the request times out. A killed
process resets its connections; a host without power does not.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from quorate.net.dispatch import RequestContext
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.schema import Request, Response
from quorate.raft.runtime.client import RaftClient
from quorate.raft.types import Address, ReplicaKey
from simulation.config import ADD_VOTER_TIMEOUT_S, CONNECTION_RESET_DELAY_S
from simulation.identifiers import BASE_PORT, LISTENER
from simulation.nodes.environment import Environment
from simulation.nodes.loop import CallbackOwner
from simulation.nodes.observer import ProcessObserver


class NetworkNode(Protocol):
    """What the network uses of a process."""

    @property
    def id(self) -> int: ...
    @property
    def address(self) -> Address: ...
    @property
    def observer(self) -> ProcessObserver: ...
    @property
    def without_power(self) -> bool: ...
    @property
    def current(self) -> Endpoint | None: ...
    def api_versions(self) -> ApiVersionsResponse: ...


class Endpoint(CallbackOwner, Protocol):
    """What the network uses of an incarnation of a process: it sends requests and serves those of others."""

    ready: bool
    context: contextvars.Context
    client: RaftClient

    @property
    def process(self) -> NetworkNode: ...
    @property
    def transport(self) -> SimulatedTransport: ...


def materialise(parts: list[Any]) -> bytes:
    """Joins the parts of an encoded response, with the bytes of files read."""
    return b"".join(p.read() if isinstance(p, FileRegion) else bytes(p) for p in parts)


class Exchange:
    """One request and its outcome: a response, a timeout or a connection error."""

    __slots__ = ("address", "data", "deadline", "future", "key", "number", "request", "sender", "version")

    def __init__(
        self,
        sender: Endpoint,
        address: Address,
        request: Request,
        version: int,
        deadline: float,
        future: asyncio.Future[Response],
        number: int,
    ) -> None:
        self.sender = sender
        self.address = address
        self.request = request
        self.key = type(request).KEY
        self.version = version
        self.data = bytes(request.encode(version))
        self.deadline = deadline
        self.future = future
        self.number = number


class SimulatedTransport:
    """Implements the driver's Transport for one incarnation of a process."""

    def __init__(self, network: Network, incarnation: Endpoint) -> None:
        self.network = network
        self.incarnation = incarnation
        self.on_lost: Callable[[Address], None] | None = None
        self.on_receiving: Callable[[Address], None] | None = None

    def post(self, address: Address, request: Request, timeout_s: float) -> asyncio.Future[Response] | None:
        return self.network.send(self.incarnation, address, request, timeout_s)

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response:
        return await self.network.send(self.incarnation, address, request, timeout_s)

    def warm(self, addresses: Iterable[Address]) -> None:
        pass

    def close(self) -> None:
        self.on_lost = None


class Network:
    """Carries requests and responses between the processes of a environment."""

    def __init__(self, environment: Environment, nodes: Mapping[int, NetworkNode]) -> None:
        self.environment = environment
        self.nodes = nodes  # filled after the network is created
        self.sent = 0
        # (sender, target) -> number of the newest request that arrived.
        self.latest_arrival: dict[tuple[int, int], int] = {}
        # Requests that are not answered yet, by the process that handles them.
        self.waiting: dict[Endpoint, dict[Exchange, None]] = {}

    def send(
        self, sender: Endpoint, address: Address, request: Request, timeout_s: float
    ) -> asyncio.Future[Response]:
        environment, network = self.environment, self.environment.config.network
        with environment.collecting_violations():
            sender.process.observer.before_request(request)
        version = REGISTRY[type(request).KEY].max_version
        future: asyncio.Future[Response] = environment.loop.create_future()
        if isinstance(request, AddRaftVoterRequest):
            environment.pending_additions[ReplicaKey(request.voter_id, request.voter_directory_id)] = (
                environment.now + ADD_VOTER_TIMEOUT_S
            )
        self.sent += 1
        environment.coverage["requests sent"] += 1
        exchange = Exchange(sender, address, request, version, environment.now + timeout_s, future, self.sent)
        environment.schedule(exchange.deadline, self._time_out, exchange)
        environment.schedule(environment.now + environment.delay(), self._arrive, exchange)
        if network.duplicate and environment.rng.random() < network.duplicate:
            environment.schedule(environment.now + environment.delay(), self._arrive, exchange)
            environment.coverage["requests duplicated"] += 1
        return future

    def _finish(self, exchange: Exchange, result: Response | Exception) -> bool:
        """Gives the outcome to the sender, in its own context.

        Returns False if the sender no longer waits for it.
        """
        incarnation = exchange.sender
        if not incarnation.alive or exchange.future.done():
            return False
        if isinstance(result, Exception):
            incarnation.context.run(exchange.future.set_exception, result)
            exchange.future.exception()  # marks it as retrieved: the sender may die before it does that
        else:
            current = incarnation.process.current is incarnation
            incarnation.process.observer.response_received(
                exchange.address, exchange.request, result, current
            )
            incarnation.context.run(exchange.future.set_result, result)
        self.environment.loop.active_owners[incarnation] = None
        return True

    def _time_out(self, exchange: Exchange) -> bool:
        return self._finish(exchange, RequestTimedOut("no answer in time"))

    def _refuse(self, exchange: Exchange) -> bool:
        if exchange.sender.alive:
            exchange.sender.process.observer.unreachable(exchange.address)
        return self._finish(exchange, KafkaConnectionError("refused or reset"))

    def _arrive(self, exchange: Exchange) -> bool | None:
        environment = self.environment
        target = self.nodes.get(exchange.address[1] - BASE_PORT)
        if target is None or environment.drops_message(exchange.sender.process.id, target.id):
            return None
        ends = (exchange.sender.process.id, target.id)
        if exchange.number < self.latest_arrival.get(ends, 0):
            environment.coverage["requests overtaken"] += 1
        else:
            self.latest_arrival[ends] = exchange.number
        incarnation = target.current
        if incarnation is None or not incarnation.ready:
            if incarnation is not None or not target.without_power:
                environment.schedule(environment.now + environment.delay(), self._refuse, exchange)
            return None
        if incarnation.blocked_until > environment.now:
            environment.schedule(incarnation.blocked_until, self._arrive, exchange)
            return False
        self.waiting.setdefault(incarnation, {})[exchange] = None
        environment.loop.active_owners[incarnation] = None
        incarnation.context.run(self._serve, incarnation, exchange)
        return None

    def _serve(self, incarnation: Endpoint, exchange: Exchange) -> None:
        """Handles a request in the context of the process that received it."""
        if exchange.key == ApiKey.API_VERSIONS:
            self._answered(incarnation, exchange, incarnation.process.api_versions())
            return
        received = type(exchange.request).decode(exchange.data, exchange.version)
        context = RequestContext(
            api_key=exchange.key,
            api_version=exchange.version,
            correlation_id=1,
            client_id="simulation",
            listener=LISTENER,
        )
        incarnation.process.observer.request_received(received)
        try:
            answer = incarnation.client.handle(context, received)
        except KafkaError:
            self._refuse(exchange)
            return
        if isinstance(answer, Response):
            self._answered(incarnation, exchange, answer)
        else:
            future = asyncio.ensure_future(answer)
            future.add_done_callback(lambda done: self._answered(incarnation, exchange, done.result()))

    def _answered(self, incarnation: Endpoint, exchange: Exchange, answer: Response) -> None:
        environment = self.environment
        found = self.waiting.get(incarnation)
        if found is not None:
            found.pop(exchange, None)
        with environment.collecting_violations():
            incarnation.process.observer.before_response(exchange.request, answer)
        data = materialise(answer.encode_parts(exchange.version))
        if not environment.drops_message(incarnation.process.id, exchange.sender.process.id):
            environment.schedule(
                environment.now + environment.delay(), self._answer_arrives, (exchange, type(answer), data)
            )

    def _answer_arrives(self, what: tuple[Exchange, type[Response], bytes]) -> bool:
        exchange, kind, data = what
        incarnation = exchange.sender
        if incarnation.alive and incarnation.blocked_until > self.environment.now:
            self.environment.schedule(incarnation.blocked_until, self._answer_arrives, what)
            return False
        return self._finish(exchange, kind.decode(data, exchange.version))

    def died(self, incarnation: Endpoint, power: bool) -> None:
        """Resets the connections of a process that was killed. Without power its host cannot do that."""
        environment = self.environment
        waiting = list(self.waiting.pop(incarnation, ()))
        if power:
            return
        for exchange in waiting:
            if not environment.drops_message(incarnation.process.id, exchange.sender.process.id):
                environment.schedule(environment.now + CONNECTION_RESET_DELAY_S, self._refuse, exchange)
        for other in self.nodes.values():
            if (
                other is not incarnation.process
                and other.current is not None
                and not environment.drops_message(incarnation.process.id, other.id)
            ):
                environment.schedule(
                    environment.now + CONNECTION_RESET_DELAY_S,
                    self._reset,
                    (other.current, incarnation.process.address),
                )

    def _reset(self, what: tuple[Endpoint, Address]) -> bool:
        incarnation, address = what
        transport = incarnation.transport
        if not incarnation.alive or transport.on_lost is None:
            return False
        incarnation.process.observer.unreachable(address)
        self.environment.loop.active_owners[incarnation] = None
        incarnation.context.run(transport.on_lost, address)
        return True
