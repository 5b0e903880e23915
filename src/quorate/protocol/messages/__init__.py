"""The messages of the protocol: one module for each API, named after it, with the history of its
versions on top.

Each module declares a request and a response in the notation of `quorate.protocol.schema`. Two modules
hold data that travels inside of messages: `consumer_protocol` (subscriptions and assignments of
consumers) and `principal_data`.

`messages.VoteRequest` imports the module `vote` on first use. Declaring a message takes about a
millisecond, and a process needs few of them, so code that uses messages now and then names them this
way. Code that uses a message for every request imports its module.

No node serves these APIs yet. Their messages are declared so that captures and other servers' answers
can be decoded and so that the codec is compared with Kafka's as a whole:

- transactions (KIP-98): add_offsets_to_txn, add_partitions_to_txn, describe_transactions, end_txn,
  list_transactions
- consumer groups of the new protocol (KIP-848): consumer_group_describe, consumer_group_heartbeat
- share groups (KIP-932): alter_share_group_offsets, delete_share_group_offsets,
  delete_share_group_state, describe_share_group_offsets, initialize_share_group_state,
  read_share_group_state, read_share_group_state_summary, share_acknowledge, share_fetch,
  share_group_describe, share_group_heartbeat, write_share_group_state
- streams groups (KIP-1071): streams_group_describe, streams_group_heartbeat,
  streams_group_topology_description_update
- client telemetry (KIP-714): get_telemetry_subscriptions, push_telemetry

A test compares this list with what the listeners of a node advertise.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
    from quorate.protocol.messages.add_offsets_to_txn import (
        AddOffsetsToTxnResponse as AddOffsetsToTxnResponse,
    )
    from quorate.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest as AddPartitionsToTxnRequest,
    )
    from quorate.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnResponse as AddPartitionsToTxnResponse,
    )
    from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest as AddRaftVoterRequest
    from quorate.protocol.messages.add_raft_voter import AddRaftVoterResponse as AddRaftVoterResponse
    from quorate.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest as AllocateProducerIdsRequest,
    )
    from quorate.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsResponse as AllocateProducerIdsResponse,
    )
    from quorate.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest as AlterClientQuotasRequest,
    )
    from quorate.protocol.messages.alter_client_quotas import (
        AlterClientQuotasResponse as AlterClientQuotasResponse,
    )
    from quorate.protocol.messages.alter_configs import AlterConfigsRequest as AlterConfigsRequest
    from quorate.protocol.messages.alter_configs import AlterConfigsResponse as AlterConfigsResponse
    from quorate.protocol.messages.alter_partition import AlterPartitionRequest as AlterPartitionRequest
    from quorate.protocol.messages.alter_partition import AlterPartitionResponse as AlterPartitionResponse
    from quorate.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest as AlterPartitionReassignmentsRequest,
    )
    from quorate.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse as AlterPartitionReassignmentsResponse,
    )
    from quorate.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest as AlterReplicaLogDirsRequest,
    )
    from quorate.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsResponse as AlterReplicaLogDirsResponse,
    )
    from quorate.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest as AlterShareGroupOffsetsRequest,
    )
    from quorate.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsResponse as AlterShareGroupOffsetsResponse,
    )
    from quorate.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest as AlterUserScramCredentialsRequest,
    )
    from quorate.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse as AlterUserScramCredentialsResponse,
    )
    from quorate.protocol.messages.api_versions import ApiVersionsRequest as ApiVersionsRequest
    from quorate.protocol.messages.api_versions import ApiVersionsResponse as ApiVersionsResponse
    from quorate.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest as AssignReplicasToDirsRequest,
    )
    from quorate.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsResponse as AssignReplicasToDirsResponse,
    )
    from quorate.protocol.messages.begin_quorum_epoch import (
        BeginQuorumEpochRequest as BeginQuorumEpochRequest,
    )
    from quorate.protocol.messages.begin_quorum_epoch import (
        BeginQuorumEpochResponse as BeginQuorumEpochResponse,
    )
    from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest as BrokerHeartbeatRequest
    from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse as BrokerHeartbeatResponse
    from quorate.protocol.messages.broker_registration import (
        BrokerRegistrationRequest as BrokerRegistrationRequest,
    )
    from quorate.protocol.messages.broker_registration import (
        BrokerRegistrationResponse as BrokerRegistrationResponse,
    )
    from quorate.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest as ConsumerGroupDescribeRequest,
    )
    from quorate.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeResponse as ConsumerGroupDescribeResponse,
    )
    from quorate.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest as ConsumerGroupHeartbeatRequest,
    )
    from quorate.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse as ConsumerGroupHeartbeatResponse,
    )
    from quorate.protocol.messages.controller_registration import (
        ControllerRegistrationRequest as ControllerRegistrationRequest,
    )
    from quorate.protocol.messages.controller_registration import (
        ControllerRegistrationResponse as ControllerRegistrationResponse,
    )
    from quorate.protocol.messages.create_acls import CreateAclsRequest as CreateAclsRequest
    from quorate.protocol.messages.create_acls import CreateAclsResponse as CreateAclsResponse
    from quorate.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest as CreateDelegationTokenRequest,
    )
    from quorate.protocol.messages.create_delegation_token import (
        CreateDelegationTokenResponse as CreateDelegationTokenResponse,
    )
    from quorate.protocol.messages.create_partitions import CreatePartitionsRequest as CreatePartitionsRequest
    from quorate.protocol.messages.create_partitions import (
        CreatePartitionsResponse as CreatePartitionsResponse,
    )
    from quorate.protocol.messages.create_topics import CreateTopicsRequest as CreateTopicsRequest
    from quorate.protocol.messages.create_topics import CreateTopicsResponse as CreateTopicsResponse
    from quorate.protocol.messages.delete_acls import DeleteAclsRequest as DeleteAclsRequest
    from quorate.protocol.messages.delete_acls import DeleteAclsResponse as DeleteAclsResponse
    from quorate.protocol.messages.delete_groups import DeleteGroupsRequest as DeleteGroupsRequest
    from quorate.protocol.messages.delete_groups import DeleteGroupsResponse as DeleteGroupsResponse
    from quorate.protocol.messages.delete_records import DeleteRecordsRequest as DeleteRecordsRequest
    from quorate.protocol.messages.delete_records import DeleteRecordsResponse as DeleteRecordsResponse
    from quorate.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest as DeleteShareGroupOffsetsRequest,
    )
    from quorate.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsResponse as DeleteShareGroupOffsetsResponse,
    )
    from quorate.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest as DeleteShareGroupStateRequest,
    )
    from quorate.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateResponse as DeleteShareGroupStateResponse,
    )
    from quorate.protocol.messages.delete_topics import DeleteTopicsRequest as DeleteTopicsRequest
    from quorate.protocol.messages.delete_topics import DeleteTopicsResponse as DeleteTopicsResponse
    from quorate.protocol.messages.describe_acls import DescribeAclsRequest as DescribeAclsRequest
    from quorate.protocol.messages.describe_acls import DescribeAclsResponse as DescribeAclsResponse
    from quorate.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasRequest as DescribeClientQuotasRequest,
    )
    from quorate.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasResponse as DescribeClientQuotasResponse,
    )
    from quorate.protocol.messages.describe_cluster import DescribeClusterRequest as DescribeClusterRequest
    from quorate.protocol.messages.describe_cluster import DescribeClusterResponse as DescribeClusterResponse
    from quorate.protocol.messages.describe_configs import DescribeConfigsRequest as DescribeConfigsRequest
    from quorate.protocol.messages.describe_configs import DescribeConfigsResponse as DescribeConfigsResponse
    from quorate.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest as DescribeDelegationTokenRequest,
    )
    from quorate.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenResponse as DescribeDelegationTokenResponse,
    )
    from quorate.protocol.messages.describe_groups import DescribeGroupsRequest as DescribeGroupsRequest
    from quorate.protocol.messages.describe_groups import DescribeGroupsResponse as DescribeGroupsResponse
    from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest as DescribeLogDirsRequest
    from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsResponse as DescribeLogDirsResponse
    from quorate.protocol.messages.describe_producers import (
        DescribeProducersRequest as DescribeProducersRequest,
    )
    from quorate.protocol.messages.describe_producers import (
        DescribeProducersResponse as DescribeProducersResponse,
    )
    from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest as DescribeQuorumRequest
    from quorate.protocol.messages.describe_quorum import DescribeQuorumResponse as DescribeQuorumResponse
    from quorate.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest as DescribeShareGroupOffsetsRequest,
    )
    from quorate.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponse as DescribeShareGroupOffsetsResponse,
    )
    from quorate.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest as DescribeTopicPartitionsRequest,
    )
    from quorate.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponse as DescribeTopicPartitionsResponse,
    )
    from quorate.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest as DescribeTransactionsRequest,
    )
    from quorate.protocol.messages.describe_transactions import (
        DescribeTransactionsResponse as DescribeTransactionsResponse,
    )
    from quorate.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest as DescribeUserScramCredentialsRequest,
    )
    from quorate.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponse as DescribeUserScramCredentialsResponse,
    )
    from quorate.protocol.messages.elect_leaders import ElectLeadersRequest as ElectLeadersRequest
    from quorate.protocol.messages.elect_leaders import ElectLeadersResponse as ElectLeadersResponse
    from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest as EndQuorumEpochRequest
    from quorate.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse as EndQuorumEpochResponse
    from quorate.protocol.messages.end_txn import EndTxnRequest as EndTxnRequest
    from quorate.protocol.messages.end_txn import EndTxnResponse as EndTxnResponse
    from quorate.protocol.messages.envelope import EnvelopeRequest as EnvelopeRequest
    from quorate.protocol.messages.envelope import EnvelopeResponse as EnvelopeResponse
    from quorate.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest as ExpireDelegationTokenRequest,
    )
    from quorate.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenResponse as ExpireDelegationTokenResponse,
    )
    from quorate.protocol.messages.fetch import FetchRequest as FetchRequest
    from quorate.protocol.messages.fetch import FetchResponse as FetchResponse
    from quorate.protocol.messages.fetch_snapshot import FetchSnapshotRequest as FetchSnapshotRequest
    from quorate.protocol.messages.fetch_snapshot import FetchSnapshotResponse as FetchSnapshotResponse
    from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest as FindCoordinatorRequest
    from quorate.protocol.messages.find_coordinator import FindCoordinatorResponse as FindCoordinatorResponse
    from quorate.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest as GetTelemetrySubscriptionsRequest,
    )
    from quorate.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsResponse as GetTelemetrySubscriptionsResponse,
    )
    from quorate.protocol.messages.heartbeat import HeartbeatRequest as HeartbeatRequest
    from quorate.protocol.messages.heartbeat import HeartbeatResponse as HeartbeatResponse
    from quorate.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
    )
    from quorate.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    )
    from quorate.protocol.messages.init_producer_id import InitProducerIdRequest as InitProducerIdRequest
    from quorate.protocol.messages.init_producer_id import InitProducerIdResponse as InitProducerIdResponse
    from quorate.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest as InitializeShareGroupStateRequest,
    )
    from quorate.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse as InitializeShareGroupStateResponse,
    )
    from quorate.protocol.messages.join_group import JoinGroupRequest as JoinGroupRequest
    from quorate.protocol.messages.join_group import JoinGroupResponse as JoinGroupResponse
    from quorate.protocol.messages.leave_group import LeaveGroupRequest as LeaveGroupRequest
    from quorate.protocol.messages.leave_group import LeaveGroupResponse as LeaveGroupResponse
    from quorate.protocol.messages.list_config_resources import (
        ListConfigResourcesRequest as ListConfigResourcesRequest,
    )
    from quorate.protocol.messages.list_config_resources import (
        ListConfigResourcesResponse as ListConfigResourcesResponse,
    )
    from quorate.protocol.messages.list_groups import ListGroupsRequest as ListGroupsRequest
    from quorate.protocol.messages.list_groups import ListGroupsResponse as ListGroupsResponse
    from quorate.protocol.messages.list_offsets import ListOffsetsRequest as ListOffsetsRequest
    from quorate.protocol.messages.list_offsets import ListOffsetsResponse as ListOffsetsResponse
    from quorate.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest as ListPartitionReassignmentsRequest,
    )
    from quorate.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsResponse as ListPartitionReassignmentsResponse,
    )
    from quorate.protocol.messages.list_transactions import ListTransactionsRequest as ListTransactionsRequest
    from quorate.protocol.messages.list_transactions import (
        ListTransactionsResponse as ListTransactionsResponse,
    )
    from quorate.protocol.messages.metadata import MetadataRequest as MetadataRequest
    from quorate.protocol.messages.metadata import MetadataResponse as MetadataResponse
    from quorate.protocol.messages.offset_commit import OffsetCommitRequest as OffsetCommitRequest
    from quorate.protocol.messages.offset_commit import OffsetCommitResponse as OffsetCommitResponse
    from quorate.protocol.messages.offset_delete import OffsetDeleteRequest as OffsetDeleteRequest
    from quorate.protocol.messages.offset_delete import OffsetDeleteResponse as OffsetDeleteResponse
    from quorate.protocol.messages.offset_fetch import OffsetFetchRequest as OffsetFetchRequest
    from quorate.protocol.messages.offset_fetch import OffsetFetchResponse as OffsetFetchResponse
    from quorate.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    )
    from quorate.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    )
    from quorate.protocol.messages.produce import ProduceRequest as ProduceRequest
    from quorate.protocol.messages.produce import ProduceResponse as ProduceResponse
    from quorate.protocol.messages.push_telemetry import PushTelemetryRequest as PushTelemetryRequest
    from quorate.protocol.messages.push_telemetry import PushTelemetryResponse as PushTelemetryResponse
    from quorate.protocol.messages.read_share_group_state import (
        ReadShareGroupStateRequest as ReadShareGroupStateRequest,
    )
    from quorate.protocol.messages.read_share_group_state import (
        ReadShareGroupStateResponse as ReadShareGroupStateResponse,
    )
    from quorate.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest as ReadShareGroupStateSummaryRequest,
    )
    from quorate.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryResponse as ReadShareGroupStateSummaryResponse,
    )
    from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest as RemoveRaftVoterRequest
    from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse as RemoveRaftVoterResponse
    from quorate.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest as RenewDelegationTokenRequest,
    )
    from quorate.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenResponse as RenewDelegationTokenResponse,
    )
    from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest as SaslAuthenticateRequest
    from quorate.protocol.messages.sasl_authenticate import (
        SaslAuthenticateResponse as SaslAuthenticateResponse,
    )
    from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest as SaslHandshakeRequest
    from quorate.protocol.messages.sasl_handshake import SaslHandshakeResponse as SaslHandshakeResponse
    from quorate.protocol.messages.share_acknowledge import ShareAcknowledgeRequest as ShareAcknowledgeRequest
    from quorate.protocol.messages.share_acknowledge import (
        ShareAcknowledgeResponse as ShareAcknowledgeResponse,
    )
    from quorate.protocol.messages.share_fetch import ShareFetchRequest as ShareFetchRequest
    from quorate.protocol.messages.share_fetch import ShareFetchResponse as ShareFetchResponse
    from quorate.protocol.messages.share_group_describe import (
        ShareGroupDescribeRequest as ShareGroupDescribeRequest,
    )
    from quorate.protocol.messages.share_group_describe import (
        ShareGroupDescribeResponse as ShareGroupDescribeResponse,
    )
    from quorate.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatRequest as ShareGroupHeartbeatRequest,
    )
    from quorate.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatResponse as ShareGroupHeartbeatResponse,
    )
    from quorate.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest as StreamsGroupDescribeRequest,
    )
    from quorate.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeResponse as StreamsGroupDescribeResponse,
    )
    from quorate.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatRequest as StreamsGroupHeartbeatRequest,
    )
    from quorate.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatResponse as StreamsGroupHeartbeatResponse,
    )
    from quorate.protocol.messages.streams_group_topology_description_update import (
        StreamsGroupTopologyDescriptionUpdateRequest as StreamsGroupTopologyDescriptionUpdateRequest,
    )
    from quorate.protocol.messages.streams_group_topology_description_update import (
        StreamsGroupTopologyDescriptionUpdateResponse as StreamsGroupTopologyDescriptionUpdateResponse,
    )
    from quorate.protocol.messages.sync_group import SyncGroupRequest as SyncGroupRequest
    from quorate.protocol.messages.sync_group import SyncGroupResponse as SyncGroupResponse
    from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest as TxnOffsetCommitRequest
    from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse as TxnOffsetCommitResponse
    from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest as UnregisterBrokerRequest
    from quorate.protocol.messages.unregister_broker import (
        UnregisterBrokerResponse as UnregisterBrokerResponse,
    )
    from quorate.protocol.messages.unregister_controller import (
        UnregisterControllerRequest as UnregisterControllerRequest,
    )
    from quorate.protocol.messages.unregister_controller import (
        UnregisterControllerResponse as UnregisterControllerResponse,
    )
    from quorate.protocol.messages.update_features import UpdateFeaturesRequest as UpdateFeaturesRequest
    from quorate.protocol.messages.update_features import UpdateFeaturesResponse as UpdateFeaturesResponse
    from quorate.protocol.messages.update_raft_voter import UpdateRaftVoterRequest as UpdateRaftVoterRequest
    from quorate.protocol.messages.update_raft_voter import UpdateRaftVoterResponse as UpdateRaftVoterResponse
    from quorate.protocol.messages.vote import VoteRequest as VoteRequest
    from quorate.protocol.messages.vote import VoteResponse as VoteResponse
    from quorate.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest as WriteShareGroupStateRequest,
    )
    from quorate.protocol.messages.write_share_group_state import (
        WriteShareGroupStateResponse as WriteShareGroupStateResponse,
    )
    from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersRequest as WriteTxnMarkersRequest
    from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersResponse as WriteTxnMarkersResponse

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        for suffix in ("Request", "Response"):
            if name.endswith(suffix):
                api = _WORD_START.sub("_", name.removesuffix(suffix)).lower()
                try:
                    return getattr(import_module(f"{__name__}.{api}"), name)
                except ModuleNotFoundError:
                    break
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
