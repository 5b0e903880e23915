from __future__ import annotations

from typing import Any

import pytest

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.metadata.image import (
    EMPTY,
    MIGRATING_DIRECTORY,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
)
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.writer import image_records
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data

T1, T2 = bytes([1] * 16), bytes([2] * 16)
D1, D2, D3 = (bytes([0x70 + n] * 16) for n in (1, 2, 3))


def replay(*values: Data, base: MetadataImage = EMPTY) -> MetadataImage:
    offset = base.provenance.offset + len(values)
    return apply_records(base, list(values), offset=offset, epoch=1, timestamp_ms=1000 + offset)


def topic(name: str = "t", topic_id: bytes = T1) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id)


def partition(number: int = 0, topic_id: bytes = T1, **changes: Any) -> r.PartitionRecord:
    fields: dict[str, Any] = {
        "replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0, "directories": [D1, D2],
    }  # fmt: skip
    return r.PartitionRecord(partition_id=number, topic_id=topic_id, **{**fields, **changes})


def change(**changes: Any) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(**{"partition_id": 0, "topic_id": T1, **changes})


def broker(broker_id: int = 1, epoch: int = 10, **changes: Any) -> r.RegisterBrokerRecord:
    endpoint = r.RegisterBrokerRecord.BrokerEndpoint(
        name="PLAINTEXT", host="h", port=9092, security_protocol=0
    )
    feature = r.RegisterBrokerRecord.BrokerFeature(
        name="metadata.version", min_supported_version=7, max_supported_version=27
    )
    fields: dict[str, Any] = {
        "incarnation_id": bytes([9] * 16), "end_points": [endpoint], "features": [feature], "rack": None, "log_dirs": [D2, D1],
        "start_time_ms": 77,
    }  # fmt: skip
    return r.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, **{**fields, **changes})


def registration(epoch: int, **changes: Any) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, **changes)


def of(image: MetadataImage, number: int = 0, topic_id: bytes = T1) -> PartitionImage:
    found = image.topics.partition(topic_id, number)
    assert found is not None
    return found


def test_an_image_has_its_provenance() -> None:
    image = apply_records(EMPTY, [topic()], offset=41, epoch=3, timestamp_ms=5000)
    assert image.provenance == (41, 3, 5000)


def test_a_topic_is_found_by_name_and_id() -> None:
    image = replay(topic(), partition(0), partition(1))
    assert image.topics.by_name["t"] is image.topics.by_id[T1]
    assert [p.leader for p in image.topics.by_name["t"].partitions] == [1, 1]
    assert image.topics.partition_count == 2
    assert image.topics.partition_of("t", 2) is None


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (change(isr=[1]), {"isr": (1,)}),
        (change(leader=2), {"leader": 2, "leader_epoch": 1}),
        (change(leader=1), {"leader_epoch": 1}),
        (change(leader=-1, isr=[]), {"leader": -1, "leader_epoch": 1, "isr": ()}),
        (change(leader_recovery_state=1), {"leader_recovery_state": 1}),
        (change(eligible_leader_replicas=[2], last_known_elr=[1]), {"elr": (2,), "last_known_elr": (1,)}),
        (
            change(removing_replicas=[2], adding_replicas=[3]),
            {"removing_replicas": (2,), "adding_replicas": (3,)},
        ),
        (
            change(replicas=[1, 2, 3], directories=[D1, D2, D3]),
            {"replicas": (1, 2, 3), "directories": (D1, D2, D3)},
        ),
        (change(directories=[D3, D2]), {"directories": (D3, D2)}),
        (change(), {}),
    ],
)
def test_a_partition_change_sets_what_it_names_and_raises_the_partition_epoch(
    record: r.PartitionChangeRecord, expected: dict[str, Any]
) -> None:
    before = replay(topic(), partition())
    assert of(replay(record, base=before)) == of(before)._replace(partition_epoch=1, **expected)


def test_without_directories_all_replicas_count_as_migrating() -> None:
    image = replay(topic(), partition(directories=[]))
    assert of(image).directories == (MIGRATING_DIRECTORY,) * 2
    assert of(replay(change(replicas=[1, 2, 3]), base=image)).directories == (MIGRATING_DIRECTORY,) * 3


