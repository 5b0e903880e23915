"""A stream gives complete frames in order, no matter how it is divided into chunks."""

from __future__ import annotations

import struct
import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.net.errors import ProtocolViolation
from quorate.net.framing import FrameReader


class Sink:
    """Takes frames; refuses lengths over `limit`; stops after every `stop_every`-th frame."""

    def __init__(self, limit: int = 1 << 30, stop_every: int = 0) -> None:
        self.frames: list[bytes] = []
        self.allowed: list[int] = []
        self.limit = limit
        self.stop_every = stop_every
        self.reader = FrameReader(self.allow, self.deliver)

    def allow(self, length: int, head: memoryview) -> None:
        assert length < 8 or len(head) == 8
        self.allowed.append(length)
        if length > self.limit:
            raise ProtocolViolation("too long")

    def deliver(self, frame: memoryview) -> bool:
        assert not frame.readonly
        self.frames.append(bytes(frame))
        return not (self.stop_every and len(self.frames) % self.stop_every == 0)

    def read(self, data: bytes) -> None:
        """Writes the stream into the reader's buffer as an event loop does: as much as fits, repeatedly."""
        while data:
            buffer = self.reader.buffer()
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            data = data[taken:]
            self.reader.received(taken)
            while self.reader.stopped:
                self.reader.resume()


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(f)) + f for f in frames)


FRAMES = st.lists(st.binary(min_size=1, max_size=40) | st.binary(min_size=1000, max_size=3000), max_size=12)


@settings(max_examples=150, deadline=None)
@given(FRAMES, st.lists(st.integers(1, 700), max_size=20), st.integers(0, 3))
def test_chunks_of_any_size_give_the_same_frames(
    frames: list[bytes], cuts: list[int], stop_every: int
) -> None:
    sink, data = Sink(stop_every=stop_every), framed(frames)
    for cut in cuts:
        sink.read(data[:cut])
        data = data[cut:]
    sink.read(data)
    assert sink.frames == frames
    assert sink.allowed == [len(f) for f in frames]
    assert not sink.reader.started


def test_byte_by_byte() -> None:
    frames = [b"12345678", b"x" * 100, b"abc"]
    sink = Sink()
    for byte in framed(frames):
        sink.read(bytes([byte]))
    assert sink.frames == frames


def test_a_large_frame_is_read_in_place() -> None:
    frame = bytes(range(256)) * 20_000
    sink = Sink()
    sink.read(framed([frame, b"behind it"]))
    assert sink.frames == [frame, b"behind it"]


def test_a_length_alone_takes_no_memory() -> None:
    sink = Sink()
    tracemalloc.start()
    sink.read(struct.pack(">i", 900 << 20) + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sink.reader.started
    assert sink.reader.expected == 900 << 20
    assert peak < 3 << 20


def test_a_refused_length_ends_the_stream_before_the_frame_has_arrived() -> None:
    sink = Sink(limit=1000)
    with pytest.raises(ProtocolViolation):
        sink.read(struct.pack(">i", 5000) + bytes(8))


def test_buffered_frames_are_delivered_first() -> None:
    sink = Sink(stop_every=1)
    data = framed([b"first one", b"second one", b"third one"])
    sink.reader.feed(memoryview(data[:30]))
    assert sink.frames == [b"first one"]
    sink.reader.feed(memoryview(data[30:]))
    assert sink.frames == [b"first one"]
    while sink.reader.stopped:
        sink.reader.resume()
    assert sink.frames == [b"first one", b"second one", b"third one"]


def test_threads_do_not_share_a_buffer() -> None:
    """An event loop in another thread (a synchronous admin client beside a node) has a buffer of its own."""
    other: list[FrameReader] = []
    thread = threading.Thread(target=lambda: other.append(Sink().reader))
    thread.start()
    thread.join()
    mine = Sink().reader.buffer()
    mine[0] = 1
    other[0].buffer()[0] = 2
    assert mine[0] == 1
