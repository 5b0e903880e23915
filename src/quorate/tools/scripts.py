"""What the console scripts start: each tool's `main`, imported when its script runs.

The imports are most of a short command's time. Until they are done, and again while the interpreter
ends, Ctrl-C ends the process at once with status 130, without the traceback of whatever was being
imported.
"""

from __future__ import annotations

try:
    import os
    import signal
    from collections.abc import Callable
    from importlib import import_module
except KeyboardInterrupt:
    raise SystemExit(130) from None

INTERRUPTED = 130


def _script(tool: str) -> Callable[[], int]:
    """The entry point of `quorate.tools.<tool>`: gives its exit status."""

    def start() -> int:
        try:
            if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                return _main(tool)()  # the parent ignores it, as `nohup` and `&` in a script do
            signal.signal(signal.SIGINT, _end_at_once)
            main = _main(tool)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = main()
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, _end_at_once)
            return status
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)

    return start


def _main(tool: str) -> Callable[[], int]:
    main: Callable[[], int] = import_module(f"quorate.tools.{tool}").main
    return main


def _end_at_once(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


broker_api_versions = _script("broker_api_versions")
cluster = _script("cluster")
configs = _script("configs")
console_consumer = _script("console_consumer")
console_producer = _script("console_producer")
consumer_groups = _script("consumer_groups")
delete_records = _script("delete_records")
dump_log = _script("dump_log")
features = _script("features")
get_offsets = _script("get_offsets")
leader_election = _script("leader_election")
log_dirs = _script("log_dirs")
metadata_quorum = _script("metadata_quorum")
quorate = _script("quorate")
server_start = _script("server_start")
server_stop = _script("server_stop")
storage = _script("storage")
topic_history = _script("topic_history")
topics = _script("topics")