def test_clear_elr_empties_one_topic_or_all() -> None:
    elr = {"eligible_leader_replicas": [2], "last_known_elr": [1]}
    image = replay(topic(), partition(0, **elr), partition(1), topic("u", T2), partition(0, T2, **elr))
    one = replay(r.ClearElrRecord(topic_name="u"), base=image)
    assert (of(one, 0, T2).elr, of(one, 0, T2).last_known_elr, of(one, 0, T2).partition_epoch) == ((), (), 1)
    assert of(one).elr == (2,)
    every = replay(r.ClearElrRecord(), base=image)
    assert (of(every).elr, of(every, 0, T2).elr) == ((), ())
    assert of(every, 1).partition_epoch == 0


def test_removing_a_topic_removes_its_configs() -> None:
    config = r.ConfigRecord(
        resource_type=ConfigResourceType.TOPIC, resource_name="t", name="retention.ms", value="1"
    )
    image = replay(topic(), partition(), config, r.RemoveTopicRecord(topic_id=T1))
    assert image == replay(r.NoOpRecord(), r.NoOpRecord(), r.NoOpRecord(), r.NoOpRecord())


def test_a_topic_may_come_back_under_its_name_in_the_same_batch() -> None:
    image = replay(topic(), partition(), r.RemoveTopicRecord(topic_id=T1), topic("t", T2), partition(0, T2))
    assert image.topics.by_name["t"].id == T2
    assert list(image.topics.partitions_of(1)) == [(T2, 0)]


def test_indexes_follow_replicas_and_leaders() -> None:
    image = replay(topic(), *[partition(n, leader=1 + n % 2) for n in range(130)])
    assert (image.topics.leader_count(1), image.topics.leader_count(2)) == (65, 65)
    image = replay(
        change(partition_id=129, leader=-1),
        change(partition_id=128, replicas=[3, 1], directories=[D3, D1]),
        base=image,
    )
    assert list(image.topics.leaderless()) == [(T1, 129)]
    assert list(image.topics.partitions_of(3)) == [(T1, 128)]
    assert image.topics.replica_count(2) == 129
    assert not image.topics.leads_any(3)
    image = replay(r.RemoveTopicRecord(topic_id=T1), base=image)
    assert not image.topics.replica_index
    assert not image.topics.leader_counts
    assert not image.topics.leaderless_index


def test_a_broker_registers_and_changes() -> None:
    image = replay(broker())
    registered = image.cluster.brokers[1]
    assert (
        registered.fenced,
        registered.log_dirs,
        registered.start_time_ms,
        registered.registered_offset,
    ) == (
        True,
        (D1, D2),
        77,
        0,
    )
    image = replay(registration(10, fenced=-1), base=image)
    assert image.cluster.is_active(1)
    image = replay(registration(10, in_controlled_shutdown=1, log_dirs=[D3]), base=image)
    assert (image.cluster.brokers[1].active, image.cluster.brokers[1].log_dirs) == (False, (D3,))
    image = replay(registration(10, fenced=1), base=image)
    assert image.cluster.brokers[1].fenced
    assert not replay(r.UnregisterBrokerRecord(broker_id=1, broker_epoch=10), base=image).cluster.brokers


@pytest.mark.parametrize("unfencing", [registration(10, fenced=-1), r.UnfenceBrokerRecord(id=1, epoch=10)])
def test_a_registration_has_the_offset_of_the_record_that_last_unfenced_it(unfencing: Data) -> None:
    image = replay(broker())
    assert image.cluster.brokers[1].unfenced_offset == 0
    image = replay(unfencing, base=image)
    assert image.cluster.brokers[1].unfenced_offset == 1
    image = replay(unfencing, registration(10, log_dirs=[D3]), registration(10, fenced=1), base=image)
    assert image.cluster.brokers[1].unfenced_offset == 1
    image = replay(unfencing, base=image)
    assert image.cluster.brokers[1].unfenced_offset == 5


def test_old_fencing_records_still_replay() -> None:
    image = replay(broker(), r.UnfenceBrokerRecord(id=1, epoch=10))
    assert not image.cluster.brokers[1].fenced
    assert replay(r.FenceBrokerRecord(id=1, epoch=10), base=image).cluster.brokers[1].fenced


def test_end_points_of_a_change_replace_those_of_the_registration() -> None:
    endpoint = r.BrokerRegistrationChangeRecord.BrokerEndpoint(
        name="A", host="new", port=1, security_protocol=1
    )
    image = replay(broker(), registration(10, end_points=[endpoint]))
    assert image.cluster.brokers[1].listeners == (("A", "new", 1, 1),)


