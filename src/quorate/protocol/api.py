"""The registry of the APIs with their keys, versions and listeners, and the framing of requests and
responses.

ApiVersions, the dispatch of requests, tests and documents use the registry. A module of messages is imported
when one of them is first used. Source: Apache Kafka 4.4.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct as Packing
from typing import Any, Final

from quorate.dataclass import dataclass
from quorate.protocol.errors import DecodeError, ErrorCode, KafkaError
from quorate.protocol.file_region import FileRegion
from quorate.protocol.headers import RequestHeader, ResponseHeader
from quorate.protocol.primitives import Buffer
from quorate.protocol.schema import Request, Response


class ApiKey(IntEnum):
    """The int16 at the start of a request.

    Keys 4 to 7 belong to clusters with ZooKeeper and are not served.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


@functools.cache
def _message_class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@dataclass(slots=True, frozen=True)
class ApiSpec:
    """The properties of an API that are known without the import of its messages."""

    key: ApiKey
    name: str
    """Kafka's name in camel case, without Request or Response."""
    min_version: int
    """As advertised in ApiVersions."""
    max_version: int
    """As advertised, without an unstable last version."""
    served_from: int
    """The lowest version that is decoded. Produce is advertised from version 0 and served from version 3."""
    latest_version: int
    """The highest version of the messages, stable or not."""
    listeners: frozenset[str]
    """Contains "broker", "controller" or both."""
    forwardable: bool
    """Whether a broker may forward the request to the controller in an Envelope (KIP-590)."""
    flexible_from: int | None
    module: str

    @property
    def request(self) -> type[Request]:
        """The request class; imports its module on first use."""
        found: type[Request] = _message_class(self.module, self.name + "Request")
        return found

    @property
    def response(self) -> type[Response]:
        """The response class; imports its module on first use."""
        found: type[Response] = _message_class(self.module, self.name + "Response")
        return found

    def is_flexible(self, version: int) -> bool:
        """Whether bodies of this version use compact lengths and tagged sections."""
        return self.flexible_from is not None and version >= self.flexible_from


