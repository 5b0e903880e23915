"""The table of keys without an effect, beside the keys that the code reads: every key of Apache Kafka either
acts or is in the table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import quorate
from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.kafka_config import KafkaConfig
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.config.without_effect import WITHOUT_EFFECT

from .test_kafka_config import COMBINED

SOURCE = Path(quorate.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
DECLARATIONS = ("*_defs.py", "definitions.py", "dynamic_configs.py", "without_effect.py", "node_rules.py")
"""Modules of `config` that name keys and do not act on them."""
NO_NODE = frozenset({"admin", "pipeline", "testing", "tools"})
"""Packages that no node runs."""
ALL = BROKER_CONFIGS.keys() | DYNAMIC_BROKER_CONFIGS.keys()


def keys_that_act() -> set[str]:
    """The keys whose name is a string or an attribute in the code of a node, and those whose topic
    configuration is read."""
    strings: set[str] = set()
    attributes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        package, *_ = path.relative_to(SOURCE).parts
        declares = package == "config" and (
            "docs" in path.parts or any(path.match(pattern) for pattern in DECLARATIONS)
        )
        if package in NO_NODE or declares or path.match("node/local/cluster.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
    read = {key for key in ALL if key in strings or key.replace(".", "_") in attributes}
    for name, definition in TOPIC_CONFIGS.items():
        if name in strings - {"preallocate"} and name.replace(".", "_") in attributes:
            read.update(definition.synonyms)
    return read


def test_every_key_acts_or_has_a_reason_why_not() -> None:
    assert ALL - keys_that_act() == WITHOUT_EFFECT.keys()


def test_the_document_has_each_key_with_its_reason() -> None:
    by_reason: dict[str, list[str]] = {}
    for key, reason in WITHOUT_EFFECT.items():
        by_reason.setdefault(reason, []).append(f"`{key}`")
    rows = [f"| {reason} | {', '.join(keys)} |" for reason, keys in by_reason.items()]
    assert "\n".join(rows) in DOCUMENT.read_text(encoding="utf-8"), "\n".join(rows)


def test_keys_that_have_their_default_cause_no_warning() -> None:
    defaults = {
        key: BROKER_CONFIGS[key].default or ""
        for key in WITHOUT_EFFECT
        if key in BROKER_CONFIGS and BROKER_CONFIGS[key].default is not None
    }
    assert KafkaConfig(COMBINED | defaults).without_effect == []


@pytest.mark.parametrize(
    ("properties", "warnings"),
    [
        (
            {"log.preallocate": "true"},
            ["log.preallocate has no effect: segments are not allocated in advance"],
        ),
        (
            {"num.network.threads": "4", "num.io.threads": "9", "num.recovery.threads.per.data.dir": "2"},
            [
                "num.io.threads, num.network.threads have no effect: a node has one event loop, whose queues "
                "are bounded by size"
            ],
        ),
        (
            {
                "listener.name.plaintext.num.network.threads": "4",
                "listener.name.plaintext.message.max.bytes": "5",
                "listener.name.plaintext.max.connections": "6",
            },
            [
                "listener.name.plaintext.num.network.threads has no effect: a node has one event loop, whose "
                "queues are bounded by size",
                "listener.name.plaintext.message.max.bytes has no effect: a listener has no value of its own "
                "for this key",
            ],
        ),
    ],
)
def test_there_is_one_warning_for_each_reason(properties: dict[str, str], warnings: list[str]) -> None:
    assert KafkaConfig(COMBINED | properties).without_effect == warnings
