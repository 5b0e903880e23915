"""The entry points of the console scripts: each one imports the module of its tool and runs its `main`.

The imports take most of the time of a short command. Until they are done, and again while the interpreter
exits, Ctrl-C ends the process at once with status 130. Otherwise it would print a traceback from the middle
of an import.
"""

try:  # nothing is imported before: `__future__` too is a module, in which Ctrl-C would be a traceback
    import os
    import signal
    import sys
    from collections.abc import Callable
    from importlib import import_module
except KeyboardInterrupt:
    raise SystemExit(130) from None

INTERRUPTED = 130


def _script(module: str) -> Callable[[], int]:
    """Returns the entry point of a tool. It runs `main` of the module and returns the exit status."""

    def start() -> int:
        try:
            if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                return _main(module)()  # the parent ignores SIGINT, as `nohup` and `&` in a script do
            signal.signal(signal.SIGINT, _exit_at_once)
            sys.unraisablehook = _unraisable
            main = _main(module)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = main()
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, _exit_at_once)
            return status
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)

    return start


def _main(module: str) -> Callable[[], int]:
    main: Callable[[], int] = import_module(f"quorate.tools.{module}").main
    return main


def _exit_at_once(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Ends the process if Ctrl-C came during a finalizer or a callback of the interpreter, which does not
    pass exceptions on. Otherwise it would be lost."""
    if unraisable.exc_type is KeyboardInterrupt:
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


MODULES = {
    "acls": "cluster.acls",
    "broker_api_versions": "cluster.broker_api_versions",
    "cluster": "cluster.cluster",
    "configs": "cluster.configs",
    "console_consumer": "console.console_consumer",
    "console_producer": "console.console_producer",
    "consumer_groups": "groups.consumer_groups",
    "delete_records": "topics.delete_records",
    "dump_log": "dump.dump_log",
    "features": "cluster.features",
    "get_offsets": "topics.get_offsets",
    "leader_election": "topics.leader_election",
    "log_dirs": "cluster.log_dirs",
    "metadata_quorum": "quorum.metadata_quorum",
    "metadata_shell": "shell.metadata_shell",
    "pipeline": "lake.pipeline",
    "quorate": "quorate",
    "reassign_partitions": "reassign.reassign_partitions",
    "server_start": "server_start",
    "server_stop": "server_stop",
    "storage": "storage",
    "topic_history": "topic_history",
    "topics": "topics.topics",
}
"""The module of each entry point, below `quorate.tools`. pyproject.toml names the entry points."""


def __getattr__(name: str) -> Callable[[], int]:
    """Returns the entry point of a name in MODULES."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _script(MODULES[name])
