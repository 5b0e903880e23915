"""The client quotas of IP addresses, as the listeners of a node have them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from immutables import Map

from quorate.config.kafka_config import KafkaConfig
from quorate.metadata.image import ClientQuotasImage, MetadataImage
from quorate.metadata.image.image import EMPTY
from quorate.net.server import Listener
from quorate.node.connection_limits import NodeLimits

KEY = "connection_creation_rate"
CONFIG = KafkaConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": "data",
    }
)


def image(**rates: float) -> MetadataImage:
    """Quotas of addresses; "default" is for the others."""
    entities = {
        (("ip", None if name == "default" else name),): Map({KEY: rate}) for name, rate in rates.items()
    }
    user = {(("user", "u"),): Map({"producer_byte_rate": 1.0})}
    return replace(EMPTY, client_quotas=ClientQuotasImage(Map({**entities, **user})))


def admitted(listener: Listener, address: str) -> int:
    """How many of 100 connections at the same time are admitted."""
    return sum(not listener.ip_throttle.rates.record(address, 1000.0) for _ in range(100))


def applied(*images: MetadataImage) -> tuple[Listener, Listener]:
    """A listener of the broker and one of the controller, after these images."""
    limits, listeners = NodeLimits(CONFIG, 100_000), (Listener(), Listener())
    for listener, name in zip(listeners, ("PLAINTEXT", "CONTROLLER"), strict=True):
        limits.apply_rates(listener, name, {"max.connection.creation.rate": "1000"}.get)
    for one in images:
        limits.apply_quotas(one)
    return listeners


def test_the_listeners_of_each_role_limit_an_address_by_themselves() -> None:
    listeners = applied(image(**{"10.0.0.7": 2.0, "default": 5.0}))
    for listener in listeners:
        assert [admitted(listener, address) for address in ("10.0.0.7", "10.0.0.8")] == [20, 50]


def test_a_quota_that_is_removed_no_longer_acts() -> None:
    for listener in applied(image(**{"10.0.0.7": 2.0, "default": 5.0}), image(default=5.0), EMPTY):
        assert admitted(listener, "10.0.0.7") == 100


@pytest.mark.parametrize(
    ("name", "address"),
    [("::ffff:10.0.0.7", "10.0.0.7"), ("2001:DB8:0::1", "2001:db8::1"), ("127.0.0.1", "127.0.0.1")],
)
def test_an_address_has_one_name_however_it_is_written(name: str, address: str) -> None:
    broker, _ = applied(image(**{name: 1.0}))
    assert admitted(broker, address) == 10


def test_a_host_name_is_not_resolved_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    named = image(**{"localhost": 1.0, "127.0.0.2": 1.0})
    with caplog.at_level(logging.WARNING):
        broker, _ = applied(named, named)
    assert [admitted(broker, address) for address in ("127.0.0.1", "127.0.0.2")] == [100, 10]
    [record] = caplog.records
    assert "Ignoring the client quota of ip localhost" in record.getMessage()


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_rate_that_is_no_finite_number_has_no_effect(rate: float, caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka's controller accepts NaN."""
    for listener in applied(image(**{"10.0.0.7": rate, "10.0.0.8": 2.0, "default": rate})):
        assert [admitted(listener, address) for address in ("10.0.0.7", "10.0.0.8")] == [100, 20]
    assert f"Ignoring the client quota of ip <default>: its rate is {rate}" in caplog.text
