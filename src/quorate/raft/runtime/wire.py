"""Between Kafka's messages and the core's (`messages`): requests that come in, answers that go out, and
the reverse.

Topic and partition are checked here: what is not the metadata partition is answered without troubling
the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quorate.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from quorate.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from quorate.protocol.messages.vote import VoteRequest, VoteResponse
from quorate.raft.core import messages as m
from quorate.raft.core.voters import Voter
from quorate.raft.types import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_DIRECTORY,
    NO_ENDPOINTS,
    Address,
    Endpoints,
    OffsetEpoch,
    ReplicaKey,
)

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response

INVALID = ErrorCode.INVALID_REQUEST


class WireError(Exception):
    """An answer that is none to what was asked: no such topic or partition in it."""


def _only(topics: Any, name: str = "topic_name") -> Any | None:
    """The one metadata partition, or None when it is another or not alone."""
    if len(topics) != 1 or getattr(topics[0], name) != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    index = partition.partition_index if hasattr(partition, "partition_index") else partition.partition
    return partition if index == METADATA_PARTITION else None


def _endpoints(listeners: Iterable[Any]) -> Endpoints:
    return {e.name: (e.host, e.port) for e in listeners}


def _leader(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _id(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id


# --- requests that come in ------------------------------------------------------------------------


def decode_request(q: Request, version: int) -> m.RaftRequest | Response:
    """The core's request, or the answer to one that is not about the metadata partition."""
    match q:
        case FetchRequest():
            return _decode_fetch(q, version)
        case VoteRequest():
            p = _only(q.topics)
            if p is None:
                return VoteResponse(error_code=INVALID)
            voter = ReplicaKey(q.voter_id, p.voter_directory_id) if q.voter_id >= 0 else None
            candidate = ReplicaKey(p.replica_id, p.replica_directory_id)
            last = OffsetEpoch(p.last_offset, p.last_offset_epoch)
            return m.Vote(p.replica_epoch, candidate, last, voter, p.pre_vote, q.cluster_id)
        case BeginQuorumEpochRequest():
            p = _only(q.topics)
            if p is None:
                return BeginQuorumEpochResponse(error_code=INVALID)
            voter = ReplicaKey(q.voter_id, p.voter_directory_id) if q.voter_id >= 0 else None
            return m.BeginEpoch(
                p.leader_id, p.leader_epoch, _endpoints(q.leader_endpoints), voter, q.cluster_id
            )
        case EndQuorumEpochRequest():
            p = _only(q.topics)
            if p is None:
                return EndQuorumEpochResponse(error_code=INVALID)
            preferred = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in p.preferred_candidates]
            preferred = preferred or [ReplicaKey(i) for i in p.preferred_successors]
            return m.EndEpoch(
                p.leader_id, p.leader_epoch, preferred, _endpoints(q.leader_endpoints), q.cluster_id
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
                replica, s.current_leader_epoch, snapshot, s.position, q.max_bytes, q.cluster_id, s.prefix_digest
            )  # fmt: skip
        case DescribeQuorumRequest():
            return m.DescribeQuorum() if _only(q.topics) is not None else _unknown_quorum(q)
        case AddRaftVoterRequest():
            voter_entry = Voter(ReplicaKey(q.voter_id, q.voter_directory_id), _endpoints(q.listeners))
            return m.AddVoter(voter_entry, q.cluster_id, q.timeout_ms)
        case RemoveRaftVoterRequest():
            return m.RemoveVoter(ReplicaKey(q.voter_id, q.voter_directory_id), q.cluster_id)
        case UpdateRaftVoterRequest():
            f = q.kraft_version_feature
            voter_entry = Voter(
                ReplicaKey(q.voter_id, q.voter_directory_id),
                _endpoints(q.listeners),
                (f.min_supported_version, f.max_supported_version),
            )
            return m.UpdateVoter(voter_entry, q.current_leader_epoch, q.cluster_id)
    raise TypeError(f"{type(q).__name__} is no request of Raft")


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
    )


def _unknown_quorum(q: DescribeQuorumRequest) -> DescribeQuorumResponse:
    part, topic = DescribeQuorumResponse.PartitionData, DescribeQuorumResponse.TopicData
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            topic(
                topic_name=t.topic_name,
                partitions=[part(partition_index=p.partition_index, error_code=code) for p in t.partitions],
            )
            for t in q.topics
        ]
    )


