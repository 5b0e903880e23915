"""Reads length-prefixed frames from a stream.

The event loop reads directly into `FrameReader.buffer`. That is a buffer which all connections share
while a connection is between frames or in a small one, and the frame's own buffer once a large frame
has begun. A large request is thus never copied, and an idle connection has no buffer. A frame's own
buffer grows with the bytes that arrive, so that a length prefix alone allocates nothing.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

_SHARED_BYTES = 262_144

_local = threading.local()


def _shared_view() -> memoryview:
    """The receive buffer of this thread. One is sufficient, because an event loop does nothing else
    between asking for a buffer and handing over the bytes in it."""
    try:
        view: memoryview = _local.view
    except AttributeError:
        view = _local.view = memoryview(bytearray(_SHARED_BYTES))
    return view


_FIRST_ALLOCATION = 1 << 20
"""The largest first buffer of a frame. It then grows fourfold each time that it is full."""

_LENGTH = struct.Struct(">i")


class FrameReader:
    """Divides the bytes of a stream into frames.

    `allow(length, head)` is called when the first bytes of a frame have arrived: `head` is its first 8
    bytes, or all of a shorter frame. It raises ProtocolViolation to refuse the frame. `deliver(frame)` is
    called with each complete frame, a writable memoryview that it may keep. It returns False to have the
    rest kept until `resume`, and may call `put_back` before to get the same frame again then.
    """

    __slots__ = (
        "_allow",
        "_backlog",
        "_deliver",
        "_filled",
        "_frame",
        "_head",
        "_length",
        "_put_back",
        "_shared",
        "_stopped",
    )

    def __init__(
        self, allow: Callable[[int, memoryview], None], deliver: Callable[[memoryview], bool]
    ) -> None:
        self._allow = allow
        self._deliver = deliver
        self._frame: bytearray | None = None
        self._length = 0
        self._filled = 0
        self._head = b""
        self._put_back: memoryview | None = None
        self._backlog: list[memoryview] = []
        self._stopped = False
        self._shared = _shared_view()

    @property
    def started(self) -> bool:
        """Whether a part of a frame has arrived."""
        return self._frame is not None or bool(self._head)

    @property
    def expected(self) -> int:
        """The length of the frame that has begun, 0 if it is not known yet."""
        return self._length if self._frame is not None else 0

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def has_backlog(self) -> bool:
        """Whether a frame or bytes are kept for `resume`."""
        return bool(self._backlog) or self._put_back is not None

    @property
    def has_put_back(self) -> bool:
        """Whether a complete frame is kept for `resume`."""
        return self._put_back is not None

    def stop(self) -> None:
        """Keeps all bytes for `resume`."""
        self._stopped = True

    def put_back(self, frame: memoryview) -> None:
        """Keeps a frame that was delivered, for `resume`. Called by `deliver` before it returns False."""
        self._put_back = frame

    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._shared

    def received(self, count: int) -> None:
        """Processes `count` bytes that were read into `buffer()`. Raises ProtocolViolation; the stream
        cannot be continued then."""
        if self._frame is None:
            shared = self._shared
            if count >= 12 and not self._head and not self._stopped:
                (length,) = _LENGTH.unpack_from(shared)
                if length == count - 4:  # exactly one frame: a client with one request in flight
                    self._allow(length, shared[4:12])
                    if not self._deliver(memoryview(bytearray(shared[4:count]))):
                        self._stopped = True
                    return
            self.feed(shared[:count])
            return
        self._filled += count
        self._advance_frame()

    def feed(self, data: memoryview, *, owned: bool = False) -> None:
        """Processes bytes. They are copied if they must be kept, unless the view is `owned`, which means
        that they no longer change."""
        if self._stopped:
            self._keep(data, owned)
            return
        if self._head:
            data, owned = memoryview(self._head + data), True
            self._head = b""
        position, end = 0, len(data)
        while position < end:
            if self._frame is not None:
                taken = min(len(self._frame) - self._filled, end - position)
                self._frame[self._filled : self._filled + taken] = data[position : position + taken]
                self._filled += taken
                position += taken
                if self._advance_frame() and self._stopped:
                    self._keep(data[position:], owned)
                    return
                continue
            if end - position < 4:
                self._head = bytes(data[position:])
                return
            (length,) = _LENGTH.unpack_from(data, position)
            known = end - position - 4
            if length < 8 or known >= 8:
                self._allow(length, data[position + 4 : position + 12])
            else:
                self._head = bytes(data[position:])
                return
            position += 4
            if known >= length:
                frame = bytearray(data[position : position + length])
                position += length
                if not self._deliver(memoryview(frame)):
                    self._stopped = True
                    self._keep(data[position:], owned)
                    return
                continue
            self._length = length
            self._filled = 0
            self._frame = bytearray(min(length, max(_FIRST_ALLOCATION, known)))

    def _advance_frame(self) -> bool:
        """Delivers the frame if it is complete, else enlarges its buffer if that is full. Returns whether
        it was delivered."""
        frame = self._frame
        assert frame is not None
        if self._filled == self._length:
            self._frame = None
            if not self._deliver(memoryview(frame)):
                self._stopped = True
            return True
        if self._filled == len(frame):
            larger = bytearray(min(self._length, 4 * len(frame)))
            larger[: self._filled] = frame
            self._frame = larger
        return False

    def discard(self) -> None:
        """Drops all bytes that have not been delivered."""
        self._frame = self._put_back = None
        self._head = b""
        self._backlog.clear()
        self._stopped = False

    def _keep(self, data: memoryview, owned: bool) -> None:
        if len(data):
            self._backlog.append(data if owned else memoryview(bytes(data)))

    def resume(self) -> None:
        """Processes what was kept since `deliver` returned False, until it does so again."""
        frame, self._put_back = self._put_back, None
        if frame is not None and not self._deliver(frame):
            return
        self._stopped = False
        backlog, self._backlog = self._backlog, []
        for data in backlog:
            self.feed(data, owned=True)
