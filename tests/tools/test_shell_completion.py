"""The completion of the tools in bash and zsh."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from shutil import which

import pytest

from quorate.tools import scripts, shell_completion
from quorate.tools.command_line import parser_of

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_quorate_complete
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
compadd() { shift; print -l -- "$@" }
_files() { : }
_describe() { print -l -- ${${(P)2}%%:*} }
source "$1"; shift
words=("$@"); CURRENT=$#words
_quorate_complete
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    shell_completion.print_script(shell)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["kafka-topics", "--desc"], ["--describe"]),
        (["/usr/bin/kafka-cluster.sh", "unreg"], ["unregister", "unregister-controller"]),
        (["kafka-cluster", "unregister", "--i"], ["--id"]),
        (["kafka-leader-election", "--election-type", "P"], ["PREFERRED"]),
        (["kafka-acls.sh", "--resource-pattern-type", "P"], ["PREFIXED"]),
        (["kafka-reassign-partitions", "--pre"], ["--preserve-throttles"]),
        (["quorate", "completion", "z"], ["zsh"]),
        (["kafka-topics", "--topic", ""], []),
    ],
    ids=" ".join,
)
def test_bash_completes(
    words: list[str], offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "completion.bash"
    path.write_text(script("bash", capsys))
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", str(path), *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.skipif(which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["kafka-leader-election", "--election-type", "P"], ["PREFERRED", "UNCLEAN"]),
        (["quorate", "completion", ""], ["-h", "--help", "bash", "zsh"]),
        (["kafka-topics", "--topic", ""], []),
    ],
    ids=" ".join,
)
def test_zsh_completes(
    words: list[str], offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "completion.zsh"
    path.write_text(script("zsh", capsys))
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", str(path), *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_the_parser_of_every_tool_is_found_without_running_it(capsys: pytest.CaptureFixture[str]) -> None:
    for module in scripts.MODULES.values():
        parser = parser_of(import_module(f"{scripts.__package__}.{module}").main)
        assert "--help" in parser.format_help()
    assert capsys.readouterr() == ("", "")


def test_every_script_and_its_alias_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    tools = shell_completion.installed_tools()
    assert set(tools.values()) == set(scripts.MODULES)
    for shell in ("bash", "zsh"):
        last = script(shell, capsys).splitlines()[-1]
        assert set(tools) <= set(last.split())


def test_every_tool_with_a_name_of_kafka_has_an_alias() -> None:
    tools = shell_completion.installed_tools()
    named = {name for name in tools if name.startswith("kafka-") and not name.endswith(".sh")}
    assert {f"{name}.sh" for name in named} <= set(tools)
