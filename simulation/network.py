"""The network between simulated processes: Kafka's bytes, with the delays, losses and cuts of the plan.

A connection is never lost by itself: what goes astray is missed after the request's timeout. A killed process resets its
connections, a machine without power says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from quorate.net.dispatch import RequestContext
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.regions import FileRegion
from quorate.protocol.schema import Request, Response
from quorate.raft.types import Address, ReplicaKey
from simulation.replica import LISTENER
from simulation.world import ADDING_S, RESET_S

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.life import Life


def materialise(parts: list[Any]) -> bytes:
    return b"".join(p.read() if isinstance(p, FileRegion) else bytes(p) for p in parts)


class Exchange:
    """One request and what becomes of it."""

    __slots__ = ("address", "data", "deadline", "future", "key", "number", "request", "sender", "version")

    def __init__(
        self,
        sender: Life,
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
    """Implements the driver's Transport for one life of a process."""

    def __init__(self, network: Network, life: Life) -> None:
        self.network = network
        self.life = life
        self.on_lost: Callable[[Address], None] | None = None

    def post(self, address: Address, request: Request, timeout_s: float) -> asyncio.Future[Response] | None:
        return self.network.send(self.life, address, request, timeout_s)

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response:
        return await self.network.send(self.life, address, request, timeout_s)

    def warm(self, addresses: Iterable[Address]) -> None:
        pass

    def close(self) -> None:
        self.on_lost = None


class Network:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent = 0
        self.newest: dict[tuple[int, int], int] = {}  # the number of the request that arrived last, by its two ends
        self.waiting: dict[Life, dict[Exchange, None]] = {}  # requests that a process has not answered yet

    def send(self, sender: Life, address: Address, request: Request, timeout_s: float) -> asyncio.Future[Response]:
        cluster, links = self.cluster, self.cluster.plan.links
        with cluster.reporting():
            sender.process.witness.sends(request)
        version = REGISTRY[type(request).KEY].max_version
        future: asyncio.Future[Response] = cluster.loop.create_future()
        if isinstance(request, AddRaftVoterRequest):
            cluster.adding[ReplicaKey(request.voter_id, request.voter_directory_id)] = cluster.now + ADDING_S
        self.sent += 1
        cluster.happened["requests sent"] += 1
        exchange = Exchange(sender, address, request, version, cluster.now + timeout_s, future, self.sent)
        cluster.push(exchange.deadline, self._time_out, exchange)
        cluster.push(cluster.now + cluster.delay(), self._arrive, exchange)
        if links.duplicate and cluster.rng.random() < links.duplicate:
            cluster.push(cluster.now + cluster.delay(), self._arrive, exchange)
            cluster.happened["requests duplicated"] += 1
        return future

    def _finish(self, exchange: Exchange, result: Response | Exception) -> bool:
        """The sender learns the outcome, in its own context. False when it is past caring."""
        life = exchange.sender
        if not life.alive or exchange.future.done():
            return False
        if isinstance(result, Exception):
            life.context.run(exchange.future.set_exception, result)
            exchange.future.exception()  # its sender may die before it looks
        else:
            life.process.witness.hears_answer(exchange, result)
            life.context.run(exchange.future.set_result, result)
        self.cluster.loop.touched[life] = None
        return True

    def _time_out(self, exchange: Exchange) -> bool:
        return self._finish(exchange, RequestTimedOut("no answer in time"))

    def _refuse(self, exchange: Exchange) -> bool:
        if exchange.sender.alive:
            exchange.sender.process.witness.unreachable(exchange.address)
        return self._finish(exchange, KafkaConnectionError("refused or reset"))

    def _arrive(self, exchange: Exchange) -> bool | None:
        cluster = self.cluster
        target = cluster.at_address(exchange.address)
        if target is None or cluster.lost(exchange.sender.process.id, target.id):
            return None
        ends = (exchange.sender.process.id, target.id)
        if exchange.number < self.newest.get(ends, 0):
            cluster.happened["requests overtaken"] += 1
        else:
            self.newest[ends] = exchange.number
        life = target.now_living
        if life is None or not life.ready:
            if life is not None or not target.silent:
                cluster.push(cluster.now + cluster.delay(), self._refuse, exchange)
            return None
        if life.blocked_until > cluster.now:
            cluster.push(life.blocked_until, self._arrive, exchange)
            return False
        self.waiting.setdefault(life, {})[exchange] = None
        cluster.loop.touched[life] = None
        life.context.run(self._serve, life, exchange)
        return None

    def _serve(self, life: Life, exchange: Exchange) -> None:
        """In the context of the process that is asked."""
        if exchange.key == ApiKey.API_VERSIONS:
            self._answered(life, exchange, life.process.api_versions())
            return
        received = type(exchange.request).decode(exchange.data, exchange.version)
        context = RequestContext(
            api_key=exchange.key, api_version=exchange.version, correlation_id=1, client_id="simulation", listener=LISTENER
        )
        life.process.witness.asked(received)
        try:
            answer = life.client.handle(context, received)
        except KafkaError:
            self._refuse(exchange)
            return
        if isinstance(answer, Response):
            self._answered(life, exchange, answer)
        else:
            future = asyncio.ensure_future(answer)
            future.add_done_callback(lambda done: self._answered(life, exchange, done.result()))

    def _answered(self, life: Life, exchange: Exchange, answer: Response) -> None:
        cluster = self.cluster
        found = self.waiting.get(life)
        if found is not None:
            found.pop(exchange, None)
        with cluster.reporting():
            life.process.witness.answers(exchange.request, answer)
        data = materialise(answer.encode_parts(exchange.version))
        if not cluster.lost(life.process.id, exchange.sender.process.id):
            cluster.push(cluster.now + cluster.delay(), self._answer_arrives, (exchange, type(answer), data))

    def _answer_arrives(self, what: tuple[Exchange, type[Response], bytes]) -> bool:
        exchange, kind, data = what
        life = exchange.sender
        if life.alive and life.blocked_until > self.cluster.now:
            self.cluster.push(life.blocked_until, self._answer_arrives, what)
            return False
        return self._finish(exchange, kind.decode(data, exchange.version))

    def died(self, life: Life, power: bool) -> None:
        cluster = self.cluster
        waiting = list(self.waiting.pop(life, ()))
        if power:
            return
        for exchange in waiting:
            if not cluster.lost(life.process.id, exchange.sender.process.id):
                cluster.push(cluster.now + RESET_S, self._refuse, exchange)
        for other in cluster.replicas.values():
            if other is not life.process and other.now_living is not None and not cluster.lost(life.process.id, other.id):
                cluster.push(cluster.now + RESET_S, self._reset, (other.now_living, life.process.address))

    def _reset(self, what: tuple[Life, Address]) -> bool:
        life, address = what
        transport = life.transport
        if not life.alive or transport.on_lost is None:
            return False
        life.process.witness.unreachable(address)
        self.cluster.loop.touched[life] = None
        life.context.run(transport.on_lost, address)
        return True
