"""Clients that change metadata without pause, and the ledger of the responses."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.e2e.campaign_quorum import Member

FIRST_CONFIG = 10**9  # retention.ms of the configured topic counts up from here
CONFIGURED = "configured"


@dataclass
class Ledger:
    """All requests and their responses. Each topic name is used once, so a topic that is created twice is
    detected."""

    attempted: set[str] = field(default_factory=set)
    created: dict[str, float] = field(default_factory=dict)  # name -> when it was answered, perf_counter
    exists: set[str] = field(
        default_factory=set
    )  # answered TOPIC_ALREADY_EXISTS: an earlier try of the same request did it
    delete_attempted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    config: int = 0
    config_attempted: int = 0
    unanswered: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def failed(self, error: KafkaError) -> None:
        self.unanswered += 1
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1

    def gap_s(self, since: float, until: float) -> float:
        """The longest time between two acknowledged creations from the last one before `since` to `until`."""
        times = sorted(self.created.values())
        first = max((t for t in times if t < since), default=since)
        window = [first, *(t for t in times if since <= t <= until), until]
        return max((b - a for a, b in pairwise(window)), default=0.0)


class Load:
    """Threads that create topics, one that deletes its own topics, and one that increments a config of a
    topic."""

    def __init__(
        self, broker: Member, creators: int = 3, pause_s: float = 0.0, timeout_s: float = 10.0
    ) -> None:
        self.ledger = Ledger()
        self._broker = broker
        self._creators = creators
        self._pause_s = pause_s  # of each client after each answer
        self._timeout_s = timeout_s
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self._number = 0
        self._lock = threading.Lock()

    def prepare(self) -> None:
        admin = self._broker.admin()  # must live until its answer is there
        admin.create_topics([NewTopic(CONFIGURED, 1, 1)], operation_timeout=20)[CONFIGURED].result(30)

    def start(self) -> None:
        self._over.clear()
        work = [*[self._create] * self._creators, self._delete, self._configure]
        self._threads = [threading.Thread(target=self._until_over, args=(w,), daemon=True) for w in work]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops all threads. Returns when every request was answered or has failed."""
        self._over.set()
        for thread in self._threads:
            thread.join(self._timeout_s * 3 + 30)
            assert not thread.is_alive(), "a client hangs"

    def acknowledged(self) -> int:
        return len(self.ledger.created)

    def _until_over(self, work) -> None:  # type: ignore[no-untyped-def]
        admin = self._broker.admin()
        while not self._over.is_set():
            work(admin)
            self._over.wait(self._pause_s)

    def _name(self, kind: str) -> str:
        with self._lock:
            self._number += 1
            name = f"{kind}-{self._number}"
        self.ledger.attempted.add(name)
        return name

    def _made(self, admin, name: str) -> bool:  # type: ignore[no-untyped-def]
        try:
            admin.create_topics(
                [NewTopic(name, 1, 1)], operation_timeout=self._timeout_s / 2, request_timeout=self._timeout_s
            )[name].result(self._timeout_s * 2)
        except KafkaException as e:
            error = e.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self.ledger.exists.add(name)
                return True
            self.ledger.failed(error)
            return False
        self.ledger.created[name] = time.perf_counter()
        return True

    def _create(self, admin) -> None:  # type: ignore[no-untyped-def]
        self._made(admin, self._name("t"))

    def _delete(self, admin) -> None:  # type: ignore[no-untyped-def]
        name = self._name("d")
        if not self._made(admin, name):
            return
        self.ledger.delete_attempted.add(name)
        try:
            admin.delete_topics(
                [name], operation_timeout=self._timeout_s / 2, request_timeout=self._timeout_s
            )[name].result(self._timeout_s * 2)
            self.ledger.deleted.add(name)
        except KafkaException as e:
            if (
                e.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            ):  # an earlier try of the same request did it
                self.ledger.deleted.add(name)
            else:
                self.ledger.failed(e.args[0])

    def _configure(self, admin) -> None:  # type: ignore[no-untyped-def]
        value = self.ledger.config_attempted = self.ledger.config_attempted + 1
        entry = ConfigEntry(
            "retention.ms", str(FIRST_CONFIG + value), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, CONFIGURED, incremental_configs=[entry])
        try:
            for future in admin.incremental_alter_configs(
                [resource], request_timeout=self._timeout_s
            ).values():
                future.result(self._timeout_s * 2)
            self.ledger.config = value
        except KafkaException as e:
            self.ledger.failed(e.args[0])
