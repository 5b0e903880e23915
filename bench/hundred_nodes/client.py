"""What a client sees of the cluster: brokers, leaders, ISRs and the quorum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from quorate.admin.client import AdminClient
from quorate.admin.types import QuorumInfo
from quorate.net.channel import NodeChannel
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse

Partition = MetadataResponse.MetadataResponsePartition

_POLL_S = 0.05
_TIMEOUT_S = 120.0


class Client:
    """Asks the nodes; each question goes to the node that it names."""

    def __init__(self, addresses: dict[int, str], controllers: list[str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._channels = {
            node_id: NodeChannel(
                address.rpartition(":")[0], int(address.rpartition(":")[2]), client_id="bench"
            )
            for node_id, address in addresses.items()
        }
        self.admin = AdminClient(
            bootstrap_controllers=controllers, request_timeout_s=_TIMEOUT_S, api_timeout_s=_TIMEOUT_S
        )

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        await self.admin.close()

    # -- questions

    async def brokers(self, at: int) -> set[int]:
        """The brokers that are not fenced, by a broker's Metadata. Empty while it does not serve."""
        try:
            answer = await self._channels[at].call(MetadataRequest(topics=[]), _TIMEOUT_S)
        except NetError:
            return set()
        return {broker.node_id for broker in answer.brokers}

    async def partitions(self, at: int, topic: str) -> list[Partition]:
        """The partitions of a topic, by a broker's Metadata. Empty while it does not know the topic."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        try:
            answer: MetadataResponse = await self._channels[at].call(request, _TIMEOUT_S)
        except NetError:
            return []
        return answer.topics[0].partitions

    async def create_topic(self, at: int, name: str, partitions: int, replicas: int) -> None:
        """Raises AssertionError."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(1000 * _TIMEOUT_S))
        answer = await self._channels[at].call(request, _TIMEOUT_S)
        [result] = answer.topics
        assert result.error_code == ErrorCode.NONE, (name, ErrorCode.of(result.error_code))

    async def quorum(self) -> QuorumInfo:
        return await self.admin.describe_quorum()

    # -- waiting

    async def until_brokers(self, at: int, wanted: set[int]) -> None:
        """Returns when a broker's Metadata has exactly these brokers."""
        await self._until(f"brokers at {at}", lambda known: known == wanted, lambda: self.brokers(at))

    async def until_all_know(self, ids: Iterable[int], topic: str, partitions: int) -> None:
        """Returns when each of these brokers has all partitions of the topic."""
        for broker_id in ids:
            await self._until(
                f"{topic} at {broker_id}",
                lambda found: len(found) == partitions,
                lambda at=broker_id: self.partitions(at, topic),
            )

    async def until_partitions(
        self, at: int, topics: Iterable[str], wanted: Callable[[Partition], bool]
    ) -> int:
        """Returns when every partition of these topics is as wanted: the number of partitions."""
        waiting = list(topics)
        count = 0
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            late = []
            for topic in waiting:
                found = await self.partitions(at, topic)
                if found and all(map(wanted, found)):
                    count += len(found)
                else:
                    late.append(topic)
            if late and time.monotonic() > deadline:
                raise TimeoutError(f"{len(late)} topics were not as wanted, first {late[0]}")
            if len(late) == len(waiting):
                await asyncio.sleep(_POLL_S)
            waiting = late
        return count

    async def until_voter_caught_up(self, voter: int, since_ms: int) -> None:
        """Returns when a voter leads, or has fetched since that time and has all that is committed."""

        async def has_caught_up() -> bool:
            quorum = await self.quorum()
            return quorum.leader_id == voter or any(
                v.replica_id == voter
                and v.last_fetch_ms > since_ms
                and v.log_end_offset >= quorum.high_watermark
                for v in quorum.voters
            )

        await self._until(f"voter {voter}", bool, has_caught_up)

    async def _until(self, what: str, wanted: Callable[..., bool], ask: Callable[..., object]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            found = await ask()  # type: ignore[misc]
            if wanted(found):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {self._timeout_s:g} s for {what}; last: {found!r:.200}")
            await asyncio.sleep(_POLL_S)
