"""Ends a request to the metadata quorum with a useful error when the quorum has no leader."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, java_text
from quorate.tools.client.options import read_properties
from quorate.tools.command_line import ToolError

T = TypeVar("T")

LEADER_TIMEOUT_S = 4.0
"""How long a command waits for a leader before it inquires why none is elected. An election takes one or two
seconds.
"""

PROBE_TIMEOUT_S = 2.0
"""How long each bootstrap server may then take to answer."""


async def with_leader(
    admin: AdminClient,
    args: argparse.Namespace,
    work: Coroutine[Any, Any, T],
    *,
    report: Callable[[str], None] | None = None,
) -> T:
    """Returns the result of `work`, or raises ToolError early if the quorum has no leader.

    `work` is a read-only request, because it may be cancelled. While it has no result, the bootstrap
    servers are probed for the leader. If at least one answers and none leads, the error shows all their
    answers. With `report`, that text is reported once instead, and `work` continues. A user who sets
    default.api.timeout.ms gets that timeout instead.
    """
    if "default.api.timeout.ms" in read_properties(args.command_config):
        return await work
    task = asyncio.ensure_future(work)
    try:
        while True:
            await asyncio.wait([task], timeout=LEADER_TIMEOUT_S)
            if task.done():
                return task.result()
            answers = await admin.probe_quorum(PROBE_TIMEOUT_S)
            if (
                task.done()
                or None in answers.values()
                or not any(isinstance(e, KafkaError) for e in answers.values())
            ):
                continue
            lines = [
                f"  {where}: {_error_text(error)}" for where, error in answers.items() if error is not None
            ]
            text = (
                f"No leader of the metadata quorum has answered within {LEADER_TIMEOUT_S:g} s. The "
                "responses:\n" + "\n".join(lines)
            )
            if report is None:
                raise ToolError(text)
            report(text)
            return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


def _error_text(error: KafkaError | NetError) -> str:
    return (error.message if isinstance(error, KafkaError) else None) or java_text(error)
