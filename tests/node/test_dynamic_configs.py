"""Each dynamic configuration that a node applies while it runs: it acts when it is set and no
longer acts when it is removed, and DescribeConfigs shows where its value comes from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from quorate.broker.server import BrokerServer
from quorate.config.dynamic_configs import APPLIED_LIVE
from quorate.net.client import Connection
from quorate.net.errors import NetError
from quorate.net.limits import ConnectionLimits
from quorate.node.properties import load_config
from quorate.node.server import KafkaServer
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.records.batch import TimestampType
from quorate.records.compression import Compression
from tests.support.cluster import Node

pytestmark = pytest.mark.timeout(60)

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5
UNLIMITED = 9223372036854775807
STATIC_CONFIGS = {"log.retention.ms": 111, "max.connections.per.ip": 222}


class Server:
    """A node in this process. Its event loop runs only during the calls of this class."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._runner = asyncio.Runner()
        self.node_id = str(node.node_id)
        self.kafka = self.run(self._start())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    async def _start(self) -> KafkaServer:
        server = KafkaServer(load_config(self.node.properties))
        await server.start()
        return server

    def restart(self) -> None:
        self.run(self.kafka.shutdown())
        self.kafka = self.run(self._start())

    def close(self) -> None:
        self.run(self.kafka.shutdown())
        self._runner.close()

    @property
    def broker(self) -> BrokerServer:
        assert self.kafka.broker is not None
        return self.kafka.broker

    def ask(self, request: Any, *, port: int | None = None) -> Any:
        """Sends a request to the broker, or to the controller if the node is no broker, or to
        another port."""
        port = port or self.node.broker_port or self.node.controller_port

        async def ask() -> Any:
            connection = await Connection.connect("127.0.0.1", port, client_id="test")
            answer = await connection.call(request)
            connection.close()
            return answer

        return self.run(ask())

    def alter(self, name: str, key: str, value: str | None, *, kind: int = BROKER) -> tuple[ErrorCode, str]:
        """Sets a configuration, or removes it if the value is None. Returns code and message."""
        make = IncrementalAlterConfigsRequest
        change = make.AlterableConfig(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        [result] = self.ask(make(resources=[resource])).responses
        return ErrorCode(result.error_code), result.error_message or ""

    def set(self, name: str, key: str, value: str | None) -> None:
        assert self.alter(name, key, value) == (ErrorCode.NONE, "")

    def described(self, key: str, *, name: str | None = None, kind: int = BROKER) -> Any:
        make = DescribeConfigsRequest
        resource = make.DescribeConfigsResource(
            resource_type=kind, resource_name=self.node_id if name is None else name, configuration_keys=[key]
        )
        [result] = self.ask(make(resources=[resource], include_synonyms=True)).results
        assert result.error_code == ErrorCode.NONE, result.error_message
        return next(iter(result.configs), None)

    def sources(self, key: str) -> list[tuple[str | None, int]]:
        """The values of a key in the order of precedence, each with its source. Throttles are described only
        while they are set."""
        found = self.described(key)
        return [] if found is None else [(s.value, s.source) for s in found.synonyms if s.name == key]


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    node = Node(tmp_path_factory.mktemp("combined"), extra=dict(STATIC_CONFIGS))
    # With eligible leader replicas, a single broker cannot have its own min.insync.replicas (KIP-966).
    node.format("--feature", "eligible.leader.replicas.version=0")
    server = Server(node)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert server.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == ErrorCode.NONE
    yield server
    server.close()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    node = Node(tmp_path_factory.mktemp("controller"), roles="controller")
    node.format()
    server = Server(node)
    yield server
    server.close()


Probe = Callable[[Server], Any]


def of_log(name: str) -> Probe:
    def probe(server: Server) -> Any:
        topic_id = server.broker.metadata.image.topics.by_name["t"].id
        log = server.broker.logs.get_or_create("t", 0, topic_id)  # otherwise the first batch creates it
        return getattr(log.config, name)

    return probe


def of_listeners(name: str) -> Probe:
    def probe(server: Server) -> Any:
        values = [getattr(listener.limits, name) for listener in server.kafka.listeners.values()]
        assert all(value == values[0] for value in values), values
        return values[0]

    return probe


def of_throttle(name: str) -> Probe:
    return lambda server: getattr(server.broker.replicas.quotas, name).limit


def shared_rates(server: Server) -> Any:
    """The rate of new connections of the brokers' listeners, and of the controllers'."""
    found = {listener.throttle.shared for listener in server.kafka.listeners.values()}
    assert len(found) == 2, "each role has its own"
    [limit] = {rate.limit for rate in found if rate is not None}
    return limit


def unlimited_connections(server: Server) -> int:
    """What max.connections is at most: the limit of open files gives it."""
    return server.kafka.listeners["PLAINTEXT"].limits.max_connections


APPLIED: dict[str, tuple[Probe, Any, tuple[str, Any], tuple[str, Any]]] = {
    "compression.gzip.level": (of_log("compression_gzip_level"), -1, ("2", 2), ("3", 3)),
    "compression.lz4.level": (of_log("compression_lz4_level"), 9, ("2", 2), ("3", 3)),
    "compression.type": (of_log("compression_type"), "producer", ("zstd", "zstd"), ("lz4", "lz4")),
    "compression.zstd.level": (of_log("compression_zstd_level"), 3, ("2", 2), ("4", 4)),
    "log.cleanup.policy": (
        of_log("cleanup_policy"), {"delete"}, ("compact", {"compact"}), ("compact,delete", {"compact", "delete"}),
    ),
    "log.flush.interval.messages": (of_log("flush_messages"), UNLIMITED, ("2", 2), ("3", 3)),
    "log.flush.interval.ms": (of_log("flush_ms"), UNLIMITED, ("2", 2), ("3", 3)),
    "log.index.interval.bytes": (of_log("index_interval_bytes"), 4096, ("2", 2), ("3", 3)),
    "log.index.size.max.bytes": (of_log("segment_index_bytes"), 10485760, ("2000", 2000), ("3000", 3000)),
    "log.message.timestamp.after.max.ms": (
        of_log("message_timestamp_after_max_ms"), 3600000, ("2", 2), ("3", 3),
    ),
    "log.message.timestamp.before.max.ms": (
        of_log("message_timestamp_before_max_ms"), UNLIMITED, ("2", 2), ("3", 3),
    ),
    "log.message.timestamp.type": (
        of_log("message_timestamp_type"), TimestampType.CREATE_TIME,
        ("LogAppendTime", TimestampType.LOG_APPEND_TIME), ("CreateTime", TimestampType.CREATE_TIME),
    ),
    "log.retention.bytes": (of_log("retention_bytes"), -1, ("2", 2), ("3", 3)),
    "log.retention.ms": (of_log("retention_ms"), 111, ("2", 2), ("3", 3)),
    "log.roll.jitter.ms": (of_log("segment_jitter_ms"), 0, ("2", 2), ("3", 3)),
    "log.roll.ms": (of_log("segment_ms"), 604800000, ("2", 2), ("3", 3)),
    "log.segment.bytes": (of_log("segment_bytes"), 1073741824, ("1048577", 1048577), ("1048578", 1048578)),
    "log.segment.delete.delay.ms": (of_log("file_delete_delay_ms"), 60000, ("2", 2), ("3", 3)),
    "max.decompressed.message.bytes": (
        of_log("max_decompressed_message_bytes"), 2147483639, ("2", 2), ("3", 3),
    ),
    "message.max.bytes": (of_log("max_message_bytes"), 1048588, ("2", 2), ("3", 3)),
    "min.insync.replicas": (of_log("min_insync_replicas"), 1, ("2", 2), ("3", 3)),
    "unclean.leader.election.enable": (
        of_log("unclean_leader_election_enable"), False, ("true", True), ("false", False),
    ),
    "producer.id.expiration.ms": (of_log("producer_id_expiration_ms"), 86400000, ("2", 2), ("3", 3)),
    "max.connection.creation.rate": (shared_rates, 2147483647, ("200", 200), ("300", 300)),
    "max.connections": (of_listeners("max_connections"), unlimited_connections, ("200", 200), ("300", 300)),
    "max.connections.per.ip": (of_listeners("max_connections_per_ip"), 222, ("200", 200), ("300", 300)),
    "max.connections.per.ip.overrides": (
        of_listeners("max_connections_per_ip_overrides"), {},
        ("127.0.0.1:200", {"127.0.0.1": 200}), ("127.0.0.1:300", {"127.0.0.1": 300}),
    ),
    "num.recovery.threads.per.data.dir": (
        lambda server: server.broker.recovery_threads, 2, ("3", 3), ("4", 4),
    ),
    "follower.replication.throttled.rate": (of_throttle("follower"), UNLIMITED, ("2", 2), ("3", 3)),
    "leader.replication.throttled.rate": (of_throttle("leader"), UNLIMITED, ("2", 2), ("3", 3)),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        of_throttle("alter_log_dirs"), UNLIMITED, ("2", 2), ("3", 3),
    ),
}  # fmt: skip
"""Key -> where its value acts, that value without a dynamic one, and two texts with the values they mean."""


