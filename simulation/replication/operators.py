"""What operators do: create, delete and re-create topics, move replicas and cancel it, elect leaders,
delete records, move replicas between the log directories of a broker, and shut brokers down. Requests go to
the controller, or to a broker, over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quorate.net.channel import NodeChannel
from quorate.net.errors import NetError
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.schema import Request
from simulation.replication.checker import Key
from simulation.replication.clients import Clients
from simulation.replication.environment import Environment
from simulation.replication.metadata_log import CONTROLLER_ADDRESS
from simulation.replication.process import BrokerProcess, ControllerProcess

PREFERRED, UNCLEAN = 0, 1
_REQUEST_S = 10.0


class Operators:
    """The operators of one cluster."""

    def __init__(
        self,
        environment: Environment,
        clients: Clients,
        controller: ControllerProcess,
        brokers: dict[int, BrokerProcess],
    ) -> None:
        self._environment = environment
        self._clients = clients
        self._controller = controller
        self._brokers = brokers
        self._rng = environment.rng
        self._channel: NodeChannel | None = None
        self._creating = False
        """Whether a CreateTopics is in flight, or will be sent soon because one has failed."""

    def intervals(self) -> Iterator[tuple[Callable[[], None], float]]:
        """Each action with its mean interval in seconds; 0 means never."""
        work = self._environment.config.workload
        yield self.delete_records, work.delete_records_every_s
        yield self.recreate_topic, work.recreate_topic_every_s
        yield self.reassign, work.reassign_every_s
        yield self.cancel_reassignment, work.cancel_every_s
        yield self.elect_preferred, work.elect_every_s
        yield self.elect_unclean, work.unclean_elect_every_s
        yield self.shut_down_broker, work.shutdown_every_s
        yield self.move_directory, work.move_directory_every_s

    def topic_names(self) -> list[str]:
        return [f"t{number}" for number in range(self._environment.config.topology.topics)]

    def create_missing_topics(self) -> None:
        """Requests the topics that do not exist, until all of them do.

        One request is in flight at a time: if each failed topic caused a request for all that are missing,
        the requests would multiply.
        """
        missing = self._missing_topics()
        if missing and not self._creating:
            self._creating = True
            self._send(self._creation(missing))

    def _missing_topics(self) -> list[str]:
        known = self._controller.image.topics.by_name
        return [name for name in self.topic_names() if name not in known]

    def _creation_ended(self) -> None:
        """Requests the topics again, after a moment, that could not be created or were deleted meanwhile."""
        if self._missing_topics():
            self._environment.after((0.2, 1.0), self._create_again)
        else:
            self._creating = False

    def _create_again(self) -> None:
        self._creating = False
        self.create_missing_topics()

    def _creation(self, names: list[str]) -> CreateTopicsRequest:
        topology, work = self._environment.config.topology, self._environment.config.workload
        configs = {
            "min.insync.replicas": topology.min_isr,
            "segment.ms": 1000 if work.retention_bytes >= 0 else 7 * 24 * 3600 * 1000,
            "retention.bytes": work.retention_bytes,
        }
        return CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=topology.partitions,
                    replication_factor=topology.replicas,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=str(value))
                        for key, value in configs.items()
                    ],
                )
                for name in names
            ]
        )

    # --- actions ----------------------------------------------------------------------------------

    def recreate_topic(self) -> None:
        """Deletes a topic. It is created again under its name after a moment."""
        name = self._rng.choice(self.topic_names())
        topic = self._controller.image.topics.by_name.get(name)
        if topic is not None:
            self._environment.coverage["topics deleted"] += 1
            state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.id)
            self._send(DeleteTopicsRequest(topics=[state]))
        self._environment.after((0.0, 2.0), self.create_missing_topics)

    def reassign(self) -> None:
        """Moves a partition to other replicas."""
        key = self._partition()
        if key is None:
            return
        brokers, topology = list(self._brokers), self._environment.config.topology
        count = min(len(brokers), max(1, topology.replicas + self._rng.choice((-1, 0, 0, 1))))
        self._environment.coverage["reassignments"] += 1
        self._reassign(key, self._rng.sample(brokers, count))

    def cancel_reassignment(self) -> None:
        """Cancels a reassignment, if there is one."""
        image = self._controller.image
        moving = [
            (topic.id, index)
            for topic in image.topics.by_name.values()
            for index, partition in topic.partitions.items()
            if partition.is_reassigning
        ]
        if moving:
            self._environment.coverage["reassignments cancelled"] += 1
            self._reassign(self._rng.choice(sorted(moving)), None)

    def _reassign(self, key: Key, replicas: list[int] | None) -> None:
        make = AlterPartitionReassignmentsRequest
        partition = make.ReassignablePartition(partition_index=key[1], replicas=replicas)
        self._environment.trace("op", f"moves {self._environment.checker.name(key)} to {replicas}")
        topic = make.ReassignableTopic(name=self._clients.name(key), partitions=[partition])
        self._send(make(topics=[topic]))

    def elect_preferred(self) -> None:
        self._elect(PREFERRED)

    def elect_unclean(self) -> None:
        self._elect(UNCLEAN)

    def _elect(self, kind: int) -> None:
        key = self._partition()
        if key is not None:
            wanted = ElectLeadersRequest.TopicPartitions(topic=self._clients.name(key), partitions=[key[1]])
            self._send(ElectLeadersRequest(election_type=kind, topic_partitions=[wanted]))

    def delete_records(self) -> None:
        """Deletes the records of a partition up to some offset below its high watermark."""
        key = self._partition()
        history = None if key is None else self._environment.checker.guaranteed(key)
        if key is None or history is None:
            return
        offset = self._rng.choice((-1, self._rng.randint(0, history.committed.end)))
        make = DeleteRecordsRequest
        partition = make.DeleteRecordsPartition(partition_index=key[1], offset=offset)
        topic = make.DeleteRecordsTopic(name=self._clients.name(key), partitions=[partition])
        channel = self._clients.channel(0, self._clients.leader(key))
        self._environment.coverage["records deleted"] += 1
        self._clients.owner.spawn(self._call(channel, make(topics=[topic], timeout_ms=2000)))

    def move_directory(self) -> None:
        """Moves a replica to some log directory of its broker, which may be the one where it is."""
        key = self._partition()
        history = None if key is None else self._environment.checker.partitions.get(key)
        if key is None or history is None:
            return
        broker = self._brokers[self._rng.choice(history.image.replicas)]
        if len(broker.disks) < 2:
            return
        target = str(broker.directory(self._rng.choice(broker.disks)))
        self._environment.coverage["moves between directories"] += 1
        self._environment.trace("op", f"moves {history.name} on b{broker.id} to {target}")
        make = AlterReplicaLogDirsRequest
        topic = make.AlterReplicaLogDirTopic(name=self._clients.name(key), partitions=[key[1]])
        request = make(dirs=[make.AlterReplicaLogDir(path=target, topics=[topic])])
        self._clients.owner.spawn(self._call(self._clients.channel(0, broker.id), request))

    def shut_down_broker(self) -> None:
        serving = [broker for broker in self._brokers.values() if broker.server is not None]
        if serving:
            self._rng.choice(serving).shut_down()

    # --- helpers ----------------------------------------------------------------------------------

    def _partition(self) -> Key | None:
        keys = self._clients.partitions()
        return self._rng.choice(keys) if keys else None

    def _send(self, request: Request) -> None:
        if self._channel is None:
            self._channel = NodeChannel(*CONTROLLER_ADDRESS, client_id="operator", connect_timeout_s=3.0)
        self._clients.owner.spawn(self._call(self._channel, request))

    async def _call(self, channel: NodeChannel, request: Request) -> None:
        try:
            response = await channel.call(request, _REQUEST_S)
        except (NetError, OSError):
            pass  # the request may have been carried out
        else:
            if isinstance(response, CreateTopicsResponse):
                for topic in response.topics:
                    if topic.error_code:
                        self._environment.trace("op", f"cannot create {topic.name}: {topic.error_message}")
        if isinstance(request, CreateTopicsRequest):
            self._creation_ended()
