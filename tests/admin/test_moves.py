"""Reassignments between brokers, moves between log directories, and what our nodes refuse."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from quorate.admin import client, sync
from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.types import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    KafkaPrincipal,
    NewTopic,
    Reassignment,
    ReplicaLogDirInfo,
    ResourceType,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for


@pytest.fixture(scope="module")
def admin() -> Iterator[sync.AdminClient]:
    """Of a cluster whose broker 3 does not run, so that what moves there stays in progress."""
    with KafkaCluster(brokers=3) as cluster, sync.AdminClient(cluster.bootstrap_servers) as client:
        client.create_topics([NewTopic("moving", assignment={0: [1, 2], 1: [2, 1]})])
        cluster.stop(3)
        yield client


def test_a_reassignment_is_listed_until_it_is_cancelled(admin: sync.AdminClient) -> None:
    first, other = TopicPartition("moving", 0), TopicPartition("moving", 1)
    assert admin.alter_partition_reassignments({first: [1, 3]}) == {first: None}
    ongoing = {first: Reassignment(replicas=(1, 3, 2), adding=(3,), removing=(2,))}
    assert admin.list_partition_reassignments() == ongoing
    assert admin.list_partition_reassignments([first]) == ongoing
    assert admin.list_partition_reassignments([other]) == {}
    assert admin.alter_partition_reassignments({first: None}) == {first: None}
    assert admin.list_partition_reassignments() == {}


@pytest.mark.parametrize(
    ("partition", "replicas", "allow", "code"),
    [
        (0, None, True, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (0, [1, 99], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 2, 3], False, ErrorCode.INVALID_REPLICATION_FACTOR),
        (9, [1, 2], True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_reassignment_that_is_refused(
    admin: sync.AdminClient, partition: int, replicas: list[int] | None, allow: bool, code: ErrorCode
) -> None:
    tp = TopicPartition("moving", partition)
    found = admin.alter_partition_reassignments({tp: replicas}, allow_replication_factor_change=allow)[tp]
    assert found is not None and found.code is code
    assert found.message
    assert admin.list_partition_reassignments() == {}


def test_a_replica_is_in_its_directory(admin: sync.AdminClient) -> None:
    replica = TopicPartitionReplica("moving", 0, 1)
    absent = TopicPartitionReplica("absent", 0, 2)
    found = admin.describe_replica_log_dirs([replica, absent])
    (directory,) = admin.describe_log_dirs([1])[1]
    assert found == {replica: ReplicaLogDirInfo(directory.path, 0), absent: ReplicaLogDirInfo()}
    assert admin.alter_replica_log_dirs({replica: directory.path}) == {replica: None}


def test_a_refused_move_names_broker_directory_and_remedy(admin: sync.AdminClient) -> None:
    replica, absent = TopicPartitionReplica("moving", 0, 1), TopicPartitionReplica("absent", 0, 2)
    (directory,) = admin.describe_log_dirs([2])[2]
    found = admin.alter_replica_log_dirs({replica: "/nowhere", absent: directory.path})
    nowhere, missing = found[replica], found[absent]
    assert nowhere is not None and missing is not None
    assert nowhere.code is ErrorCode.LOG_DIR_NOT_FOUND
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nowhere.message == (
        "Replica moving-0 cannot be moved to /nowhere: broker 1 has no log directory /nowhere; "
        "`kafka-log-dirs --describe --broker-list 1` lists its directories."
    )
    assert "there is no partition absent-0" in str(missing)


def test_acls_without_an_authorizer_are_refused(admin: sync.AdminClient) -> None:
    with pytest.raises(KafkaError, match="SECURITY_DISABLED") as refused:
        admin.describe_acls()
    assert "uthorizer" in str(refused.value)
    acl = AclBinding(ResourceType.TOPIC, "moving", "User:ann", AclOperation.READ)
    created = admin.create_acls([acl])[acl]
    assert created is not None and created.code is ErrorCode.SECURITY_DISABLED
    deleted = admin.delete_acls([AclBindingFilter()])[AclBindingFilter()]
    assert isinstance(deleted, KafkaError) and deleted.code is ErrorCode.SECURITY_DISABLED


def test_delegation_tokens_without_authentication_are_refused(admin: sync.AdminClient) -> None:
    for call in (
        lambda: admin.create_delegation_token(renewers=[KafkaPrincipal("User", "ann")]),
        lambda: admin.renew_delegation_token(b"hmac"),
        lambda: admin.expire_delegation_token(b"hmac"),
        lambda: admin.describe_delegation_tokens(),
    ):
        with pytest.raises(KafkaError, match="DELEGATION_TOKEN"):
            call()


def test_the_plain_client_has_every_method_with_its_signature() -> None:
    made = client.AdminClient("127.0.0.1:1")
    methods = {n: m for n, m in vars(made).items() if inspect.iscoroutinefunction(m)}
    assert len(methods) > 45
    for name, method in methods.items():
        plain = inspect.signature(getattr(sync.AdminClient, name))
        assert list(plain.parameters.values())[1:] == list(inspect.signature(method).parameters.values())


def test_a_finished_reassignment_is_not_listed(admin: sync.AdminClient) -> None:
    tp = TopicPartition("moving", 1)
    assert admin.alter_partition_reassignments({tp: [1, 2]}) == {tp: None}
    wait_for("the end of the reassignment", lambda: not admin.list_partition_reassignments())
    assert admin.describe_topics(["moving"])["moving"].partitions[1].replicas == (1, 2)