# Key, name, first version, last stable, last, listeners (broker, controller), forwardable, first
# flexible version.
_TABLE: Final = (
    (0, "Produce", 3, 13, 13, "B", False, 9),
    (1, "Fetch", 4, 18, 18, "BC", False, 12),
    (2, "ListOffsets", 1, 11, 11, "B", False, 6),
    (3, "Metadata", 0, 13, 13, "B", False, 9),
    (8, "OffsetCommit", 2, 10, 10, "B", False, 8),
    (9, "OffsetFetch", 1, 10, 10, "B", False, 6),
    (10, "FindCoordinator", 0, 6, 6, "B", False, 3),
    (11, "JoinGroup", 0, 9, 9, "B", False, 6),
    (12, "Heartbeat", 0, 4, 4, "B", False, 4),
    (13, "LeaveGroup", 0, 5, 5, "B", False, 4),
    (14, "SyncGroup", 0, 5, 5, "B", False, 4),
    (15, "DescribeGroups", 0, 6, 6, "B", False, 5),
    (16, "ListGroups", 0, 5, 5, "B", False, 3),
    (17, "SaslHandshake", 0, 1, 1, "BC", False, None),
    (18, "ApiVersions", 0, 5, 5, "BC", False, 3),
    (19, "CreateTopics", 2, 7, 7, "BC", True, 5),
    (20, "DeleteTopics", 1, 6, 6, "BC", True, 4),
    (21, "DeleteRecords", 0, 2, 2, "B", False, 2),
    (22, "InitProducerId", 0, 5, 6, "B", False, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4, "B", False, 4),
    (24, "AddPartitionsToTxn", 0, 5, 5, "B", False, 3),
    (25, "AddOffsetsToTxn", 0, 4, 4, "B", False, 3),
    (26, "EndTxn", 0, 5, 5, "B", False, 3),
    (27, "WriteTxnMarkers", 1, 2, 2, "B", False, 1),
    (28, "TxnOffsetCommit", 0, 6, 6, "B", False, 3),
    (29, "DescribeAcls", 1, 3, 3, "BC", False, 2),
    (30, "CreateAcls", 1, 3, 3, "BC", True, 2),
    (31, "DeleteAcls", 1, 3, 3, "BC", True, 2),
    (32, "DescribeConfigs", 1, 4, 4, "BC", False, 4),
    (33, "AlterConfigs", 0, 2, 2, "BC", True, 2),
    (34, "AlterReplicaLogDirs", 1, 2, 2, "B", False, 2),
    (35, "DescribeLogDirs", 1, 5, 5, "B", False, 2),
    (36, "SaslAuthenticate", 0, 2, 2, "BC", False, 2),
    (37, "CreatePartitions", 0, 3, 3, "BC", True, 2),
    (38, "CreateDelegationToken", 1, 3, 3, "BC", True, 2),
    (39, "RenewDelegationToken", 1, 2, 2, "BC", True, 2),
    (40, "ExpireDelegationToken", 1, 2, 2, "BC", True, 2),
    (41, "DescribeDelegationToken", 1, 3, 3, "BC", False, 2),
    (42, "DeleteGroups", 0, 3, 3, "B", False, 2),
    (43, "ElectLeaders", 0, 2, 2, "BC", True, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1, "BC", True, 1),
    (45, "AlterPartitionReassignments", 0, 1, 1, "BC", True, 0),
    (46, "ListPartitionReassignments", 0, 0, 0, "BC", True, 0),
    (47, "OffsetDelete", 0, 0, 0, "B", False, None),
    (48, "DescribeClientQuotas", 0, 1, 1, "B", False, 1),
    (49, "AlterClientQuotas", 0, 1, 1, "BC", True, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0, "BC", False, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0, "BC", True, 0),
    (52, "Vote", 0, 2, 2, "C", False, 0),
    (53, "BeginQuorumEpoch", 0, 1, 1, "C", False, 1),
    (54, "EndQuorumEpoch", 0, 1, 1, "C", False, 1),
    (55, "DescribeQuorum", 0, 2, 2, "BC", True, 0),
    (56, "AlterPartition", 2, 3, 3, "C", False, 0),
    (57, "UpdateFeatures", 0, 2, 2, "BC", True, 0),
    (58, "Envelope", 0, 0, 0, "C", False, 0),
    (59, "FetchSnapshot", 0, 1, 1, "C", False, 0),
    (60, "DescribeCluster", 0, 2, 2, "BC", False, 0),
    (61, "DescribeProducers", 0, 0, 0, "B", False, 0),
    (62, "BrokerRegistration", 0, 4, 4, "C", False, 0),
    (63, "BrokerHeartbeat", 0, 2, 2, "C", False, 0),
    (64, "UnregisterBroker", 0, 0, 0, "BC", True, 0),
    (65, "DescribeTransactions", 0, 0, 0, "B", False, 0),
    (66, "ListTransactions", 0, 2, 2, "B", False, 0),
    (67, "AllocateProducerIds", 0, 0, 0, "C", True, 0),
    (68, "ConsumerGroupHeartbeat", 0, 1, 1, "B", False, 0),
    (69, "ConsumerGroupDescribe", 0, 1, 1, "B", False, 0),
    (70, "ControllerRegistration", 0, 0, 0, "C", False, 0),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, "B", False, 0),
    (72, "PushTelemetry", 0, 0, 0, "B", False, 0),
    (73, "AssignReplicasToDirs", 0, 0, 0, "C", False, 0),
    (74, "ListConfigResources", 0, 1, 1, "B", False, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0, "B", False, 0),
    (76, "ShareGroupHeartbeat", 1, 1, 1, "B", False, 0),
    (77, "ShareGroupDescribe", 1, 1, 1, "B", False, 0),
    (78, "ShareFetch", 1, 2, 2, "B", False, 0),
    (79, "ShareAcknowledge", 1, 2, 2, "B", False, 0),
    (80, "AddRaftVoter", 0, 1, 1, "BC", True, 0),
    (81, "RemoveRaftVoter", 0, 0, 0, "BC", True, 0),
    (82, "UpdateRaftVoter", 0, 0, 0, "C", False, 0),
    (83, "InitializeShareGroupState", 0, 0, 0, "B", False, 0),
    (84, "ReadShareGroupState", 0, 0, 0, "B", False, 0),
    (85, "WriteShareGroupState", 0, 1, 1, "B", False, 0),
    (86, "DeleteShareGroupState", 0, 0, 0, "B", False, 0),
    (87, "ReadShareGroupStateSummary", 0, 1, 1, "B", False, 0),
    (88, "StreamsGroupHeartbeat", 0, 1, 1, "B", False, 0),
    (89, "StreamsGroupDescribe", 0, 1, 1, "B", False, 0),
    (90, "DescribeShareGroupOffsets", 0, 1, 1, "B", False, 0),
    (91, "AlterShareGroupOffsets", 0, 0, 0, "B", False, 0),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, "B", False, 0),
    (93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, "B", False, 0),
    (94, "UnregisterController", 0, 0, 0, "BC", True, 0),
)

_LISTENERS: Final = {
    "B": frozenset({"broker"}),
    "C": frozenset({"controller"}),
    "BC": frozenset({"broker", "controller"}),
}


def _spec(
    key: int,
    name: str,
    first: int,
    stable: int,
    last: int,
    listeners: str,
    forwardable: bool,
    flexible: int | None,
) -> ApiSpec:
    api = ApiKey(key)
    return ApiSpec(
        key=api,
        name=name,
        # librdkafka rejects a broker that does not advertise the old versions of Produce, although it does
        # not use them. A request of such a version is rejected.
        min_version=0 if api is ApiKey.PRODUCE else first,
        max_version=stable,
        served_from=first,
        latest_version=last,
        listeners=_LISTENERS[listeners],
        forwardable=forwardable,
        flexible_from=flexible,
        module=f"quorate.protocol.messages.{api.name.lower()}",
    )