def test_a_config_with_a_null_value_is_removed_and_an_empty_resource_with_it() -> None:
    def config(name: str, value: str | None) -> r.ConfigRecord:
        return r.ConfigRecord(resource_type=4, resource_name="", name=name, value=value)

    image = replay(config("a", "1"), config("b", ""))
    assert dict(image.configs.cluster_default()) == {"a": "1", "b": ""}
    image = replay(config("a", None), config("nothing", None), base=image)
    assert dict(image.configs.get(4, "")) == {"b": ""}
    assert not replay(config("b", None), base=image).configs.resources


def test_feature_levels_are_finalised_and_removed_and_kraft_version_is_not_one() -> None:
    def level(name: str, value: int) -> r.FeatureLevelRecord:
        return r.FeatureLevelRecord(name=name, feature_level=value)

    image = replay(
        level("metadata.version", 27), level("group.version", 1), level("kraft.version", 1), r.NoOpRecord()
    )
    assert dict(image.features.finalized) == {"metadata.version": 27, "group.version": 1}
    assert (image.features.metadata_version, image.features.epoch) == (27, 1)
    assert dict(replay(level("group.version", 0), base=image).features.finalized) == {"metadata.version": 27}


def test_quotas_credentials_tokens_acls_and_producer_ids_come_and_go() -> None:
    user = r.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)
    client = r.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="c")
    quota = r.ClientQuotaRecord(entity=[user, client], key="k", value=2.5)
    acl = r.AccessControlEntryRecord(id=T1, resource_name="x", principal="User:a", host="*")
    scram = r.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    token = r.DelegationTokenRecord(owner="User:a", token_id="id")
    image = replay(
        quota, acl, scram, token, r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000)
    )
    entity = (("client-id", "c"), ("user", None))
    assert dict(image.client_quotas.entities[entity]) == {"k": 2.5}
    assert (image.acls.by_id[T1], image.scram.get(1, "u"), image.delegation_tokens.tokens["id"]) == (
        acl,
        scram,
        token,
    )
    assert image.producer_ids.next_producer_id == 1000
    image = replay(
        r.ClientQuotaRecord(entity=[client, user], key="k", remove=True),
        r.RemoveAccessControlEntryRecord(id=T1),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        r.RemoveDelegationTokenRecord(token_id="id"),
        base=image,
    )
    assert not (
        image.client_quotas.entities
        or image.acls.by_id
        or image.scram.credentials
        or image.delegation_tokens.tokens
    )


def test_a_transaction_shows_at_its_end_and_not_before() -> None:
    opened = replay(topic(), r.BeginTransactionRecord(name="x"), topic("u", T2))
    assert list(opened.topics.by_name) == ["t"]
    assert opened.transaction is not None
    assert (opened.transaction.name, opened.transaction.offset) == ("x", 1)
    assert set(opened.transaction.pending.topics.by_name) == {"t", "u"}
    ended = replay(partition(0, T2), r.EndTransactionRecord(), base=opened)
    assert set(ended.topics.by_name) == {"t", "u"}
    assert ended.transaction is None
    assert set(MetadataDelta(opened, ended).topics_created) == {T2}


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_removed_topic_leaves_nothing_in_the_indexes(count: int) -> None:
    """A topic may have fewer partitions than there are brokers, or more."""
    kept = replay(topic("u", T2), partition(0, T2))
    image = replay(topic(), *[partition(number) for number in range(count)], base=kept)
    assert image.topics != kept.topics
    after = replay(r.RemoveTopicRecord(topic_id=T1), base=image).topics
    assert after.replica_index == kept.topics.replica_index
    assert after.leader_counts == kept.topics.leader_counts
    assert after.leaderless_index == kept.topics.leaderless_index
    assert after.partition_count == 1


@pytest.mark.parametrize("since", range(5))
def test_a_delta_over_the_end_of_a_transaction_has_the_topics_of_all_its_batches(since: int) -> None:
    parts = [[r.BeginTransactionRecord()], [topic()], [topic("u", T2)], [partition(0, T2)], [partition()]]
    images = [replay(topic("before", bytes(15) + b"9"))]
    for part in [*parts, [r.EndTransactionRecord()]]:
        images.append(replay(*part, base=images[-1]))
    assert [len(image.topics.by_id) for image in images] == [1] * 6 + [3]
    assert set(MetadataDelta(images[since], images[-1]).topics_created) == {T1, T2}
    assert MetadataDelta(images[since], images[5]).is_empty


