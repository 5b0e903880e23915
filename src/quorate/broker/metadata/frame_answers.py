"""Metadata responses by the bytes of their requests.

A client repeats the same Metadata request, and most of them are answered from the same image. Then the bytes
of the request lead to those of the response, without decoding the one or encoding the other.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from quorate.protocol.api import response_header_version

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.metadata.image import ClusterImage, TopicsImage
    from quorate.net.dispatch import FrameSource, RequestContext

_KEPT_BYTES = 8 << 20
"""The size of all requests and responses that are kept."""

LARGEST_BYTES = 16_384
"""The largest request and the largest response that is kept. Of a larger one, sending takes longer than all
the rest."""

_ENTRY_BYTES = 300
"""The approximate overhead of a response."""

_SIZE = Struct(">i")


class FrameAnswers:
    """The responses for the latest image. A key is the listener, the head of a request with its API key and
    version, and all bytes after its correlation id."""

    __slots__ = ("_bytes", "_kept", "_metadata", "_of")

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._kept: dict[tuple[str, bytes, bytes], tuple[bytes, bytes]] = {}
        self._bytes = 0
        self._of: tuple[TopicsImage, ClusterImage] | None = None

    def answer(self, frame: memoryview, source: FrameSource) -> bytes | None:
        """The response to a request that was answered before from the same image (a `FrameHandler`)."""
        image = self._metadata.image
        of = self._of
        if of is None or of[0] is not image.topics or of[1] is not image.cluster:
            return None
        found = self._kept.get((source.listener_name, bytes(frame[:4]), bytes(frame[8:])))
        if found is None:
            return None
        size, body = found
        return b"".join((size, frame[4:8], body))

    def keep(self, context: RequestContext, body: bytes | bytearray) -> None:
        """Keeps a response, without its header, that depends on nothing but the request and the topics and
        brokers of the latest image."""
        frame = context.frame
        if frame is None or len(frame) > LARGEST_BYTES or len(body) > LARGEST_BYTES:
            return
        image = self._metadata.image
        of = self._of
        added = len(frame) + len(body) + _ENTRY_BYTES
        if (
            of is None
            or of[0] is not image.topics
            or of[1] is not image.cluster
            or self._bytes + added > _KEPT_BYTES
        ):
            self._kept.clear()
            self._bytes = 0
            self._of = (image.topics, image.cluster)
        if response_header_version(context.api_key, context.api_version):
            body = b"\0" + body  # no tagged fields in the header
        key = (context.listener, bytes(frame[:4]), bytes(frame[8:]))
        self._kept[key] = (_SIZE.pack(4 + len(body)), bytes(body))
        self._bytes += added
