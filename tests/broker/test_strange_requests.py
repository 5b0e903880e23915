"""Requests with random values and edge cases: every handler returns a response or an error of the
protocol."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Struct
from tests.protocol.values import random_struct

from .fakes import registration
from .world import Broker, batch_of, image_of, topic_id_of

KEYS = [
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.LIST_CONFIG_RESOURCES,
]
ROUNDS = 25

_NUMBERS = (-(1 << 31), -3, -2, -1, 0, 1, 2, 3, 5, 100, (1 << 31) - 1)
_NAMES = {"topic", "name", "topic_name", "resource_name"}


def aim(value: Any, rng: random.Random) -> None:
    """Replaces some random values by existing names and ids, so that requests pass the first checks."""
    if isinstance(value, list):
        for item in value:
            aim(item, rng)
    if not isinstance(value, Struct):
        return
    for spec in type(value).fields():
        inner = getattr(value, spec.name)
        if spec.name in _NAMES and rng.random() < 0.8:
            setattr(value, spec.name, rng.choice(("t", "t", "__consumer_offsets", "none", "1", "")))
        elif spec.name == "topic_id" and rng.random() < 0.8:
            value.topic_id = topic_id_of(rng.choice(("t", "none")))
        elif spec.name == "records":
            whole = batch_of(b"a", b"b")
            cut = rng.randrange(len(whole) + 1)
            value.records = rng.choice(
                (whole, None, b"", whole[:cut], whole[:cut] + b"\xff" + whole[cut + 1 :], whole * 2)
            )
        elif spec.kind in ("int32", "int64") and not spec.array and rng.random() < 0.7:
            setattr(value, spec.name, rng.choice(_NUMBERS))
        elif spec.kind == "int32" and spec.array and isinstance(inner, list):
            setattr(value, spec.name, [rng.choice(_NUMBERS) for _ in inner])
        else:
            aim(inner, rng)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_random_values_get_a_response_or_a_protocol_error(
    tmp_path: Path, key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    world = Broker(
        tmp_path,
        image_of(
            {
                "t": {
                    0: registration(),
                    1: registration(replicas=(1, 2)),
                    2: registration(replicas=(2,), leader=2),
                }
            }
        ),
        auto_create_topics_enable="false",
    )
    spec = REGISTRY[key]
    rng = random.Random(int(key))
    before = set(tmp_path.rglob("*"))
    for version in range(spec.served_from, spec.max_version + 1):
        for _ in range(ROUNDS):
            request = random_struct(spec.request, spec.request, version, rng)
            aim(request, rng)
            if key == ApiKey.FETCH:
                request.max_wait_ms = min(request.max_wait_ms, 0)
            if key in (ApiKey.PRODUCE, ApiKey.DELETE_RECORDS):
                request.timeout_ms = min(request.timeout_ms, 1)
            try:
                answer = world.ask(request, version)
            except KafkaError as error:
                assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR, request
                continue
            if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
                answer = world.wait(answer, key, version)
            assert str(int(ErrorCode.UNKNOWN_SERVER_ERROR)) not in codes(answer), request
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    made = {path.name for path in set(tmp_path.rglob("*")) - before if path.is_dir()}
    assert made <= {"t-0", "t-1"}
    world.close()


def codes(value: Any) -> set[str]:
    """All error codes of a response, as text."""
    if isinstance(value, list):
        return set().union(*(codes(item) for item in value)) if value else set()
    if not isinstance(value, Struct):
        return set()
    found: set[str] = set()
    for spec in type(value).fields():
        inner = getattr(value, spec.name)
        if spec.name == "error_code":
            found.add(str(inner))
        else:
            found |= codes(inner)
    return found
