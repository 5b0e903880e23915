"""The tables of keys beside the definitions in the classes of Apache Kafka 4.4."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.definitions import ConfigDef, Scope
from quorate.config.group_defs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from quorate.config.topic_defs import TOPIC_CONFIGS
from tests.support import java

pytestmark = pytest.mark.java

TABLES = {
    "broker": BROKER_CONFIGS,
    "dynamic-only": {n: d for n, d in DYNAMIC_BROKER_CONFIGS.items() if n not in BROKER_CONFIGS},
    "topic": TOPIC_CONFIGS,
    "group": GROUP_CONFIGS,
    "client-metrics": CLIENT_METRICS_CONFIGS,
}
SCOPES = {"read-only": Scope.READ_ONLY, "cluster-wide": Scope.CLUSTER_WIDE, "per-broker": Scope.PER_BROKER}
OTHER_DEFAULTS = {
    "controller.quorum.append.linger.ms": "25",
    "controller.quorum.fetch.snapshot.max.bytes": "1048576",
    "controller.listener.names": "(required)",
}
"""Kafka's defaults of keys that have another one here (docs/configuration.md), and of a key whose absence
`node_rules` reports."""
RULES_ELSEWHERE = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
"""Keys whose values `KafkaConfig` parses."""
RANGE = re.compile(r"\[[^]]*\]")


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict[str, list[str]]]:
    """By resource and key: type, default, range, importance, whether internal, and how dynamic."""
    folder = java.require_java("4.4.0")
    program = str(Path(__file__).parent / "ConfigDefs.java")
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, list[str]]] = {}
    for line in done.stdout.splitlines():
        resource, key, *facts = line.split("\t")
        found.setdefault(resource, {})[key] = facts
    return found


@pytest.mark.parametrize("resource", TABLES)
def test_the_keys_are_kafkas(resource: str, theirs: dict[str, dict[str, list[str]]]) -> None:
    own = {key for key in TABLES[resource] if not key.startswith("quorate.")}
    assert own == theirs[resource].keys()


@pytest.mark.parametrize("resource", TABLES)
def test_types_defaults_importance_and_scope_are_kafkas(
    resource: str, theirs: dict[str, dict[str, list[str]]]
) -> None:
    for key, (kind, default, _, importance, internal, scope) in theirs[resource].items():
        ours = TABLES[resource][key]
        assert (ours.type.name, ours.importance.name, ours.internal) == (
            kind,
            importance,
            internal == "true",
        ), key
        assert ours.dynamic is SCOPES[scope], key
        if key in OTHER_DEFAULTS:
            assert default == OTHER_DEFAULTS[key] != ours.default, key
        elif kind == "DOUBLE" and default != "null":
            assert ours.default is not None
            assert float(ours.default) == float(default), key
        else:
            shown = "(required)" if ours.required else "null" if ours.default is None else ours.default
            assert shown == default, key


def accepts(definition: ConfigDef, value: float) -> bool:
    return definition.validator is None or definition.validator(definition.name, value) is None


@pytest.mark.parametrize("resource", TABLES)
def test_ranges_of_numbers_are_kafkas(resource: str, theirs: dict[str, dict[str, list[str]]]) -> None:
    for key, (kind, _, shown, *_) in theirs[resource].items():
        ours = TABLES[resource][key]
        if kind not in ("INT", "SHORT", "LONG", "DOUBLE") or not RANGE.fullmatch(shown):
            if key not in RULES_ELSEWHERE:
                assert (ours.validator is None) == (shown == "null"), (key, shown)
            continue
        ends = [float(part) for part in shown[1:-1].split(",") if part not in ("", "...")]
        step = 0.1 if kind == "DOUBLE" else 1
        assert [accepts(ours, end) for end in ends] == [True] * len(ends), (key, shown)
        assert not accepts(ours, ends[0] - step), (key, shown)
        assert len(ends) == 1 or not accepts(ours, ends[1] + step), (key, shown)
