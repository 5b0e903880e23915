"""AlterClientQuotas (49): sets and removes client quotas (KIP-546, KIP-612).

The changes of one entity are made all or not at all. The changes of all entities without an error are
one batch.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, in_one_turn, parts_of
from quorate.controller.context import Context, Result, View, bounded, recheck_in_one_step
from quorate.metadata.image.small_images import QuotaEntity
from quorate.metadata.records import ClientQuotaRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from quorate.protocol.schema import Data
from quorate.security.client_quota import CONNECTION_CREATION_RATE, ENTITY_TYPES, IP

_LONG_MAX = float(2**63 - 1)
_INT_MAX = float(2**31 - 1)

USER_CLIENT_KEYS: Mapping[str, float | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
IP_KEYS: Mapping[str, float | None] = {CONNECTION_CREATION_RATE: _INT_MAX}
"""The quota keys, each with the largest value of an integer quota, or None for a quota that may be
fractional."""


def alter_client_quotas(
    view: View, request: AlterClientQuotasRequest, ctx: Context
) -> Result[AlterClientQuotasResponse]:
    """Changes the quotas of each entity. Errors are reported for each entity."""
    return in_one_turn(alter_client_quotas_in_steps(view, request, ctx))


def alter_client_quotas_in_steps(
    view: View, request: AlterClientQuotasRequest, ctx: Context
) -> ChangeSteps[Result[AlterClientQuotasResponse]]:
    """Does the same as `alter_client_quotas` in steps, which yield the records."""
    response = AlterClientQuotasResponse()
    records: list[Data] = []
    seen: set[QuotaEntity] = set()
    for number, entry in enumerate(request.entries):
        if number and not number % STEP_ITEMS:
            yield []
        answer = AlterClientQuotasResponse.EntryData(
            error_message=None,
            entity=[
                AlterClientQuotasResponse.EntityData(
                    entity_type=part.entity_type, entity_name=part.entity_name
                )
                for part in entry.entity
            ],
        )
        response.entries.append(answer)
        try:
            entity = _entity(entry)
            if entity in seen:
                raise _invalid("Ignoring duplicate entity " + ", ".join(kind for kind, _ in entity))
            seen.add(entity)
            records += _alter(view, entity, entry)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    bounded(records, "Altering these quotas")
    if not request.validate_only:
        yield from parts_of(records)
    quotas = view.image.client_quotas
    return Result(response, recheck=recheck_in_one_step(lambda newer: newer.image.client_quotas is quotas))


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _entity(entry: AlterClientQuotasRequest.EntryData) -> QuotaEntity:
    """The entity of an entry. Raises INVALID_REQUEST if the entity is not valid."""
    parts: dict[str, str | None] = {}
    if not entry.entity:
        raise _invalid("Invalid empty client quota entity")
    for part in entry.entity:
        if part.entity_type in parts:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _invalid(f"Empty {part.entity_type} not supported")
        parts[part.entity_type] = part.entity_name
    if IP in parts:
        if len(parts) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        if (address := parts[IP]) is not None and not _is_address(address):
            raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(parts.items()))


def _is_address(text: str) -> bool:
    """Whether the text is an IP address. Kafka also accepts host names and resolves them, but a
    controller must not block on DNS."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _alter(view: View, entity: QuotaEntity, entry: AlterClientQuotasRequest.EntryData) -> list[Data]:
    """The records of one entity."""
    keys = IP_KEYS if entity[0][0] == IP else USER_CLIENT_KEYS
    current: Mapping[str, float] = view.image.client_quotas.entities.get(entity, {})
    records: list[Data] = []
    seen: set[str] = set()
    for op in entry.ops:
        if op.key in seen:
            raise _invalid(f"Duplicate quota key {op.key} not updating quota for this entity")
        seen.add(op.key)
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=_parts(entity), key=op.key, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=_parts(entity), key=op.key, value=op.value))
    return records


def _parts(entity: QuotaEntity) -> list[ClientQuotaRecord.EntityData]:
    return [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _check_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    """Raises INVALID_REQUEST if the quota does not exist or cannot have this value."""
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is not None:
        if value > largest:
            raise _invalid(
                f"Proposed value for {key} is too large for {'an INT' if largest == _INT_MAX else 'a LONG'}."
            )
        if abs(value % 1.0) > 1e-6:
            raise _invalid(f"{key} cannot be a fractional value.")
