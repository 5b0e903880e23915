"""Ordered writing of byte buffers and file regions to one socket.

`SocketOutput` writes to a duplicate of the socket's descriptor: at once what the kernel accepts, the
rest from an ordered queue. The records of a Fetch response go from the page cache to the socket by
`os.sendfile`, without passing through Python, unless they are few. The write buffer of the transport is
not used, as the two could not be kept in order. With TLS, `TransportOutput` writes everything through the
transport.

A region that is not in the page cache is read ahead in a thread before it is sent. `sendfile` would
block the event loop until the disk has answered.

The descriptor is a duplicate because the event loop closes its own as soon as it finds the connection
dead, and reports that later. In between, its number may already belong to another connection.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Protocol

from quorate.net.errors import ProtocolViolation
from quorate.protocol.file_region import FileRegion, HasFileno
from quorate.protocol.page_cache import WARM_BYTES, read_ahead, read_resident, resident_bytes

Part = bytes | bytearray | memoryview | FileRegion

_IOV_MAX = 512
"""Buffers for one writev; the kernel allows 1024."""

_REGION_READ = 262_144
"""Bytes read at once from a region that has to pass through memory, because of TLS."""


_COPIED_BYTES = 16_384
"""The size of a response whose regions are copied into one buffer. `preadv` and `write` take less time for so
few bytes than a probe, `writev` and `sendfile`, and the peer is woken once, not twice."""

_TURN_BYTES = 4 << 20
"""Bytes written to one socket before other connections get their turn: they take 1 to 4 ms."""


class _Cursor:
    """The part of a region that remains to be sent. Keeps the file open."""

    __slots__ = ("left", "owner", "position", "warmed")

    def __init__(self, region: FileRegion) -> None:
        self.owner: HasFileno = region.fd_owner
        self.position = region.position
        self.left = region.length
        self.warmed = -1  # the position from which bytes were read ahead last

    def readable(self, limit: int) -> int:
        """The number of bytes, up to `limit`, that can be sent now; 0 if they must be read ahead first.
        Raises OSError.

        Bytes that were evicted right after they were read ahead are sent nevertheless, so that there is
        always progress.
        """
        limit = min(self.left, limit)
        return resident_bytes(self.owner.fileno(), self.position, limit) or (
            limit if self.warmed == self.position else 0
        )


class _Warming:
    """Reads one region at a time ahead in a thread, then calls `on_done` in the loop, with the OSError if
    there was one."""

    __slots__ = ("_loop", "_on_done", "active")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_done: Callable[[OSError | None], None]) -> None:
        self._loop = loop
        self._on_done = on_done
        self.active = False

    def start(self, region: _Cursor) -> None:
        self.active = True
        region.warmed = region.position
        future = self._loop.run_in_executor(None, read_ahead, region.owner, region.position, region.left)
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[None]) -> None:
        self.active = False
        if not future.cancelled():
            error = future.exception()
            self._on_done(error if isinstance(error, OSError) else None)


class Output(Protocol):
    """Writes the responses of a connection."""

    buffered_bytes: int
    """Bytes held in memory until the peer reads them, without regions of files."""
    pending: bool
    """Whether there are bytes that the peer has not read yet."""
    progressed_at: float
    """The loop time at which the peer has last read something, or at which there was first something to
    read."""

    def write(self, parts: list[Part]) -> None: ...
    def write_buffer(self, data: bytes) -> None: ...
    def close(self) -> None: ...


def _one_buffer(parts: list[Part]) -> bytes | bytearray | memoryview | None:
    """The content of one or two buffers, or of buffers and small regions that are in the page cache; None for
    other parts, which take several system calls."""
    if len(parts) == 1 and not isinstance(parts[0], FileRegion):
        return parts[0]
    buffers: list[bytes | bytearray | memoryview] = []
    left = _COPIED_BYTES
    for part in parts:
        if isinstance(part, FileRegion):
            left -= part.length
            data = read_resident(part.fd_owner, part.position, part.length) if left >= 0 else None
            if data is None:
                return None
            buffers.append(data)
        else:
            left -= len(part)
            buffers.append(part)
    return b"".join(buffers) if left >= 0 or len(parts) <= 2 else None


class SocketOutput:
    """Writes to a plain stream socket.

    `on_drained` is called when the queue is empty again. `on_error` is called with the OSError that has
    ended writing; the queue is dropped then.
    """

    __slots__ = (
        "_fd",
        "_loop",
        "_on_drained",
        "_on_error",
        "_queue",
        "_queued",
        "_warming",
        "_watching",
        "buffered_bytes",
        "progressed_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._fd = os.dup(fd)
        os.set_blocking(self._fd, False)
        self._on_drained = on_drained
        self._on_error = on_error
        self._queue: deque[memoryview | _Cursor] = deque()
        self._queued = False  # whether a part had to wait since the queue was last empty
        self._watching = False
        self._warming = _Warming(loop, self._warmed)
        self.buffered_bytes = 0
        self.progressed_at = loop.time()

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    def write(self, parts: list[Part]) -> None:
        """Writes the parts in order, after what is queued; never blocks."""
        if self._fd < 0:
            return
        queue = self._queue
        if not queue:
            data = _one_buffer(parts)
            if data is not None:
                self._write_at_once(data)
                return
            self.progressed_at = self._loop.time()
        for part in parts:
            if isinstance(part, FileRegion):
                if part.length:
                    queue.append(_Cursor(part))
            elif len(part):
                queue.append(memoryview(part).cast("B"))
                self.buffered_bytes += len(part)
        if not self._watching and not self._warming.active:
            self._flush()

    def write_buffer(self, data: bytes) -> None:
        """As `write`, of one buffer."""
        if self._queue:
            self.write([data])
        elif self._fd >= 0:
            self._write_at_once(data)

    def _write_at_once(self, data: bytes | bytearray | memoryview) -> None:
        """Writes a buffer while nothing is queued, with one system call if the socket accepts all of it."""
        try:
            sent = os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as e:
            self._fail(e)
            return
        if sent < len(data):
            rest = memoryview(data)[sent:]
            self._queue.append(rest)
            self.buffered_bytes += len(rest)
            self._watch()

    def _flush(self) -> None:
        """Writes as much as the socket accepts now."""
        queue = self._queue
        budget = _TURN_BYTES
        try:
            while queue and budget > 0:
                head = queue[0]
                if isinstance(head, _Cursor):
                    sent = self._send_region(head)
                    if not sent:
                        self._unwatch()
                        self._queued = True
                        self._warming.start(head)
                        return
                else:
                    sent = self._send_buffers()
                budget -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            self._fail(e)
            return
        except ProtocolViolation as e:
            self._fail(OSError(str(e)))
            return
        if queue:
            self._watch()
        elif self._queued:
            self._queued = False
            self._unwatch()
            self._on_drained()

    def _warmed(self, error: OSError | None) -> None:
        if self._fd < 0:
            return
        self.progressed_at = self._loop.time()  # the wait was for the disk, not for the peer
        if error is not None:
            self._fail(error)
        else:
            self._flush()

    def _send_region(self, region: _Cursor) -> int:
        """Returns the bytes sent, 0 if they must be read from disk first. Raises OSError,
        ProtocolViolation."""
        ready = region.readable(WARM_BYTES)
        if not ready:
            return 0
        sent = os.sendfile(self._fd, region.owner.fileno(), region.position, ready)
        if sent == 0:
            # The file is shorter than the response's header says: the stream cannot be continued.
            raise ProtocolViolation(f"file ended {region.left} bytes before the end of a region being sent")
        region.position += sent
        region.left -= sent
        if not region.left:
            self._queue.popleft()
        return sent

    def _send_buffers(self) -> int:
        queue = self._queue
        batch: list[memoryview] = []
        for item in queue:
            if isinstance(item, _Cursor) or len(batch) == _IOV_MAX:
                break
            batch.append(item)
        sent = os.writev(self._fd, batch)
        self.buffered_bytes -= sent
        left = sent
        while left:
            head = queue[0]
            assert isinstance(head, memoryview)
            if len(head) > left:
                queue[0] = head[left:]
                break
            left -= len(head)
            queue.popleft()
        return sent

    def _watch(self) -> None:
        self._queued = True
        if not self._watching:
            self._watching = True
            self.progressed_at = self._loop.time()
            self._loop.add_writer(self._fd, self._writable)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self.progressed_at = self._loop.time()
        self._flush()

    def _fail(self, error: OSError) -> None:
        self.close()
        self._on_error(error)

    def close(self) -> None:
        """Drops what is queued and closes the duplicate. Safe to repeat."""
        if self._fd < 0:
            return
        self._unwatch()
        os.close(self._fd)
        self._fd = -1
        self._queue.clear()
        self.buffered_bytes = 0


class TransportOutput:
    """Writes through an asyncio transport, for TLS. Regions pass through memory in slices, as the peer
    reads."""

    __slots__ = ("_on_drained", "_queue", "_transport", "_warming", "_writable", "progressed_at")

    def __init__(self, transport: asyncio.Transport, on_drained: Callable[[], None]) -> None:
        self._transport = transport
        self._on_drained = on_drained
        self._queue: deque[bytes | bytearray | memoryview | _Cursor] = deque()
        self._writable = True
        loop = asyncio.get_running_loop()
        self._warming = _Warming(loop, self._warmed)
        self.progressed_at = loop.time()

    @property
    def pending(self) -> bool:
        return bool(self._queue) or self._transport.get_write_buffer_size() > 0

    @property
    def buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + sum(
            len(p) for p in self._queue if not isinstance(p, _Cursor)
        )

    def write(self, parts: list[Part]) -> None:
        if not self.pending:
            self.progressed_at = asyncio.get_running_loop().time()
        self._queue.extend(_Cursor(p) if isinstance(p, FileRegion) else p for p in parts)
        self._flush()

    def write_buffer(self, data: bytes) -> None:
        self.write([data])

    def paused(self) -> None:
        """The transport's buffer exceeds its high-water mark."""
        self._writable = False

    def resumed(self) -> None:
        """The transport's buffer is below its low-water mark again."""
        self._writable = True
        self.progressed_at = asyncio.get_running_loop().time()
        self._flush()
        if self._writable and not self._queue:
            self._on_drained()

    def _flush(self) -> None:
        queue = self._queue
        while queue and self._writable and not self._warming.active:
            head = queue[0]
            if not isinstance(head, _Cursor):
                queue.popleft()
                self._transport.write(head)
                continue
            try:
                ready = head.readable(_REGION_READ)
                data = os.pread(head.owner.fileno(), ready, head.position) if ready else b""
            except OSError:
                ready, data = head.left, b""
            if not ready:
                self._warming.start(head)
                return
            if (
                not data and head.left
            ):  # the file cannot be read, or is shorter than the response's header says
                self._transport.abort()
                queue.clear()
                return
            head.position += len(data)
            head.left -= len(data)
            if not head.left:
                queue.popleft()
            self._transport.write(data)

    def _warmed(self, error: OSError | None) -> None:
        self.progressed_at = asyncio.get_running_loop().time()
        if error is not None:
            self._transport.abort()
            self._queue.clear()
            return
        self._flush()
        if self._writable and not self._queue:
            self._on_drained()

    def close(self) -> None:
        self._queue.clear()
