"""Runs one node until a signal or a fault ends it: event loop, signal handlers, exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from quorate.config.kafka_config import KafkaConfig
from quorate.node.server import KafkaServer

uvloop: Any
try:
    import uvloop
except ImportError:
    uvloop = None

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGINT and SIGHUP stay ignored if the parent process ignores them (`nohup`, `&` in a script), as in a
JVM.
"""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns an event loop of uvloop, or of asyncio on a platform for which uvloop has no wheel."""
    loop: asyncio.AbstractEventLoop = (asyncio if uvloop is None else uvloop).new_event_loop()
    return loop


def run(config: KafkaConfig, *, on_ready: Callable[[], None] | None = None) -> int:
    """Runs the node until a signal or a fault ends it, and returns the exit status of the process."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run_node(config, on_ready))


async def run_node(config: KafkaConfig, on_ready: Callable[[], None] | None = None) -> int:
    """Runs the node until a signal or a fault ends it, and returns the exit status of the process.

    The status is 0 after a clean stop, and 1 after a fault or a start that failed, whose error is
    logged. Calls `on_ready` when every listener serves.
    """
    loop = asyncio.get_running_loop()
    stop = loop.create_future()

    def on_signal(number: int) -> None:
        name = signal.Signals(number).name
        if not stop.done():
            logger.info("[KafkaServer id=%d] %s: shutting down", config.node_id, name)
            stop.set_result(None)
        elif not server.skipping_waits:
            logger.warning(
                "[KafkaServer id=%d] second %s: no longer waiting for other nodes and clients",
                config.node_id,
                name,
            )
            server.skip_waits()
        else:
            logger.warning("[KafkaServer id=%d] third %s: ending at once", config.node_id, name)
            sys.stdout.flush()
            os._exit(128 + number)

    server = KafkaServer(config)
    handled = [n for n in _SIGNALS if n == signal.SIGTERM or signal.getsignal(n) != signal.SIG_IGN]
    for number in handled:
        # Not loop.add_signal_handler: remove_signal_handler restores the default action, which would
        # end the process if a signal came before the action is set to SIG_IGN below.
        signal.signal(number, lambda n, _: loop.call_soon_threadsafe(on_signal, n))
    status = 0
    try:
        starting = loop.create_task(server.start())
        await asyncio.wait([starting, stop, server.fault], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if on_ready is not None:
                on_ready()
            await asyncio.wait([stop, server.fault], return_when=asyncio.FIRST_COMPLETED)
        status = 1 if server.fault.done() else 0
    except Exception as e:
        status = 1
        expected = isinstance(e, (OSError, ValueError)) or type(e).__module__.startswith("quorate.")
        logger.critical(
            "[KafkaServer id=%d] Cannot start: %s", config.node_id, e, exc_info=None if expected else e
        )
    if not starting.done():
        # First, since `shutdown` gives the locks of the directories back: a thread may still be opening
        # the metadata log.
        starting.cancel()
        await asyncio.wait([starting])
    if not starting.cancelled():
        starting.exception()
    await server.shutdown()
    for number in handled:  # a signal during the interpreter's exit must not change the exit status
        signal.signal(number, signal.SIG_IGN)
    return status
