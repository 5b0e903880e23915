"""Runs disk work that may take long outside of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Runs `work` in a thread and returns its result.

    If the caller is cancelled, this still waits for the end of the work, because the caller then closes the
    files that the work uses. An error of the work is logged in this case.
    """
    future = asyncio.get_running_loop().run_in_executor(None, lambda: work(*args, **options))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled() and (error := future.exception()) is not None:
            # asyncio logs an exception that nobody has asked for, with a traceback.
            name = getattr(work, "__qualname__", work)
            logger.warning("%s failed after its caller was cancelled: %s", name, error)
        raise
