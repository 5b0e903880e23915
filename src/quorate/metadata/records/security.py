"""Records about credentials, delegation tokens and access control."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, field, int8, int32, int64, uuid


class UserScramCredentialRecord(Data, key=11, versions="0", flexible="0+"):
    """Sets a SCRAM credential of a user. KIP-900."""

    name: str = ""
    mechanism: int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int32 = 0


class RemoveUserScramCredentialRecord(Data, key=22, versions="0", flexible="0+"):
    """Removes a SCRAM credential of a user."""

    name: str = ""
    mechanism: int8 = 0


class DelegationTokenRecord(Data, key=10, versions="0", flexible="0+"):
    """Creates or changes a delegation token. Its HMAC is computed from the secret key and not stored.
    KIP-900."""

    owner: str = ""
    requester: str = ""
    renewers: list[str] = field(default_factory=list)
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: str = ""


class RemoveDelegationTokenRecord(Data, key=26, versions="0", flexible="0+"):
    """Removes a delegation token."""

    token_id: str = ""


class AccessControlEntryRecord(Data, key=18, versions="0", flexible="0+"):
    """Creates an ACL. KIP-801."""

    id: uuid = ZERO_UUID
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 0
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class RemoveAccessControlEntryRecord(Data, key=19, versions="0", flexible="0+"):
    """Removes the access control entry with this id."""

    id: uuid = ZERO_UUID
