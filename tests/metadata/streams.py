"""Random but valid streams of metadata records, and random metadata records of every type and version."""

from __future__ import annotations

import random
from typing import Any

from quorate.metadata import records as r
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.protocol.schema import Data, FieldSpec, Struct

LEVEL = 27


def stream(seed: int, length: int, *, transactions: bool = True) -> list[Data]:
    """A stream that can be replayed without an error, beginning with metadata.version."""
    rng = random.Random(seed)
    out: list[Data] = [r.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)]
    image = apply_records(EMPTY, out, offset=0, epoch=1, timestamp_ms=0)
    while len(out) < length:
        inner = image.transaction.pending if image.transaction is not None else image
        record = _next(rng, inner, image.transaction is not None, transactions)
        image = apply_records(image, [record], offset=len(out), epoch=1, timestamp_ms=0)
        out.append(record)
    if image.transaction is not None:
        out.append(r.EndTransactionRecord() if rng.random() < 0.5 else r.AbortTransactionRecord(reason="end"))
    return out


def _uuid(rng: random.Random) -> bytes:
    return rng.randbytes(16)


def _tagged(rng: random.Random, record: Any) -> Any:
    if rng.random() < 0.1:
        record.unknown_tags = {rng.choice((77, 300)): rng.randbytes(3)}
    return record


def _next(rng: random.Random, image: MetadataImage, inside: bool, transactions: bool) -> Data:
    if transactions and rng.random() < 0.06:
        if not inside:
            return r.BeginTransactionRecord(name=rng.choice((None, "n")))
        return r.EndTransactionRecord() if rng.random() < 0.6 else r.AbortTransactionRecord()
    topics = list(image.topics.by_id.values())
    brokers = list(image.cluster.brokers.values())
    choice = rng.randrange(20)
    if choice < 3 or (choice < 12 and not topics):
        name = f"topic-{rng.randrange(6)}"
        if name in image.topics.by_name:
            return r.RemoveTopicRecord(topic_id=image.topics.by_name[name].id)
        return _tagged(rng, r.TopicRecord(name=name, topic_id=_uuid(rng)))
    if choice < 7:
        topic = rng.choice(topics)
        return _tagged(
            rng, _partition(rng, topic.id, rng.randrange(70) if rng.random() < 0.3 else len(topic.partitions))
        )
    if choice < 12:
        topic = rng.choice(topics)
        if not topic.partitions:
            return _partition(rng, topic.id, 0)
        partition_id = rng.choice(list(topic.partitions.ids()))
        return _change(rng, topic.id, partition_id)
    if choice == 12 or (choice == 13 and not brokers):
        return _tagged(rng, _broker(rng))
    if choice == 13:
        broker = rng.choice(brokers)
        if rng.random() < 0.2:
            return r.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        dirs = [_uuid(rng)] if rng.random() < 0.3 else []
        fenced, shutdown = rng.choice((-1, 0, 1)), rng.choice((0, 1))
        return r.BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=shutdown,
            log_dirs=dirs,
        )
    if choice < 16:
        kind, name = rng.choice(((2, "topic-0"), (2, "topic-1"), (4, ""), (4, "1"), (32, "g"), (16, "m")))
        value = rng.choice((None, "", "x", "y"))
        return _tagged(
            rng, r.ConfigRecord(resource_type=kind, resource_name=name, name=rng.choice("abc"), value=value)
        )
    return _entity(rng, image)


def _partition(rng: random.Random, topic_id: bytes, partition_id: int) -> r.PartitionRecord:
    replicas = rng.sample(range(5), rng.randint(1, 3))
    return r.PartitionRecord(
        partition_id=partition_id, topic_id=topic_id, replicas=replicas, isr=replicas[: rng.randint(0, 3)],
        leader=rng.choice([-1, *replicas]), leader_epoch=rng.randrange(9), partition_epoch=rng.randrange(9),
        leader_recovery_state=rng.randrange(2), directories=[_uuid(rng) for _ in replicas] if rng.random() < 0.7 else [],
        eligible_leader_replicas=rng.choice((None, [], [1])), last_known_elr=rng.choice((None, [2])),
        adding_replicas=rng.choice(([], [3])), removing_replicas=rng.choice(([], [4])),
    )  # fmt: skip


def _change(rng: random.Random, topic_id: bytes, partition_id: int) -> r.PartitionChangeRecord:
    change = r.PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    if rng.random() < 0.5:
        change.leader = rng.choice((-1, 0, 1, 2))
    if rng.random() < 0.5:
        change.isr = rng.sample(range(5), rng.randrange(3))
    if rng.random() < 0.3:
        change.replicas = rng.sample(range(5), 2)
        change.directories = [_uuid(rng), _uuid(rng)]
    if rng.random() < 0.2:
        change.eligible_leader_replicas = rng.choice(([], [1, 2]))
        change.leader_recovery_state = rng.randrange(2)
    return change


