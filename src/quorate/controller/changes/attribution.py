"""Who or what caused a change of the metadata, as a record of the change's own batch.

`ControllerState.write` appends it.

The last record of a change is a NoOpRecord, whose tagged fields are declared in `metadata.records.log`. Nodes
of Apache Kafka skip them. Every metadata.version that Kafka 4.0 and later can read has NoOpRecord (KIP-835).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from quorate.metadata.framing import encode_record
from quorate.metadata.records import NoOpRecord

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext

MAX_CHARACTERS: Final = 256
"""The longest name or reason in a record. A client chooses its id, which may have 32767 bytes."""

_MAX_CACHED: Final = 1_000
"""The encoded records that are kept. A cluster has few clients that change metadata."""

_CUT: Final = "..."


class Attribution(NamedTuple):
    """The client and API of a request, or the reason of a change that the controller makes by itself."""

    principal: str | None = None
    client_id: str | None = None
    address: str | None = None
    api: int = -1
    reason: str | None = None


def of_request(ctx: RequestContext) -> Attribution:
    """The attribution of a request. That of a forwarded request names the client of the broker."""
    return Attribution(ctx.principal, ctx.client_id, ctx.client_host, ctx.api_key)


class AttributionRecords:
    """The values of NoOpRecords with an attribution. Each is encoded once."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Attribution, bytes] = {}

    def value(self, cause: Attribution) -> bytes:
        """The value of the record in a batch."""
        value = self._values.get(cause)
        if value is None:
            value = _encode(cause)
            if len(self._values) >= _MAX_CACHED:
                self._values.clear()
            if not _is_long(cause):
                self._values[cause] = value
        return value


def _encode(cause: Attribution) -> bytes:
    record = NoOpRecord(
        principal=_clip(cause.principal),
        client_id=_clip(cause.client_id),
        address=_clip(cause.address),
        api=cause.api,
        reason=_clip(cause.reason),
    )
    return encode_record(record, 0)


def _clip(text: str | None) -> str | None:
    """The text with at most MAX_CHARACTERS."""
    if text is None or len(text) <= MAX_CHARACTERS:
        return text
    return text[: MAX_CHARACTERS - len(_CUT)] + _CUT


def _is_long(cause: Attribution) -> bool:
    return any(isinstance(text, str) and len(text) > MAX_CHARACTERS for text in cause)
