"""Requests that describe very many users or resources: other work gets its turns in between."""

import asyncio

import pytest

from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

from .world import Broker, image_of

TOPIC = 2


@pytest.fixture
def world(tmp_path):
    broker = Broker(tmp_path, image_of({}))
    yield broker
    broker.close()


def test_very_many_users_are_described_in_slices_and_repeated_ones_are_refused(world):
    """A comparison of each user with all others would take minutes."""
    make = DescribeUserScramCredentialsRequest.UserName
    users = [make(name=f"u{number}") for number in range(50_000)] + [make(name="u7")]
    answer = world.ask(DescribeUserScramCredentialsRequest(users=users))
    assert asyncio.iscoroutine(answer)
    results = world.wait(answer, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS).results
    assert [result.user for result in results] == [f"u{number}" for number in range(50_000)]
    codes = [result.error_code for result in results]
    assert codes.pop(7) == ErrorCode.DUPLICATE_RESOURCE
    assert set(codes) == {ErrorCode.RESOURCE_NOT_FOUND}


def test_very_many_resources_are_described_in_slices(world):
    make = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [make(resource_type=TOPIC, resource_name=f"t{number}") for number in range(500)]
    answer = world.ask(DescribeConfigsRequest(resources=wanted))
    assert asyncio.iscoroutine(answer)
    results = world.wait(answer, ApiKey.DESCRIBE_CONFIGS).results
    assert [result.resource_name for result in results] == [one.resource_name for one in wanted]
