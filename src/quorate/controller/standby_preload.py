"""Prepares an idle standby so that it can become active at once.

Handlers are imported and messages are compiled on first use, so that a node starts quickly. A standby
would first use them after the failure of the active controller, and would lose about fifty milliseconds,
more on a busy machine. It therefore loads them in advance, one in each turn of the event loop, and waits
longer between two steps while the loop is busy. The active controller loads nothing in advance: the only
voter of a quorum would never need it, and its clients would wait for it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterator

from quorate.controller.requests.routes import write_handler
from quorate.dataclass import compile_constructors
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.headers import RequestHeader
from quorate.protocol.schema import Struct
from quorate.records.control import LeaderChangeMessage

logger = logging.getLogger(__name__)

BEGIN_AFTER_S = 0.5  # gives the node time to start
PAUSE_S = 0.005  # between two steps, so that requests are not delayed
BUSY_PAUSE_S = 0.1  # the same while the loop is busy; 250 steps then take 25 seconds
ACTIVE_PAUSE_S = 1.0  # until the next look at whether the controller is still active
BUSY_AFTER_S = 0.002  # by how much the timer of a step is late when the loop is busy

RAFT_KEYS = (
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
)  # fmt: skip
"""The APIs that every voter uses."""

FIRST_REQUESTS = (
    ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS,
)  # fmt: skip
"""What nodes and applications send to a new active controller without an operator. An operator does
not notice the few milliseconds of another handler's first use, and each one loaded takes memory on
every standby."""

MODULES = (
    "quorate.protocol.compiler",
    "quorate.raft.runtime.wire.requests",
    "quorate.raft.runtime.wire.replies",
    "quorate.protocol.messages.api_versions",
    "quorate.controller.requests.envelope",
    "quorate.controller.replication.placement",
    "quorate.controller.replication.fencing",
    "quorate.protocol.messages.principal_data",
)
"""Large modules, each of which is a step of its own so that no step takes long."""

RECORDS = (
    "TopicRecord", "PartitionRecord", "PartitionChangeRecord", "ConfigRecord", "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord", "RemoveTopicRecord", "NoOpRecord", "ProducerIdsRecord",
    "RegisterControllerRecord", "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord",
)  # fmt: skip
"""The records that an active controller writes sooner or later, each in its newest version."""

PACKAGES = ("quorate.raft", "quorate.controller", "quorate.metadata")
"""The packages whose dataclasses an active controller uses."""

FORWARDED = ApiKey.CREATE_TOPICS
"""The request that clients are most likely to repeat at once. Brokers forward it in the client's version."""


def structs(message: type[Struct]) -> Iterator[type[Struct]]:
    """A message and the structs in it."""
    yield message
    for member in tuple(vars(message).values()):
        if isinstance(member, type) and issubclass(member, Struct):
            yield from structs(member)


def constructors(message: type[Struct]) -> Iterator[None]:
    """Compiles the constructor of one struct of a message in each step."""
    for struct in structs(message):
        struct()
        yield


def pieces() -> Iterator[None]:
    """Loads one module or compiles one codec or constructor in each step."""
    for module in MODULES:
        importlib.import_module(module)
        yield
    for key in RAFT_KEYS:
        spec = REGISTRY[key]
        for message in (spec.request, spec.response):
            message.encoder(spec.max_version)
            yield
            message.decoder(spec.max_version)
            yield
            yield from constructors(message)
    LeaderChangeMessage.encoder(0)
    yield from constructors(LeaderChangeMessage)
    for version in (1, 2):  # of the requests in an Envelope
        RequestHeader.decoder(version)
        yield
    importlib.import_module("quorate.protocol.messages.principal_data").DefaultPrincipalData.decoder(0)
    yield
    for served in (ApiKey.ENVELOPE, *FIRST_REQUESTS):
        if served in FIRST_REQUESTS:
            write_handler(served)
            yield
        spec = REGISTRY[served]
        spec.request.decoder(spec.max_version)
        yield
        spec.response.encoder(spec.max_version)
        yield
        yield from constructors(spec.response)
    spec = REGISTRY[FORWARDED]
    for version in range(spec.served_from, spec.max_version):
        spec.request.decoder(version)
        yield
        spec.response.encoder(version)
        yield
    records = importlib.import_module("quorate.metadata.records")
    for name in RECORDS:
        record = getattr(records, name)
        record.encoder(record.MAX_VERSION)
        yield
        yield from constructors(record)
    for package in PACKAGES:
        yield from compile_constructors(package)


class StandbyPreload:
    """Runs the steps in the event loop, with pauses, until they are done or `close` is called. No step runs
    while `is_active` returns True."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self._is_active = is_active
        self._pieces = pieces()
        self._timer: asyncio.TimerHandle | None = None
        self._expected = 0.0  # when the timer should run, by the clock of the loop
        self.done = False

    def begin(self) -> None:
        """Starts the timer of the first step."""
        self._schedule(BEGIN_AFTER_S)

    def close(self) -> None:
        """Stops the timer of the preload."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, pause: float) -> None:
        loop = asyncio.get_running_loop()
        self._expected = loop.time() + pause
        self._timer = loop.call_at(self._expected, self._next)

    def _next(self) -> None:
        if self._is_active():
            self._schedule(ACTIVE_PAUSE_S)
            return
        busy = asyncio.get_running_loop().time() - self._expected > BUSY_AFTER_S
        try:
            next(self._pieces)
        except StopIteration:
            self.done = True
        except Exception:
            logger.exception("[Standby] Preparation failed; the first use will report the error")
        else:
            self._schedule(BUSY_PAUSE_S if busy else PAUSE_S)