# --- answers that go out --------------------------------------------------------------------------


def encode_reply(
    reply: m.Reply, q: Request, version: int, endpoint: Address | None, records: Any = None
) -> Response:
    """The answer to `q`. `endpoint`: the leader's for the listener that asked; `records`: what the
    driver has read."""
    leader, epoch, error = _id(reply.leader_id), reply.epoch, reply.error
    nodes = endpoint is not None and reply.leader_id is not None and not reply.top_level
    host, port = endpoint if endpoint is not None else ("", 0)
    match q:
        case FetchRequest():
            assert isinstance(reply, m.FetchReply)
            if reply.top_level:
                return FetchResponse(error_code=error)
            return _encode_fetch_reply(reply, version, endpoint if nodes else None, records)
        case VoteRequest():
            if reply.top_level:
                return VoteResponse(error_code=error)
            vote = VoteResponse.PartitionData(
                error_code=error,
                leader_id=leader,
                leader_epoch=epoch,
                vote_granted=getattr(reply, "granted", False),
            )
            v = VoteResponse(topics=[VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[vote])])
            if nodes and version >= 1:
                v.node_endpoints = [VoteResponse.NodeEndpoint(node_id=leader, host=host, port=port)]
            return v
        case BeginQuorumEpochRequest():
            if reply.top_level:
                return BeginQuorumEpochResponse(error_code=error)
            begun = BeginQuorumEpochResponse.PartitionData(
                error_code=error, leader_id=leader, leader_epoch=epoch
            )
            b = BeginQuorumEpochResponse(
                topics=[BeginQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[begun])]
            )
            if nodes and version >= 1:
                b.node_endpoints = [
                    BeginQuorumEpochResponse.NodeEndpoint(node_id=leader, host=host, port=port)
                ]
            return b
        case EndQuorumEpochRequest():
            if reply.top_level:
                return EndQuorumEpochResponse(error_code=error)
            ended = EndQuorumEpochResponse.PartitionData(
                error_code=error, leader_id=leader, leader_epoch=epoch
            )
            e = EndQuorumEpochResponse(
                topics=[EndQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[ended])]
            )
            if nodes and version >= 1:
                e.node_endpoints = [EndQuorumEpochResponse.NodeEndpoint(node_id=leader, host=host, port=port)]
            return e
        case FetchSnapshotRequest():
            assert isinstance(reply, m.SnapshotReply)
            if reply.top_level:
                return FetchSnapshotResponse(error_code=error)
            part = FetchSnapshotResponse.PartitionSnapshot(
                index=METADATA_PARTITION,
                error_code=error,
                current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            )
            if error == ErrorCode.NONE:
                part.snapshot_id = FetchSnapshotResponse.SnapshotId(
                    end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch
                )
                part.size, part.position = reply.size, reply.position
                part.unaligned_records = records if records is not None else b""
                part.same_prefix = -1 if reply.same_prefix is None else int(reply.same_prefix)
            s = FetchSnapshotResponse(
                topics=[FetchSnapshotResponse.TopicSnapshot(name=METADATA_TOPIC, partitions=[part])]
            )
            if nodes and version >= 1:
                s.node_endpoints = [FetchSnapshotResponse.NodeEndpoint(node_id=leader, host=host, port=port)]
            return s
        case AddRaftVoterRequest():
            return AddRaftVoterResponse(error_code=error, error_message=reply.message)
        case RemoveRaftVoterRequest():
            return RemoveRaftVoterResponse(error_code=error, error_message=reply.message)
        case UpdateRaftVoterRequest():
            current = UpdateRaftVoterResponse.CurrentLeader(
                leader_id=leader, leader_epoch=epoch, host=host, port=port
            )
            return UpdateRaftVoterResponse(error_code=error, current_leader=current)
    raise TypeError(f"{type(q).__name__} is no request of Raft")


