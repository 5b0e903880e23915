"""Configuration changes through a broker: resources that it handles itself, and those that it forwards."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers.alter_configs import AlterConfigsHandler
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_configs import AlterConfigsRequest
from quorate.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from .world import Broker, image_of

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Channel:
    """Accepts every request."""

    def __init__(self) -> None:
        self.whole: list[Any] = []
        self.smaller: list[Any] = []

    async def forward(self, context: Any, request: Any) -> Any:
        self.whole.append(request)
        return self._answer(request)

    async def forward_frame(self, context: Any, request: Any, frame: bytes, timeout_s: float) -> Any:
        self.smaller.append(request)
        return self._answer(request)

    @staticmethod
    def _answer(request: Any) -> Any:
        make = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(
            responses=[
                make(resource_type=r.resource_type, resource_name=r.resource_name) for r in request.resources
            ]
        )


@pytest.fixture
def world(tmp_path: Path):
    made = Broker(tmp_path, image_of({}, configs={(BROKER, "1"): {"ssl.cipher.suites": "a,b"}}))
    made.services.channel = Channel()  # type: ignore[assignment]
    yield made
    made.close()


def alter(
    world: Broker, *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False
):
    Request = IncrementalAlterConfigsRequest  # noqa: N806
    request = Request(
        validate_only=validate_only,
        resources=[
            Request.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    Request.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in changes
                ],
            )
            for kind, name, changes in resources
        ],
    )
    answer = world.ask(request)
    assert asyncio.iscoroutine(answer)
    return [
        (r.resource_type, r.resource_name, ErrorCode(r.error_code).name)
        for r in world.loop.run_until_complete(answer).responses
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_list_is_changed_in_time_proportional_to_its_length(tmp_path: Path, operation: int) -> None:
    """A quadratic comparison of the items would take minutes."""
    present = ",".join(f"i{index}" for index in range(5_000))
    world = Broker(tmp_path, image_of({}, configs={(BROKER, "1"): {"ssl.cipher.suites": present}}))
    make = IncrementalAlterConfigsRequest
    items = ",".join(f"item{index}" for index in range(500_000))
    config = make.AlterableConfig(name="ssl.cipher.suites", config_operation=operation, value=items)
    resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    handler = AlterConfigsHandler(world.services, incremental=True)
    values = handler._resulting(resource, handler._stored("1"))
    assert values["ssl.cipher.suites"] == (f"{present},{items}" if operation == APPEND else present)
    world.close()


def test_changes_of_other_resources_are_forwarded_unchanged(world):
    assert alter(world, (TOPIC, "t", [("retention.ms", SET, "1")])) == [(TOPIC, "t", "NONE")]
    assert len(world.services.channel.whole) == 1


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("1", [("message.max.bytes", SET, "2")], "NONE"),
        ("", [("message.max.bytes", SET, "2")], "NONE"),
        ("1", [("message.max.bytes", DELETE, None)], "NONE"),
        ("1", [("node.id", SET, "2")], "INVALID_REQUEST"),
        ("", [("listeners", SET, "PLAINTEXT://:1")], "INVALID_REQUEST"),
        ("1", [("message.max.bytes", SET, "many")], "INVALID_REQUEST"),
        ("2", [("message.max.bytes", SET, "2")], "INVALID_REQUEST"),
        ("one", [("message.max.bytes", SET, "2")], "INVALID_REQUEST"),
        ("1", [("message.max.bytes", APPEND, "2")], "INVALID_CONFIG"),
        ("1", [("no.such.key", APPEND, "2")], "INVALID_CONFIG"),
        ("1", [("no.such.key", SET, "2")], "INVALID_REQUEST"),
        ("", [("leader.replication.throttled.rate", SET, "fast")], "INVALID_REQUEST"),
        ("", [("leader.replication.throttled.rate", SET, "5")], "NONE"),
        ("", [("log.roll.ms", SET, "0")], "INVALID_REQUEST"),
        ("1", [("listener.name.plaintext.max.connections", SET, "5")], "NONE"),
        ("1", [("listener.name.elsewhere.max.connections", SET, "5")], "INVALID_REQUEST"),
        ("1", [("listener.name.plaintext.ssl.keystore.location", SET, "/k")], "INVALID_REQUEST"),
        ("1", [("message.max.bytes", 9, "2")], "INVALID_REQUEST"),
        ("1", [("message.max.bytes", SET, None)], "INVALID_REQUEST"),
        ("1", [("message.max.bytes", SET, "2"), ("message.max.bytes", SET, "3")], "INVALID_REQUEST"),
        ("1", [("log.cleanup.policy", APPEND, "compact")], "NONE"),
        ("1", [("log.cleanup.policy", SUBTRACT, "delete")], "NONE"),
    ],
)
def test_changes_of_a_broker_are_checked_by_that_broker(world, name, changes, error):
    assert alter(world, (BROKER, name, changes)) == [(BROKER, name, error)]


@pytest.mark.parametrize("name", ["1", ""])
def test_a_key_without_an_effect_is_not_set(world, name):
    resource = (BROKER, name, [("num.io.threads", SET, "9")])
    assert alter(world, resource) == [(BROKER, name, "INVALID_REQUEST")]
    for harmless in (("num.io.threads", SET, "8"), ("num.io.threads", DELETE, None)):
        assert alter(world, (BROKER, name, [harmless])) == [(BROKER, name, "NONE")]


def test_a_key_without_an_effect_that_is_stored_stays(tmp_path: Path) -> None:
    """A broker of Apache Kafka in the same cluster may have set it."""
    world = Broker(tmp_path, image_of({}, configs={(BROKER, "1"): {"num.io.threads": "9"}}))
    world.services.channel = Channel()  # type: ignore[assignment]
    changes: list[tuple[str, int, str | None]] = [
        ("message.max.bytes", SET, "2"),
        ("num.io.threads", SET, "9"),
    ]
    assert alter(world, (BROKER, "1", changes)) == [(BROKER, "1", "NONE")]
    world.close()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("max.connections.per.ip.overrides", SET, "127.0.0.1")], "INVALID_REQUEST"),
        ([("max.connections.per.ip", SET, "0")], "INVALID_REQUEST"),
        (
            [("max.connections.per.ip", SET, "0"), ("max.connections.per.ip.overrides", SET, "127.0.0.1:5")],
            "NONE",
        ),
    ],
)
def test_limits_on_connections_must_allow_a_connection(world, changes, error):
    assert alter(world, (BROKER, "", changes)) == [(BROKER, "", error)]


def test_only_valid_changes_are_forwarded(world):
    answers = alter(
        world,
        (BROKER, "1", [("node.id", SET, "2")]),
        (TOPIC, "t", [("retention.ms", SET, "1")]),
    )
    assert answers == [(BROKER, "1", "INVALID_REQUEST"), (TOPIC, "t", "NONE")]
    (smaller,) = world.services.channel.smaller
    assert [r.resource_name for r in smaller.resources] == ["t"]


def test_a_resource_named_twice_is_refused_twice(world):
    change = (TOPIC, "t", [("retention.ms", SET, "1")])
    assert alter(world, change, change) == [(TOPIC, "t", "INVALID_REQUEST")] * 2


def test_an_unknown_kind_of_resource_is_refused(world):
    assert alter(world, (99, "x", [])) == [(99, "x", "INVALID_REQUEST")]


def test_levels_of_loggers_are_changed_by_the_broker(world):
    logger = logging.getLogger("quorate.broker.test_levels")
    assert alter(world, (LOGGER, "1", [(logger.name, SET, "DEBUG")]), validate_only=True) == [
        (LOGGER, "1", "NONE")
    ]
    assert logger.level == logging.NOTSET
    assert alter(world, (LOGGER, "1", [(logger.name, SET, "DEBUG")])) == [(LOGGER, "1", "NONE")]
    assert logger.level == logging.DEBUG
    assert alter(world, (LOGGER, "1", [(logger.name, DELETE, "")])) == [(LOGGER, "1", "NONE")]
    assert logger.level == logging.NOTSET
    assert not world.services.channel.whole


@pytest.mark.parametrize(
    ("logger", "operation", "level", "error"),
    [
        ("no.such.logger", SET, "DEBUG", "INVALID_CONFIG"),
        ("root", SET, "LOUD", "INVALID_CONFIG"),
        ("root", DELETE, "", "INVALID_REQUEST"),
        ("root", APPEND, "DEBUG", "INVALID_REQUEST"),
    ],
)
def test_invalid_levels_are_refused(world, logger, operation, level, error):
    assert alter(world, (LOGGER, "1", [(logger, operation, level)])) == [(LOGGER, "1", error)]


def test_the_older_request_does_not_support_loggers(world):
    Request = AlterConfigsRequest  # noqa: N806
    resource = Request.AlterConfigsResource(resource_type=LOGGER, resource_name="1")
    answer = world.loop.run_until_complete(world.ask(Request(resources=[resource])))
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]


def test_refusals_of_many_resources_let_the_event_loop_run(world):
    """Each is logged, which takes longer than to refuse it."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = world.loop.create_task(count())
    answers = alter(world, *[(BROKER, str(number), []) for number in range(2, 1002)])
    counting.cancel()
    assert answers == [(BROKER, str(number), "INVALID_REQUEST") for number in range(2, 1002)]
    assert turns > 10