def test_every_key_that_is_declared_as_applied_is_tried_here() -> None:
    assert APPLIED.keys() | {"cordoned.log.dirs"} == APPLIED_LIVE.keys()


@pytest.mark.parametrize("key", APPLIED)
def test_a_value_acts_until_it_is_removed_and_that_of_the_node_comes_first(
    combined: Server, key: str
) -> None:
    probe, unset, (text, value), (own_text, own_value) = APPLIED[key]
    me = combined.node_id
    if callable(unset):
        unset = unset(combined)
    before = combined.sources(key)
    assert probe(combined) == unset
    assert [source for _, source in before][:1] in ([], [STATIC if key in STATIC_CONFIGS else DEFAULT])
    combined.set("", key, text)
    assert probe(combined) == value
    assert combined.sources(key) == [(text, DYNAMIC_DEFAULT), *before]
    combined.set(me, key, own_text)
    assert probe(combined) == own_value
    assert combined.sources(key) == [(own_text, DYNAMIC_BROKER), (text, DYNAMIC_DEFAULT), *before]
    found = combined.described(key)
    assert (found.value, found.config_source, found.read_only) == (own_text, DYNAMIC_BROKER, False)
    assert combined.described(key, name="").value == text
    combined.set(me, key, None)
    assert probe(combined) == value
    combined.set("", key, None)
    assert probe(combined) == unset
    assert combined.sources(key) == before
    assert combined.described(key, name="") is None


