"""AlterUserScramCredentials (51): KIP-554. The request has salted passwords; the log stores only the
keys that verify them (RFC 5802)."""

from __future__ import annotations

import hashlib
import hmac

from quorate.controller.changes.batched_change import ChangeSteps, in_one_turn, parts_of
from quorate.controller.context import Context, Result, View, bounded, recheck_in_one_step
from quorate.metadata.features import FIRST_SCRAM
from quorate.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from quorate.protocol.schema import Data

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

SHA_256, SHA_512 = 1, 2
_HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


def alter_user_scram_credentials(
    view: View, request: AlterUserScramCredentialsRequest, ctx: Context
) -> Result[AlterUserScramCredentialsResponse]:
    """Changes credentials. Errors are reported for each user. A user who is named twice is not changed
    at all."""
    return in_one_turn(alter_user_scram_credentials_in_steps(view, request, ctx))


def alter_user_scram_credentials_in_steps(
    view: View, request: AlterUserScramCredentialsRequest, ctx: Context
) -> ChangeSteps[Result[AlterUserScramCredentialsResponse]]:
    """Does the same as `alter_user_scram_credentials` in steps, which yield the records."""
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

    changes: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for number, part in enumerate(parts_of(changes)):
        if number:
            yield []
        for change in part:
            if isinstance(change, Deletion):
                add(change.name, _deleted(view, change))
            else:
                add(change.name, _upserted(change))
    bounded(list(records.values()), "Altering these credentials")
    make = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    response.results = [make(user=user, error_message=None) for user in records]
    for number, refused in enumerate(parts_of(list(errors.items()))):
        if number:
            yield []
        response.results += [
            make(user=user, error_code=error.code, error_message=error.message) for user, error in refused
        ]
    yield from parts_of(list(records.values()))

    def is_unchanged(newer: View) -> bool:
        return newer.image.scram is view.image.scram and newer.image.features is view.image.features

    return Result(response, recheck=recheck_in_one_step(is_unchanged))


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


def _deleted(view: View, deletion: Deletion) -> Data | KafkaError:
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


def _upserted(upsertion: Upsertion) -> Data | KafkaError:
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
