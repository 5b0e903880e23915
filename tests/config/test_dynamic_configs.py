"""Dynamic configurations of brokers: every key that Apache Kafka applies live is applied live here,
or refused with a reason. None is accepted and ignored."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.definitions import Scope
from quorate.config.dynamic_configs import (
    APPLIED_AT_START,
    APPLIED_LIVE,
    DynamicConfigFilter,
    DynamicConfigs,
    broker_aliases,
    broker_definition,
    contradiction,
    effective_value,
    ignored_values,
    inconsistency,
    no_effect_reason,
    refusal_reason,
    rejection_reason,
    valid_values,
)
from quorate.config.kafka_config import KafkaConfig
from quorate.config.without_effect import WITHOUT_EFFECT

from .test_kafka_config import COMBINED

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
LISTENERS = {"plaintext", "controller"}


# -- the table


def test_each_dynamic_key_of_kafka_acts_live_or_is_refused() -> None:
    """`test_against_kafka` compares the dynamic keys with DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS."""
    without_effect = WITHOUT_EFFECT.keys() & DYNAMIC_BROKER_CONFIGS.keys()
    groups = [APPLIED_LIVE.keys(), APPLIED_AT_START.keys(), without_effect]
    assert set().union(*groups) == DYNAMIC_BROKER_CONFIGS.keys()
    assert sum(map(len, groups)) == len(DYNAMIC_BROKER_CONFIGS), "a key is in two groups"


def test_the_document_has_each_key_that_is_applied_live() -> None:
    by_place: dict[str, list[str]] = {}
    for key, place in APPLIED_LIVE.items():
        by_place.setdefault(place, []).append(f"`{key}`")
    rows = [f"| {place} | {', '.join(keys)} |" for place, keys in by_place.items()]
    assert "\n".join(rows) in DOCUMENT.read_text(encoding="utf-8"), "\n".join(rows)


@pytest.mark.parametrize("key", sorted(DYNAMIC_BROKER_CONFIGS.keys() - APPLIED_LIVE.keys()))
def test_what_does_not_act_is_refused_by_name_unless_it_is_the_default(key: str) -> None:
    definition = DYNAMIC_BROKER_CONFIGS[key]
    other = {"INT": "7", "LONG": "7", "SHORT": "7", "DOUBLE": "0.7", "BOOLEAN": "true"}.get(
        definition.type.name, "x"
    )
    if definition.default == "true":
        other = "false"
    reason = no_effect_reason(key, other)
    assert reason is not None
    assert reason.endswith(f"[{key}]")
    if key in WITHOUT_EFFECT:
        assert WITHOUT_EFFECT[key] in reason
        if definition.default is not None:
            assert no_effect_reason(key, definition.default) is None


@pytest.mark.parametrize("key", sorted(APPLIED_LIVE))
def test_what_acts_is_accepted(key: str) -> None:
    per_broker = DYNAMIC_BROKER_CONFIGS[key].dynamic is Scope.PER_BROKER
    value = DYNAMIC_BROKER_CONFIGS[key].default or "1"
    assert rejection_reason({key: value}, per_broker=per_broker) is None
    assert no_effect_reason(key, value) is None


# -- Kafka's rules, in its words

REFUSED_BY_KAFKA = [
    ({"node.id": "2", "log.retention.ms": "x"}, True, "Cannot update these configs dynamically: [node.id]"),
    (
        {"log.retention.hours": "2", "broker.rack": "a"},
        False,
        "Cannot update these configs dynamically: [broker.rack, log.retention.hours]",
    ),
    (
        {"ssl.keystore.location": "/k"},
        True,
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]",
    ),
    (
        {"message.max.bytes": "many"},
        False,
        "Invalid value many for configuration message.max.bytes: Not a number of type INT",
    ),
    (
        {"leader.replication.throttled.rate": "fast"},
        True,
        "Invalid value fast for configuration leader.replication.throttled.rate: Not a number of type LONG",
    ),
    (
        {"follower.replication.throttled.rate": "-1"},
        True,
        "Invalid value -1 for configuration follower.replication.throttled.rate: Value must be at least 0",
    ),
    (
        {"listener.name.plaintext.max.connections": "x"},
        True,
        "Invalid value x for configuration max.connections: Not a number of type INT",
    ),
    (
        {"cordoned.log.dirs": "/a", "message.max.bytes": "5"},
        False,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[cordoned.log.dirs]",
    ),
    (
        {"listener.name.plaintext.ssl.keystore.location": "/k"},
        False,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[listener.name.plaintext.ssl.keystore.location]",
    ),
]


@pytest.mark.parametrize(("values", "per_broker", "reason"), REFUSED_BY_KAFKA)
def test_kafka_refuses_and_ignores_in_its_own_words(
    values: dict[str, str], per_broker: bool, reason: str
) -> None:
    assert rejection_reason(values, per_broker=per_broker) == reason


@pytest.mark.parametrize(
    ("values", "per_broker"),
    [
        ({"listener.name.plaintext.max.connections": "5"}, False),
        ({"listener.name.plaintext.num.network.threads": "5"}, False),
        ({"listener.name.plaintext.ssl.keystore.location": "/k"}, True),
        ({"num.io.threads": "9", "of.a.plugin": "x"}, False),
        ({"cordoned.log.dirs": "*"}, True),
    ],
)
def test_kafka_accepts(values: dict[str, str], per_broker: bool) -> None:
    assert rejection_reason(values, per_broker=per_broker) is None


# -- what has no effect here

WITHOUT_EFFECT_HERE = [
    ("listeners", "PLAINTEXT://:1", "Listeners are opened when a node starts"),
    ("num.io.threads", "9", "a node has one event loop"),
    ("listener.name.plaintext.num.network.threads", "9", "a node has one event loop"),
    ("listener.name.plaintext.ssl.keystore.location", "/k", "TLS and SASL are not available yet"),
    ("listener.name.plaintext.connections.max.reauth.ms", "9", "TLS and SASL are not available yet"),
    ("listener.name.plaintext.max.idle", "9", "a listener has no value of its own for this key"),
    ("listener.name.plaintext.message.max.bytes", "9", "a listener has no value of its own for this key"),
    (
        "listener.name.elsewhere.max.connections",
        "9",
        "no listener 'elsewhere', its listeners are controller, ",
    ),
    ("log.retension.ms", "9", "did you mean log.retention.ms?"),
    ("retention.ms", "9", "a topic's key; a broker's is log.retention.ms"),
    ("metric.reporters.prefix", "x", "no part of it reads this key"),
    ("", "x", "no part of it reads this key"),
]


@pytest.mark.parametrize(("key", "value", "reason"), WITHOUT_EFFECT_HERE)
def test_a_key_without_an_effect_has_its_reason_and_its_name(key: str, value: str, reason: str) -> None:
    found = no_effect_reason(key, value, listeners=LISTENERS)
    assert found is not None
    assert reason in found
    assert found.endswith(f"[{key}]")


def test_the_limit_of_one_listener_acts() -> None:
    assert no_effect_reason("listener.name.plaintext.max.connections", "9", listeners=LISTENERS) is None
    assert no_effect_reason("listener.name.elsewhere.max.connections", "9") is None, "another broker has it"


# -- the checks of a change


def test_the_checks_of_a_change_have_one_order() -> None:
    values = {"broker.id": "1", "zookeeper.connect": "z", "log.retention.ms": "9"}
    asked: list[str] = []

    def together() -> str | None:
        asked.append("together")
        return "they do not fit"

    def reason(*names: str, stored: dict[str, str] | None = None, acts_here: bool = True) -> str | None:
        some = {name: values[name] for name in names}
        return refusal_reason(some, stored or {}, together, per_broker=True, acts_here=acts_here)

    refused = reason("broker.id", "zookeeper.connect", "log.retention.ms")
    assert refused == "Cannot update these configs dynamically: [broker.id]"
    assert asked == [], "the first reason counts"
    unread = reason("zookeeper.connect", "log.retention.ms")
    assert unread is not None
    assert "no part of it reads this key" in unread
    assert reason("zookeeper.connect", acts_here=False) == "they do not fit", "a node of Kafka would apply it"
    assert reason("log.retention.ms") == "they do not fit"


def test_what_is_stored_may_stay_if_it_fits_together() -> None:
    stored = {"broker.id": "1", "zookeeper.connect": "z"}
    assert refusal_reason(stored, stored, lambda: None, per_broker=True) is None
    assert refusal_reason(stored, stored, lambda: "together", per_broker=True) == "together"
    assert refusal_reason({"broker.id": "2"}, stored, lambda: None, per_broker=True) is not None


# -- several keys together


@pytest.mark.parametrize(
    ("static", "default", "own", "reason"),
    [
        ({}, {"log.roll.ms": "0"}, {}, "log.roll.ms: Value must be at least 1"),
        ({}, {"log.roll.ms": "0"}, {"log.roll.ms": "5"}, None),
        ({}, {"log.retention.ms": "0"}, {}, "log.retention.ms: it must be unlimited"),
        ({}, {}, {"max.connections.per.ip": "0"}, "needs max.connections.per.ip.overrides"),
        (
            {},
            {"max.connections.per.ip": "0"},
            {"max.connections.per.ip.overrides": "127.0.0.1:1"},
            None,
        ),
        ({}, {}, {"max.connections.per.ip.overrides": "here"}, "is not host:count"),
        ({}, {}, {"cordoned.log.dirs": "/nowhere"}, "must be present in log.dirs"),
        ({"log.retention.hours": "2"}, {"log.retention.ms": "7"}, {}, None),
        ({}, {}, {"of.a.plugin": "x", "leader.replication.throttled.rate": "5"}, None),
    ],
)
def test_a_node_checks_the_keys_together(
    static: dict[str, str], default: dict[str, str], own: dict[str, str], reason: str | None
) -> None:
    found = inconsistency(COMBINED | static, [], [default, own])
    assert found is None if reason is None else found is not None and reason in found
    assert inconsistency(COMBINED | static, [default, own], [default, own]) is None, "no change is wrong"


def test_a_controller_checks_the_keys_of_a_node_whose_properties_it_does_not_know() -> None:
    assert contradiction({}, {"log.roll.ms": "0"}) is not None
    assert contradiction({}, {"cordoned.log.dirs": "/of/that/node", "message.max.bytes": "5"}) is None


# -- what is in force

OWN = {"log.retention.ms": "1", "num.io.threads": "9"}
DEFAULT = {"log.retention.ms": "2", "max.connections": "50"}


def test_the_own_value_precedes_the_default_of_all_and_that_precedes_the_properties() -> None:
    config = KafkaConfig(COMBINED | {"max.connections": " 70 ", "message.max.bytes": "7"})

    def values(own: dict[str, str], default: dict[str, str]) -> list[str | None]:
        applied = DynamicConfigFilter().applied(own, default)
        keys = ("log.retention.ms", "max.connections", "message.max.bytes", "log.segment.bytes")
        return [effective_value(config, applied, key) for key in keys]

    assert values(OWN, DEFAULT) == ["1", "50", "7", "1073741824"]
    assert values({}, DEFAULT) == ["2", "50", "7", "1073741824"]
    assert values({}, {}) == [None, "70", "7", "1073741824"]


def test_a_value_that_a_controller_of_apache_kafka_has_stored_without_a_check_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = OWN | {"message.max.bytes": "many", "node.id": "7", "ssl.key.password": "p"}
    default = DEFAULT | {"cordoned.log.dirs": "/a", "leader.replication.throttled.rate": "fast"}
    found = DynamicConfigFilter(1)
    with caplog.at_level(logging.WARNING):
        applied = found.applied(own, default)
    assert applied == DynamicConfigs(OWN, DEFAULT)
    warned = {record.getMessage().partition("Ignoring ")[2].partition(":")[0] for record in caplog.records}
    assert warned == {
        "message.max.bytes", "node.id", "ssl.key.password", "cordoned.log.dirs",
        "leader.replication.throttled.rate", "num.io.threads",
    }  # fmt: skip
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert found.applied(own, default) is applied
        found.applied(own | {"max.connections": "3"}, default)
        found.applied({}, {})  # a controller reads its newest metadata and the committed metadata in turn
        found.applied(own, default)
    assert caplog.records == [], "each is logged once"


def test_values_that_are_all_valid_are_not_copied() -> None:
    assert valid_values(OWN, per_broker=True) is OWN
    assert ignored_values(OWN, per_broker=True).keys() == {"num.io.threads"}


# -- synonyms


@pytest.mark.parametrize(
    ("key", "aliases"),
    [
        ("log.roll.hours", ("log.roll.ms", "log.roll.hours")),
        ("log.flush.interval.ms", ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
        ("log.flush.scheduler.interval.ms", ("log.flush.scheduler.interval.ms",)),
        ("max.connections", ("max.connections",)),
        ("listener.name.a.max.connections", ("listener.name.a.max.connections", "max.connections")),
        (
            "listener.name.a.plain.sasl.jaas.config",
            ("listener.name.a.plain.sasl.jaas.config", "sasl.jaas.config"),
        ),
    ],
)
def test_the_synonyms_of_a_key_are_in_the_order_of_precedence(key: str, aliases: tuple[str, ...]) -> None:
    assert broker_aliases(key) == aliases


def test_a_key_of_one_listener_has_the_type_of_the_key_for_all() -> None:
    assert broker_definition("listener.name.a.max.connections") is BROKER_CONFIGS["max.connections"]
    password = broker_definition("listener.name.a.scram-sha-256.sasl.jaas.config")
    assert password is not None
    assert password.sensitive
    assert broker_definition("of.a.plugin") is None
