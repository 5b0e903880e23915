"""The tagged fields that Apache Kafka does not have. Their numbers start at 10000.

Other implementations skip and drop them. So each has a default that is always valid ("not known"), and no
result may depend on a field being present. A number is never reused, because records on disks have it.
"""

from __future__ import annotations

from typing import Final

START_TIME_MS: Final = 10000
COMMITTED_OFFSET: Final = 10001
SNAPSHOT_END_OFFSET: Final = 10002
VOTER_DIRECTORY_ID: Final = 10003
UNCOMMITTED_ADDED_VOTERS: Final = 10004
UNCOMMITTED_REMOVED_VOTERS: Final = 10005
ATTRIBUTION_PRINCIPAL: Final = 10006
ATTRIBUTION_CLIENT_ID: Final = 10007
ATTRIBUTION_ADDRESS: Final = 10008
ATTRIBUTION_API: Final = 10009
ATTRIBUTION_REASON: Final = 10010
CHANGED_END_POINTS: Final = 10011
SNAPSHOT_PREFIX_DIGEST: Final = 10012
SNAPSHOT_SAME_PREFIX: Final = 10013
FORWARDED_REQUEST_ID: Final = 10014
FORWARDED_REQUEST_UNANSWERED_ATTEMPTS: Final = 10015
ISR_METADATA_OFFSET: Final = 10016

REGISTRY: Final[dict[int, tuple[tuple[str, ...], str]]] = {
    START_TIME_MS: (
        (
            "BrokerRegistrationRequest.start_time_ms",
            "RegisterBrokerRecord.start_time_ms",
            "MetadataResponse.MetadataResponseBroker.start_time_ms",
            "DescribeClusterResponse.DescribeClusterBroker.start_time_ms",
            "FetchRequest.start_time_ms",
            "DescribeQuorumResponse.ReplicaState.start_time_ms",
        ),
        "when the node's process started, in ms since 1970; 0 not known (KIP-536)",
    ),
    COMMITTED_OFFSET: (
        ("EnvelopeResponse.committed_offset",),
        "metadata offset from which on the forwarded change is visible; -1 not known",
    ),
    SNAPSHOT_END_OFFSET: (
        (
            "FetchRequest.snapshot_end_offset",
            "DescribeQuorumResponse.ReplicaState.snapshot_end_offset",
        ),
        "end offset of the replica's newest metadata snapshot; -1 none or not known (KIP-630)",
    ),
    VOTER_DIRECTORY_ID: (
        ("LeaderChangeMessage.Voter.directory_id",),
        "directory id of the voter, which version 0 of the record lacks; zero not known (KIP-853)",
    ),
    UNCOMMITTED_ADDED_VOTERS: (
        ("DescribeQuorumResponse.PartitionData.uncommitted_added_voters",),
        "voters that an uncommitted change adds; null not known",
    ),
    UNCOMMITTED_REMOVED_VOTERS: (
        ("DescribeQuorumResponse.PartitionData.uncommitted_removed_voters",),
        "voters that an uncommitted change removes; null not known",
    ),
    ATTRIBUTION_PRINCIPAL: (
        ("NoOpRecord.principal",),
        "who made the change that this record ends, as Type:Name; null not known",
    ),
    ATTRIBUTION_CLIENT_ID: (
        ("NoOpRecord.client_id",),
        "client id of the request behind this change; null not known",
    ),
    ATTRIBUTION_ADDRESS: (("NoOpRecord.address",), "host address of that client; null not known"),
    ATTRIBUTION_API: (("NoOpRecord.api",), "API key of that request; -1 not known"),
    ATTRIBUTION_REASON: (
        ("NoOpRecord.reason",),
        "why the controller made the change by itself (it fenced a broker, say); null none",
    ),
    CHANGED_END_POINTS: (
        ("BrokerRegistrationChangeRecord.end_points",),
        "new listeners of the broker, replacing all it had; null no change (KIP-746)",
    ),
    SNAPSHOT_PREFIX_DIGEST: (
        ("FetchSnapshotRequest.PartitionSnapshot.prefix_digest",),
        "SHA-256 of the headers of the complete batches before `position`, which came from another replica; "
        "null nothing to compare",
    ),
    SNAPSHOT_SAME_PREFIX: (
        ("FetchSnapshotResponse.PartitionSnapshot.same_prefix",),
        "whether the answering replica's file begins with the same batches: 1 yes, 0 no; -1 was not compared",
    ),
    FORWARDED_REQUEST_ID: (
        ("EnvelopeRequest.request_id",),
        "the same for every attempt of one forwarded request; the ids of the topics that it creates follow "
        "from it; zero not known",
    ),
    FORWARDED_REQUEST_UNANSWERED_ATTEMPTS: (
        ("EnvelopeRequest.unanswered_attempts",),
        "the number of earlier attempts without a definite response: they may have been carried out",
    ),
    ISR_METADATA_OFFSET: (
        ("AlterPartitionRequest.PartitionData.metadata_offset",),
        "metadata offset that the leader had reached when it chose the ISR; -1 not known",
    ),
}
"""Number to (where the field is, what it means)."""
