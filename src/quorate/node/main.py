"""Runs one node to its end: event loop, signals, exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from quorate.config.kafka_config import KafkaConfig
from quorate.node.server import KafkaServer

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Of these, SIGINT and SIGHUP stay ignored if the parent ignores them (`nohup`, `&` in a script), as under a JVM."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed (it is, on everything that has wheels), asyncio's own loop else."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(config: KafkaConfig, *, on_ready: Callable[[], None] | None = None) -> int:
    """Runs the node until it is told to stop or cannot go on; the process's exit status."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run_node(config, on_ready))


async def run_node(config: KafkaConfig, on_ready: Callable[[], None] | None = None) -> int:
    """Runs the node to its end. Calls `on_ready` when every listener serves.

    0 after a clean stop, 1 after a fault. What start raises is logged in one line and gives 1.
    """
    loop = asyncio.get_running_loop()
    stop = loop.create_future()

    def on_signal(number: int) -> None:
        name = signal.Signals(number).name
        if not stop.done():
            log.info("[KafkaServer id=%d] %s: shutting down", config.node_id, name)
            stop.set_result(None)
        elif not server.hurrying:
            log.warning("[KafkaServer id=%d] second %s: waiting for nobody any more", config.node_id, name)
            server.hurry()
        else:
            log.warning("[KafkaServer id=%d] third %s: ending at once", config.node_id, name)
            sys.stdout.flush()
            os._exit(128 + number)

    server = KafkaServer(config)
    heeded = [n for n in _SIGNALS if n == signal.SIGTERM or signal.getsignal(n) != signal.SIG_IGN]
    for number in heeded:
        # Not through the loop: that gives the default action back before anything else can be set, when a handler is removed.
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
        log.critical("[KafkaServer id=%d] Cannot start: %s", config.node_id, e, exc_info=None if expected else e)
    if not starting.done():
        # First, since `shutdown` gives the locks of the directories back: a thread may still be opening the metadata log.
        starting.cancel()
        await asyncio.wait([starting])
    if not starting.cancelled():
        starting.exception()
    await server.shutdown()
    for number in heeded:  # all is done: a signal that comes while the interpreter ends must not make a failure of it
        signal.signal(number, signal.SIG_IGN)
    return status
