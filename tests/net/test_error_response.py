"""Every API has a response to a failed request, in each of its versions."""

from __future__ import annotations

import pytest

from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.error_response import error_response
from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Struct

VERSIONS = [
    pytest.param(key, version, id=f"{spec.name}-{version}")
    for key, spec in REGISTRY.items()
    for version in range(spec.served_from, spec.latest_version + 1)
]


def filled(struct: type, message: type, version: int) -> Struct:
    """A request with one item in each list that the version has."""
    item = struct()
    for field in struct.fields():
        if not field.in_version(version):
            continue
        if field.array:
            nested = getattr(message, field.kind, None)
            if nested is not None:
                setattr(item, field.name, [filled(nested, message, version)])
            else:
                setattr(
                    item,
                    field.name,
                    ["it"] if field.kind == "str" else [7] if field.kind.startswith("int") else [],
                )
        elif field.kind == "str":
            setattr(item, field.name, "it")
    return item


def codes(struct: Struct, version: int) -> list[int]:
    found = []
    for field in type(struct).fields():
        if not field.in_version(version):
            continue
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif field.array and isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    found += codes(item, version)
    return found


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_error_response_has_the_error_and_can_be_encoded(key: int, version: int) -> None:
    spec = REGISTRY[key]
    request = filled(spec.request, spec.request, version)
    if key == ApiKey.PRODUCE:
        request.acks = 1
    response = error_response(request, ErrorCode.NOT_CONTROLLER, "why", version)
    assert response is not None
    response.encode(version)
    found = codes(response, version)
    if key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        return  # these have no place for a code that is not a directory's, in Kafka either
    assert found
    assert set(found) == {41}


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_error_response_can_be_encoded_without_a_message(key: int, version: int) -> None:
    spec = REGISTRY[key]
    request = filled(spec.request, spec.request, version)
    if key == ApiKey.PRODUCE:
        request.acks = 1
    response = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, version)
    assert response is not None
    response.encode(version)


def test_a_produce_request_without_acks_gets_no_answer() -> None:
    request = REGISTRY[ApiKey.PRODUCE].request(acks=0)
    assert error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, 9) is None


def test_each_item_of_the_request_has_the_error_in_the_response() -> None:
    create = REGISTRY[ApiKey.CREATE_TOPICS].request
    request = create(topics=[create.CreatableTopic(name="a"), create.CreatableTopic(name="b")])
    response = error_response(request, ErrorCode.NOT_CONTROLLER, None, 7)
    assert [(t.name, t.error_code) for t in response.topics] == [("a", 41), ("b", 41)]


def test_topic_ids_alone_give_a_null_or_empty_name() -> None:
    metadata = REGISTRY[ApiKey.METADATA].request
    request = metadata(topics=[metadata.MetadataRequestTopic(topic_id=b"x" * 16, name=None)])
    for version in (10, 11, 12, 13):
        response = error_response(request, ErrorCode.UNKNOWN_TOPIC_ID, None, version)
        response.encode(version)
        assert response.topics[0].topic_id == b"x" * 16
