"""The input and the result of a controller handler.

A handler reads its `View` and `Context` and nothing else, and it modifies neither. The records of its
`Result` describe the changes of the metadata, and its `Touch` the changes of the soft state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.config import MAX_RECORDS_PER_USER_OP, ControllerConfig
from quorate.controller.replication.directories import is_online
from quorate.dataclass import dataclass
from quorate.metadata.features import ELR_VERSION, FIRST_DIRECTORIES, FIRST_TRANSACTIONS
from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError, listed
from quorate.protocol.uuids import ZERO_UUID, random_uuid

if TYPE_CHECKING:
    from quorate.controller.brokers.sessions import BrokerSessions
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.image.cluster import BrokerRegistration
    from quorate.protocol.schema import Data

R = TypeVar("R")

MAX_UNANSWERED_ATTEMPTS = 1_000
"""More attempts than a broker makes for one request within its timeout of a minute."""

MIN_ISR = "min.insync.replicas"
FAILED_UPDATE = "The update failed for all features since the following feature had an error: "

NO_EPOCH_ON_SHRINK_SINCE = 12
"""From this metadata.version on, a shrinking ISR does not increase the leader epoch."""


@dataclass(slots=True, frozen=True)
class Context:
    """The circumstances of one request.

    `now_ms` is the wall clock in milliseconds, `now` the monotonic time in seconds, and `rng` the only
    source of randomness. `forwarded` means that a broker has checked the request and sent it in an Envelope.
    `request_id` is the same for every attempt of one forwarded request, and zero if it is not known.
    `unanswered_attempts` is the number of earlier attempts without a definite response, which may have been
    carried out. `continuation` is the work that an earlier call for this request has left over.
    """

    now_ms: int
    now: float
    rng: Random
    api_version: int = 0
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    client_host: str = ""
    listener: str = ""
    forwarded: bool = False
    request_id: bytes = ZERO_UUID
    unanswered_attempts: int = 0
    continuation: Continuation | None = None

    def uuid(self) -> bytes:
        """A random UUID (version 4). As in Kafka, its text does not begin with '-'."""
        return random_uuid(self.rng.randbytes(16))

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that this attempt creates.

        It is random. If the id of the request is known, the topic id is derived from it, so that a later
        attempt can detect whether this one was carried out. Each attempt has a different topic id, so that a
        topic which was deleted meanwhile is not created again with the same id.
        """
        return (
            self.uuid()
            if self.request_id == ZERO_UUID
            else self._id_by_attempt(name, self.unanswered_attempts)
        )

    def created_by_earlier_attempt(self, name: str, topic_id: bytes) -> bool:
        """Whether an earlier attempt of this request created the topic with this name and id."""
        attempts = (
            min(self.unanswered_attempts, MAX_UNANSWERED_ATTEMPTS) if self.request_id != ZERO_UUID else 0
        )
        return any(topic_id == self._id_by_attempt(name, tried) for tried in range(attempts))

    def _id_by_attempt(self, name: str, tried: int) -> bytes:
        digest = hashlib.blake2b(name.encode() + tried.to_bytes(4), key=self.request_id, digest_size=16)
        return random_uuid(digest.digest())


@dataclass(slots=True, frozen=True)
class Touch:
    """The changes of the soft state by a heartbeat."""

    broker_id: int
    fenced: bool
    metadata_offset: int
    in_controlled_shutdown: bool = False
    leaving: bool = False
    """The broker was told to shut down: its session ends, and its successor need not wait for the
    session to expire."""


@dataclass(slots=True)
class Result(Generic[R]):
    """The result of a handler.

    `records` are written in this order; `atomic` requires one batch for all of them. `response` is
    released when they are committed.

    With a `continuation` the change is not complete. The records are written, and the handler is called
    again in a later turn of the event loop, with a new view and the continuation in its `Context`. Only
    the response and the soft state of its last call count.
    """

    response: R
    records: list[Data] = field(default_factory=list)
    atomic: bool = True
    touch: Touch | None = None
    registered: int | None = None
    """The id of a registered broker. The soft state of its previous incarnation is dropped."""
    upgrade_kraft_version: int | None = None
    """The kraft.version that Raft writes as a control record before these records are appended."""
    validate_only: bool = False
    continuation: Continuation | None = None
    recheck: Callable[[View], Generator[None, None, bool]] | None = None
    """Returns, in steps, whether the handler would give the same result with a newer view. Only an atomic
    change that was prepared in steps has it."""


