"""Creates the response to a request that failed as a whole, as Kafka's `getErrorResponse` does for each API.

Most responses have one error code at the top. Those of older APIs have none: they repeat the items of the
request, each with the code. `_MIRRORS` maps the items, and `_DEFAULTS` has the values of their other fields.
"""

from __future__ import annotations

from typing import Any, Final

from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Request, Response, Struct

# One row for each API, its lowest version and one item for each level of nesting: the response's list,
# the request's list, and the fields that identify the item (`theirs>ours` where the names differ). An item
# of the request that is not a struct (a topic's name, a partition's number) is itself the field.
_Level = tuple[str, str, str]
_PARTITIONS: Final[_Level] = ("partitions", "partitions", "partition")
_BY_INDEX: Final[_Level] = ("partitions", "partitions", "partition_index")
_INDEXES: Final[_Level] = ("partitions", "partition_indexes", "partition_index")
_MIRRORS: Final[dict[int, tuple[tuple[int, int, tuple[_Level, ...]], ...]]] = {
    ApiKey.PRODUCE: (
        (0, 99, (("responses", "topic_data", "name topic_id"), ("partition_responses", "partition_data",
        "index"))),
    ),
    ApiKey.FETCH: (
        (0, 12, (("responses", "topics", "topic topic_id"), ("partitions", "partitions",
        "partition>partition_index"))),
    ),
    ApiKey.LIST_OFFSETS: ((0, 99, (("topics", "topics", "name"), _BY_INDEX)),),
    ApiKey.METADATA: ((0, 99, (("topics", "topics", "name topic_id"),)),),
    ApiKey.OFFSET_COMMIT: ((0, 99, (("topics", "topics", "name topic_id"), _BY_INDEX)),),
    ApiKey.OFFSET_FETCH: (
        (0, 1, (("topics", "topics", "name"), _INDEXES)),
        (8, 99, (("groups", "groups", "group_id"),)),
    ),
    ApiKey.FIND_COORDINATOR: ((4, 99, (("coordinators", "coordinator_keys", "key"),)),),
    ApiKey.DESCRIBE_GROUPS: ((0, 99, (("groups", "groups", "group_id"),)),),
    ApiKey.CREATE_TOPICS: ((0, 99, (("topics", "topics", "name"),)),),
    ApiKey.DELETE_TOPICS: (
        (0, 5, (("responses", "topic_names", "name"),)),
        (6, 99, (("responses", "topics", "name topic_id"),)),
    ),
    ApiKey.DELETE_RECORDS: ((0, 99, (("topics", "topics", "name"), _BY_INDEX)),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((0, 99, (("topics", "topics", "topic"), _PARTITIONS)),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        (0, 3, (
            ("results_by_topic_v3_and_below", "v3_and_below_topics", "name"),
            ("results_by_partition", "partitions", "partition_index"),
        )),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        (0, 99, (("markers", "markers", "producer_id"), ("topics", "topics", "name"), _INDEXES)),
    ),
    ApiKey.TXN_OFFSET_COMMIT: ((0, 99, (("topics", "topics", "name"), _BY_INDEX)),),
    ApiKey.CREATE_ACLS: ((0, 99, (("results", "creations", ""),)),),
    ApiKey.DELETE_ACLS: ((0, 99, (("filter_results", "filters", ""),)),),
    ApiKey.DESCRIBE_CONFIGS: ((0, 99, (("results", "resources", "resource_type resource_name"),)),),
    ApiKey.ALTER_CONFIGS: ((0, 99, (("responses", "resources", "resource_type resource_name"),)),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ((0, 99, (("responses", "resources",
    "resource_type resource_name"),)),),
    ApiKey.CREATE_PARTITIONS: ((0, 99, (("results", "topics", "name"),)),),
    ApiKey.DELETE_GROUPS: ((0, 99, (("results", "groups_names", "group_id"),)),),
    ApiKey.ELECT_LEADERS: (
        (0, 99, (("replica_election_results", "topic_partitions", "topic"), ("partition_result",
        "partitions", "partition_id"))),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        (0, 99, (("responses", "topics", "name"), _BY_INDEX)),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        (0, 99, (("topics", "topics", "name"), _INDEXES)),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ((0, 99, (("entries", "entries", ""), ("entity", "entity",
    "entity_type entity_name"))),),
    ApiKey.DESCRIBE_PRODUCERS: ((0, 99, (("topics", "topics", "name"), _INDEXES)),),
    ApiKey.DESCRIBE_TRANSACTIONS: ((0, 99, (("transaction_states", "transactional_ids",
    "transactional_id"),)),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ((0, 99, (("groups", "group_ids", "group_id"),)),),
    ApiKey.SHARE_GROUP_DESCRIBE: ((0, 99, (("groups", "group_ids", "group_id"),)),),
    ApiKey.STREAMS_GROUP_DESCRIBE: ((0, 99, (("groups", "group_ids", "group_id"),)),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ((0, 99, (("topics", "topics", "name"),)),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ((0, 99, (("results", "topics", "topic_id"), _PARTITIONS)),),
    ApiKey.READ_SHARE_GROUP_STATE: ((0, 99, (("results", "topics", "topic_id"), _PARTITIONS)),),
    ApiKey.WRITE_SHARE_GROUP_STATE: ((0, 99, (("results", "topics", "topic_id"), _PARTITIONS)),),
    ApiKey.DELETE_SHARE_GROUP_STATE: ((0, 99, (("results", "topics", "topic_id"), _PARTITIONS)),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ((0, 99, (("results", "topics", "topic_id"), _PARTITIONS)),),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ((0, 99, (("groups", "groups", "group_id"),)),),
}  # fmt: skip

_DEFAULTS: Final[dict[int, dict[str, Any]]] = {
    ApiKey.PRODUCE: {"base_offset": -1},
    ApiKey.FETCH: {"high_watermark": -1, "records": b""},
    ApiKey.OFFSET_FETCH: {"committed_offset": -1},
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    ApiKey.DELETE_RECORDS: {"low_watermark": -1},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"leader_epoch": -1, "end_offset": -1},
    ApiKey.JOIN_GROUP: {"generation_id": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entries": None},
}

_NO_CODE = frozenset({ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS})
"""Responses with another layout, which `_special` fills."""


def error_response(request: Request, code: ErrorCode, message: str | None, version: int) -> Response | None:
    """Returns the response to a request of this version that failed as a whole.

    `message` is put into every error message of the response. Returns None for a request without a response
    (Produce with acks=0).
    """
    key = request.KEY
    if key == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        return None
    response = REGISTRY[key].response()
    _fill(response, version, code, message, _DEFAULTS.get(key, {}))
    if key == ApiKey.API_VERSIONS and code == ErrorCode.UNSUPPORTED_VERSION:
        spec = REGISTRY[key]
        ApiVersion = type(response).ApiVersion  # type: ignore[attr-defined]  # noqa: N806
        own = ApiVersion(api_key=key, min_version=spec.min_version, max_version=spec.max_version)
        response.api_keys = [own]  # type: ignore[attr-defined]
    if key == ApiKey.JOIN_GROUP:
        response.protocol_name = None if version >= 7 else ""  # type: ignore[attr-defined]
    if key == ApiKey.FETCH:
        response.session_id = request.session_id  # type: ignore[attr-defined]
    if key in _NO_CODE:
        _special(request, response, code, message)
    for low, high, levels in _MIRRORS.get(key, ()):
        if low <= version <= high:
            _mirror(request, response, type(response), levels, version, code, message, _DEFAULTS.get(key, {}))
    return response


def _fill(item: Struct, version: int, code: ErrorCode, message: str | None, defaults: dict[str, Any]) -> None:
    names = {f.name: f for f in type(item).fields() if f.in_version(version)}
    for name in ("error_code", "partition_error_code"):
        if name in names:
            setattr(item, name, int(code))
    if "error_message" in names:
        nullable = names["error_message"].nullable_in(version)
        item.error_message = message if message is not None or nullable else ""  # type: ignore[attr-defined]
    for name, value in defaults.items():
        if name in names:
            setattr(item, name, value)


def _mirror(
    source: Any,
    target: Any,
    message_class: type[Struct],
    levels: tuple[_Level, ...],
    version: int,
    code: ErrorCode,
    message: str | None,
    defaults: dict[str, Any],
) -> None:
    (ours, theirs, keys), *rest = levels
    kind = next(f.kind for f in type(target).fields() if f.name == ours)
    struct: type[Struct] = getattr(message_class, kind)
    items: list[Struct] = []
    for asked in getattr(source, theirs) or ():
        item = struct()
        _fill(item, version, code, message, defaults)
        for key in keys.split():
            from_name, _, to_name = key.partition(">")
            value = getattr(asked, from_name) if isinstance(asked, Struct) else asked
            setattr(item, to_name or from_name, _not_null(item, to_name or from_name, value))
        if rest:
            _mirror(asked, item, message_class, tuple(rest), version, code, message, defaults)
        items.append(item)
    setattr(target, ours, items)


def _not_null(item: Struct, name: str, value: Any) -> Any:
    """Replaces null by an empty string if the field is not nullable, as Kafka does.

    A topic that is requested by its id has no name.
    """
    if value is not None:
        return value
    spec = next(f for f in type(item).fields() if f.name == name)
    return None if spec.nullable[0] == 0 or spec.kind != "str" else ""


def _special(request: Any, response: Any, code: ErrorCode, message: str | None) -> None:
    kind: Any = type(response)
    if request.KEY == ApiKey.ALTER_REPLICA_LOG_DIRS:
        response.results = [
            kind.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    kind.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code))
                    for index in topic.partitions
                ],
            )
            for log_dir in request.dirs
            for topic in log_dir.topics
        ]
    else:
        users = sorted({x.name for x in [*request.deletions, *request.upsertions]})
        response.results = [
            kind.AlterUserScramCredentialsResult(user=user, error_code=int(code), error_message=message)
            for user in users
        ]
