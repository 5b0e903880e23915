"""AlterUserScramCredentials (51): KIP-554. The request has salted passwords; the log stores only the
keys that verify them (RFC 5802)."""

from __future__ import annotations

import hashlib
import hmac

from quorate.controller.context import Context, Result, View, bounded
from quorate.metadata.features import FIRST_SCRAM
from quorate.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from quorate.protocol.schema import Data

SHA_256, SHA_512 = 1, 2
_HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


def alter_user_scram_credentials(
    view: View, request: AlterUserScramCredentialsRequest, ctx: Context
) -> Result[AlterUserScramCredentialsResponse]:
    """Changes credentials. Errors are reported for each user. A user who is named twice is not changed
    at all."""
    response = AlterUserScramCredentialsResponse()
    errors: dict[str, KafkaError] = {}
    records: dict[str, Data] = {}

    def add(user: str, record: Data | KafkaError) -> None:
        if user in errors:
            return
        if records.pop(user, None) is not None:
            record = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        elif view.metadata_version < FIRST_SCRAM:
            record = KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
            )
        if isinstance(record, KafkaError):
            errors[user] = record
        else:
            records[user] = record

    for deletion in request.deletions:
        add(deletion.name, _deleted(view, deletion))
    for upsertion in request.upsertions:
        add(upsertion.name, _upserted(upsertion))
    make = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    response.results = [make(user=user, error_message=None) for user in records]
    response.results += [
        make(user=user, error_code=error.code, error_message=error.message) for user, error in errors.items()
    ]
    return Result(response, bounded(list(records.values()), "Altering these credentials"))


def _rejection(user: str, mechanism: int) -> KafkaError | None:
    """The error for an empty user name or an unknown mechanism, or None."""
    if not user:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in _HASHES:
        return KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
            remedy=f"It is {mechanism}; there are 1 (SCRAM-SHA-256) and 2 (SCRAM-SHA-512).",
        )
    return None


def _deleted(
    view: View, deletion: AlterUserScramCredentialsRequest.ScramCredentialDeletion
) -> Data | KafkaError:
    """The record that deletes a credential, or an error."""
    refused = _rejection(deletion.name, deletion.mechanism)
    if refused is not None:
        return refused
    if view.image.scram.get(deletion.mechanism, deletion.name) is None:
        return KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
            remedy="kafka-configs --describe --entity-type users shows those that do.",
        )
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _upserted(upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> Data | KafkaError:
    """The record that sets a credential, or an error."""
    refused = _rejection(upsertion.name, upsertion.mechanism)
    if refused is not None:
        return refused
    if upsertion.iterations < MIN_ITERATIONS:
        return KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too few iterations",
            remedy=f"There are {upsertion.iterations}, {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed.",
        )
    if upsertion.iterations > MAX_ITERATIONS:
        return KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too many iterations",
            remedy=f"There are {upsertion.iterations}, {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed.",
        )
    digest = _HASHES[upsertion.mechanism]
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", digest)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(upsertion.salted_password, b"Server Key", digest),
        iterations=upsertion.iterations,
    )
