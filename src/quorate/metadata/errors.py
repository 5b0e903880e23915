"""The exception of this package.

It has no Kafka error code, because a metadata record that cannot be replayed is never the fault of a
client. This node cannot follow the log any further, so its driver must stop and report the offset.
"""

from __future__ import annotations


class MetadataError(Exception):
    """A metadata record, snapshot or bootstrap file that this node cannot process.

    `offset` is the offset of the record in the log or in the snapshot file, or None if only the caller
    knows it. `record` is a short description of the record, or None if it could not be decoded.
    """

    def __init__(self, reason: str, *, offset: int | None = None, record: str | None = None) -> None:
        self.reason = reason
        self.offset = offset
        self.record = record
        super().__init__(reason)

    def at(self, offset: int, record: object | None = None) -> MetadataError:
        """The same error with offset and record, unless it has them already."""
        text = self.record if self.record is not None or record is None else shorten(repr(record))
        return MetadataError(
            self.reason, offset=self.offset if self.offset is not None else offset, record=text
        )

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset}"
        what = "" if self.record is None else f" ({self.record})"
        return f"metadata record{where} cannot be replayed: {self.reason}{what}"


def shorten(text: str, limit: int = 300) -> str:
    """The text of a record, limited so that a log message stays short."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
