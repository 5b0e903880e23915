"""Sets up the process of a node: its limit of open files, its standard streams and its garbage
collector.
"""

from __future__ import annotations

import gc
import logging
import os
import resource

logger = logging.getLogger(__name__)

_CACHE_DIVISOR = 2
"""The logs may keep half of the descriptors open. The other half is for connections."""

_CACHE_MAX = 32_768
"""A larger cache saves nothing: the kernel's memory for an open file costs more than to open it again."""

_CACHE_MIN = 64

_DESCRIPTORS_PER_CONNECTION = 2
"""The transport's own, and the duplicate that sendfile writes to."""

_RESERVED_DESCRIPTORS = 64
"""For the metadata log, its snapshots, locks, checkpoints and connections to other nodes."""


def raise_open_file_limit() -> int:
    """Raises the soft limit of open files to the hard limit, and returns the limit that now holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    if soft == resource.RLIM_INFINITY:
        return hard
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as e:
            logger.warning(
                "[KafkaServer] the limit of %d open files cannot be raised to %d: %s", soft, hard, e
            )
    return soft


def open_standard_streams() -> None:
    """Opens /dev/null in place of each standard stream that the parent process has closed.

    Otherwise a socket would get such a number, and libuv, which never closes numbers below 3, aborts
    the process when that socket is closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def log_file_cache_size(open_file_limit: int) -> int:
    """Returns how many files the logs may keep open."""
    return max(_CACHE_MIN, min(_CACHE_MAX, open_file_limit // _CACHE_DIVISOR))


def max_connections_per_listener(open_file_limit: int, listeners: int, configured: int) -> int:
    """Returns the configured number of connections, or less where the descriptors do not suffice for it."""
    left = open_file_limit - log_file_cache_size(open_file_limit) - _RESERVED_DESCRIPTORS
    return min(configured, max(16, left // (_DESCRIPTORS_PER_CONNECTION * max(1, listeners))))


def disable_garbage_collection() -> None:
    """Disables the collector during the start, which creates many objects and hardly any garbage."""
    gc.disable()


def enable_garbage_collection() -> None:
    """Enables the collector after the start.

    It no longer looks at the objects that exist now, because they stay until the node stops. It runs
    less often than by default, because a request leaves hardly any reference cycles behind. A collection
    of the second generation looks at 15,000 objects, in some milliseconds: all threads wait for it, also
    if a thread that decodes a large request has caused it. A full one takes 0.4 s after each of a million
    partitions has changed, and follows 450 million allocations, or 15 million topics that were replaced
    (`metadata.image.garbage`).
    """
    gc.freeze()
    gc.set_threshold(5_000, 2, 30_000)
    gc.enable()
