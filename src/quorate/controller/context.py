"""What a controller handler may know, and what it may answer.

Rules of this room: a handler reads `View` and `Context` and nothing else; it never changes either. It
says what is to change by the records of its `Result`; soft state (who was heard of last) by the `Touch`
in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from quorate.controller.config import MAX_RECORDS_PER_USER_OP, ControllerConfig
from quorate.controller.continuation import Continuation
from quorate.controller.replication.directories import is_online
from quorate.metadata.features import ELR_VERSION, FIRST_DIRECTORIES
from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID, random_uuid

if TYPE_CHECKING:
    from quorate.controller.brokers.sessions import BrokerSessions
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.image.cluster import BrokerRegistration
    from quorate.protocol.schema import Data

R = TypeVar("R")

MAX_LOST_TRIES = 1_000
"""More than a broker makes of one request within its minute."""

MIN_ISR = "min.insync.replicas"

NO_EPOCH_ON_SHRINK_SINCE = 12
"""From this metadata.version an ISR shrink leaves the leader epoch alone."""


@dataclass(slots=True, frozen=True)
class Context:
    """One request's circumstances. now_ms: wall clock, milliseconds; now: monotonic seconds; rng: the
    only source of chance.

    request_id: the same for every try of one forwarded request, zeros where it is not known;
    lost_tries: so many tries had no answer that counts, and may have been carried out. rest: what an
    earlier turn of this very request left over.
    """

    now_ms: int
    now: float
    rng: Random
    api_version: int = 0
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    client_host: str = ""
    listener: str = ""
    request_id: bytes = ZERO_UUID
    lost_tries: int = 0
    continuation: Continuation | None = None

    def uuid(self) -> bytes:
        """A random UUID (version 4) whose text never begins with '-', as Kafka's ids never do."""
        return random_uuid(self.rng.randbytes(16))

    def topic_id(self, name: str) -> bytes:
        """The id that a topic created by this try gets: random, but by the request's id if that is
        known, so that a later try can tell whether this one was carried out. Each try has another: what
        was deleted meanwhile does not come back."""
        return self.uuid() if self.request_id == ZERO_UUID else self._id_by_try(name, self.lost_tries)

    def is_own(self, name: str, topic_id: bytes) -> bool:
        """Whether an earlier try of this request created the topic of that name and id."""
        tries = min(self.lost_tries, MAX_LOST_TRIES) if self.request_id != ZERO_UUID else 0
        return any(topic_id == self._id_by_try(name, tried) for tried in range(tries))

    def _id_by_try(self, name: str, tried: int) -> bytes:
        digest = hashlib.blake2b(name.encode() + tried.to_bytes(4), key=self.request_id, digest_size=16)
        return random_uuid(digest.digest())


@dataclass(slots=True, frozen=True)
class Touch:
    """What a heartbeat tells the soft state: the broker's place in the log, and whether it is on its
    way out."""

    broker_id: int
    fenced: bool
    metadata_offset: int
    in_controlled_shutdown: bool = False
    leaving: bool = False
    """It has been told that it may go: its session is over, and its successor need not wait."""


@dataclass(slots=True)
class Result(Generic[R]):
    """records: to be written in this order; atomic: all in one batch or none; response: told when they
    are committed.

    rest: not everything is done. The records are written, and the handler is called again in a later
    turn of the loop, with a new view and this in its `Context`; only its last call's response and soft
    state count.
    """

    response: R
    records: list[Data] = field(default_factory=list)
    atomic: bool = True
    touch: Touch | None = None
    registered: int | None = None
    """The id of a broker whose older incarnation's soft state is to be forgotten."""
    upgrade_kraft_version: int | None = None
    """The level that Raft is to write as a control record before these records are appended."""
    validate_only: bool = False
    continuation: Continuation | None = None


