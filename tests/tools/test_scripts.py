"""The console scripts themselves: what they start, and Ctrl-C while they are still importing, at work,
or ending."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from quorate.tools import scripts
from tests.support.cluster import BIN, wait_for

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

INTERRUPT = """
import os, signal, sys
sys.argv = {argv!r}
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
{before}
from quorate.tools.scripts import {tool} as main
sys.exit(main())
"""


def interrupted(at: str, tool: str = "topics", *words: str, before: str = "") -> tuple[int, str]:
    """Status and output of a script to which Ctrl-C comes while it imports the module `at`."""
    code = INTERRUPT.format(argv=[tool, *words], at=at, tool=tool, before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    return done.returncode, done.stdout + done.stderr


def test_every_script_starts_a_tool_that_is_there() -> None:
    for name, target in PROJECT["scripts"].items():
        module, tool = target.split(":")
        assert module == scripts.__name__, f"{name}: Ctrl-C during its imports would print a traceback"
        assert callable(getattr(scripts, tool))
        assert callable(import_module(f"quorate.tools.{scripts.MODULES[tool]}").main)


@pytest.mark.parametrize(
    ("tool", "words", "status"),
    [
        ("console_producer", ["--help"], 0),
        ("console_consumer", ["--version"], 0),
        ("console_producer", ["--bootstrap-server", "127.0.0.1:1"], 1),
        (
            "console_consumer",
            ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--formatter", "none.Such"],
            1,
        ),
    ],
)
def test_librdkafka_is_loaded_when_a_console_tool_connects(tool: str, words: list[str], status: int) -> None:
    code = f"""
import sys
from quorate.tools import quorate, server_start
from quorate.tools.{scripts.MODULES[tool]} import main
try:
    status = main({words!r})
except SystemExit as end:
    status = end.code
assert status == {status}, status
assert not {{"confluent_kafka", "asyncio"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("at", ["quorate.tools.topics.topics", "argparse", "asyncio", "quorate.admin.client"])
def test_an_interrupt_while_a_tool_is_imported_ends_it_quietly(at: str) -> None:
    assert interrupted(at) == (130, "")


def test_an_interrupt_while_a_command_imports_what_it_needs_ends_it_quietly(tmp_path: Path) -> None:
    assert interrupted("quorate.node.local.cluster", "quorate", "up", "--data", str(tmp_path / "data")) == (
        130,
        "",
    )


def test_an_interrupt_at_any_moment_of_the_start_shows_no_code_of_ours() -> None:
    """Before the first line of this package runs, the interpreter answers Ctrl-C by itself: it ends by the
    signal or with a traceback of its own start ("Fatal Python error: init_import_site", or the line of the
    console script that imports this package). From then on the script ends silently with status 130."""
    rng = random.Random(7)
    seen = Counter[str]()
    for _ in range(60):
        proc = subprocess.Popen(
            [str(BIN / "kafka-topics"), "--bootstrap-server", "127.0.0.1:1", "--list"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(rng.uniform(0, 0.25))  # the moments are the subject of the test
        proc.send_signal(signal.SIGINT)
        out, err = proc.communicate(timeout=20)
        assert out == ""
        files = re.findall(r'File "(.+?)"', err)
        assert not [file for file in files if "/quorate/" in file and not file.endswith("/__init__.py")], err
        if "Traceback" in err or "Fatal" in err:
            assert proc.returncode in (1, -signal.SIGINT), err
            seen["the interpreter's traceback"] += 1
        else:
            assert proc.returncode in (130, -signal.SIGINT), err
            seen["silence" if not err else "a message of the tool"] += 1
    assert seen["silence"] > 10, seen


def test_an_interrupt_while_the_interpreter_ends_is_no_traceback() -> None:
    late = "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    assert interrupted("nothing", "storage", "random-uuid", before=late)[0] == 130


def test_an_interrupt_during_a_finalizer_is_not_lost() -> None:
    finalizer = """
class Late:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
class Drops:
    def find_spec(self, name, path=None, target=None):
        if name == "shutil":  # argparse imports it when it is used
            Late()
sys.meta_path.insert(0, Drops())
"""
    words = ["--bootstrap-server", "127.0.0.1:1", "--list"]
    assert interrupted("nothing", "topics", *words, before=finalizer) == (130, "")


def test_an_interrupt_that_the_parent_ignores_is_ignored() -> None:
    status, output = interrupted(
        "argparse", "topics", "--version", before="signal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    assert status == 0 and output.startswith(PROJECT["version"])


def test_an_interrupt_while_a_tool_waits_for_a_cluster_ends_it_quietly(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    with said.open("wb") as err:
        command = [str(BIN / "kafka-topics"), "--bootstrap-server", "127.0.0.1:1", "--list"]
        proc = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err)
    wait_for("its first attempt", lambda: "trying again" in said.read_text())
    proc.send_signal(signal.SIGINT)
    out, _ = proc.communicate(timeout=10)
    assert (proc.returncode, out, said.read_text().count("\n")) == (130, b"", 1)


def test_an_interrupt_while_the_producer_waits_for_a_line_ends_it_quietly(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    with said.open("wb") as err:
        command = [str(BIN / "kafka-console-producer"), "--bootstrap-server", "127.0.0.1:1", "--topic", "t"]
        proc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
    try:
        threads = Path(f"/proc/{proc.pid}/task")
        wait_for("the thread that reads", lambda: len(list(threads.iterdir())) > 1)
        proc.send_signal(signal.SIGINT)
        assert proc.wait(10) == 130
        assert said.read_text() == ""
    finally:
        proc.kill()
        proc.communicate()