_VERSIONS_CACHED: Final = 1024
"""Pairs of key and version whose header version is cached: more than there are."""

REGISTRY: Final[dict[int, ApiSpec]] = {row[0]: _spec(*row) for row in _TABLE}


@functools.lru_cache(_VERSIONS_CACHED)
def request_header_version(key: int, version: int) -> int:
    """Returns 2 for a flexible request and 1 otherwise. Raises UNSUPPORTED_VERSION for an unknown key."""
    return 2 if _known(key).is_flexible(version) else 1


@functools.lru_cache(_VERSIONS_CACHED)
def response_header_version(key: int, version: int) -> int:
    """Returns 1 for a flexible response and 0 otherwise.

    It is always 0 for ApiVersions, because the client may not know the version (KIP-511).
    """
    return 1 if _known(key).is_flexible(version) and key != ApiKey.API_VERSIONS else 0


def _known(key: int) -> ApiSpec:
    spec = REGISTRY.get(key)
    if spec is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no API has key {key}")
    return spec


_KEY_AND_VERSION: Final = Packing(">hh")
_I32: Final = Packing(">i")


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Returns the header of a request and the position of its body.

    Raises DecodeError, and UNSUPPORTED_VERSION for an unknown key.
    """
    if len(frame) < 8:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    return RequestHeader.read(frame, 0, request_header_version(key, version))


def decode_request(
    frame: Buffer, *, unstable: bool = False, lenient: bool = False
) -> tuple[RequestHeader, Request]:
    """Returns header and body of a frame without its length.

    An ApiVersions request of an unknown version has a default body: only its header can be read, and the
    response has version 0 and UNSUPPORTED_VERSION. Raises DecodeError for malformed bytes, and
    UNSUPPORTED_VERSION for an unknown key and for an unknown version of any other API.

    Bytes after the body are ignored, as in Kafka: librdkafka 2.16 appends three bytes to a Metadata request
    for all topics, because it writes the null array in four bytes.
    """
    header, body = decode_request_header(frame)
    return header, decode_request_body(frame, header, body, unstable=unstable)


def decode_request_body(
    frame: Buffer, header: RequestHeader, body: int, *, unstable: bool = False
) -> Request:
    """Returns the body of a request, which begins at position `body`.

    Raises the errors of `decode_request`.
    """
    spec = REGISTRY[header.request_api_key]
    version = header.request_api_version
    if not spec.served_from <= version <= (spec.latest_version if unstable else spec.max_version):
        if spec.key is ApiKey.API_VERSIONS:
            return spec.request()
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{spec.name} has no version {version}")
    message, _ = spec.request.read(frame, body, version)
    return message


def encode_request_parts(
    correlation_id: int, client_id: str | None, message: Request, version: int
) -> list[bytes | bytearray | memoryview | FileRegion]:
    """Returns header and body of a request without the frame's length. Record batches are not copied.

    Raises EncodeError.
    """
    header = RequestHeader(
        request_api_key=message.KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return message.encode_parts(version, header.encode(request_header_version(message.KEY, version)))


def encode_request(correlation_id: int, client_id: str | None, message: Request, version: int) -> bytes:
    """Returns header and body of a request as one bytes object, without the frame's length.

    Raises EncodeError.
    """
    parts = encode_request_parts(correlation_id, client_id, message, version)
    return b"".join([part.read() if isinstance(part, FileRegion) else part for part in parts])


def encode_response(
    correlation_id: int, key: int, version: int, message: Response
) -> list[bytes | bytearray | memoryview | FileRegion]:
    """Returns header and body of a response without the frame's length. Record batches are not copied.

    Raises EncodeError.
    """
    header = _I32.pack(correlation_id)
    return message.encode_parts(version, header + b"\0" if response_header_version(key, version) else header)


def decode_response(frame: Buffer, key: int, version: int) -> tuple[int, Response]:
    """Returns correlation id and body of a response frame without its length. Raises DecodeError."""
    header, body = ResponseHeader.read(frame, 0, response_header_version(key, version))
    spec = REGISTRY[key]
    message, end = spec.response.read(frame, body, version)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes are left behind {spec.name}Response v{version}")
    return header.correlation_id, message


def frame(
    parts: Sequence[bytes | bytearray | memoryview | FileRegion],
) -> list[bytes | bytearray | memoryview | FileRegion]:
    """Returns the parts of a frame with their length in front."""
    head, *rest = parts
    size = _I32.pack(sum([len(part) for part in parts]))
    return [size, head, *rest] if isinstance(head, FileRegion) else [size + head, *rest]