def test_an_aborted_transaction_leaves_nothing() -> None:
    before = replay(topic(), partition())
    after = replay(
        r.BeginTransactionRecord(),
        change(leader=2),
        r.RemoveTopicRecord(topic_id=T1),
        r.AbortTransactionRecord(reason="no"),
        base=before,
    )
    assert after.topics == before.topics
    assert after.transaction is None
    assert MetadataDelta(before, after).is_empty


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([partition()], "no topic with id AQEBAQEBAQEBAQEBAQEBAQ"),
        ([topic(), topic("t", T2)], "topic t exists already"),
        ([topic(), topic("u")], "topic id AQEBAQEBAQEBAQEBAQEBAQ exists already"),
        ([topic(), change()], "topic t has no partition 0"),
        ([topic(), partition(-1)], "partition id -1 is outside"),
        ([topic(), partition(2**31 - 1)], "partition id 2147483647 is outside"),
        ([topic(), partition(directories=[D1])], "1 directories for 2 replicas"),
        ([topic(), partition(), change(replicas=[1, 2, 3])], "2 directories for 3 replicas"),
        ([topic(), partition(), change(leader_recovery_state=2)], "leader recovery state 2 is unknown"),
        ([r.RemoveTopicRecord(topic_id=T1)], "no topic with id"),
        ([r.ClearElrRecord(topic_name="t")], "no topic t"),
        ([registration(1)], "broker 1 is not registered"),
        ([broker(), registration(1)], "epoch 1 of broker 1"),
        ([broker(), registration(10, fenced=2)], "2 is no value of its field fenced"),
        ([broker(), registration(10, in_controlled_shutdown=-1)], "inControlledShutdown"),
        ([r.FenceBrokerRecord(id=3)], "broker 3 is not registered"),
        ([r.RemoveAccessControlEntryRecord(id=T1)], "no access control entry"),
        ([r.UserScramCredentialRecord(name="u", mechanism=3)], "SCRAM mechanism 3"),
        ([r.FeatureLevelRecord(name="metadata.version", feature_level=6)], "metadata.version 6"),
        ([r.EndTransactionRecord()], "no transaction is open"),
        ([r.AbortTransactionRecord()], "no transaction is open"),
        ([r.BeginTransactionRecord(), r.BeginTransactionRecord()], "begun at offset 100 is still open"),
    ],
)  # fmt: skip
def test_an_invalid_record_is_rejected_with_offset_record_and_reason(values: list[Data], reason: str) -> None:
    with pytest.raises(MetadataError, match=reason) as caught:
        apply_records(EMPTY, values, offset=99 + len(values), epoch=1, timestamp_ms=0)
    assert caught.value.offset == 99 + len(values)
    assert caught.value.record is not None
    assert caught.value.record.startswith(type(values[-1]).__name__)
    assert f"at offset {99 + len(values)}" in str(caught.value)


def test_the_old_image_is_untouched_by_the_new() -> None:
    old = replay(topic(), partition(), broker())
    copy = replay(topic(), partition(), broker())
    replay(change(leader=2), r.UnregisterBrokerRecord(broker_id=1, broker_epoch=10), base=old)
    assert old == copy


def test_every_record_type_has_a_place() -> None:
    from quorate.metadata.image.builder import _HANDLERS

    assert set(_HANDLERS) == set(r.RECORD_TYPES.values())


def test_unknown_tags_of_every_kept_entity_reach_the_next_snapshot() -> None:
    tags = {900: b"future"}
    endpoint = r.RegisterBrokerRecord.BrokerEndpoint(name="A", host="h", port=1, security_protocol=0)
    feature = r.RegisterBrokerRecord.BrokerFeature(name="f", max_supported_version=1)
    entity = r.ClientQuotaRecord.EntityData(entity_type="user", entity_name="u")
    values: list[Data] = [
        r.FeatureLevelRecord(name="metadata.version", feature_level=27),
        broker(end_points=[endpoint], features=[feature], log_dirs=[D1]),
        r.RegisterControllerRecord(controller_id=1),
        topic(),
        partition(),
        r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"),
        r.ClientQuotaRecord(entity=[entity], key="k", value=1.0),
        r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=5),
        r.AccessControlEntryRecord(id=T1),
        r.UserScramCredentialRecord(name="u", mechanism=1),
        r.DelegationTokenRecord(token_id="x"),
    ]
    for value in [*values, endpoint, feature]:
        value.unknown_tags = dict(tags)
    assert list(image_records(replay(*values))) == values