def test_a_cordoned_directory_gets_no_new_replicas_until_it_is_allowed_again(combined: Server) -> None:
    me, [directory] = combined.node_id, combined.kafka.config.log_dirs
    combined.set(me, "cordoned.log.dirs", str(directory))
    assert combined.broker.logs.cordoned == {directory}
    combined.set(me, "cordoned.log.dirs", None)
    assert combined.broker.logs.cordoned == frozenset()


def test_the_limit_of_one_listener_is_applied_to_it_alone(combined: Server) -> None:
    key = "listener.name.plaintext.max.connections"

    def limits() -> list[int]:
        return [combined.kafka.listeners[name].limits.max_connections for name in ("PLAINTEXT", "CONTROLLER")]

    before = limits()
    combined.set("", key, "33")
    assert limits() == [33, before[1]]
    combined.set("", "max.connections", "22")
    assert limits() == [22, 22]
    found = combined.described(key)
    assert (found.value, found.config_source, found.is_sensitive) == ("33", DYNAMIC_DEFAULT, False)
    assert [(s.name, s.value) for s in found.synonyms][:2] == [(key, "33"), ("max.connections", "22")]
    combined.set("", key, None)
    combined.set("", "max.connections", None)
    assert limits() == before


def test_the_rate_of_one_listener_is_applied_to_it_alone(combined: Server) -> None:
    key = "listener.name.plaintext.max.connection.creation.rate"

    def limits() -> list[int]:
        return [combined.kafka.listeners[name].throttle.rate.limit for name in ("PLAINTEXT", "CONTROLLER")]

    before = limits()
    combined.set("", key, "33")
    assert limits() == [33, before[1]]
    assert combined.described(key).value == "33"
    combined.set("", key, None)
    assert limits() == before


