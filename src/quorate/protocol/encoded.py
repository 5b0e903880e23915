"""Messages, and parts of them, that are encoded once and sent many times."""

from __future__ import annotations

from quorate.protocol.errors import EncodeError
from quorate.protocol.file_region import FileRegion


class EncodedStructs(list[bytes]):
    """The elements of an array of structs, each encoded for the version in which the message around
    them is written.

    The encoders take it in place of the list of structs.
    """

    __slots__ = ()


class EncodedResponse:
    """The body of a response, encoded for one version. All answers that it is sent in share its bytes."""

    __slots__ = ("body", "version")

    def __init__(self, body: bytes | bytearray, version: int) -> None:
        self.body = body
        self.version = version

    def encode_parts(
        self, version: int, prefix: bytes = b""
    ) -> list[bytes | bytearray | memoryview | FileRegion]:
        """As `Message.encode_parts`. Raises EncodeError for another version."""
        if version != self.version:
            raise EncodeError(f"encoded for version {self.version}, not {version}")
        return [prefix, self.body] if prefix else [self.body]

    def encode(self, version: int) -> bytes:
        """As `Message.encode`. Raises EncodeError for another version."""
        return b"".join(part for part in self.encode_parts(version) if not isinstance(part, FileRegion))