def _broker(rng: random.Random) -> r.RegisterBrokerRecord:
    make = r.RegisterBrokerRecord
    endpoint = _tagged(
        rng, make.BrokerEndpoint(name="A", host="h", port=rng.randrange(65536), security_protocol=0)
    )
    feature = _tagged(
        rng, make.BrokerFeature(name="f", min_supported_version=0, max_supported_version=rng.randrange(5))
    )
    return make(
        broker_id=rng.randrange(5), broker_epoch=rng.randrange(1000), incarnation_id=_uuid(rng), end_points=[endpoint],
        features=[feature], rack=rng.choice((None, "r")), fenced=rng.random() < 0.5, log_dirs=[_uuid(rng), _uuid(rng)],
        start_time_ms=rng.choice((0, 5)), is_migrating_zk_broker=rng.random() < 0.1,
    )  # fmt: skip


def _entity(rng: random.Random, image: MetadataImage) -> Data:
    match rng.randrange(11):
        case 0:
            quota = r.ClientQuotaRecord.EntityData(entity_type="user", entity_name=rng.choice((None, "u")))
            return _tagged(
                rng,
                r.ClientQuotaRecord(
                    entity=[quota], key=rng.choice("kl"), value=1.5, remove=rng.random() < 0.3
                ),
            )
        case 1:
            return _tagged(
                rng, r.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=rng.randrange(10**6))
            )
        case 2:
            return _tagged(
                rng,
                r.AccessControlEntryRecord(id=_uuid(rng), resource_name="n", principal="User:a", host="*"),
            )
        case 3 if len(image.acls.by_id):
            return r.RemoveAccessControlEntryRecord(id=next(iter(image.acls.by_id)))
        case 4:
            return _tagged(
                rng,
                r.UserScramCredentialRecord(
                    name=rng.choice("uv"), mechanism=rng.choice((1, 2)), salt=b"s", iterations=9
                ),
            )
        case 5:
            return r.RemoveUserScramCredentialRecord(name=rng.choice("uv"), mechanism=1)
        case 6:
            return _tagged(
                rng, r.DelegationTokenRecord(owner="User:o", token_id=rng.choice("ab"), renewers=["User:r"])
            )
        case 7:
            return r.RemoveDelegationTokenRecord(token_id=rng.choice("ab"))
        case 8:
            make = r.RegisterControllerRecord
            endpoint = make.ControllerEndpoint(name="C", host="h", port=1, security_protocol=0)
            return _tagged(
                rng, make(controller_id=rng.randrange(3), incarnation_id=_uuid(rng), end_points=[endpoint])
            )
        case 9:
            return _tagged(
                rng,
                r.FeatureLevelRecord(name=rng.choice(("group.version", "x")), feature_level=rng.randrange(2)),
            )
        case 10:
            names = list(image.topics.by_name)
            return r.ClearElrRecord(topic_name=rng.choice(["", *names]))
        case _:
            return r.NoOpRecord()


def any_record(rng: random.Random, cls: type[Data], version: int) -> Data:
    """A record with a random value in each field of the version."""
    return _fill(rng, cls, cls, version)


def _fill(rng: random.Random, message: type[Data], cls: type[Struct], version: int) -> Any:
    value = cls()
    for spec in cls.fields():
        if spec.in_version(version) and rng.random() < 0.8:
            setattr(value, spec.name, _value(rng, message, spec, version))
    if rng.random() < 0.2:
        value.unknown_tags = {9000: b"?"}
    return value


def _value(rng: random.Random, message: type[Data], spec: FieldSpec, version: int) -> Any:
    if spec.nullable_in(version) and rng.random() < 0.3:
        return None
    if spec.array:
        return [_scalar(rng, message, spec.kind, version) for _ in range(rng.randrange(4))]
    return _scalar(rng, message, spec.kind, version)


def _scalar(rng: random.Random, message: type[Data], kind: str, version: int) -> Any:
    match kind:
        case "int8" | "int16" | "int32" | "int64":
            bits = int(kind[3:]) - 1
            return rng.randrange(-(1 << bits), 1 << bits)
        case "uint16":
            return rng.randrange(1 << 16)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "str":
            return "".join(rng.choices('aé"\\\n\x01中', k=rng.randrange(6)))
        case "bytes":
            return rng.randbytes(rng.randrange(9))
        case "uuid":
            return rng.randbytes(16)
        case _:
            return _fill(rng, message, getattr(message, kind), version)
