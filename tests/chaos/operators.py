"""Creates, configures and deletes topics, changes the topics of the producers, deletes records, and moves
replicas.

Each change is requested until it is answered, so the outcome of each is known.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from quorate.net.client import Connection
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from tests.chaos.clients import QUIET, Client, refresh_metadata
from tests.chaos.history import History, Partition, TopicHistory

_MOST_TOPICS = 25
"""Topics of the operator that exist at a time."""
_ATTEMPT_S = 20
_FINAL = {
    KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST, KafkaError.POLICY_VIOLATION, KafkaError.UNSUPPORTED_VERSION,
}  # fmt: skip
"""Answers that another attempt cannot change."""


class Operator(Client):
    """Makes one change after the other, with pauses."""

    def __init__(self, servers: str, history: History, dice: random.Random, *,
                 pause_s: float, replicas: int, kept: Sequence[str], trimmed: Sequence[Partition]) -> None:  # fmt: skip
        """Changes the configuration of the topics `kept`, and deletes records of the partitions `trimmed`."""
        super().__init__("operator", history)
        self._admin = AdminClient(
            {"bootstrap.servers": servers, "client.id": self.name, "error_cb": self.on_error, **QUIET}
        )
        self._dice, self._pause_s, self._replicas = dice, pause_s, replicas
        self._kept, self._trimmed = kept, trimmed
        self._number = 0
        self._giving_up = threading.Event()
        self.changes = 0

    def give_up(self) -> None:
        """Ends the attempts at a change that is not answered."""
        self._giving_up.set()

    def run(self) -> None:
        while not self.over.wait(self._pause_s * self._dice.uniform(0.5, 1.5)):
            self._change()
            self.changes += 1

    def create(self, name: str, partitions: int, replicas: int, **config: str) -> None:
        topic = self.history.topics[name] = TopicHistory()
        new = NewTopic(name, partitions, replicas, config=config)
        if self._until_done(
            f"create {name}", lambda: self._admin.create_topics([new], operation_timeout=_ATTEMPT_S),
            KafkaError.TOPIC_ALREADY_EXISTS,
        ):  # fmt: skip
            topic.created = True
            topic.config.update(config)

    def _living(self) -> list[str]:
        return [
            name
            for name, topic in self.history.topics.items()
            if topic.created and not topic.delete_requested and name not in self._kept
        ]

    def _change(self) -> None:
        living = self._living()
        dice = self._dice.random()
        if dice < 0.15 and self._trimmed:
            self._delete_records(self._dice.choice(self._trimmed))
        elif dice < 0.18:
            self._elect_preferred_leaders()
        elif dice < 0.25:
            self._configure(
                self._dice.choice(self._kept), "segment.bytes", self._dice.randrange(1 << 20, 1 << 22)
            )
        elif living and dice < 0.4:
            self._configure(self._dice.choice(living), "retention.ms", self._dice.randrange(10**6, 10**9))
        elif living and (dice < 0.65 or len(living) >= _MOST_TOPICS):
            self._delete(self._dice.choice(living))
        else:
            self._number += 1
            retention = str(self._dice.randrange(10**6, 10**9))
            name, partitions = f"topic-{self._number}", self._dice.randint(1, 3)
            self.create(name, partitions, self._replicas, **{"retention.ms": retention})

    def _delete(self, name: str) -> None:
        topic = self.history.topics[name]
        topic.delete_requested = True
        topic.deleted = self._until_done(
            f"delete {name}", lambda: self._admin.delete_topics([name], operation_timeout=_ATTEMPT_S),
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        )  # fmt: skip

    def _configure(self, name: str, key: str, value: int) -> None:
        config = self.history.topics[name].config
        config.pop(key, None)  # until it is acknowledged, both values are possible
        entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        if self._until_done(f"configure {name}", lambda: self._admin.incremental_alter_configs([resource])):
            config[key] = str(value)

    def _delete_records(self, partition: Partition) -> None:
        held = self.history.partitions[partition]
        # Only records that each reader has read before: so it is known of each record that it was there.
        last = min(records.offsets[-1] if records else -1 for records in held.read.values())
        if last < held.delete_requested:
            return
        offset = int(self._dice.uniform(held.delete_requested, last))
        held.delete_requested = max(held.delete_requested, offset)
        request = TopicPartition(*partition, offset)
        if self._until_done(f"delete-records of {partition}", lambda: self._admin.delete_records([request])):
            held.delete_acknowledged = max(held.delete_acknowledged, offset)

    def _elect_preferred_leaders(self) -> None:
        """Moves leaders back that faults have moved. One attempt is enough: a replica may be away."""
        try:
            self._admin.elect_leaders(ElectionType.PREFERRED).result()
        except KafkaException as e:
            if e.args[0].code() != KafkaError.ELECTION_NOT_NEEDED:
                self.retried("elect", e.args[0])

    def _until_done(self, what: str, attempt: Callable[[], dict[Any, Any]], also: int | None = None) -> bool:
        """Repeats a request until it succeeds, or is answered with the error `also`, which an earlier attempt
        explains. Returns False if it was never answered."""
        while True:
            try:
                for future in attempt().values():
                    future.result(_ATTEMPT_S * 4)
                return True
            except KafkaException as e:
                error = e.args[0]
                if error.code() == also:
                    return True
                if error.code() in _FINAL:
                    self.history.client_errors.append(f"{what}: {error}")
                    return False
                self.retried(what.partition(" ")[0], error)
            if self._giving_up.is_set():
                self.history.client_errors.append(f"{what}: never answered")
                return False
            time.sleep(0.1)  # before the next attempt
            refresh_metadata(self._admin)


class Mover(Client):
    """Moves replicas to other brokers and to other log directories, and cancels some moves before they are
    done."""

    def __init__(self, servers: str, history: History, dice: random.Random,
                 directories: Mapping[int, Sequence[Path]], partitions: Sequence[Partition],
                 pause_s: float = 4) -> None:  # fmt: skip
        """`directories` are those of each broker, in the order of `servers`."""
        super().__init__("mover", history)
        self._addresses = [address.rpartition(":") for address in servers.split(",")]
        self._dice, self._directories, self._partitions = dice, directories, partitions
        self._brokers, self._pause_s = list(directories), pause_s
        self.moves: Counter[str] = Counter()

    def run(self) -> None:
        while not self.over.wait(self._pause_s * self._dice.uniform(0.2, 1.8)):
            partition = self._dice.choice(self._partitions)
            if self._dice.random() < 0.5:
                self._move_to_directories(partition)
                continue
            self._reassign("moved", partition, self._dice.sample(self._brokers, 3))
            if self._dice.random() < 0.5:
                self.over.wait(self._dice.choice((0, 0.05, 0.3, 2)))
                self._reassign("cancelled", partition, None)

    def _move_to_directories(self, partition: Partition) -> None:
        """Asks each broker to have its replica in a random directory. A later request may cancel the move."""
        for address, broker in zip(self._addresses, self._brokers, strict=True):
            for _ in range(self._dice.choice((1, 1, 2))):
                path = self._dice.choice(self._directories[broker])
                topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
                    name=partition[0], partitions=[partition[1]]
                )
                wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(path), topics=[topic])
                self._send(
                    "to a directory",
                    address,
                    AlterReplicaLogDirsRequest(dirs=[wanted]),
                    lambda answer: int(answer.results[0].partitions[0].error_code),
                )

    def _reassign(self, what: str, partition: Partition, replicas: list[int] | None) -> None:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=partition[0],
                    partitions=[
                        AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=partition[1], replicas=replicas
                        )
                    ],
                )
            ],
        )

        self._send(
            what,
            self._dice.choice(self._addresses),
            request,
            lambda answer: int(answer.error_code or answer.responses[0].partitions[0].error_code),
        )

    def _send(
        self, what: str, address: tuple[str, str, str], request: Any, error_in: Callable[[Any], int]
    ) -> None:
        """Sends a request once. A lost answer, or the refusal to cancel a move that is done, is no fault."""
        host, _, port = address

        async def ask() -> int:
            connection = await Connection.connect(host, int(port), timeout_s=2)
            try:
                return error_in(await connection.call(request, 6))
            finally:
                connection.close()

        try:
            error = asyncio.run(ask())
        except (NetError, OSError, TimeoutError):
            self.moves[f"{what}: no answer"] += 1
            return
        self.moves[f"{what}: {ErrorCode.of(error).name}"] += 1
