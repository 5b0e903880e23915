"""Well-formed but senseless requests get the error codes of Apache Kafka. tests/interop/test_differential.py
compares both implementations; these tests need no Java."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from quorate.protocol.messages.create_acls import CreateAclsRequest
from quorate.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_acls import DeleteAclsRequest
from quorate.protocol.messages.describe_acls import DescribeAclsRequest
from quorate.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from quorate.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from quorate.records.batch import build_batch
from quorate.testing import KafkaCluster
from tests.support.differential import Peer

LISTENERS = ("broker", "controller")
TOPIC, GROUP = "strange", "strange-g"


@pytest.fixture(scope="module")
def peer(kafka_cluster: KafkaCluster) -> Iterator[Peer]:
    servers = {"broker": kafka_cluster.bootstrap_servers, "controller": kafka_cluster.bootstrap_controllers}
    peer = Peer("quorate", {name: int(address.rpartition(":")[2]) for name, address in servers.items()})
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    assert peer.ask(CreateTopicsRequest(topics=[topic]), 7).response.topics[0].error_code == 0
    yield peer
    peer.close()


def produce(peer: Peer, records: bytes, version: int = 9, transactional_id: str | None = None) -> Any:
    topic = ProduceRequest.TopicProduceData(
        name=TOPIC, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
    )
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=3000, topic_data=[topic])
    return peer.ask(request, version).response.responses[0].partition_responses[0]


def one_record(**options: Any) -> bytes:
    return build_batch([(None, b"v", [], int(time.time() * 1000))], **options)


# -- Produce


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 9])
def test_batches_of_old_formats_are_invalid_not_damaged(peer: Peer, magic: int, version: int) -> None:
    body = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", 0) if magic else b"")
        + struct.pack(">i3si5s", 3, b"key", 5, b"value")
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    old = struct.pack(">qi", 0, len(message)) + message
    assert produce(peer, old, version).error_code == ErrorCode.INVALID_RECORD


def test_a_transactional_batch_without_a_transactional_id_is_not_authorised(peer: Peer) -> None:
    batch = one_record(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce(peer, batch).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_refusal_of_a_batch_has_the_log_start_offset(peer: Peer) -> None:
    late = build_batch([(None, b"v", [], int(time.time() * 1000) + 10**10)])
    answer = produce(peer, late)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)
    assert produce(peer, b"").log_start_offset == -1


def test_an_incomplete_batch_is_invalid(peer: Peer) -> None:
    answer = produce(peer, one_record()[:-3])
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, -1)


# -- Metadata


def test_a_topic_with_neither_name_nor_id_is_refused(peer: Peer) -> None:
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None)])
    assert peer.ask(asked, 12).response.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_operations_on_a_topic_with_an_illegal_name(peer: Peer) -> None:
    asked = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="a b")], include_topic_authorized_operations=True
    )
    answer = peer.ask(asked, 8).response.topics[0]
    assert (answer.error_code, answer.topic_authorized_operations) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        3576,
    )


# -- groups


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_refused_join_names_no_protocol(peer: Peer, version: int) -> None:
    answer = peer.ask(JoinGroupRequest(group_id="", session_timeout_ms=6000), version).response
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert answer.protocol_name == (None if version >= 7 else "")


def test_a_sync_without_its_protocol_is_inconsistent_before_anything_else(peer: Peer) -> None:
    answer = peer.ask(SyncGroupRequest(group_id=""), 5).response
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_offset_for_a_topic_without_a_name(peer: Peer) -> None:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[part])]
    )
    answer = peer.ask(request, 8).response.topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_negative_leader_epoch_in_a_fetch_is_none(peer: Peer) -> None:
    part = FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-2
    )
    request = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])])
    assert peer.ask(request, 12).response.responses[0].partitions[0].error_code == 0


# -- what is not enforced is refused


@pytest.mark.parametrize("to", LISTENERS)
def test_acls_are_disabled_because_nothing_enforces_them(peer: Peer, to: str) -> None:
    acl = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=2
    )
    created = peer.ask(CreateAclsRequest(creations=[acl, acl]), 3, to=to).response.results
    assert [r.error_code for r in created] == [ErrorCode.SECURITY_DISABLED] * 2
    assert "No Authorizer is configured" in created[0].error_message
    some = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2, pattern_type_filter=3, operation=2, permission_type=2
    )
    deleted = peer.ask(DeleteAclsRequest(filters=[some]), 3, to=to).response.filter_results
    assert [r.error_code for r in deleted] == [ErrorCode.SECURITY_DISABLED]
    every = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    assert peer.ask(every, 3, to=to).response.error_code == ErrorCode.SECURITY_DISABLED


def test_quotas_that_nothing_enforces_are_refused_and_can_be_removed(peer: Peer) -> None:
    entry = AlterClientQuotasRequest.EntryData

    def ask(to: str, *, remove: bool) -> Any:
        op = AlterClientQuotasRequest.OpData(
            key="producer_byte_rate", value=0.0 if remove else 1000.0, remove=remove
        )
        who = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="a")
        return peer.ask(
            AlterClientQuotasRequest(entries=[entry(entity=[who], ops=[op])]), 1, to=to
        ).response.entries[0]

    for to in LISTENERS:
        answer = ask(to, remove=False)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "are not enforced here" in answer.error_message
        assert ask(to, remove=True).error_code == 0


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (CreateDelegationTokenRequest(), 3),
        (CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name="o"), 3),
        (RenewDelegationTokenRequest(), 2),
        (ExpireDelegationTokenRequest(), 2),
        (DescribeDelegationTokenRequest(), 3),
    ],
)
def test_unauthenticated_clients_get_no_tokens(peer: Peer, request_: Any, version: int) -> None:
    for to in LISTENERS if request_.KEY != DescribeDelegationTokenRequest.KEY else ("broker",):
        answer = peer.ask(request_, version, to=to).response
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert getattr(answer, "expiry_timestamp_ms", -1) == -1


@pytest.mark.parametrize("to", LISTENERS)
def test_a_plaintext_listener_answers_sasl_with_illegal_state(peer: Peer, to: str) -> None:
    for version in (0, 1):
        answer = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), version, to=to).response
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version, to=to).response
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- configurations


def alter(peer: Peer, kind: int, name: str, key: str, value: str) -> Any:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).response.responses[0]


@pytest.mark.parametrize("key", ["listeners", "listener.security.protocol.map"])
def test_listeners_of_a_running_node_cannot_be_changed(peer: Peer, key: str) -> None:
    answer = alter(peer, 4, "1", key, "PLAINTEXT://127.0.0.1:5")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert key in answer.error_message


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "100", ErrorCode.NONE),
        ("match", "client_id=x,zz", ErrorCode.INVALID_CONFIG),
        ("match", "zz=x", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a.*,client_software_name=b", ErrorCode.NONE),
    ],
)
def test_client_metrics_subscriptions_are_checked(peer: Peer, key: str, value: str, code: ErrorCode) -> None:
    assert alter(peer, 16, "strange-m", key, value).error_code == code


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("consumer.session.timeout.ms", "5", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        ("consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
    ],
)
def test_group_settings_stay_within_the_brokers_bounds(
    peer: Peer, key: str, value: str, code: ErrorCode
) -> None:
    assert alter(peer, 32, GROUP, key, value).error_code == code


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_unknown_feature_cannot_even_be_disabled(peer: Peer, version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="nope", max_version_level=0)
    if version:
        update.upgrade_type = 3
    else:
        update.allow_downgrade = True
    answer = peer.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), version).response
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