def test_an_image_is_not_written_inside_a_transaction() -> None:
    image = replay(r.BeginTransactionRecord(), topic())
    with pytest.raises(MetadataError, match="begun at offset 0 is open"):
        list(image_records(image))


@pytest.mark.parametrize(
    ("level", "record", "lost"),
    [
        (16, broker(), "log directories"),
        (10, r.UserScramCredentialRecord(name="u", mechanism=1), "SCRAM"),
        (13, r.DelegationTokenRecord(token_id="x"), "delegation tokens"),
        (14, r.RegisterControllerRecord(controller_id=1), "controller registrations"),
        (7, broker(is_migrating_zk_broker=True), "migration"),
        (29, broker(cordoned_log_dirs=[]), "cordoned log directories"),
    ],
)
def test_parts_without_a_record_at_the_metadata_version_raise_an_error(
    level: int, record: Data, lost: str
) -> None:
    image = replay(r.FeatureLevelRecord(name="metadata.version", feature_level=level), record)
    with pytest.raises(MetadataError, match=lost):
        list(image_records(image))


def cordon(*directories: bytes) -> Data:
    return registration(10, cordoned_log_dirs=list(directories))


@pytest.mark.parametrize(
    ("records", "cordoned", "open_to_replicas"),
    [
        ([], None, True),
        ([cordon()], (), True),
        ([cordon(D1)], (D1,), True),
        ([cordon(D1, D2)], (D1, D2), False),
        ([cordon(D1, D2), cordon(D2)], (D2,), True),
        ([cordon(D1, D2), registration(10, fenced=-1)], (D1, D2), False),
        ([cordon(D1, D2), broker(log_dirs=[D1, D2])], None, True),
    ],
)
def test_cordoned_directories_are_those_that_the_last_change_names(
    records: list[Data], cordoned: tuple[bytes, ...] | None, open_to_replicas: bool
) -> None:
    level = r.FeatureLevelRecord(name="metadata.version", feature_level=30)
    image = replay(level, broker(log_dirs=[D1, D2]), *records)
    registration = image.cluster.brokers[1]
    assert registration.cordoned_log_dirs == cordoned
    assert registration.has_uncordoned_directory == open_to_replicas
    assert replay(*image_records(image)).cluster == image.cluster


def test_a_broker_without_known_directories_is_not_cordoned() -> None:
    image = replay(broker(log_dirs=[]), cordon(D1))
    assert image.cluster.brokers[1].has_uncordoned_directory


def test_an_unregistered_controller_is_gone_and_the_delta_says_so() -> None:
    before = replay(r.RegisterControllerRecord(controller_id=1), r.RegisterControllerRecord(controller_id=2))
    after = replay(r.UnregisterControllerRecord(controller_id=2), base=before)
    assert list(after.cluster.controllers) == [1]
    assert MetadataDelta(before, after).controllers_changed == {2: (before.cluster.controllers[2], None)}


def test_a_controller_that_is_not_registered_cannot_be_unregistered() -> None:
    with pytest.raises(MetadataError, match="controller 3 is not registered"):
        replay(r.UnregisterControllerRecord(controller_id=3))


def test_a_big_batch_costs_in_proportion() -> None:
    """A batch creates 2,000 partitions. A change of one partition must then copy a few chunks and not
    the topic."""
    image = replay(topic(), *[partition(n) for n in range(2000)])
    before = image.topics.by_id[T1].partitions
    after = replay(change(partition_id=1000, leader=2), base=image).topics.by_id[T1].partitions
    shared = sum(a is b for a, b in zip(before._chunks, after._chunks, strict=True))
    assert shared == len(before._chunks) - 1
    assert [found[0] for found in after.changes_since(before)] == [1000]


def test_indexes_hold_for_big_topics_too() -> None:
    image = replay(topic(), *[partition(n) for n in range(5000)])
    image = replay(change(partition_id=4999, leader=2), change(partition_id=3, leader=2), base=image)
    assert (image.topics.leader_count(1), image.topics.leader_count(2)) == (4998, 2)
    assert image.topics.replica_count(2) == 5000
    image = replay(change(partition_id=4998, replicas=[1, 3], directories=[D1, D3]), base=image)
    assert list(image.topics.partitions_of(3)) == [(T1, 4998)]
    assert (T1, 4998) not in set(image.topics.partitions_of(2))
