"""Runs file work that may take long outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Runs `work` in a thread and returns its result.

    If the caller is cancelled, this still waits for the end of the work, since the caller closes its
    files next.
    """
    future = asyncio.get_running_loop().run_in_executor(None, lambda: work(*args, **options))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
