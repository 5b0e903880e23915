"""A node's configuration: parsing, derived values, and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.definitions import ConfigError, ConfigType
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.config.topic_defs import TOPIC_CONFIGS

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data/a,/data/b",
}
BROKER = COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}


def test_a_combined_node() -> None:
    config = KafkaConfig(COMBINED)
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert config.broker_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert config.advertised_broker_listeners == config.broker_listeners
    assert config.log_dirs == (Path("/data/a"), Path("/data/b"))
    assert config.metadata_log_dir == Path("/data/a")
    assert config.quorum_bootstrap_servers == (("127.0.0.1", 9093),)
    assert config.warnings == []


@pytest.mark.parametrize("properties", [COMBINED, BROKER, CONTROLLER])
def test_each_role_alone_and_both_are_accepted(properties: dict[str, str]) -> None:
    KafkaConfig(properties)


def test_values_are_read_by_name_and_by_attribute() -> None:
    config = KafkaConfig(COMBINED | {"num.partitions": " 7 ", "log.cleanup.policy": "compact, delete"})
    assert config.get("num.partitions") == config.num_partitions == 7
    assert config.get("log.cleanup.policy") == ["compact", "delete"]
    assert config.auto_create_topics_enable is True
    with pytest.raises(AttributeError):
        _ = config.no_such_key
    with pytest.raises(KeyError):
        config.get("no.such.key")


def test_the_old_name_of_the_node_id_still_works() -> None:
    old = {k: v for k, v in COMBINED.items() if k != "node.id"} | {"broker.id": "4"}
    assert KafkaConfig(old).node_id == 4
    with pytest.raises(ConfigError, match=r"broker\.id"):
        KafkaConfig(COMBINED | {"broker.id": "2"})


REFUSED: list[tuple[dict[str, str], dict[str, str | None], str]] = [
    (COMBINED, {"process.roles": None}, r"process\.roles.*ZooKeeper"),
    (COMBINED, {"process.roles": "broker,master"}, r"process\.roles: String must be one of: broker, controller"),
    (COMBINED, {"process.roles": ""}, r"process\.roles.*must not be empty.*broker, controller"),
    (COMBINED, {"node.id": None}, r"node\.id.*required"),
    (COMBINED, {"node.id": "-1"}, r"node\.id: Value must be at least 0"),
    (COMBINED, {"node.id": "one"}, r"node\.id: Not a number of type INT"),
    (COMBINED, {"num.partitions": "0"}, r"Invalid value 0 for configuration num\.partitions: Value must be at least 1"),
    (COMBINED, {"num.partitions": "99999999999"}, r"num\.partitions: Not a number of type INT"),
    (COMBINED, {"auto.create.topics.enable": "yes"}, r"auto\.create\.topics\.enable: Expected value to be either true or false"),
    (COMBINED, {"compression.type": "brotli"}, r"compression\.type: String must be one of"),
    (COMBINED, {"log.cleanup.policy": "compact,forget"}, r"log\.cleanup\.policy"),
    (COMBINED, {"compression.gzip.level": "0"}, r"compression\.gzip\.level"),
    (COMBINED, {"log.cleaner.min.cleanable.ratio": "x"}, "Not a number of type DOUBLE"),
    (COMBINED, {"controller.quorum.bootstrap.servers": None}, r"controller\.quorum\.bootstrap\.servers"),
    (COMBINED, {"controller.quorum.bootstrap.servers": "localhost"}, "is not host:port"),
    (COMBINED, {"controller.quorum.voters": "2@localhost:9093"}, r"node\.id 1 is not among the voters"),
    (COMBINED, {"controller.quorum.voters": "localhost:9093"}, "is not id@host:port"),
    (COMBINED, {"controller.quorum.voters": "1@a:1,1@b:1"}, "node 1 is there twice"),
    (BROKER, {"controller.quorum.voters": "1@localhost:9093"}, "is only a broker and its node.id 1 is among the voters"),
    (COMBINED, {"controller.listener.names": None}, r"controller\.listener\.names.*required"),
    (COMBINED, {"controller.listener.names": "CONTROLLER,OTHER"}, "listeners has no OTHER"),
    (BROKER, {"listeners": COMBINED["listeners"]}, "must not listen on the controllers' CONTROLLER"),
    (CONTROLLER, {"listeners": COMBINED["listeners"]}, "PLAINTEXT is not among controller.listener.names"),
    (COMBINED, {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092"}, "never share a port"),
    (COMBINED, {"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2,CONTROLLER://a:3"}, "PLAINTEXT is there twice"),
    (COMBINED, {"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"}, "'PLAINTEXT:9092' is not a listener"),
    (COMBINED, {"listeners": "PLAINTEXT://::1:9092,CONTROLLER://:9093"}, "IPv6 host in brackets"),
    (COMBINED, {"listeners": "PLAINTEXT://a:99999,CONTROLLER://a:9093"}, "no valid port"),
    (COMBINED, {"listeners": "MINE://a:9092,CONTROLLER://a:9093"}, r"listener\.security\.protocol\.map"),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "No security protocol defined for listener CONTROLLER"),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:TLS,CONTROLLER:PLAINTEXT"}, "Invalid security protocol `TLS`"),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, r"advertised\.listeners.*clients cannot connect to it"),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://[::]:9092"}, r"advertised\.listeners.*clients cannot connect to it"),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://:9092"}, r"advertised\.listeners.*clients cannot connect to it"),
    (COMBINED, {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, r"set advertised\.listeners=PLAINTEXT://"),
    (COMBINED, {"advertised.listeners": "SSL://a:9092"}, "listeners has no SSL"),
    (COMBINED, {"inter.broker.listener.name": "CONTROLLER"}, "is a listener of the controllers"),
    (COMBINED, {"inter.broker.listener.name": "SSL"}, r"inter\.broker\.listener\.name"),
    (COMBINED, {"listeners": "SASL_PLAINTEXT://a:9092,CONTROLLER://a:9093",
                "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "SASL_PLAINTEXT"}, "GSSAPI.*SCRAM-SHA-256"),
    (COMBINED, {"log.retention.ms": "0"}, r"log\.retention\.ms"),
    (COMBINED, {"log.roll.ms": "0"}, r"log\.roll\.ms"),
    (COMBINED, {"replica.fetch.wait.max.ms": "60000"}, r"replica\.socket\.timeout\.ms"),
    (COMBINED, {"max.connections.per.ip": "0"}, r"max\.connections\.per\.ip\.overrides"),
    (COMBINED, {"max.connections.per.ip.overrides": "a"}, "is not host:count"),
    (COMBINED, {"max.connections.per.ip.overrides": "a:" + "1" * 5000}, "is not host:count"),
    (COMBINED, {"listener.name.plaintext.max.connections": "a"}, r"listener\.name\.plaintext\.max\.connections: "),
    (COMBINED, {"listener.name.x.max.connection.creation.rate": "-1"}, r"creation\.rate: Value must be at least 0"),
    (COMBINED, {"queued.max.request.bytes": "5"}, r"socket\.request\.max\.bytes"),
    (COMBINED, {"log.dirs": None, "log.dir": ","}, r"log\.dir: values must not be empty"),
    (COMBINED, {"log.dirs": ""}, r"log\.dirs: values must not be empty"),
    (COMBINED, {"log.dirs": " , "}, r"log\.dirs: values must not be empty"),
    (COMBINED, {"advertised.listeners": ""}, r"advertised\.listeners: values must not be empty"),
    (COMBINED, {"controller.quorum.fetch.max.bytes": "0"}, r"fetch\.max\.bytes: Value must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "change", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_an_error_names_key_value_and_remedy(
    base: dict[str, str], change: dict[str, str | None], message: str
) -> None:
    properties = {k: v for k, v in (base | change).items() if v is not None}
    with pytest.raises(ConfigError, match=message):
        KafkaConfig(properties)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("zookeeper.connect", "obsolete"),
        ("control.plane.listener.name", "obsolete"),
        ("broker.id.generation.enable", "obsolete"),
        ("group.share.enable", "share.version"),
        ("internal.metadata.max.fetch.size.in.bytes", "controller.quorum.fetch.max.bytes"),
        ("num.partition", "did you mean num.partitions?"),
        ("retention.ms", "a broker's is log.retention.ms"),
        ("my.own", "not a known configuration"),
    ],
)
def test_unknown_and_obsolete_keys_only_warn(key: str, hint: str) -> None:
    (warning,) = KafkaConfig(COMBINED | {key: "x"}).warnings
    assert warning.startswith(key)
    assert hint in warning


def test_listeners_with_ipv6_and_every_address() -> None:
    config = KafkaConfig(
        COMBINED
        | {
            "listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://[2001:db8::1]:9092",
        }
    )
    assert config.broker_listeners[0].host == "::1"
    assert config.controller_listeners[0].host == ""
    assert str(config.advertised_broker_listeners[0]) == "PLAINTEXT://[2001:db8::1]:9092"
    assert config.advertised_controller_listeners[0].host  # this host's name


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    KafkaConfig(
        COMBINED
        | {
            "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092,CONTROLLER://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }
    )


def test_static_voters_of_a_controller() -> None:
    config = KafkaConfig(COMBINED | {"controller.quorum.voters": "1@localhost:9093,2@[::1]:9094"})
    assert config.quorum_voters == {1: ("localhost", 9093), 2: ("::1", 9094)}


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({}, "retention.ms", 7 * 24 * 3_600_000),
        ({"log.retention.hours": "1"}, "retention.ms", 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "retention.ms", 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, "retention.ms", 3),
        ({"log.retention.ms": "-7"}, "retention.ms", -1),
        ({"log.roll.hours": "2"}, "segment.ms", 7_200_000),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", 5),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        ({"message.max.bytes": "5000"}, "max.message.bytes", 5000),
        ({"min.insync.replicas": "2"}, "min.insync.replicas", 2),
        ({"log.cleanup.policy": "compact"}, "cleanup.policy", ["compact"]),
        ({}, "remote.storage.enable", False),
    ],
)
def test_topic_defaults_come_from_broker_keys(given: dict[str, str], key: str, value: object) -> None:
    defaults = KafkaConfig(COMBINED | given).topic_defaults
    assert defaults[key] == value
    assert defaults.keys() == TOPIC_CONFIGS.keys()


def test_every_default_satisfies_its_own_rule() -> None:
    for definition in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()):
        if definition.default is not None:
            definition.validate(definition.default)


def test_every_synonym_is_a_broker_key_and_every_dynamic_key_is_named() -> None:
    for definition in TOPIC_CONFIGS.values():
        assert all(name in BROKER_CONFIGS for name in definition.synonyms)
    assert "log.retention.ms" in DYNAMIC_BROKER_CONFIGS
    assert "node.id" not in DYNAMIC_BROKER_CONFIGS


def test_passwords_are_sensitive() -> None:
    for name in ("ssl.keystore.password", "sasl.jaas.config", "delegation.token.secret.key"):
        assert BROKER_CONFIGS[name].sensitive
        assert BROKER_CONFIGS[name].type is ConfigType.PASSWORD


@pytest.mark.parametrize(
    ("key", "text", "items"),
    [
        ("process.roles", "broker, controller, broker", ["broker", "controller"]),
        ("log.cleanup.policy", "delete,delete", ["delete"]),
        ("log.dirs", "/b,/a,/b", ["/b", "/a"]),
    ],
)
def test_an_item_that_a_list_repeats_counts_once(key: str, text: str, items: list[str]) -> None:
    assert KafkaConfig(COMBINED | {key: text}).get(key) == items


def test_a_config_with_overrides_is_checked_again() -> None:
    config = KafkaConfig(COMBINED)
    assert config.with_overrides({"num.partitions": "3"}).num_partitions == 3
    with pytest.raises(ConfigError):
        config.with_overrides({"num.partitions": "x"})


def test_every_key_has_a_sentence() -> None:
    from quorate.config.docs import DOCS
    from quorate.config.group_defs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS

    tables = (BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS)
    names = {name for table in tables for name in table}
    assert names - DOCS.keys() == set()
    assert DOCS.keys() - names == set()
    assert all(text.endswith(".") for text in DOCS.values())
    assert BROKER_CONFIGS["node.id"].doc.startswith("The node's number")


@pytest.mark.parametrize(
    ("listener", "limited"),
    [
        ("PLAINTEXT", {0: True, 9: True}),
        ("INTERNAL", {0: False, 9: False}),
        ("CONTROLLER", {0: False, 9: True}),
    ],
)
def test_max_connections_spares_the_listeners_of_the_cluster_itself(
    listener: str, limited: dict[int, bool]
) -> None:
    changes = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    config = KafkaConfig(COMBINED | changes)
    assert {most: config.is_limited(listener, most) for most in limited} == limited
    assert KafkaConfig(COMBINED).is_limited("PLAINTEXT", 0)