def test_a_limit_of_no_connections_leaves_the_controllers_to_take_it_back(combined: Server) -> None:
    """Otherwise no controller could reach another, and nobody could change the limit again."""
    combined.set("", "max.connections", "0")
    assert combined.kafka.listeners["PLAINTEXT"].limits.max_connections == 0
    with pytest.raises(NetError):
        combined.described("max.connections")
    make = IncrementalAlterConfigsRequest
    change = make.AlterableConfig(name="max.connections", config_operation=DELETE)
    resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    answer = combined.ask(make(resources=[resource]), port=combined.node.controller_port)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert combined.described("max.connections") is not None


@pytest.mark.parametrize("server", ["combined", "controller"])
def test_a_node_that_starts_applies_what_was_changed_before(
    server: str, request: pytest.FixtureRequest
) -> None:
    node: Server = request.getfixturevalue(server)
    listener = "PLAINTEXT" if server == "combined" else "CONTROLLER"
    node.set("", "max.connections", "66")
    node.set(node.node_id, "leader.replication.throttled.rate", "77")
    node.restart()
    assert node.kafka.listeners[listener].limits.max_connections == 66
    if server == "combined":
        assert of_throttle("leader")(node) == 77
    node.set("", "max.connections", None)
    node.set(node.node_id, "leader.replication.throttled.rate", None)
    assert node.kafka.listeners[listener].limits.max_connections > 77


# -- values that only a controller of Apache Kafka stores

INVALID = {
    "message.max.bytes": "many",
    "leader.replication.throttled.rate": "fast",
    "max.connections": "",
    "max.connections.per.ip.overrides": "here",
    "unclean.leader.election.enable": "perhaps",
    "node.id": "77",
}