class View:
    """The newest state, committed or not. It is read-only and created for each request, so that its
    caches need no invalidation."""

    __slots__ = (
        "_broker_states",
        "_failing",
        "_leaving",
        "_registrations",
        "_settings",
        "_shutting_down",
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
        """The offset of the next record, which becomes the broker epoch of a registration that is handled
        now."""
        self.kraft_version = kraft_version
        self.voter_ids = voter_ids
        self.metadata_version = image.features.metadata_version
        self.elr_enabled = image.features.finalized.get(ELR_VERSION, 0) >= 1
        self._broker_states: str | None = None
        self._settings: dict[str, tuple[int, bool]] = {}
        self._registrations: dict[int, BrokerRegistration | None] = {}
        self._shutting_down = frozenset(broker_sessions.shutdown_offsets)
        continuations = broker_sessions.continuations
        self._leaving = frozenset(
            [broker_id for continuation in continuations for broker_id in continuation.leaving]
        )
        self._failing = frozenset(
            [directory for continuation in continuations for directory in continuation.failing]
        )

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of a broker, or None."""
        cached = self._registrations
        if broker_id in cached:
            return cached[broker_id]
        registration = cached[broker_id] = self.image.cluster.brokers.get(broker_id)
        return registration

    def has_same_brokers_and_settings(self, other: View) -> bool:
        """Whether brokers, configurations and features are the same in an older or newer view."""
        return (
            self.image.cluster is other.image.cluster
            and self.image.configs is other.image.configs
            and self.image.features is other.image.features
            and self._leaving == other._leaving
            and self._failing == other._failing
            and self._shutting_down == other._shutting_down
        )

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, is neither fenced nor about to be, and is not in controlled
        shutdown."""
        registration = self.broker(broker_id)
        if registration is None or registration.fenced or registration.in_controlled_shutdown:
            return False
        return broker_id not in self._leaving

    def is_leaving(self, broker_id: int) -> bool:
        """Whether the broker is being fenced, shut down or unregistered by a change that is not
        complete."""
        return broker_id in self._leaving

    def broker_states(self) -> str:
        """The brokers by state in a sentence, for messages about brokers that cannot get replicas."""
        if self._broker_states is None:
            states: dict[str, list[int]] = {}
            for broker in self.image.cluster.brokers.values():
                states.setdefault(self.broker_state(broker.id), []).append(broker.id)
            texts = [f"{state}: {listed(sorted(ids))}" for state, ids in sorted(states.items())]
            self._broker_states = f"Brokers {'; '.join(texts)}." if texts else "No broker is registered."
        return self._broker_states

    def broker_state(self, broker_id: int) -> str:
        """Why this broker cannot get replicas or lead, or "active"."""
        registration = self.broker(broker_id)
        if registration is None:
            return "not registered"
        if registration.fenced:
            return "fenced"
        if registration.in_controlled_shutdown or broker_id in self._shutting_down:
            return "in controlled shutdown"
        if broker_id in self._leaving:
            return "about to be fenced"
        return "active" if registration.has_uncordoned_directory else "with all log directories cordoned"

    def has_online_directory(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker is registered and this directory of it is online."""
        registration = self.broker(broker_id)
        return (
            registration is not None
            and directory not in self._failing
            and is_online(directory, registration.log_dirs)
        )

    def default_directory(self, broker_id: int) -> bytes:
        """The directory of a new replica on this broker: its only directory, or UNASSIGNED if the broker
        chooses."""
        registration = self.broker(broker_id)
        if registration is None:
            return UNASSIGNED_DIRECTORY  # other checks report that it is missing
        directories = registration.log_dirs
        if not directories:
            return MIGRATING_DIRECTORY
        return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY

    def new_directories(self, replicas: Sequence[int]) -> list[bytes]:
        """The directories of new replicas, or an empty list if the metadata.version has no directories."""
        if self.metadata_version < FIRST_DIRECTORIES:
            return []
        return [self.default_directory(broker_id) for broker_id in replicas]

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Raises STALE_BROKER_EPOCH unless the broker is registered with this broker epoch."""
        registration = self.broker(broker_id)
        if registration is None:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} is not registered.",
                remedy="Restart the broker: it registers when it starts.",
            )
        if registration.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} is registered with broker epoch {registration.epoch}, not "
                f"{broker_epoch}.",
                remedy="The request is of an earlier process of this broker, or two processes have the "
                "same node.id.",
            )
        return registration

    @property
    def max_records(self) -> int:
        """The number of records that one request may write. More than MAX_RECORDS_PER_USER_OP takes a
        metadata transaction (KIP-868)."""
        configured = self.config.max_records_per_op
        if self.metadata_version < FIRST_TRANSACTIONS:
            return min(configured, MAX_RECORDS_PER_USER_OP)
        return configured

    @property
    def has_large_transactions(self) -> bool:
        """Whether a request may write more records than fit into one batch."""
        return self.max_records > MAX_RECORDS_PER_USER_OP

    def topic_settings(self, topic: str, replication_factor: int) -> tuple[int, bool]:
        """The effective min.insync.replicas, at most the replication factor, and the effective
        unclean.leader.election.enable."""
        configs = self.image.configs
        own = topic if (ConfigResourceType.TOPIC, topic) in configs.resources else ""
        settings = self._settings.get(own)
        if settings is None:
            schema = self.config.schema
            min_isr = int(schema.effective_topic_value(self.image.configs, topic, MIN_ISR) or "1")
            unclean = schema.effective_topic_value(
                self.image.configs, topic, "unclean.leader.election.enable"
            )
            settings = self._settings[own] = (min_isr, (unclean or "").strip().lower() == "true")
        return min(settings[0], replication_factor), settings[1]


Handler = Callable[[View, "object", Context], "Result[object]"]


Recheck = Callable[[View], Generator[None, None, bool]]


def recheck_in_one_step(is_unchanged: Callable[[View], bool]) -> Recheck:
    """The `recheck` of a result that depends on few values of the view."""

    def recheck(newer: View) -> Generator[None, None, bool]:
        yield
        return is_unchanged(newer)

    return recheck


def bounded(records: list[Data], what: str) -> list[Data]:
    """Returns the records of a user's change. Raises POLICY_VIOLATION if they do not fit into one batch."""
    check_record_count(len(records), what, MAX_RECORDS_PER_USER_OP)
    return records


def check_record_count(count: int, what: str, limit: int) -> None:
    """Raises POLICY_VIOLATION if a user's change has more records than one request may write."""
    if count > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{what} would write {count} metadata records; one request may write {limit}.",
            remedy="Divide the request.",
        )
