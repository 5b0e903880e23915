"""Length-prefixed frames out of a stream, into one receive buffer that all connections of an event loop
share.

Reading goes straight into the buffer that `FrameReader.buffer` gives: the shared one while a connection
is between frames or in a small one, the frame's own once a large frame has started, so that a large
request is never copied and an idle connection keeps no buffer at all. A frame's own buffer grows with
what has arrived: a length prefix alone makes nobody allocate.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

_SHARED_BYTES = 262_144

_local = threading.local()


def _shared_view() -> memoryview:
    """This thread's receive buffer. One is enough: between asking for it and handing over what was read
    into it, an event loop does nothing else."""
    try:
        view: memoryview = _local.view
    except AttributeError:
        view = _local.view = memoryview(bytearray(_SHARED_BYTES))
    return view


_FIRST_ALLOCATION = 1 << 20
"""Bytes at most for a frame of which next to nothing has arrived; from there it grows fourfold."""

_LENGTH = struct.Struct(">i")


class FrameReader:
    """Cuts what arrives into frames.

    `allow(length, head)` is asked once a frame's first bytes are there (`head`: what has arrived of it,
    8 bytes or the whole of a shorter one) and raises ProtocolViolation to refuse it. `deliver(frame)`
    gets each whole frame as a writable memoryview of its own; it returns False to have the rest kept
    until `resume`.
    """

    __slots__ = (
        "_allow",
        "_backlog",
        "_deliver",
        "_filled",
        "_frame",
        "_head",
        "_length",
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
        self._backlog: list[memoryview] = []
        self._stopped = False
        self._shared = _shared_view()

    @property
    def started(self) -> bool:
        """Whether part of a frame has arrived."""
        return self._frame is not None or bool(self._head)

    @property
    def expected(self) -> int:
        """Bytes of the frame that has started, 0 when its length is not known yet."""
        return self._length if self._frame is not None else 0

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def has_backlog(self) -> bool:
        """Whether bytes have been kept for `resume`."""
        return bool(self._backlog)

    def buffer(self) -> memoryview:
        """Where the next bytes are to be read into."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._shared

    def received(self, count: int) -> None:
        """`count` bytes were read into `buffer()`. Raises ProtocolViolation; the stream is then lost."""
        if self._frame is None:
            self.feed(self._shared[:count])
            return
        self._filled += count
        self._advance_frame()

    def feed(self, data: memoryview, *, owned: bool = False) -> None:
        """Takes bytes from elsewhere. The view is not kept, unless it is `owned`: then nobody writes to
        it any more."""
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
        """True when the frame was completed and delivered."""
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
        """Drops what has been read and not delivered."""
        self._frame = None
        self._head = b""
        self._backlog.clear()
        self._stopped = False

    def _keep(self, data: memoryview, owned: bool) -> None:
        if len(data):
            self._backlog.append(data if owned else memoryview(bytes(data)))

    def resume(self) -> None:
        """Delivers what was kept since `deliver` returned False, until it does so again."""
        self._stopped = False
        backlog, self._backlog = self._backlog, []
        for data in backlog:
            self.feed(data, owned=True)
