"""Operations on the cluster and its metadata quorum: nodes, voters, features, registrations, elections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, NetError, check, error_of
from quorate.admin.operations.groups import by_topic
from quorate.admin.transport import BROKERS, Transport
from quorate.admin.types import (
    ClusterDescription,
    Features,
    FeatureUpgrade,
    Node,
    QuorumInfo,
    QuorumReplica,
    TopicPartition,
)
from quorate.net.errors import RequestTimedOut
from quorate.protocol import messages
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Request


class ClusterOperations:
    """The admin client's operations on the cluster and its metadata quorum."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def describe_cluster(self, *, fenced: bool = False) -> ClusterDescription:
        """Returns cluster id, controller and nodes. `fenced` includes fenced brokers (KIP-1073)."""
        if not fenced:
            return await self.transport.refresh()
        request = messages.DescribeClusterRequest(
            endpoint_type=self.transport.endpoint_type, include_fenced_brokers=True
        )
        answer = await self.transport.call(request, lambda a: check(a.error_code, a.error_message))
        nodes = tuple(
            Node(b.broker_id, b.host, b.port, b.rack, b.start_time_ms, b.is_fenced) for b in answer.brokers
        )
        return ClusterDescription(answer.cluster_id, answer.controller_id, nodes, answer.endpoint_type)

    async def describe_quorum(self) -> QuorumInfo:
        """Returns leader, voters and observers of the metadata log."""
        answer = await self.transport.call(_describe_quorum(), _check_quorum)
        found = answer.topics[0].partitions[0]
        return QuorumInfo(
            leader_id=found.leader_id,
            leader_epoch=found.leader_epoch,
            high_watermark=found.high_watermark,
            voters=tuple(_replica(r) for r in found.current_voters),
            observers=tuple(_replica(r) for r in found.observers),
            endpoints={n.node_id: tuple((e.name, e.host, e.port) for e in n.listeners) for n in answer.nodes},
            adding=_keys(found.uncommitted_added_voters),
            removing=_keys(found.uncommitted_removed_voters),
        )

    async def probe_quorum(self, timeout_s: float) -> dict[str, KafkaError | NetError | None]:
        """Sends DescribeQuorum to every bootstrap server once and returns the error of each, by its address.

        It is None for the leader, and for a broker that forwards the leader's response. A controller of
        Quorate that has no leader names in its error the voters that it cannot reach.
        """

        async def ask(address: tuple[str, int]) -> KafkaError | NetError | None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.transport.connection(address)
            except NetError as error:
                return error
            except TimeoutError:
                return NetError(f"no connection within {timeout_s:g} s")
            try:
                _check_quorum(await self.transport.ask(address, _describe_quorum(), timeout_s=timeout_s))
            except RequestTimedOut:
                what = (
                    "has no answer of the active controller"
                    if self.transport.endpoint_type == BROKERS
                    else "does not answer"
                )
                return KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"it accepts connections, but {what} within {timeout_s:g} s"
                )
            except (KafkaError, NetError) as error:
                return error
            return None

        servers = self.transport.bootstrap
        found = await asyncio.gather(*(ask(address) for address in servers))
        return {
            f"[{h}]:{p}" if ":" in h else f"{h}:{p}": said
            for (h, p), said in zip(servers, found, strict=True)
        }

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: bytes,
        endpoints: Sequence[tuple[str, str, int]],
        *,
        cluster_id: str | None = None,
    ) -> None:
        """Makes an observer a voter (KIP-853). The leader waits up to thirty seconds for it to catch up.

        Raises KafkaError. The message of REQUEST_TIMED_OUT says what the leader waited for.
        """
        request = messages.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=30_000,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[
                messages.AddRaftVoterRequest.Listener(name=n, host=h, port=p) for n, h, p in endpoints
            ],
        )
        await self._change_voters(request)

    async def _change_voters(self, request: Request) -> None:
        final = (ErrorCode.REQUEST_TIMED_OUT,)
        await self.transport.call(
            request, lambda a: check(a.error_code, a.error_message), timeout_s=40.0, final=final
        )

    async def remove_raft_voter(
        self, voter_id: int, directory_id: bytes, *, cluster_id: str | None = None
    ) -> None:
        """Removes a voter from the quorum (KIP-853). Raises KafkaError."""
        await self._change_voters(
            messages.RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
            )
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes the registration of a broker. Raises KafkaError."""
        await self.transport.call(
            messages.UnregisterBrokerRequest(broker_id=broker_id),
            lambda a: check(a.error_code, a.error_message),
        )

    async def unregister_controller(self, controller_id: int) -> None:
        """Removes the registration of a controller (KIP-1312). Raises KafkaError."""
        await self.transport.call(
            messages.UnregisterControllerRequest(controller_id=controller_id),
            lambda a: check(a.error_code, a.error_message),
        )

    # -- features and versions
    # ----------------------------------------------------------------------------------------------

    async def describe_features(self, node: Node | None = None) -> Features:
        """Returns the features that the node, or any, supports and the levels that are finalized."""
        if node is not None:
            connection = await self.transport.connection((node.host, node.port))
            return Features(
                supported=dict(connection.supported_features),
                finalized=dict(connection.finalized_features),
                epoch=connection.finalized_features_epoch,
            )
        answer = await self.transport.call(
            messages.ApiVersionsRequest(client_software_name="quorate", client_software_version="1"),
            lambda a: check(a.error_code),
        )
        return Features(
            supported={f.name: (f.min_version, f.max_version) for f in answer.supported_features},
            finalized={f.name: f.max_version_level for f in answer.finalized_features},
            epoch=answer.finalized_features_epoch,
        )

    async def update_features(
        self, updates: Mapping[str, tuple[int, FeatureUpgrade]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Finalizes all levels, or none and returns an error for each. Level 0 disables a feature."""
        request = messages.UpdateFeaturesRequest(
            timeout_ms=60_000,
            feature_updates=[
                messages.UpdateFeaturesRequest.FeatureUpdateKey(
                    feature=name, max_version_level=level, upgrade_type=kind
                )
                for name, (level, kind) in updates.items()
            ],
            validate_only=validate_only,
        )

        def look(answer: Any) -> None:
            if answer.error_code == ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, answer.error_message)

        answer = await self.transport.call(request, look)
        results: dict[str, KafkaError | None] = {}
        if answer.error_code:
            error = KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            results = dict.fromkeys(updates, error)
        elif not answer.results:
            results = dict.fromkeys(updates)
        for r in answer.results:
            results[r.feature] = error_of(r.error_code, r.error_message) or results.get(r.feature)
        return results

    async def api_versions(self, node: Node) -> dict[int, tuple[int, int]]:
        """Returns the lowest and highest version of every API that a node advertises."""
        connection = await self.transport.connection((node.host, node.port))
        return dict(connection.api_versions)

    # -- elections
    # ----------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Runs preferred (0) or unclean (1) elections for some partitions, or for all that need one
        (None).
        """
        topics = None
        if partitions is not None:
            topics = [
                messages.ElectLeadersRequest.TopicPartitions(topic=t, partitions=p)
                for t, p in by_topic(partitions).items()
            ]
        request = messages.ElectLeadersRequest(
            election_type=election_type, topic_partitions=topics, timeout_ms=30_000
        )
        answer = await self.transport.call(request, lambda a: check(a.error_code))
        return {
            TopicPartition(t.topic, p.partition_id): error_of(p.error_code, p.error_message)
            for t in answer.replica_election_results
            for p in t.partition_result
        }


def _describe_quorum() -> Request:
    partition = messages.DescribeQuorumRequest.PartitionData(partition_index=0)
    return messages.DescribeQuorumRequest(
        topics=[messages.DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def _check_quorum(answer: Any) -> None:
    """Raises the KafkaError of a DescribeQuorum response, if it has one."""
    check(answer.error_code, answer.error_message)
    if not answer.topics or not answer.topics[0].partitions:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The answer has no metadata partition.")
    check(answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].error_message)


def _keys(voters: Any) -> tuple[tuple[int, bytes], ...] | None:
    return None if voters is None else tuple((v.replica_id, v.replica_directory_id) for v in voters)


def _replica(state: Any) -> QuorumReplica:
    return QuorumReplica(
        replica_id=state.replica_id,
        directory_id=state.replica_directory_id,
        log_end_offset=state.log_end_offset,
        last_fetch_ms=state.last_fetch_timestamp,
        last_caught_up_ms=state.last_caught_up_timestamp,
        snapshot_end_offset=state.snapshot_end_offset,
        start_time_ms=state.start_time_ms,
    )
