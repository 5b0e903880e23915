"""ACLs, client quotas, SCRAM credentials and delegation tokens: errors and records."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from quorate.controller.handlers.alter_client_quotas import alter_client_quotas
from quorate.controller.handlers.alter_user_scram_credentials import alter_user_scram_credentials
from quorate.controller.handlers.create_acls import create_acls
from quorate.controller.handlers.create_delegation_token import create_delegation_token
from quorate.controller.handlers.delegation_tokens import expired_tokens, token_hmac
from quorate.controller.handlers.delete_acls import delete_acls
from quorate.controller.handlers.describe_acls import describe_acls
from quorate.controller.handlers.expire_delegation_token import expire_delegation_token
from quorate.controller.handlers.renew_delegation_token import renew_delegation_token
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from quorate.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from quorate.protocol.messages.create_acls import CreateAclsRequest
from quorate.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from quorate.protocol.messages.delete_acls import DeleteAclsRequest
from quorate.protocol.messages.describe_acls import DescribeAclsRequest
from quorate.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

from .support import Cluster


def acl(**changes: Any) -> CreateAclsRequest.AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return CreateAclsRequest.AclCreation(**{**fields, **changes})


def create(cluster: Cluster, *acls: CreateAclsRequest.AclCreation) -> Any:
    return cluster.run(create_acls, CreateAclsRequest(creations=list(acls)))


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 77},
        {"permission_type": 1},
        {"resource_name": ""},
        {"principal": "a"},
        {"host": ""},
        {"host": "10.0.0.0/33"},
        {"host": "10.0.0/8"},
        {"host": "10.0.0.0/255.0.0.0"},
        {"host": "2001:db8::/129"},
        {"host": "host/8"},
        {"host": "10.0.0.0/"},
        {"host": "10.0.0.0/-1"},
    ],
)
def test_acls_that_are_refused(changes: dict[str, Any]) -> None:
    result = create(Cluster(), acl(**changes), acl())
    assert [r.error_code for r in result.response.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(result.records) == 1


@pytest.mark.parametrize("host", ["10.0.0.0/8", "10.1.2.3/0", "10.1.2.3/32", "2001:db8::/32", "::1/128"])
def test_a_cidr_host_needs_metadata_version_32(host: str) -> None:
    (answer,) = create(Cluster(31), acl(host=host)).response.results
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
    )
    result = create(Cluster(32), acl(host=host))
    assert (result.response.results[0].error_code, result.records[0].host) == (ErrorCode.NONE, host)


def test_an_acl_that_exists_is_not_written_again() -> None:
    cluster = Cluster()
    assert len(create(cluster, acl(), acl(), acl(host="h")).records) == 2
    assert create(cluster, acl()).records == []


def wanted(kind: type, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return kind(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ["*", "t", "t", "te"]),
        ({"resource_type_filter": 2}, ["*", "t", "te"]),
        ({"resource_name_filter": "t"}, ["t", "t"]),
        ({"resource_name_filter": "test", "pattern_type_filter": 2, "resource_type_filter": 2}, ["*", "te"]),
        ({"resource_name_filter": "t", "pattern_type_filter": 2, "resource_type_filter": 2}, ["*", "t"]),
        ({"pattern_type_filter": 4}, ["te"]),
        ({"principal_filter": "User:b"}, ["t"]),
        ({"operation": 4}, []),
        ({"permission_type": 2}, []),
    ],
)
def test_filters(changes: dict[str, Any], found: list[str]) -> None:
    cluster = Cluster()
    create(
        cluster,
        acl(),
        acl(resource_name="te", resource_pattern_type=4),
        acl(resource_name="*"),
        acl(resource_type=3, principal="User:b"),
    )
    response = describe_acls(cluster.image.acls, wanted(DescribeAclsRequest, **changes))
    assert sorted(r.resource_name for r in response.resources for _ in r.acls) == found
    request = DeleteAclsRequest(filters=[wanted(DeleteAclsRequest.DeleteAclsFilter, **changes)])
    result = cluster.run(delete_acls, request)
    assert sorted(a.resource_name for a in result.response.filter_results[0].matching_acls) == found
    assert len(cluster.image.acls.by_id) == 4 - len(found)


@pytest.mark.parametrize(
    "changes",
    [{"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"operation": 0}, {"permission_type": 0}],
)
def test_filters_of_unknown_kinds_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(KafkaError):
        describe_acls(Cluster().image.acls, wanted(DescribeAclsRequest, **changes))
    request = DeleteAclsRequest(filters=[wanted(DeleteAclsRequest.DeleteAclsFilter, **changes)])
    assert (
        Cluster().run(delete_acls, request).response.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    )


# -- quotas

Entity = AlterClientQuotasRequest.EntityData
Op = AlterClientQuotasRequest.OpData


def quota(cluster: Cluster, entity: list[tuple[str, str | None]], *ops: Op, **changes: Any) -> Any:
    entry = AlterClientQuotasRequest.EntryData(
        entity=[Entity(entity_type=k, entity_name=n) for k, n in entity], ops=list(ops)
    )
    return cluster.run(alter_client_quotas, AlterClientQuotasRequest(entries=[entry], **changes))


RATE = Op(key="producer_byte_rate", value=1000.0)


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ([], [RATE]),
        ([("planet", "x")], [RATE]),
        ([("user", "")], [RATE]),
        ([("user", "a"), ("user", "b")], [RATE]),
        ([("user", "a"), ("ip", "1.2.3.4")], [RATE]),
        ([("ip", "not an address")], [Op(key="connection_creation_rate", value=1.0)]),
        ([("ip", "1.2.3.4")], [RATE]),
        ([("user", "a")], [Op(key="nothing", value=1.0)]),
        ([("user", "a")], [Op(key="producer_byte_rate", value=0.0)]),
        ([("user", "a")], [Op(key="producer_byte_rate", value=1.5)]),
        ([("user", "a")], [Op(key="producer_byte_rate", value=float("nan"))]),
        ([("ip", None)], [Op(key="connection_creation_rate", value=2.0**31)]),
        ([("user", "a")], [RATE, RATE]),
    ],
)
def test_quotas_that_are_refused(entity: list[tuple[str, str | None]], ops: list[Op]) -> None:
    result = quota(Cluster(), entity, *ops)
    assert (result.response.entries[0].error_code, result.records) == (ErrorCode.INVALID_REQUEST, [])


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = Cluster()
    entity: list[tuple[str, str | None]] = [("user", "a"), ("client-id", None)]
    key = (("client-id", None), ("user", "a"))
    assert quota(cluster, entity, RATE, validate_only=True).records == []
    quota(cluster, entity, RATE, Op(key="request_percentage", value=12.5))
    assert dict(cluster.image.client_quotas.entities[key]) == {
        "producer_byte_rate": 1000.0,
        "request_percentage": 12.5,
    }
    assert quota(cluster, entity, RATE).records == []
    quota(
        cluster, entity, Op(key="producer_byte_rate", remove=True), Op(key="consumer_byte_rate", remove=True)
    )
    assert dict(cluster.image.client_quotas.entities[key]) == {"request_percentage": 12.5}


# -- SCRAM

Upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Delete = AlterUserScramCredentialsRequest.ScramCredentialDeletion


def upsert(name: str = "a", mechanism: int = 1, iterations: int = 4096) -> Upsert:
    return Upsert(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
    )


def scram(cluster: Cluster, *, deletions: Any = (), upsertions: Any = ()) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    response = cluster.run(alter_user_scram_credentials, request).response
    return {result.user: ErrorCode(result.error_code) for result in response.results}


@pytest.mark.parametrize(
    ("level", "deletions", "upsertions", "code"),
    [
        (27, [], [upsert("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (27, [], [upsert(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (27, [], [upsert(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (27, [], [upsert(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (27, [Delete(name="a", mechanism=1)], [], ErrorCode.RESOURCE_NOT_FOUND),
        (27, [], [upsert(), upsert()], ErrorCode.DUPLICATE_RESOURCE),
        (10, [], [upsert()], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_credentials_that_are_refused(
    level: int, deletions: list[Delete], upsertions: list[Upsert], code: ErrorCode
) -> None:
    cluster = Cluster(level)
    assert list(scram(cluster, deletions=deletions, upsertions=upsertions).values()) == [code]
    assert len(cluster.image.scram.credentials) == 0


def test_a_credential_is_stored_as_stored_key_and_server_key() -> None:
    cluster = Cluster()
    assert scram(cluster, upsertions=[upsert()]) == {"a": ErrorCode.NONE}
    kept = cluster.image.scram.get(1, "a")
    assert kept is not None
    import hmac

    client_key = hmac.new(b"p" * 32, b"Client Key", hashlib.sha256).digest()
    assert kept.stored_key == hashlib.sha256(client_key).digest()
    assert kept.server_key == hmac.new(b"p" * 32, b"Server Key", hashlib.sha256).digest()
    assert scram(cluster, deletions=[Delete(name="a", mechanism=1)]) == {"a": ErrorCode.NONE}
    assert cluster.image.scram.get(1, "a") is None


# -- delegation tokens


def token(cluster: Cluster, **changes: Any) -> Any:
    return cluster.run(
        create_delegation_token, CreateDelegationTokenRequest(**changes), principal="User:a"
    ).response


def test_tokens_need_a_secret_and_metadata_version_14() -> None:
    assert token(Cluster()).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert token(Cluster(13, token_secret="s")).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_renewer_must_be_a_user() -> None:
    renewer = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")
    assert token(Cluster(token_secret="s"), renewers=[renewer]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("kind", [None, ""])
def test_an_owner_needs_a_principal_type(kind: str | None) -> None:
    answer = token(Cluster(token_secret="s"), owner_principal_type=kind, owner_principal_name="o")
    assert (answer.error_code, answer.principal_type) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "")


def test_the_life_of_a_token() -> None:
    cluster = Cluster(token_secret="s")
    made = token(cluster, max_lifetime_ms=10_000)
    now_ms = int(cluster.now * 1000)
    assert (made.issue_timestamp_ms, made.max_timestamp_ms, made.expiry_timestamp_ms) == (
        now_ms,
        now_ms + 10_000,
        now_ms + 10_000,
    )
    assert made.hmac == token_hmac("s", made.token_id)

    def renew(principal: str, hmac: bytes = made.hmac) -> ErrorCode:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=5_000)
        return ErrorCode(
            cluster.run(renew_delegation_token, request, principal=principal).response.error_code
        )

    assert renew("User:b") == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew("User:a", b"x") == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert renew("User:a") == ErrorCode.NONE
    assert cluster.image.delegation_tokens.tokens[made.token_id].expiration_timestamp == now_ms + 5_000
    cluster.now += 6
    assert renew("User:a") == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert len(expired_tokens(cluster.view, int(cluster.now * 1000), 10)) == 1
    expire = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert (
        cluster.run(expire_delegation_token, expire, principal="User:a").response.error_code == ErrorCode.NONE
    )
    assert len(cluster.image.delegation_tokens.tokens) == 0
