"""Translates requests between Kafka's messages and the core's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate import __version__
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from quorate.protocol.messages.vote import VoteRequest, VoteResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate.raft.core import messages as m
from quorate.raft.core.voters import Voter
from quorate.raft.types import METADATA_PARTITION, NO_DIRECTORY, OffsetEpoch, ReplicaKey

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response

from quorate.raft.runtime.wire.partition import endpoints_of, metadata_partition

INVALID = ErrorCode.INVALID_REQUEST


# --- received requests ----------------------------------------------------------------------------


def decode_request(q: Request, version: int) -> m.RaftRequest | Response:
    """The core's request, or the response to one that is not about the metadata partition."""
    match q:
        case FetchRequest():
            return _decode_fetch(q, version)
        case VoteRequest():
            p = metadata_partition(q.topics)
            if p is None:
                return VoteResponse(error_code=INVALID)
            voter = ReplicaKey(q.voter_id, p.voter_directory_id) if q.voter_id >= 0 else None
            candidate = ReplicaKey(p.replica_id, p.replica_directory_id)
            last = OffsetEpoch(p.last_offset, p.last_offset_epoch)
            return m.Vote(p.replica_epoch, candidate, last, voter, p.pre_vote, q.cluster_id)
        case BeginQuorumEpochRequest():
            p = metadata_partition(q.topics)
            if p is None:
                return BeginQuorumEpochResponse(error_code=INVALID)
            voter = ReplicaKey(q.voter_id, p.voter_directory_id) if q.voter_id >= 0 else None
            return m.BeginEpoch(
                p.leader_id, p.leader_epoch, endpoints_of(q.leader_endpoints), voter, q.cluster_id
            )
        case EndQuorumEpochRequest():
            p = metadata_partition(q.topics)
            if p is None:
                return EndQuorumEpochResponse(error_code=INVALID)
            preferred = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in p.preferred_candidates]
            preferred = preferred or [ReplicaKey(i) for i in p.preferred_successors]
            return m.EndEpoch(
                p.leader_id, p.leader_epoch, preferred, endpoints_of(q.leader_endpoints), q.cluster_id
            )
        case FetchSnapshotRequest():
            if len(q.topics) != 1 or len(q.topics[0].partitions) != 1:
                return FetchSnapshotResponse(error_code=INVALID)
            s = q.topics[0].partitions[0]
            if q.topics[0].name != METADATA_TOPIC or s.partition != METADATA_PARTITION:
                unknown = FetchSnapshotResponse.PartitionSnapshot(
                    index=s.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                topic = FetchSnapshotResponse.TopicSnapshot(name=q.topics[0].name, partitions=[unknown])
                return FetchSnapshotResponse(topics=[topic])
            snapshot = OffsetEpoch(s.snapshot_id.end_offset, s.snapshot_id.epoch)
            replica = ReplicaKey(q.replica_id, s.replica_directory_id)
            return m.FetchSnapshot(
                replica,
                s.current_leader_epoch,
                snapshot,
                s.position,
                q.max_bytes,
                q.cluster_id,
                s.prefix_digest,
            )
        case DescribeQuorumRequest():
            return m.DescribeQuorum() if metadata_partition(q.topics) is not None else _unknown_quorum(q)
        case AddRaftVoterRequest():
            voter_entry = Voter(ReplicaKey(q.voter_id, q.voter_directory_id), endpoints_of(q.listeners))
            return m.AddVoter(voter_entry, q.cluster_id, q.timeout_ms, q.ack_when_committed)
        case RemoveRaftVoterRequest():
            return m.RemoveVoter(ReplicaKey(q.voter_id, q.voter_directory_id), q.cluster_id)
        case UpdateRaftVoterRequest():
            f = q.kraft_version_feature
            voter_entry = Voter(
                ReplicaKey(q.voter_id, q.voter_directory_id),
                endpoints_of(q.listeners),
                (f.min_supported_version, f.max_supported_version),
            )
            return m.UpdateVoter(voter_entry, q.current_leader_epoch, q.cluster_id)
    raise TypeError(f"{type(q).__name__} is not a request of Raft")


def _decode_fetch(q: FetchRequest, version: int) -> m.Fetch | FetchResponse:
    topics = q.topics
    named = version >= 13 and len(topics) == 1 and topics[0].topic_id == METADATA_TOPIC_ID
    named = named or (version < 13 and len(topics) == 1 and topics[0].topic == METADATA_TOPIC)
    if not named or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition != METADATA_PARTITION:
        return FetchResponse(error_code=INVALID)
    p = topics[0].partitions[0]
    replica_id = q.replica_state.replica_id if version >= 15 else q.replica_id
    return m.Fetch(
        ReplicaKey(replica_id, p.replica_directory_id),
        p.current_leader_epoch,
        p.fetch_offset,
        p.last_fetched_epoch,
        q.max_wait_ms,
        p.high_watermark,
        q.max_bytes,
        q.cluster_id,
        m.ReplicaFacts(q.snapshot_end_offset, q.start_time_ms),
    )


def _unknown_quorum(q: DescribeQuorumRequest) -> DescribeQuorumResponse:
    part, topic = DescribeQuorumResponse.PartitionData, DescribeQuorumResponse.TopicData
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            topic(
                topic_name=t.topic_name,
                partitions=[
                    part(
                        partition_index=p.partition_index,
                        error_code=code,
                        error_message="This server does not host this topic-partition.",
                    )
                    for p in t.partitions
                ],
            )
            for t in q.topics
        ]
    )


