"""A cluster in one folder of this machine: its nodes, their properties files and their formatting.

The first `controllers` nodes have the controller role and the first `brokers` nodes the broker role. By
default there is one node with both. With `separate_roles`, the brokers follow the controllers, and no node
has both roles. Node i has its broker listener at `port + 2 (i - 1)`, its
controller listener at the next port, and /metrics and /health, if they are asked for, at `http_port + i
- 1`.

    FOLDER/cluster.json               cluster id and number of controllers, which do not change
    FOLDER/node-i/server.properties   written at each start
    FOLDER/node-i/local.properties    optional, added to server.properties
    FOLDER/node-i/data                the log directory
    FOLDER/node-i/server.log          the log output
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import shown_address, shown_host
from quorate.dataclass import dataclass
from quorate.log import properties_text
from quorate.log.directories import meta_properties
from quorate.log.directories.lock import DirLock, DirLockedError, LockFileError
from quorate.log.files import write_atomically
from quorate.metadata.stored_voters import latest_voters, snapshot_voters
from quorate.net.errors import ListenerError
from quorate.net.sockets import bind_sockets
from quorate.node.properties import read_properties
from quorate.node.storage.dynamic_voters import DynamicVoter
from quorate.node.storage.formatter import FormatPlan, format_directories
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import parse_uuid, random_uuid, uuid_text
from quorate.records.control import VotersRecord

_INTERNAL_REPLICAS = 3
"""The replication factor of Kafka's internal topics where there are at least as many brokers."""


class LocalClusterError(Exception):
    """The cluster cannot be started as asked for. The message says what to do."""


@dataclass(slots=True, frozen=True)
class LocalNode:
    """A node of the local cluster, its folder and its ports; port 0 means no such listener."""

    node_id: int
    folder: Path
    controller: bool
    broker: bool
    broker_port: int
    controller_port: int
    http_port: int = 0

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    @property
    def roles(self) -> str:
        return ",".join([r for r, has in (("broker", self.broker), ("controller", self.controller)) if has])