def test_a_broker_ignores_and_names_stored_values_that_it_cannot_apply(
    combined: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber of the metadata that raised would end every broker."""
    monkeypatch.setattr("quorate.controller.handlers.config_changes._check_values", lambda *_: None)
    monkeypatch.setattr("quorate.broker.handlers.alter_configs.AlterConfigsHandler._check", lambda *_: False)
    with caplog.at_level(logging.WARNING):
        for key, value in INVALID.items():
            combined.set("", key, value)
        combined.set(combined.node_id, "log.retention.ms", "5")
    assert of_log("retention_ms")(combined) == 5, "the other keys are applied"
    assert of_log("max_message_bytes")(combined) == 1048588
    warnings = [record.getMessage() for record in caplog.records]
    for key in INVALID.keys() - {"max.connections.per.ip.overrides"}:  # a string: the listeners parse it
        assert sum(f"Ignoring {key}: " in text for text in warnings) == 1, key
        assert combined.described(key, name="") is None
    assert any("The limits on connections stay as they are" in text for text in warnings)
    assert not combined.kafka.fault.done()
    monkeypatch.undo()
    for key in INVALID:
        combined.set("", key, None)
    combined.set(combined.node_id, "log.retention.ms", None)


def test_limits_that_would_lock_out_all_clients_are_not_applied(
    combined: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the values is valid, and each change was consistent for the node that checked it: a
    broker does not know the own values of the others, and a controller those of no broker."""
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    combined.set("", overrides, "127.0.0.1:1000")
    combined.set(combined.node_id, limit, "0")
    monkeypatch.setattr("quorate.broker.handlers.alter_configs.AlterConfigsHandler._check", lambda *_: False)
    with caplog.at_level(logging.WARNING):
        combined.set("", overrides, None)
        assert combined.described(limit).value == "0", "the node takes connections"
    assert any("The limits on connections stay as they are" in text for text in caplog.messages)
    monkeypatch.undo()
    combined.set(combined.node_id, limit, None)


@pytest.mark.parametrize("kind", [BROKER, TOPIC])
@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_white_space_around_a_value_does_not_count(combined: Server, kind: int, blank: str) -> None:
    """Clients may send it.

    Kafka trims values when it reads them. A subscriber of the metadata that raised would end every
    broker.
    """
    prefix, name = ("log.", combined.node_id) if kind == BROKER else ("", "t")
    values = {
        f"{prefix}message.timestamp.type": "LogAppendTime",
        "compression.type": "gzip",
        f"{prefix}retention.ms": "7",
        "unclean.leader.election.enable": "TRUE",
        f"{prefix}cleanup.policy": "compact , delete",
    }
    for key, value in values.items():
        assert combined.alter(name, key, blank + value + blank, kind=kind) == (ErrorCode.NONE, "")
    assert not combined.kafka.fault.done()
    assert of_log("retention_ms")(combined) == 7
    assert of_log("target_compression")(combined)(Compression.NONE) == Compression.GZIP
    assert of_log("message_timestamp_type")(combined) == TimestampType.LOG_APPEND_TIME
    for key in values:
        assert combined.alter(name, key, None, kind=kind) == (ErrorCode.NONE, "")


# -- a node that is a controller only


@pytest.mark.parametrize("name", ["", "1"])
def test_a_controller_limits_the_connections_to_itself(controller: Server, name: str) -> None:
    limits: Callable[[], ConnectionLimits] = lambda: controller.kafka.listeners["CONTROLLER"].limits  # noqa: E731
    before = limits()
    for key in ("max.connections", "listener.name.controller.max.connections"):
        controller.set(name, key, "44")
        assert limits().max_connections == 44
        controller.set(name, key, None)
        assert limits() == before
    controller.set(name, "max.connections.per.ip", "55")
    assert limits().max_connections_per_ip == 55
    assert controller.described("max.connections.per.ip").value == "55"
    controller.set(name, "max.connections.per.ip", None)
    assert limits() == before


@pytest.mark.parametrize(
    ("name", "key", "value", "reason"),
    [
        ("1", "node.id", "7", "Cannot update these configs dynamically: [node.id]"),
        ("", "message.max.bytes", "many", "Not a number of type INT"),
        ("", "leader.replication.throttled.rate", "fast", "Not a number of type LONG"),
        ("", "listener.name.controller.ssl.keystore.location", "/a", "broker id must be specified"),
        ("1", "num.io.threads", "9", "a node has one event loop"),
        ("", "num.io.threads", "9", "a node has one event loop"),
        ("1", "log.retension.ms", "9", "did you mean log.retention.ms?"),
        ("", "log.roll.ms", "0", "Value must be at least 1"),
    ],
)
def test_a_controller_refuses_what_no_node_would_apply(
    controller: Server, name: str, key: str, value: str, reason: str
) -> None:
    code, message = controller.alter(name, key, value)
    assert code is ErrorCode.INVALID_CONFIG
    assert reason in message


@pytest.mark.parametrize("server", ["combined", "controller"])
def test_levels_of_loggers_change_on_every_node(server: str, request: pytest.FixtureRequest) -> None:
    node: Server = request.getfixturevalue(server)
    logger = logging.getLogger("quorate.controller.state")
    assert node.alter(node.node_id, logger.name, "DEBUG", kind=LOGGER) == (ErrorCode.NONE, "")
    assert logger.level == logging.DEBUG
    assert node.described(logger.name, kind=LOGGER).value == "DEBUG"
    assert node.alter(node.node_id, logger.name, None, kind=LOGGER) == (ErrorCode.NONE, "")
    assert logger.level == logging.NOTSET
    assert node.alter("7", logger.name, "DEBUG", kind=LOGGER) == (
        ErrorCode.INVALID_REQUEST,
        "Unexpected node id. Expected 1, but received 7",
    )
    assert node.alter(node.node_id, "no.such", "DEBUG", kind=LOGGER)[0] is ErrorCode.INVALID_CONFIG