# --- sent requests --------------------------------------------------------------------------------


def encode_request(r: m.RaftRequest) -> Request:
    """The message of the highest version.

    Fields that an older version lacks are ignorable, except `pre_vote`.
    """
    match r:
        case m.Fetch():
            p = FetchRequest.FetchPartition(
                partition=METADATA_PARTITION,
                current_leader_epoch=r.epoch,
                fetch_offset=r.offset,
                last_fetched_epoch=r.last_epoch,
                replica_directory_id=r.replica.directory_id,
                high_watermark=r.high_watermark,
            )
            topic = FetchRequest.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[p])
            return FetchRequest(
                cluster_id=r.cluster_id,
                replica_state=FetchRequest.ReplicaState(replica_id=r.replica.id),
                max_wait_ms=r.max_wait_ms,
                max_bytes=r.max_bytes,
                topics=[topic],
                snapshot_end_offset=r.facts.snapshot_end,
                start_time_ms=r.facts.start_time_ms,
            )
        case m.Vote():
            v = VoteRequest.PartitionData(
                replica_epoch=r.epoch,
                replica_id=r.candidate.id,
                replica_directory_id=r.candidate.directory_id,
                voter_directory_id=r.voter.directory_id if r.voter is not None else NO_DIRECTORY,
                last_offset_epoch=r.last.epoch,
                last_offset=r.last.offset,
                pre_vote=r.pre_vote,
            )
            return VoteRequest(
                cluster_id=r.cluster_id,
                voter_id=r.voter.id if r.voter is not None else -1,
                topics=[VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[v])],
            )
        case m.BeginEpoch():
            b = BeginQuorumEpochRequest.PartitionData(
                voter_directory_id=r.voter.directory_id if r.voter is not None else NO_DIRECTORY,
                leader_id=r.leader_id,
                leader_epoch=r.epoch,
            )
            return BeginQuorumEpochRequest(
                cluster_id=r.cluster_id,
                voter_id=r.voter.id if r.voter is not None else -1,
                topics=[BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[b])],
                leader_endpoints=[
                    BeginQuorumEpochRequest.LeaderEndpoint(name=n, host=h, port=p)
                    for n, (h, p) in r.endpoints.items()
                ],
            )  # fmt: skip
        case m.EndEpoch():
            e = EndQuorumEpochRequest.PartitionData(
                leader_id=r.leader_id,
                leader_epoch=r.epoch,
                preferred_successors=[k.id for k in r.preferred],
                preferred_candidates=[
                    EndQuorumEpochRequest.ReplicaInfo(
                        candidate_id=k.id, candidate_directory_id=k.directory_id
                    )
                    for k in r.preferred
                ],
            )
            return EndQuorumEpochRequest(
                cluster_id=r.cluster_id,
                topics=[EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[e])],
                leader_endpoints=[
                    EndQuorumEpochRequest.LeaderEndpoint(name=n, host=h, port=p)
                    for n, (h, p) in r.endpoints.items()
                ],
            )
        case m.FetchSnapshot():
            s = FetchSnapshotRequest.PartitionSnapshot(
                partition=METADATA_PARTITION,
                current_leader_epoch=r.epoch,
                snapshot_id=FetchSnapshotRequest.SnapshotId(
                    end_offset=r.snapshot.offset, epoch=r.snapshot.epoch
                ),
                position=r.position,
                replica_directory_id=r.replica.directory_id,
                prefix_digest=r.prefix_digest,
            )
            return FetchSnapshotRequest(
                cluster_id=r.cluster_id,
                replica_id=r.replica.id,
                max_bytes=r.max_bytes,
                topics=[FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[s])],
            )
        case m.UpdateVoter():
            u = UpdateRaftVoterRequest
            low, high = r.voter.kraft_versions
            return u(
                cluster_id=r.cluster_id,
                current_leader_epoch=r.epoch,
                voter_id=r.voter.key.id,
                voter_directory_id=r.voter.key.directory_id,
                listeners=[u.Listener(name=n, host=h, port=p) for n, (h, p) in r.voter.endpoints.items()],
                kraft_version_feature=u.KRaftVersionFeature(
                    min_supported_version=low, max_supported_version=high
                ),
            )
        case m.AddVoter():
            a = AddRaftVoterRequest
            return a(
                cluster_id=r.cluster_id,
                timeout_ms=r.timeout_ms,
                voter_id=r.voter.key.id,
                voter_directory_id=r.voter.key.directory_id,
                listeners=[a.Listener(name=n, host=h, port=p) for n, (h, p) in r.voter.endpoints.items()],
                ack_when_committed=r.ack_when_committed,
            )
        case m.RemoveVoter():
            return RemoveRaftVoterRequest(
                cluster_id=r.cluster_id, voter_id=r.key.id, voter_directory_id=r.key.directory_id
            )
        case m.ProbeVersions():
            return ApiVersionsRequest(client_software_name="quorate", client_software_version=__version__)
    raise TypeError(f"{type(r).__name__} is never sent")
