"""What a standby does while it is idle so that it can take over at once.

Handlers are imported and messages compiled on first use, so that a node starts quickly. For a standby
that use comes when the active controller has died, and then it would cost some fifty milliseconds. So
it is done ahead, one piece a turn.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterator

from quorate.controller.requests.routes import WRITES, write_handler
from quorate.protocol.api import REGISTRY, ApiKey

log = logging.getLogger(__name__)

BEGIN_AFTER_S = 0.5  # the node starts first
PAUSE_S = 0.005  # between pieces: what the node is there for comes first

RAFT_KEYS = (
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
)  # fmt: skip
"""Said and heard by every voter."""

MODULES = (
    "quorate.protocol.compiler",
    "quorate.protocol.messages.incremental_alter_configs",
    "quorate.protocol.messages.api_versions",
    "quorate.controller.requests.envelope",
    "quorate.controller.replication.placement",
)
"""Large ones first by themselves: no piece should take long."""

RECORDS = (
    "TopicRecord", "PartitionRecord", "PartitionChangeRecord", "ConfigRecord", "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord", "RemoveTopicRecord", "NoOpRecord", "ProducerIdsRecord", "RegisterControllerRecord",
)  # fmt: skip
"""Which every active controller writes sooner or later; in all versions of today's metadata.version."""


def pieces() -> Iterator[None]:
    """Loads one thing at each step."""
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
    for served in (int(ApiKey.ENVELOPE), *WRITES):
        if served in WRITES:
            write_handler(served)
            yield
        spec = REGISTRY[served]
        spec.request.decoder(spec.max_version)
        yield
        spec.response.encoder(spec.max_version)
        yield
    records = importlib.import_module("quorate.metadata.records")
    for name in RECORDS:
        record = getattr(records, name)
        record.encoder(record.MAX_VERSION)
        yield


class WarmUp:
    """Runs `pieces` in the loop, with pauses, until it is done or closed."""

    def __init__(self) -> None:
        self._pieces = pieces()
        self._timer: asyncio.TimerHandle | None = None
        self.done = False

    def begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BEGIN_AFTER_S, self._next)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        try:
            next(self._pieces)
        except StopIteration:
            self.done = True
        except Exception:
            log.exception("[Standby] cannot prepare: the first use will tell why")
        else:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._next)
