"""Translates responses between Kafka's messages and the core's replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quorate.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from quorate.protocol.messages.describe_quorum import DescribeQuorumResponse
from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from quorate.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from quorate.protocol.messages.vote import VoteRequest, VoteResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate.raft.core import messages as m
from quorate.raft.types import METADATA_PARTITION, NO_ENDPOINTS, Address, Endpoints, OffsetEpoch

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response

from quorate.raft.runtime.wire.partition import (
    WireError,
    leader_from_wire,
    leader_to_wire,
    metadata_partition,
)

# --- sent responses -------------------------------------------------------------------------------


def encode_reply(
    reply: m.Reply, q: Request, version: int, endpoint: Address | None, records: Any = None
) -> Response:
    """The response to `q`.

    Args:
        endpoint: The leader's endpoint for the listener that received the request.
        records: The bytes that the reply names, as read by the driver.
    """
    leader, epoch, error = leader_to_wire(reply.leader_id), reply.epoch, reply.error
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
    raise TypeError(f"{type(q).__name__} is not a request of Raft")


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
            leader_id=leader_to_wire(reply.leader_id), leader_epoch=reply.epoch
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
        node = FetchResponse.NodeEndpoint(
            node_id=leader_to_wire(reply.leader_id), host=endpoint[0], port=endpoint[1]
        )
        answer.node_endpoints = [node]
    return answer


def encode_quorum(
    reply: m.QuorumReply, version: int, wall_ms: Any, uncommitted: Any
) -> DescribeQuorumResponse:
    """The response to DescribeQuorum.

    Args:
        wall_ms: Converts monotonic seconds, or None, to milliseconds of the wall clock.
        uncommitted: The replica keys that uncommitted voter sets add and remove.
    """
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
            out.snapshot_end_offset, out.start_time_ms = info.facts
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
    p.leader_id, p.leader_epoch, p.high_watermark = (
        leader_to_wire(reply.leader_id),
        reply.epoch,
        reply.high_watermark,
    )
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


# --- received responses ---------------------------------------------------------------------------


def decode_response(response: Response, asked: m.RaftRequest, listener: str) -> m.Reply:
    """The core's reply. Its endpoints have the name `listener`, by which this node reaches the others.

    Raises WireError if the response is not about the metadata partition, ValueError for an unknown error
    code.
    """
    match asked:
        case m.Fetch():
            assert isinstance(response, FetchResponse)
            return _decode_fetch_response(response, listener)
        case m.Vote():
            assert isinstance(response, VoteResponse)
            if response.error_code:
                return m.VoteReply(_code(response.error_code), top_level=True)
            v = _required(metadata_partition(response.topics))
            leader = leader_from_wire(v.leader_id)
            ends = _node_endpoint(response.node_endpoints, leader, listener)
            return m.VoteReply(
                _code(v.error_code), False, leader, v.leader_epoch, ends, granted=v.vote_granted
            )
        case m.BeginEpoch() | m.EndEpoch():
            assert isinstance(response, BeginQuorumEpochResponse | EndQuorumEpochResponse)
            if response.error_code:
                return m.EpochReply(_code(response.error_code), top_level=True)
            b = _required(metadata_partition(response.topics))
            leader = leader_from_wire(b.leader_id)
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
            leader = leader_from_wire(s.current_leader.leader_id)
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
            leader = leader_from_wire(c.leader_id)
            ends = {listener: (c.host, c.port)} if leader is not None and c.host else NO_ENDPOINTS
            return m.VoterReply(_code(response.error_code), False, leader, c.leader_epoch, ends)
        case m.AddVoter() | m.RemoveVoter():
            assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse)
            return m.VoterReply(_code(response.error_code), message=response.error_message)
        case m.ProbeVersions():
            probe = m.ProbeReply(_code(response.error_code))  # type: ignore[attr-defined]
            keys = (api.api_key for api in response.api_keys)  # type: ignore[attr-defined]
            probe.supports_vote = VoteRequest.KEY in keys
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
    leader = leader_from_wire(p.current_leader.leader_id)
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