class View:
    """The newest state, committed or not, read-only; made anew for each request, so that its caches
    need no invalidation."""

    __slots__ = (
        "_acceptable",
        "_failing",
        "_leaving",
        "_settings",
        "broker_sessions",
        "config",
        "elr_enabled",
        "image",
        "kraft_version",
        "metadata_version",
        "next_offset",
        "voter_ids",
    )

    def __init__(
        self,
        image: MetadataImage,
        broker_sessions: BrokerSessions,
        config: ControllerConfig,
        next_offset: int,
        *,
        kraft_version: int = 0,
        voter_ids: tuple[int, ...] = (),
    ) -> None:
        self.image = image
        self.broker_sessions = broker_sessions
        self.config = config
        self.next_offset = next_offset
        """The offset that the next record written will get: the broker epoch of a registration handled
        now."""
        self.kraft_version = kraft_version
        self.voter_ids = voter_ids
        self.metadata_version = image.features.metadata_version
        self.elr_enabled = image.features.finalized.get(ELR_VERSION, 0) >= 1
        self._settings: dict[str, tuple[int, bool]] = {}
        self._acceptable: dict[int, BrokerRegistration | None] = {}
        continuations = broker_sessions.continuations
        self._leaving = frozenset([continuation.leaving for continuation in continuations])
        self._failing = frozenset(
            [directory for continuation in continuations for directory in continuation.failing]
        )

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        cached = self._acceptable
        if broker_id in cached:
            return cached[broker_id]
        registration = cached[broker_id] = self.image.cluster.brokers.get(broker_id)
        return registration

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced nor about to be, not in controlled shutdown."""
        registration = self.broker(broker_id)
        if registration is None or registration.fenced or registration.in_controlled_shutdown:
            return False
        return broker_id not in self._leaving

    def is_leaving(self, broker_id: int) -> bool:
        """On its way out, by a change that takes several turns."""
        return broker_id in self._leaving

    def has_online_directory(self, broker_id: int, directory: bytes) -> bool:
        registration = self.broker(broker_id)
        return (
            registration is not None
            and directory not in self._failing
            and is_online(directory, registration.log_dirs)
        )

    def default_directory(self, broker_id: int) -> bytes:
        """Where a new replica on this broker goes: its only directory, or left to the broker (UNASSIGNED)."""
        registration = self.broker(broker_id)
        if registration is None:
            return UNASSIGNED_DIRECTORY  # its absence is reported by other checks
        directories = registration.log_dirs
        if not directories:
            return MIGRATING_DIRECTORY
        return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY

    def new_directories(self, replicas: Sequence[int]) -> list[bytes]:
        """Directories of new replicas; empty before metadata.version knows them."""
        if self.metadata_version < FIRST_DIRECTORIES:
            return []
        return [self.default_directory(broker_id) for broker_id in replicas]

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Raises STALE_BROKER_EPOCH unless this is the broker's present registration."""
        registration = self.broker(broker_id)
        if registration is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
        if registration.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} is registered with broker epoch {registration.epoch}, not "
                f"{broker_epoch}.",
            )
        return registration

    def topic_settings(self, topic: str, replication_factor: int) -> tuple[int, bool]:
        """(min.insync.replicas capped by the replication factor, unclean.leader.election.enable), both
        effective."""
        settings = self._settings.get(topic)
        if settings is None:
            schema = self.config.schema
            min_isr = int(schema.effective_topic_value(self.image.configs, topic, MIN_ISR) or "1")
            unclean = schema.effective_topic_value(
                self.image.configs, topic, "unclean.leader.election.enable"
            )
            settings = self._settings[topic] = (min_isr, (unclean or "").strip().lower() == "true")
        return min(settings[0], replication_factor), settings[1]


Handler = Callable[[View, "object", Context], "Result[object]"]


def bounded(records: list[Data], what: str) -> list[Data]:
    """Refuses a user's change that would not fit one batch. Raises POLICY_VIOLATION."""
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{what} would write {len(records)} metadata records; one request may write "
            f"{MAX_RECORDS_PER_USER_OP}.",
        )
    return records
