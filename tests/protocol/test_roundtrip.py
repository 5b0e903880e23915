"""What is encoded is decoded again, for every message and version of the project."""

from __future__ import annotations

import random

import pytest

from quorate.protocol.json import from_json, to_json
from quorate.protocol.schema import Message
from tests.protocol.values import all_messages, all_versions, random_struct

VERSIONS = list(all_versions())


def test_the_project_declares_the_messages_of_4_4() -> None:
    names = {cls.__name__ for cls in all_messages()}
    assert sum(name.endswith("Request") for name in names) == 91
    assert sum(name.endswith("Response") for name in names) == 91
    assert len(VERSIONS) > 650


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_random_values_survive_with_their_unknown_tags(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        rng = random.Random(f"{cls.__name__} {version}")
        for _ in range(8):
            message = random_struct(cls, cls, version, rng, unknown_tags=True)
            data = message.encode(version)
            assert cls.decode(data, version) == message
            assert cls.decode(memoryview(b"?" + data)[1:], version) == message
            assert cls.read(b"??" + data + b"?", 2, version) == (message, 2 + len(data))


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_random_values_survive_json(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        rng = random.Random(f"json {cls.__name__} {version}")
        for _ in range(3):
            message = random_struct(cls, cls, version, rng)
            assert from_json(cls, to_json(message, version, record_bytes=True), version) == message


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_every_field_has_a_default_that_its_latest_version_carries(cls: type[Message]) -> None:
    assert cls.decode(cls().encode(cls.MAX_VERSION), cls.MAX_VERSION) == cls()
