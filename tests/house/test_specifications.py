"""The TLA+ specifications: their configurations are described and refer to what exists. TLC checks the quick
ones if TLC_CLASSPATH names it (see spec/README.md)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

SPEC = Path(__file__).parents[2] / "spec"
CONFIGURATIONS = sorted(SPEC.glob("**/*.cfg"))
OF_REPLICATION = re.compile(r"^ *First = ", re.MULTILINE)
TLC_CLASSPATH = os.environ.get("TLC_CLASSPATH")


def module_of(configuration: Path) -> str:
    """The module that a configuration belongs to."""
    name = "Replication" if OF_REPLICATION.search(configuration.read_text()) else "KRaft"
    if configuration.parent == SPEC:
        return name
    return "PlantedReplication" if name == "Replication" else "Planted"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_is_described(configuration: Path) -> None:
    named = set(re.findall(r"`(?:planted/)?(\w+)(?:\.cfg)?`", (SPEC / "README.md").read_text()))
    assert configuration.stem in named


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_names_what_its_module_defines(configuration: Path) -> None:
    module = module_of(configuration)
    source = (SPEC / f"{module}.tla").read_text()
    if module.startswith("Planted"):
        source += (SPEC / f"{module.removeprefix('Planted') or 'KRaft'}.tla").read_text()
    defined = set(re.findall(r"^(\w+)(?:\([\w, ]*\))? ==", source, re.MULTILINE))
    text = configuration.read_text()
    used = set(re.findall(r"^ +(\w+) <- (\w+)", text, re.MULTILINE))
    checked = re.findall(r"^(?:INVARIANTS|PROPERTIES|CONSTRAINTS?|SYMMETRY|SPECIFICATION) (.+)$", text, re.M)
    names = {name for pair in used for name in pair} | {name for line in checked for name in line.split()}
    assert names - defined == set()


def test_the_rules_are_where_the_description_says() -> None:
    rows = re.findall(r"^\| (.+) \| `(\S+\.py)`: (.+) \|$", (SPEC / "README.md").read_text(), re.MULTILINE)
    assert rows
    specification = (SPEC / "Replication.tla").read_text()
    for rules, file, functions in rows:
        source = (SPEC.parent / "src" / "quorate" / file).read_text()
        for rule in re.findall(r"`(\w+)`", rules):
            assert re.search(rf"^{rule}\(.*\) ==", specification, re.MULTILINE), rule
        for function in re.findall(r"`(\w+)`", functions):
            assert f"def {function}(" in source, function


def run_tlc(configuration: Path, states: Path) -> str:
    """The output of TLC."""
    assert TLC_CLASSPATH is not None
    command = [
        "java",
        "-XX:+UseSerialGC",
        "-cp",
        TLC_CLASSPATH,
        "tlc2.TLC",
        "-noGenerateSpecTE",
        "-metadir",
        str(states),
    ]
    command += ["-config", str(configuration.relative_to(SPEC)), f"{module_of(configuration)}.tla"]
    return subprocess.run(command, cwd=SPEC, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
@pytest.mark.skipif(TLC_CLASSPATH is None, reason="TLC_CLASSPATH is not set")
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("ReplicationQuick", "No error has been found"),
        ("planted/AnyFollower", "Invariant CommittedIsHeld is violated"),
        ("planted/ShrinksAtOnce", "Invariant CommittedIsHeld is violated"),
        ("planted/TooFewInSync", "Invariant CommittedIsHeld is violated"),
        ("planted/LastMemberLoses", "Invariant CommittedIsHeld is violated"),
        ("planted/SentTwice", "Invariant CommittedIsHeld is violated"),
        ("planted/HandledTwice", "No error has been found"),
    ],
)
def test_tlc_finds_what_is_described(tmp_path: Path, name: str, outcome: str) -> None:
    assert outcome in run_tlc(SPEC / f"{name}.cfg", tmp_path)
