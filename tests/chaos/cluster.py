"""Three controllers and three brokers, and questions about their state."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Mapping
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError
from quorate.admin.types import QuorumInfo
from quorate.net.client import Connection
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.testing import KafkaCluster
from quorate.tools import storage

CONFIG: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": False,
    # Several segments and snapshots in each minute, so that faults hit their creation and deletion.
    "log.segment.bytes": 1 << 20,
    "metadata.log.max.record.bytes.between.snapshots": 100_000,
    "internal.metadata.log.segment.bytes": 200_000,
    "metadata.max.retention.bytes": 2_000_000,
}
_WIDE: Mapping[str, object] = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
FENCING = "] Fencing broker "
"""The beginning of the controller's log message."""
STOP_TIMEOUT_S = 60.0
"""How long a controlled shutdown may take. A stopping broker may have to wait for a new active controller."""
_CAUGHT_UP_RECORDS = 100
"""The lag of a controller that follows: the metadata records of half a second under load."""
_ASK_S = 2.0


class ChaosCluster:
    """The cluster of a run. Raises what KafkaCluster raises."""

    def __init__(
        self, folder: Path, config: Mapping[str, object] | None = None, *, wide: bool = False
    ) -> None:
        """A wide cluster has four brokers, each with two log directories and a rack of its own. Consumers
        are sent to the replica in their rack."""
        self.kafka = KafkaCluster(
            3, 4 if wide else 3, separate_roles=True,
            config={**CONFIG, **(_WIDE if wide else {}), **(config or {})}, folder=folder,
        )  # fmt: skip
        self.wide = wide
        self.controllers, self.brokers = self.kafka.controller_ids, self.kafka.broker_ids
        controllers = dict(zip(self.controllers, self.kafka.bootstrap_controllers.split(","), strict=True))
        brokers = dict(zip(self.brokers, self.kafka.bootstrap_servers.split(","), strict=True))
        self._addresses = {node_id: _split(address) for node_id, address in (controllers | brokers).items()}

        if wide:
            for broker in self.brokers:
                self._widen(broker)

    def _widen(self, broker: int) -> None:
        """Restarts a broker with a second log directory and a rack."""
        directories = ",".join(map(str, self.log_directories(broker)))
        self.kafka.stop(broker, timeout_s=STOP_TIMEOUT_S)
        with self.kafka.properties_file(broker).open("a") as properties:
            properties.write(f"\nlog.dirs={directories}\nbroker.rack={rack_of(broker)}\n")
        self._format(broker)
        self.kafka.start(broker)

    def _format(self, broker: int) -> None:
        """Formats the log directories of a broker that are not formatted yet. Raises AssertionError."""
        errors = io.StringIO()
        words = ["format", "-t", self.kafka.cluster_id, "-c", str(self.kafka.properties_file(broker)), "-g"]
        with contextlib.redirect_stdout(errors), contextlib.redirect_stderr(errors):
            assert storage.main(words) == 0, errors.getvalue()

    def log_directories(self, broker: int) -> list[Path]:
        first = self.kafka.data_directory(broker)
        return [first, first.with_name("second")] if self.wide else [first]

    def replica(self, broker: int, name: str) -> Path:
        """Returns the directory of a replica. Raises AssertionError if it is not in one log directory."""
        found = [log for d in self.log_directories(broker) for log in [d / name] if log.is_dir()]
        assert len(found) == 1, f"{name} is in {found} of broker {broker}"
        return found[0]

    @property
    def nodes(self) -> list[int]:
        return [*self.controllers, *self.brokers]

    def quorum(self, timeout_s: float = _ASK_S) -> QuorumInfo | None:
        """The leader's description of the metadata quorum, or None without a leader."""

        async def ask() -> QuorumInfo:
            # A new client each time: an old one may keep a connection to a deposed leader.
            async with AdminClient(
                bootstrap_controllers=self.kafka.bootstrap_controllers,
                request_timeout_s=timeout_s,
                api_timeout_s=timeout_s,
                retry_backoff_s=0.05,
            ) as admin:
                return await admin.describe_quorum()

        try:
            return asyncio.run(ask())
        except (KafkaError, NetError):
            return None

    def active_controller(self, timeout_s: float = 60) -> int:
        """Raises AssertionError if there is none in that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.quorum()
            if found is not None and found.leader_id in self.controllers:
                return found.leader_id
            assert time.monotonic() < deadline, f"no active controller for {timeout_s:g} s"
            time.sleep(0.05)  # polls other processes

    def incomplete_quorum(self, since_ms: float) -> str | None:
        """Returns why the controllers do not follow one leader now, or None."""
        found = self.quorum()
        if found is None:
            return "there is no active controller"
        end = max((voter.log_end_offset for voter in found.voters), default=0)
        for voter in found.voters:
            if voter.replica_id == found.leader_id:
                continue
            if voter.last_fetch_ms < since_ms:
                return f"controller {voter.replica_id} does not fetch from {found.leader_id}"
            if voter.log_end_offset < end - _CAUGHT_UP_RECORDS:
                return f"controller {voter.replica_id} is at {voter.log_end_offset} of {end}"
        return None

    def incomplete_brokers(self) -> str | None:
        """Returns what a broker lacks in the metadata of one of them, or None: another broker, a leader, a
        member of an ISR.
        """
        for broker in self.brokers:
            try:
                answer = self.metadata(broker)
            except (NetError, OSError, TimeoutError) as e:
                return f"broker {broker} does not answer: {e}"
            known = sorted(node.node_id for node in answer.brokers)
            if known != self.brokers:
                return f"broker {broker} knows the brokers {known}"
            for topic in answer.topics:
                for partition in topic.partitions:
                    missing = set(partition.replica_nodes) - set(partition.isr_nodes)
                    if missing or partition.leader_id < 0:
                        return (
                            f"{topic.name}-{partition.partition_index} has, for broker {broker}, the leader "
                            f"{partition.leader_id}, and lacks {sorted(missing)} in the ISR"
                        )
        return None

    def metadata(self, broker: int) -> MetadataResponse:
        """The response of one broker to a request for all topics. Raises NetError."""

        async def ask() -> MetadataResponse:
            connection = await Connection.connect(*self._addresses[broker], timeout_s=_ASK_S)
            try:
                answer: MetadataResponse = await connection.call(MetadataRequest(topics=None), _ASK_S)
                return answer
            finally:
                connection.close()

        return asyncio.run(ask())

    def response_times(self, node_id: int, count: int = 20) -> list[float]:
        """Seconds that a node takes for each of several ApiVersions requests; none if it does not answer."""

        async def ask() -> list[float]:
            connection = await Connection.connect(*self._addresses[node_id], timeout_s=_ASK_S)
            times = []
            try:
                for _ in range(count):
                    start = time.perf_counter()
                    await connection.call(ApiVersionsRequest(), _ASK_S)
                    times.append(time.perf_counter() - start)
            finally:
                connection.close()
            return times

        try:
            return asyncio.run(ask())
        except (NetError, OSError, TimeoutError):
            return []

    def log_end(self, node_id: int) -> int:
        """Returns the size of a node's log."""
        return self.kafka.log_file(node_id).stat().st_size

    def ends(self, node_id: int, position: int) -> bool:
        """Whether the log of a node has a fatal error after a position. The node then stops, which may take
        as long as a controlled shutdown."""
        with self.kafka.log_file(node_id).open("rb") as log:
            log.seek(position)
            return b" FATAL " in log.read()

    def tracebacks(self) -> list[str]:
        """Returns the log lines around each traceback in the nodes' logs. Each is an unexpected error."""
        found = []
        for node_id in self.nodes:
            lines = self.kafka.log_file(node_id).read_text(errors="replace").splitlines()
            found += [
                f"node {node_id}: " + "\n".join(lines[max(0, at - 1) : at + 30])
                for at, line in enumerate(lines)
                if line.startswith("Traceback ")
            ]
        return found

    def fencings(self) -> list[str]:
        """Returns the log lines of the controllers about brokers that they have fenced."""
        return [
            line
            for node_id in self.controllers
            for line in self.kafka.log_file(node_id).read_text(errors="replace").splitlines()
            if FENCING in line
        ]


def rack_of(broker: int) -> str:
    return f"rack-{broker}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