def _encode_fetch_reply(
    reply: m.FetchReply, version: int, endpoint: Address | None, records: Any
) -> FetchResponse:
    p = FetchResponse.PartitionData(
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=reply.log_start,
        records=records if records is not None else b"",
    )
    if version >= 12:
        p.current_leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=_id(reply.leader_id), leader_epoch=reply.epoch
        )
    if reply.diverging is not None:
        p.diverging_epoch = FetchResponse.EpochEndOffset(
            epoch=reply.diverging.epoch, end_offset=reply.diverging.offset
        )
    if reply.snapshot is not None:
        p.snapshot_id = FetchResponse.SnapshotId(end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch)
    topic = FetchResponse.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[p]
    )
    answer = FetchResponse(responses=[topic])
    if endpoint is not None and version >= 17:
        node = FetchResponse.NodeEndpoint(node_id=_id(reply.leader_id), host=endpoint[0], port=endpoint[1])
        answer.node_endpoints = [node]
    return answer


def encode_quorum(
    reply: m.QuorumReply, version: int, wall_ms: Any, uncommitted: Any
) -> DescribeQuorumResponse:
    """wall_ms: monotonic seconds or None -> ms of the wall clock; uncommitted: (added, removed) replica
    keys."""
    code = reply.error
    state = DescribeQuorumResponse.ReplicaState

    def replica(info: m.ReplicaInfo) -> DescribeQuorumResponse.ReplicaState:
        out = state(
            replica_id=info.key.id,
            log_end_offset=info.log_end,
            last_fetch_timestamp=wall_ms(info.last_fetch),
            last_caught_up_timestamp=wall_ms(info.last_caught_up),
        )
        if version >= 2:
            out.replica_directory_id = info.key.directory_id
        return out

    p = DescribeQuorumResponse.PartitionData(
        partition_index=METADATA_PARTITION, error_code=code, error_message=None
    )
    answer = DescribeQuorumResponse(
        error_message=None,
        topics=[DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[p])],
    )
    if code != ErrorCode.NONE:
        if version >= 2:
            leader = "" if reply.leader_id is None else f": the leader is {reply.leader_id}"
            p.error_message = reply.message or f"This server does not lead the metadata quorum{leader}."
        return answer
    p.leader_id, p.leader_epoch, p.high_watermark = _id(reply.leader_id), reply.epoch, reply.high_watermark
    p.current_voters = [replica(i) for i in reply.voters]
    p.observers = [replica(i) for i in reply.observers]
    if version >= 2 and reply.voter_set is not None:
        answer.nodes = [
            DescribeQuorumResponse.Node(
                node_id=v.id,
                listeners=[
                    DescribeQuorumResponse.Listener(name=n, host=h, port=port)
                    for n, (h, port) in v.endpoints.items()
                ],
            )
            for v in reply.voter_set
        ]
    added, removed = uncommitted
    unc = DescribeQuorumResponse.UncommittedVoter
    p.uncommitted_added_voters = [unc(replica_id=k.id, replica_directory_id=k.directory_id) for k in added]
    p.uncommitted_removed_voters = [
        unc(replica_id=k.id, replica_directory_id=k.directory_id) for k in removed
    ]
    return answer


# --- requests that go out -------------------------------------------------------------------------


def encode_request(r: m.RaftRequest) -> Request:
    """The message for the highest version; fields that an older version lacks are ignorable, but for
    pre_vote."""
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
            )
        case m.RemoveVoter():
            return RemoveRaftVoterRequest(
                cluster_id=r.cluster_id, voter_id=r.key.id, voter_directory_id=r.key.directory_id
            )
        case m.ProbeVersions():
            from quorate import __version__
            from quorate.protocol.messages.api_versions import ApiVersionsRequest

            return ApiVersionsRequest(client_software_name="quorate", client_software_version=__version__)
    raise TypeError(f"{type(r).__name__} is never sent")


# --- answers that come in -------------------------------------------------------------------------


