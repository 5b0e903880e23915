"""Reads bytes of a file that are in the page cache, and reads ahead those that are not.

A read of what is not in the page cache blocks its thread until the disk has answered. In the event loop
this would delay every other connection, so cold bytes are read ahead in another thread first (preadv2
with RWF_NOWAIT, Linux 4.14).
"""

from __future__ import annotations

import errno
import os

from quorate.protocol.file_region import HasFileno

PROBE_EVERY_BYTES = 256 << 10
"""The distance of the probes. The kernel reads ahead in windows of 128 KiB and more, so a smaller hole costs
one short wait.
"""

WARM_BYTES = 1 << 20
"""Bytes read ahead at once: a few milliseconds of a slow disk, and no more memory than that."""

_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_PROBE = [bytearray(1)]


def resident_bytes(fd: int, position: int, length: int) -> int:
    """Returns how many of `length` bytes from `position` are in the page cache, according to the probes.

    Returns `length` if the kernel or the file system does not support probes. Raises OSError.
    """
    if _NOWAIT is None or length <= 0:
        return length
    done = 0
    while done < length:
        try:
            os.preadv(fd, _PROBE, position + done, _NOWAIT)
        except BlockingIOError:
            return done
        except OSError as e:
            if e.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return length
            raise
        if done == length - 1:
            break
        done = min(done + PROBE_EVERY_BYTES, length - 1)
    return length


def read_resident(owner: HasFileno, position: int, length: int) -> bytes | None:
    """Reads bytes that are in the page cache. Returns None if not all are, or if the kernel cannot tell."""
    if _NOWAIT is None:
        return None
    data = bytearray(length)
    try:
        return bytes(data) if os.preadv(owner.fileno(), [data], position, _NOWAIT) == length else None
    except OSError:
        return None


def read_ahead(owner: HasFileno, position: int, length: int) -> None:
    """Brings up to WARM_BYTES into the page cache; blocks until they are there. Raises OSError."""
    os.pread(owner.fileno(), min(length, WARM_BYTES), position)