@dataclass(slots=True)
class LocalCluster:
    """A cluster in a folder. `prepare` makes it ready to start, and fills `cluster_id` and `nodes`."""

    folder: Path
    controllers: int = 1
    brokers: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    http_port: int = 0
    overrides: dict[str, str] = field(default_factory=dict)
    ports: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Broker and controller port of each node id, in place of consecutive ones from `port` on."""
    separate_roles: bool = False
    moved_voters_found: bool = False
    """The caller sees to it that controllers reach one another where the metadata log does not say."""
    cluster_id: str = ""
    nodes: list[LocalNode] = field(default_factory=list)
    _directory_ids: list[str] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self._shown_host}:{n.broker_port}" for n in self.nodes if n.broker)

    @property
    def http(self) -> str:
        """The URLs of the nodes' HTTP endpoints. Empty where they have none."""
        return ", ".join(f"http://{self._shown_host}:{n.http_port}" for n in self.nodes if n.http_port)

    @property
    def _shown_host(self) -> str:
        return shown_host(self.host)

    def planned_nodes(self) -> list[LocalNode]:
        """The nodes, before `prepare` has written anything."""
        return [self._node(i) for i in range(1, self._count + 1)]

    @property
    def _count(self) -> int:
        if self.separate_roles:
            return self.controllers + self.brokers
        return max(self.controllers, self.brokers)

    def prepare(self, say: Callable[[str], None]) -> None:
        """Creates the folder or loads an existing one, writes the properties files and formats
        unformatted nodes.

        Nothing is written before all checks have passed. Raises LocalClusterError if the folder has
        another cluster than the one asked for, if its nodes run or would not find each other, or if a
        port cannot be bound.
        """
        if self.controllers < 1 or self.brokers < 1:
            raise LocalClusterError("a cluster needs at least one controller and one broker")
        count = self._count
        last = self.port + 2 * count - 1
        if not 1 <= self.port <= last <= 65535:
            raise LocalClusterError(f"the ports {self.port} to {last} do not exist: choose a lower --port")
        if self.http_port and not 1 <= self.http_port <= self.http_port + count - 1 <= 65535:
            raise LocalClusterError(
                f"{count} ports from {self.http_port} on do not exist: choose a lower --http"
            )
        if self.http_port and self.http_port <= last and self.port < self.http_port + count:
            raise LocalClusterError(
                f"--http {self.http_port} meets the listeners' ports, {self.port} to {last}: "
                f"choose another, as in --http {last + 1}"
            )
        self.nodes = self.planned_nodes()
        known = self._load()
        self._check_host()
        properties = [self._properties(node) for node in self.nodes]
        configs = [KafkaConfig(p) for p in properties]
        locks = self._lock(configs)
        try:
            self._check_moved(configs)
            self._check_ports()
            if not known:
                self._create()
            for node, values, config in zip(self.nodes, properties, configs, strict=True):
                node.folder.mkdir(exist_ok=True)
                text = properties_text.render(
                    values, (" Written by quorate up at each start; local.properties is added.",)
                )
                node.properties_file.write_text(text)
                self._format(node, config, say)
        finally:
            for lock in locks:
                lock.release()

    def _lock(self, configs: list[KafkaConfig]) -> list[DirLock]:
        """Locks the existing directories, so that nothing is changed while a node runs. Raises
        LocalClusterError.
        """
        locks: list[DirLock] = []
        for node, config in zip(self.nodes, configs, strict=True):
            for directory in config.all_dirs:
                if directory.is_dir():
                    lock = DirLock(directory)
                    try:
                        lock.acquire()
                    except DirLockedError as e:
                        for taken in locks:
                            taken.release()
                        if isinstance(e, LockFileError):
                            raise LocalClusterError(f"node {node.node_id} cannot be started: {e}") from e
                        raise LocalClusterError(
                            f"{self.folder} is in use by another process (node {node.node_id} runs, "
                            f"{lock.path} is locked): "
                            "stop that first, or run another cluster, with a --data and a --port of its own"
                        ) from e
                    locks.append(lock)
        return locks

    def _check_moved(self, configs: list[KafkaConfig]) -> None:
        """Raises LocalClusterError if a majority of the voters would get other addresses than those in
        the metadata log.

        Voters look for each other at those addresses until a leader is elected, which updates them
        afterwards.
        """
        if self.controllers == 1 or self.moved_voters_found:
            return
        own = {c.node_id: c.advertised_controller_listeners[0] for c in configs if c.is_controller}
        folders = [c.metadata_log_dir / METADATA_DIRECTORY for c in configs if c.is_controller]

        def stays(voter: VotersRecord.Voter) -> bool:
            here = own.get(voter.voter_id)
            return here is None or any(
                e.port == here.port and _reaches(e.host, here.host) for e in voter.endpoints
            )

        for look in (snapshot_voters, latest_voters):
            known = look(folders)
            if known is None or sum(map(stays, known.voters)) > len(known.voters) // 2:
                return
        assert known is not None
        places = {v.voter_id: v.endpoints[0] for v in known.voters if v.voter_id in own and v.endpoints}
        ports = {e.port - 2 * (i - 1) - 1 for i, e in places.items()}
        hosts = {e.host for e in places.values()}
        asked = f"--port {self.port}"
        option = f"--port {min(ports)}" if len(ports) == 1 else "the ports that it had"
        if len(hosts) == 1 and not _reaches(min(hosts), self.host):
            asked, option = f"--host {self.host} {asked}", f"--host {min(hosts)} {option}"
        shown = ", ".join(f"{i}@{shown_address(e.host, e.port)}" for i, e in sorted(places.items()))
        raise LocalClusterError(
            f"the controllers of {self.folder} look for one another at {shown}, and would not meet at "
            f"{asked}: start it with {option}, or name another folder with --data (brokers may move, of "
            "several controllers less than half at a time)"
        )

    def _check_host(self) -> None:
        """Raises LocalClusterError if the nodes cannot listen on the host, or clients cannot reach them
        there.
        """
        if self.host in ("0.0.0.0", "::", "") and "advertised.listeners" not in self.overrides:
            raise LocalClusterError(
                f"--host {self.host or repr('')} is no address by which clients can reach the nodes: give "
                "a name or an address of this machine, as in --host 127.0.0.1"
            )
        try:
            for sock in bind_sockets(self.host, 0, "quorate up"):
                sock.close()
        except (ListenerError, UnicodeError) as e:
            cause = e.__cause__
            if isinstance(cause, socket.gaierror) or isinstance(e, UnicodeError):
                reason = (
                    f"no name or address that can be resolved here ({getattr(cause, 'strerror', None) or e})"
                )
            elif isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL:
                reason = "no address of this machine"
            else:
                reason = (
                    f"an address on which nothing can listen here ({getattr(cause, 'strerror', None) or e})"
                )
            raise LocalClusterError(
                f"--host {self.host} is {reason}: give a name or an address of this machine, as in --host "
                "127.0.0.1"
            ) from e

    def _check_ports(self) -> None:
        """Raises LocalClusterError, which names the port, if a port is in use."""
        for node in self.nodes:
            for port, wanted, option in (
                (node.broker_port, node.broker, f"--port {self.port + 1000}"),
                (node.controller_port, node.controller, f"--port {self.port + 1000}"),
                (node.http_port, node.http_port > 0, f"--http {self.http_port + 1000}"),
            ):
                if wanted:
                    try:
                        for sock in bind_sockets(self.host, port, "quorate up"):
                            sock.close()
                    except ListenerError as e:
                        shown = (
                            f"{e}; with quorate up that is {option.split()[0]}, as in: quorate up {option}"
                        )
                        raise LocalClusterError(shown) from e

    @property
    def _cluster_file(self) -> Path:
        return self.folder / "cluster.json"

    def _load(self) -> bool:
        """Reads cluster.json. Returns False where the folder is empty or missing. Raises
        LocalClusterError.
        """
        path = self._cluster_file
        try:
            known = json.loads(path.read_text())
            self.cluster_id, count = known["cluster_id"], known["controllers"]
            self._directory_ids = known["directory_ids"]
        except FileNotFoundError:
            if self.folder.exists() and any(self.folder.iterdir()):
                raise LocalClusterError(
                    f"{self.folder} holds something that is no cluster of quorate up (no cluster.json): "
                    "name another folder with --data"
                ) from None
            return False
        except (ValueError, KeyError) as e:
            raise LocalClusterError(
                f"{path} is damaged ({e}); restore it, or name another folder with --data"
            ) from e
        if count != self.controllers:
            raise LocalClusterError(
                f"{self.folder} holds a cluster with --controllers {count}: start it so, or name another "
                "folder with --data (a running quorum changes its members by kafka-metadata-quorum)"
            )
        return True

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cluster_id = uuid_text(random_uuid())
        self._directory_ids = [uuid_text(random_uuid()) for _ in range(self.controllers)]
        content = {
            "cluster_id": self.cluster_id,
            "controllers": self.controllers,
            "directory_ids": self._directory_ids,
        }
        write_atomically(str(self._cluster_file), (json.dumps(content, indent=1) + "\n").encode())

    def _node(self, node_id: int) -> LocalNode:
        following = self.port + 2 * (node_id - 1)
        broker_port, controller_port = self.ports.get(node_id, (following, following + 1))
        return LocalNode(
            node_id,
            self.folder / f"node-{node_id}",
            node_id <= self.controllers,
            node_id > self.controllers if self.separate_roles else node_id <= self.brokers,
            broker_port,
            controller_port,
            self.http_port + node_id - 1 if self.http_port else 0,
        )

    def _properties(self, node: LocalNode) -> dict[str, str]:
        host = self._shown_host
        listeners = []
        if node.broker:
            listeners.append(f"PLAINTEXT://{host}:{node.broker_port}")
        if node.controller:
            listeners.append(f"CONTROLLER://{host}:{node.controller_port}")
        replicas = str(min(_INTERNAL_REPLICAS, self.brokers))
        quorum = ",".join(f"{host}:{n.controller_port}" for n in self.nodes if n.controller)
        properties = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": quorum,
            "log.dirs": str((node.folder / "data").absolute()),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.brokers)),
            "group.initial.rebalance.delay.ms": "0",
        }
        if node.http_port:
            properties["quorate.http.listen"] = f"{host}:{node.http_port}"
        extra = node.folder / "local.properties"
        if extra.exists():
            properties |= read_properties(extra)
        return properties | self.overrides

    def _format(self, node: LocalNode, config: KafkaConfig, say: Callable[[str], None]) -> None:
        if all(meta_properties.read(d) is not None for d in config.all_dirs if d.is_dir()) and all(
            d.is_dir() for d in config.all_dirs
        ):
            return
        voters = {
            n.node_id: DynamicVoter(n.node_id, parse_uuid(text), self.host, n.controller_port)
            for n, text in zip((n for n in self.nodes if n.controller), self._directory_ids, strict=True)
        }
        plan = FormatPlan(config, self.cluster_id, voters if node.controller else None, ignore_formatted=True)
        format_directories(plan, say)


def _reaches(known: str, host: str) -> bool:
    """Returns whether a listener on `host` is reached by the name or address `known`."""
    known, host = known.strip("[]"), host.strip("[]")
    if known == host or not {"", "0.0.0.0", "::"}.isdisjoint((known, host)):
        return True
    try:
        old, new = ({info[4][0] for info in socket.getaddrinfo(name, None)} for name in (known, host))
    except (OSError, UnicodeError):
        return False
    return bool(old & new)
