"""The one error of this room.

It has no Kafka error code: a metadata record that cannot be replayed is never a client's fault. It
means that this node cannot follow the log, so its driver must stop, naming the offset, instead of
guessing.
"""

from __future__ import annotations


class MetadataError(Exception):
    """A metadata record, snapshot or bootstrap file that this node cannot take.

    `offset` is the record's offset in the log (or inside the snapshot file), None where only the caller
    knows it; `record` is a short description of the record, None where it could not be decoded.
    """

    def __init__(self, reason: str, *, offset: int | None = None, record: str | None = None) -> None:
        self.reason = reason
        self.offset = offset
        self.record = record
        super().__init__(reason)

    def at(self, offset: int, record: object | None = None) -> MetadataError:
        """The same error, with the offset (and record) filled in where they were not known."""
        text = self.record if self.record is not None or record is None else shorten(repr(record))
        return MetadataError(
            self.reason, offset=self.offset if self.offset is not None else offset, record=text
        )

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset}"
        what = "" if self.record is None else f" ({self.record})"
        return f"metadata record{where} cannot be replayed: {self.reason}{what}"


def shorten(text: str, limit: int = 300) -> str:
    """A record's text, cut so that a log line stays one line."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
