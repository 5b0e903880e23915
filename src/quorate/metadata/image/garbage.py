"""Keeps the pauses of the garbage collector short while images replace each other.

The collector starts when allocations exceed deallocations by a limit. A new image creates about as
many objects as it frees from the image before, so the limit is not reached, while the new ones stay
in the youngest generation. The collection that follows visits all of them: tens of thousands of
objects, and more with each change, during which every thread waits. So the young objects are
collected after a certain number of replaced topics.
"""

from __future__ import annotations

import gc

_TOPICS = 500
"""The replaced topics after which the young objects are collected. A topic replaces about eight
objects: itself, its table and chunks, and nodes of the maps and indexes. A collection of them takes
two to four milliseconds."""

_replaced = 0


def count_replaced(topics: int) -> None:
    """Counts topics that an image has replaced.

    The collector belongs to the process, and so does the count.
    """
    global _replaced
    _replaced += topics
    if _replaced >= _TOPICS:
        _replaced = 0
        if gc.isenabled():
            gc.collect(1)
