"""A simulated cluster: for each change, the records that its controller writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from quorate.dataclass import dataclass
from quorate.metadata import records as r
from quorate.metadata.features import FIRST_ELR_RECORDS, METADATA_VERSION, record_version
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.partitions import NO_LEADER, PartitionImage
from quorate.pipeline.generator.files import LogFiles
from quorate.protocol.schema import Data

BATCH_RECORDS: Final = 1000
"""The records of one batch at most."""

REPLICATION_FACTOR: Final = 3
MIN_ISR: Final = 2

USERS: Final = ("User:ann", "User:deploy", "User:kafka-admin", "User:terraform")

TOPIC, BROKER = 2, 4
"""The types of the resources of configurations."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster."""

    brokers: int = 12
    racks: int = 3
    topics: int = 100
    partitions: int = 12
    """The partitions of the largest topics."""


class SimulatedCluster:
    """The cluster, and the log to which its changes are written."""

    def __init__(self, rng: Random, size: Size, files: LogFiles, now_ms: int, level: int) -> None:
        self.rng, self.size, self.now_ms, self.level = rng, size, now_ms, level
        self.image: MetadataImage = EMPTY
        self.ids: list[bytes] = []
        """All ids that were given."""
        self._files = files
        self._producer_ids = 0
        self._names = 0
        self._secrets = 0

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, records: Sequence[Data], *, by: str | None = None, api: int = -1, why: str = "") -> None:
        """Writes the records of a change, in several batches if they are many.

        `by` is the principal who asked for it.
        """
        for start in range(0, len(records), BATCH_RECORDS):
            batch = list(records[start : start + BATCH_RECORDS])
            if by is not None or why:
                address = "" if by is None else f"10.0.0.{self.rng.randrange(1, 255)}"
                batch.append(
                    r.NoOpRecord(
                        principal=by, client_id=by and "adminclient-1", address=address or None, api=api,
                        reason=why or None,
                    )
                )  # fmt: skip
            self._write_batch(batch)

    def _write_batch(self, records: list[Data]) -> None:
        values = [encode_record(record, self._version(record)) for record in records]
        self._files.append(values, self.now_ms)
        last = self._files.end_offset - 1
        self.image = apply_records(
            self.image, records, offset=last, epoch=self._files.epoch, timestamp_ms=self.now_ms
        )

    def _version(self, record: Data) -> int:
        if isinstance(record, r.BrokerRegistrationChangeRecord):
            return 1 if record.in_controlled_shutdown else 0
        return record_version(record.KEY, self.level)

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        return self._files.end_offset

    def id(self) -> bytes:
        """A new random id of 16 bytes."""
        self.ids.append(self.rng.randbytes(16))
        return self.ids[-1]

    # -- the brokers -------------------------------------------------------------------------------------

    def live(self) -> list[int]:
        """The brokers that are not fenced."""
        return sorted([broker.id for broker in self.image.cluster.brokers.values() if not broker.fenced])

    def rack(self, broker: int) -> str:
        """The rack of a broker."""
        return f"rack-{broker % self.size.racks}"

    def register(self, broker: int) -> None:
        """A broker's process starts: it registers, catches up, and joins its ISRs."""
        make = r.RegisterBrokerRecord
        known = self.image.cluster.broker(broker)
        port, host = 9092, f"broker-{broker}.example.com"
        record = make(
            broker_id=broker,
            incarnation_id=self.id(),
            broker_epoch=self.offset,
            end_points=[make.BrokerEndpoint(name="PLAINTEXT", host=host, port=port, security_protocol=0)],
            features=[
                make.BrokerFeature(
                    name=METADATA_VERSION, min_supported_version=7, max_supported_version=self.level + 3
                )
            ],
            rack=self.rack(broker),
            fenced=True,
            log_dirs=[self.id()] if known is None else list(known.log_dirs),
            start_time_ms=self.now_ms,
        )
        self.write([record])
        self.pass_time(20)
        self._change(broker, fenced=-1, why="the broker has caught up")
        self.pass_time(30)
        self._join(broker)

    def _change(self, broker: int, why: str, **fields: Any) -> None:
        epoch = self.image.cluster.brokers[broker].epoch
        self.write(
            [r.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, **fields)], why=why
        )

    def _join(self, broker: int) -> None:
        """The broker's replicas catch up and join the ISRs, and lead partitions that have no other leader."""
        changes: list[Data] = []
        for topic_id, number, found in self._partitions_of(broker):
            if broker in found.isr:
                if found.leader == NO_LEADER:
                    changes.append(_change(topic_id, number, leader=broker))
            elif found.leader != NO_LEADER:
                isr = [replica for replica in found.replicas if replica in found.isr or replica == broker]
                changes.append(self._isr(topic_id, number, found, isr))
            elif broker in found.elr:
                change = self._isr(topic_id, number, found, [broker])
                change.leader = broker
                changes.append(change)
        self.write(changes, why="replicas caught up")

    def stop(self, broker: int) -> None:
        """A controlled shutdown: the broker's leaderships move before its process ends."""
        self._change(broker, in_controlled_shutdown=1, why="controlled shutdown")
        self._leave([broker])
        self.pass_time(5)
        self._change(broker, fenced=1, why="the process ended")

    def lose(self, brokers: Iterable[int]) -> None:
        """Brokers fail: they are fenced after their session timed out."""
        gone = sorted(brokers)
        for broker in gone:
            self._change(broker, fenced=1, why="no heartbeat for 9000 ms")
        self._leave(gone)

    def _leave(self, gone: Sequence[int]) -> None:
        """Brokers leave the ISRs of their partitions. The last member of an ISR stays in it."""
        changes: list[Data] = []
        live = set(self.live()) - set(gone)
        seen: set[tuple[bytes, int]] = set()
        for broker in gone:
            for topic_id, number, found in list(self._partitions_of(broker)):
                if (topic_id, number) in seen:
                    continue
                seen.add((topic_id, number))
                isr = [replica for replica in found.isr if replica not in gone]
                leader = (
                    found.leader if found.leader in isr else next((b for b in isr if b in live), NO_LEADER)
                )
                kept = isr or list(found.isr)[:1]
                if tuple(kept) == found.isr and leader == found.leader:
                    continue
                change = self._isr(topic_id, number, found, kept)
                if leader != found.leader:
                    change.leader = leader
                changes.append(change)
        self.write(changes, why="brokers left")

    def elect_preferred(self, broker: int) -> None:
        """The broker leads the partitions again for which it is the preferred leader."""
        changes: list[Data] = [
            _change(topic_id, number, leader=broker)
            for topic_id, number, found in self._partitions_of(broker)
            if found.replicas[0] == broker and found.leader != broker and broker in found.isr
        ]
        self.write(changes, why="preferred leader election")

    def _isr(
        self, topic_id: bytes, number: int, found: PartitionImage, isr: list[int]
    ) -> r.PartitionChangeRecord:
        """A change of the ISR, and of the ELR as KIP-966 has it."""
        change = _change(topic_id, number, isr=isr)
        if self.level >= FIRST_ELR_RECORDS:
            left = [replica for replica in found.isr if replica not in isr]
            elr = [] if len(isr) >= MIN_ISR else sorted(({*found.elr, *left}) - set(isr))
            if tuple(elr) != found.elr:
                change.eligible_leader_replicas = elr
        return change

    def _partitions_of(self, broker: int) -> Iterable[tuple[bytes, int, PartitionImage]]:
        topics = self.image.topics
        # The order of the image differs from process to process.
        for topic_id, number in sorted(topics.partitions_of(broker)):
            found = topics.partition(topic_id, number)
            assert found is not None
            yield topic_id, number, found

    # -- topics ------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of the topics, in order."""
        return sorted(self.image.topics.by_name)

    def new_name(self) -> str:
        """The name of a topic that never existed."""
        self._names += 1
        area = self.rng.choice(("orders", "payments", "clicks", "audit", "logs", "metrics"))
        return f"{area}-{self._names}"

    def create(self, name: str, *, transaction: str | None = None) -> None:
        """Creates a topic, in a metadata transaction if it has a name or is to be aborted."""
        topic_id, by = self.id(), self.rng.choice(USERS)
        made: list[Data] = [r.TopicRecord(name=name, topic_id=topic_id)]
        for key, value in (
            ("retention.ms", str(self.rng.choice((3_600_000, 86_400_000, 604_800_000)))),
            ("min.insync.replicas", str(MIN_ISR)),
        ):
            made.append(_config(TOPIC, name, key, value))
        made += [
            self._new_partition(topic_id, number)
            for number in range(self.rng.randint(1, self.size.partitions))
        ]
        if transaction is None:
            self.write(made, by=by, api=19)
            return
        self.write([r.BeginTransactionRecord(name=f"create {name}"), *made[: len(made) // 2]], by=by, api=19)
        self.pass_time(1)
        end = (
            r.EndTransactionRecord() if transaction == "end" else r.AbortTransactionRecord(reason="failover")
        )
        self.write([*made[len(made) // 2 :], end], by=by, api=19)

    def _new_partition(self, topic_id: bytes, number: int) -> r.PartitionRecord:
        replicas = self.place(REPLICATION_FACTOR)
        elr: list[int] | None = [] if self.level >= FIRST_ELR_RECORDS else None
        return r.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=self._directories(replicas),
            eligible_leader_replicas=elr,
            last_known_elr=elr,
        )

    def place(self, count: int) -> list[int]:
        """Live brokers for the replicas of a partition, of different racks as far as there are."""
        live = self.live()
        self.rng.shuffle(live)
        racks: dict[str, list[int]] = {}
        for broker in live:
            racks.setdefault(self.rack(broker), []).append(broker)
        found: list[int] = []
        while len(found) < min(count, len(live)):
            for brokers in racks.values():
                if brokers and len(found) < count:
                    found.append(brokers.pop())
        return found

    def _directories(self, replicas: Sequence[int]) -> list[bytes]:
        return [self.image.cluster.brokers[broker].log_dirs[0] for broker in replicas]

    def extend(self, name: str) -> None:
        """Adds partitions to a topic."""
        topic = self.image.topics.by_name[name]
        count = len(topic.partitions)
        more = range(count, count + self.rng.randint(1, 4))
        by = self.rng.choice(USERS)
        self.write([self._new_partition(topic.id, number) for number in more], by=by, api=37)

    def delete(self, name: str) -> None:
        """Deletes a topic at the wish of a random user."""
        topic_id = self.image.topics.by_name[name].id
        self.write([r.RemoveTopicRecord(topic_id=topic_id)], by=self.rng.choice(USERS), api=20)

    def reassign(self, moves: int) -> None:
        """Moves replicas of some partitions to other brokers, which takes a while."""
        begun = []
        by = self.rng.choice(USERS)
        changes: list[Data] = []
        for topic, number, found in self._some_partitions(moves):
            added = [broker for broker in self.place(1) if broker not in found.replicas]
            if found.is_reassigning or not added or found.leader == NO_LEADER:
                continue
            removed = [found.replicas[-1]]
            replicas = [*found.replicas, *added]
            changes.append(
                _change(
                    topic, number, replicas=replicas, directories=self._directories(replicas),
                    adding_replicas=added, removing_replicas=removed,
                )
            )  # fmt: skip
            begun.append((topic, number, added, removed))
        self.write(changes, by=by, api=45)
        self.pass_time(600)
        changes = []
        for topic, number, added, removed in begun:
            now = self.image.topics.partition(topic, number)
            assert now is not None
            replicas = [replica for replica in now.replicas if replica not in removed]
            isr = [replica for replica in replicas if replica in now.isr or replica in added]
            change = _change(
                topic, number, replicas=replicas, directories=self._directories(replicas), isr=isr,
                adding_replicas=[], removing_replicas=[],
            )  # fmt: skip
            if now.leader not in isr:
                change.leader = isr[0]
            if now.elr:
                change.eligible_leader_replicas = []
            changes.append(change)
        self.write(changes, why="reassignment completed")

    def _some_partitions(self, count: int) -> Iterable[tuple[bytes, int, PartitionImage]]:
        names = self.names()
        for name in self.rng.sample(names, min(count, len(names))):
            topic = self.image.topics.by_name[name]
            number = self.rng.choice(list(topic.partitions.ids()))
            found = topic.partitions.get(number)
            assert found is not None
            yield topic.id, number, found

    # -- settings ----------------------------------------------------------------------------------------

    def storm(self) -> None:
        """A tool sets a configuration of all topics of an area, one by one, and of the brokers."""
        names, by = self.names(), self.rng.choice(USERS)
        if not names:
            return
        area = self.rng.choice(names).partition("-")[0]
        value = self.rng.choice(("86400000", "172800000", "604800000", None))
        for name in names:
            if name.startswith(area):
                self.write([_config(TOPIC, name, "retention.ms", value)], by=by, api=44)
        for broker in self.live():
            self.write(
                [_config(BROKER, str(broker), "leader.replication.throttled.rate", value)], by=by, api=44
            )

    def secure(self) -> None:
        """Users, permissions, quotas and tokens come and go."""
        self._secrets += 1
        rng, user = self.rng, f"app-{self.rng.randrange(8)}"
        mechanism = rng.choice((1, 2))
        image = self.image
        made: list[Data] = []
        if (mechanism, user) in image.scram.credentials and rng.random() < 0.4:
            made.append(r.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism))
        else:
            secret = self.rng.randbytes(8)
            made.append(
                r.UserScramCredentialRecord(
                    name=user, mechanism=mechanism, salt=secret, stored_key=secret, server_key=secret,
                    iterations=rng.choice((4096, 8192)),
                )
            )  # fmt: skip
        acls = sorted(image.acls.by_id)
        if len(acls) > 20:
            made.append(r.RemoveAccessControlEntryRecord(id=rng.choice(acls)))
        made.append(
            r.AccessControlEntryRecord(
                id=self.id(), resource_type=2, resource_name=f"{user}-", pattern_type=4,
                principal=f"User:{user}", host="*", operation=rng.choice((3, 4)), permission_type=3,
            )
        )  # fmt: skip
        entity = [r.ClientQuotaRecord.EntityData(entity_type="user", entity_name=user)]
        key = rng.choice(("producer_byte_rate", "consumer_byte_rate"))
        value = float(rng.randrange(1, 100) << 20)
        has_quota = any(key in entries for entries in image.client_quotas.entities.values())
        made.append(
            r.ClientQuotaRecord(entity=entity, key=key, value=value, remove=has_quota and rng.random() < 0.2)
        )
        tokens = sorted(image.delegation_tokens.tokens)
        if len(tokens) > 5:
            made.append(r.RemoveDelegationTokenRecord(token_id=tokens[0]))
        made.append(
            r.DelegationTokenRecord(
                owner=f"User:{user}", requester=f"User:{user}", renewers=[],
                token_id=f"token-{self._secrets}",
                issue_timestamp=self.now_ms, max_timestamp=self.now_ms + 604_800_000,
                expiration_timestamp=self.now_ms + 86_400_000,
            )
        )  # fmt: skip
        for record in made:
            self.write([record], by="User:kafka-admin")

    def producer_ids(self) -> None:
        """A broker gets a block of producer ids."""
        live = self.live()
        if live:
            self._producer_ids += 1000
            broker = self.rng.choice(live)
            epoch = self.image.cluster.brokers[broker].epoch
            record = r.ProducerIdsRecord(
                broker_id=broker, broker_epoch=epoch, next_producer_id=self._producer_ids
            )
            self.write([record])

    def set_level(self, level: int) -> None:
        """Finalizes a level of metadata.version."""
        record = r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        self.write([record], by="User:kafka-admin" if self.image.cluster.brokers else None, api=57)
        self.level = level

    def fail_over(self) -> None:
        """Another controller becomes active."""
        self._files.lead(self.now_ms)

    def idle(self) -> None:
        """The active controller has nothing to do."""
        self.write([r.NoOpRecord()])

    def pass_time(self, seconds: float) -> None:
        """Moves the clock of the cluster forward, by at least a millisecond."""
        self.now_ms += max(1, round(seconds * 1000))


def _change(topic_id: bytes, number: int, **fields: Any) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(topic_id=topic_id, partition_id=number, **fields)


def _config(kind: int, name: str, key: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