def decode_response(response: Response, asked: m.RaftRequest, listener: str) -> m.Reply:
    """The core's reply; endpoints are filed under `listener`, the name by which this node reaches the others.

    Raises WireError for an answer about something else, ValueError for an error code that is none.
    """
    match asked:
        case m.Fetch():
            assert isinstance(response, FetchResponse)
            return _decode_fetch_response(response, listener)
        case m.Vote():
            assert isinstance(response, VoteResponse)
            if response.error_code:
                return m.VoteReply(_code(response.error_code), top_level=True)
            v = _required(_only(response.topics))
            leader = _leader(v.leader_id)
            ends = _node_endpoint(response.node_endpoints, leader, listener)
            return m.VoteReply(
                _code(v.error_code), False, leader, v.leader_epoch, ends, granted=v.vote_granted
            )
        case m.BeginEpoch() | m.EndEpoch():
            assert isinstance(response, BeginQuorumEpochResponse | EndQuorumEpochResponse)
            if response.error_code:
                return m.EpochReply(_code(response.error_code), top_level=True)
            b = _required(_only(response.topics))
            leader = _leader(b.leader_id)
            ends = _node_endpoint(response.node_endpoints, leader, listener)
            return m.EpochReply(_code(b.error_code), False, leader, b.leader_epoch, ends)
        case m.FetchSnapshot():
            assert isinstance(response, FetchSnapshotResponse)
            if response.error_code:
                return m.SnapshotReply(_code(response.error_code), top_level=True)
            topics = response.topics
            if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
                raise WireError("FetchSnapshot answer without the metadata partition")
            s = topics[0].partitions[0]
            leader = _leader(s.current_leader.leader_id)
            reply = m.SnapshotReply(
                _code(s.error_code),
                False,
                leader,
                s.current_leader.leader_epoch,
                _node_endpoint(response.node_endpoints, leader, listener),
                snapshot=OffsetEpoch(s.snapshot_id.end_offset, s.snapshot_id.epoch),
                size=s.size,
                position=s.position,
                same_prefix=None if s.same_prefix < 0 else s.same_prefix == 1,
            )
            reply.data = s.unaligned_records  # type: ignore[assignment]
            return reply
        case m.UpdateVoter():
            assert isinstance(response, UpdateRaftVoterResponse)
            c = response.current_leader
            leader = _leader(c.leader_id)
            ends = {listener: (c.host, c.port)} if leader is not None and c.host else NO_ENDPOINTS
            return m.VoterReply(_code(response.error_code), False, leader, c.leader_epoch, ends)
        case m.AddVoter() | m.RemoveVoter():
            assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse)
            return m.VoterReply(_code(response.error_code), message=response.error_message)
        case m.ProbeVersions():
            probe = m.ProbeReply(_code(response.error_code))  # type: ignore[attr-defined]
            probe.votes = any(api.api_key == VoteRequest.KEY for api in response.api_keys)  # type: ignore[attr-defined]
            for feature in response.supported_features:  # type: ignore[attr-defined]
                if feature.name == "kraft.version":
                    probe.kraft_versions = (feature.min_version, feature.max_version)
            return probe
    raise TypeError(f"{type(asked).__name__} has no answer here")


def _decode_fetch_response(response: FetchResponse, listener: str) -> m.FetchReply:
    if response.error_code:
        return m.FetchReply(_code(response.error_code), top_level=True)
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        raise WireError("Fetch answer without the metadata partition")
    p = response.responses[0].partitions[0]
    leader = _leader(p.current_leader.leader_id)
    reply = m.FetchReply(
        _code(p.error_code),
        False,
        leader,
        p.current_leader.leader_epoch,
        _node_endpoint(response.node_endpoints, leader, listener),
        high_watermark=p.high_watermark,
        log_start=p.log_start_offset,
    )
    if p.diverging_epoch.epoch != -1 or p.diverging_epoch.end_offset != -1:
        reply.diverging = OffsetEpoch(p.diverging_epoch.end_offset, p.diverging_epoch.epoch)
    if p.snapshot_id.end_offset != -1 or p.snapshot_id.epoch != -1:
        reply.snapshot = OffsetEpoch(p.snapshot_id.end_offset, p.snapshot_id.epoch)
    if p.records is not None:
        reply.records = p.records  # type: ignore[assignment]
    return reply


def _required(partition: Any | None) -> Any:
    if partition is None:
        raise WireError("answer without the metadata partition")
    return partition


def _code(code: int) -> ErrorCode:
    return ErrorCode(code)


def _node_endpoint(nodes: Iterable[Any], leader: int | None, listener: str) -> Endpoints:
    for node in nodes:
        if node.node_id == leader:
            return {listener: (node.host, node.port)}
    return NO_ENDPOINTS
