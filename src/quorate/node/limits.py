"""What the process takes from the system: descriptors, and how its memory is collected."""

from __future__ import annotations

import gc
import logging
import os
import resource

log = logging.getLogger(__name__)

_CACHE_SHARE = 2
"""The open-file cache of the logs may have one in so many descriptors; connections take two each."""
_CACHE_MAX = 32_768
"""More open segments than this save nothing: beyond, an open costs less than the kernel's memory for the file."""
_CACHE_MIN = 64
_DESCRIPTORS_EACH = 2
"""The transport's, and the duplicate that answers are written to."""
_RESERVE = 64
"""The metadata log, its snapshots, locks, checkpoints, connections of our own."""


def raise_open_files() -> int:
    """Raises the soft limit of open files to the hard one; gives what is allowed now."""
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
            log.warning("[KafkaServer] the limit of %d open files cannot be raised to %d: %s", soft, hard, e)
    return soft


def keep_standard_streams() -> None:
    """Opens /dev/null in place of standard streams that the parent has closed: a socket that took such a number would end the
    process when it is closed (libuv does not close numbers below 3)."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def open_file_cache(allowed: int) -> int:
    """How many descriptors the logs may keep open."""
    return max(_CACHE_MIN, min(_CACHE_MAX, allowed // _CACHE_SHARE))


def connection_cap(allowed: int, listeners: int, configured: int) -> int:
    """Connections of one listener: what is configured, or what the descriptors left by the cache carry."""
    left = allowed - open_file_cache(allowed) - _RESERVE
    return min(configured, max(16, left // (_DESCRIPTORS_EACH * max(1, listeners))))


def hold_collections() -> None:
    """While starting, hardly anything that is made becomes garbage: the collector would only get in the way."""
    gc.disable()


def settle_memory() -> None:
    """After start: what is loaded will stay, so the collector need not look at it again; and it looks more seldom, since
    a request leaves hardly any cycles behind."""
    gc.freeze()
    gc.set_threshold(20_000, 25, 100)
    gc.enable()
