"""One metadata quorum of Apache Kafka's controllers and ours, as processes: "qjq" are ours, Java's, ours."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError
from quorate.admin.types import QuorumInfo
from quorate.protocol.uuids import parse_uuid
from quorate.tools.dump import dump_log
from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, wait_for
from tests.support.metadata_disk import FOLDER, differences, read_disk, same_metadata

IDS = (1, 2, 3)
DIRECTORIES = {1: "AAAAAAAAAAAAAAAAAAABAQ", 2: "AAAAAAAAAAAAAAAAAAABAg", 3: "AAAAAAAAAAAAAAAAAAABAw"}
IMPLEMENTATIONS = {"q": "quorate", "j": "java"}
HEAPS = {"controller": "-Xmx256m", "broker": "-Xmx384m"}
TOOLS = {
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
}


class MixedNode(Node):
    """A node that keeps Java's heap small, and knows what its disk is called."""

    def _command(self, what: str, *args: object) -> list[str]:
        return [
            HEAPS.get(self.roles, part) if part.startswith("-Xmx") else part
            for part in super()._command(what, *args)
        ]

    @property
    def directory_text(self) -> str:
        lines = (self.data / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))

    @property
    def directory_id(self) -> bytes:
        return parse_uuid(self.directory_text)

    @property
    def running(self) -> bool:
        return self.proc is not None and self.proc.poll() is None


@dataclass
class MixedQuorum:
    """Controllers 1 to 3 of the implementations that its letters name, and brokers with `broker_ids`, of
    `brokers_of`. Not started yet."""

    base: Path
    implementations: str
    static: bool = False
    brokers_of: str = "q"
    extra: dict[str, object] = field(default_factory=dict)
    kafka: str = java.KAFKA_VERSION
    broker_ids: tuple[int, ...] = (9, 8)
    release: str = ""
    """Whose features the cluster gets when it is formatted; those of `kafka` by default."""

    def __post_init__(self) -> None:
        java.require_java(self.kafka)
        ports = dict(zip(IDS, free_ports(3), strict=True))
        self.voters = ports
        self.controllers = [
            self.node(f"c{i}", i, "controller", letter, controller_port=ports[i])
            for i, letter in zip(IDS, self.implementations, strict=True)
        ]
        self.brokers = [
            self.node(f"b{node_id}", node_id, "broker", letter)
            for letter, node_id in zip(self.brokers_of, self.broker_ids, strict=False)
        ]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())

    def node(self, folder: str, node_id: int, roles: str, letter: str, controller_port: int = 0) -> MixedNode:
        return MixedNode(
            self.base / folder, node_id=node_id, roles=roles, impl=IMPLEMENTATIONS[letter], static=self.static,
            voters=self.voters, controller_port=controller_port, extra=dict(self.extra), kafka=self.kafka,
            release=self.release or self.kafka[:3],
        )  # fmt: skip

    @property
    def broker(self) -> MixedNode:
        return self.brokers[0]

    @property
    def nodes(self) -> list[MixedNode]:
        return [*self.controllers, *self.brokers]

    def controller(self, node_id: int) -> MixedNode:
        return next(c for c in self.controllers if c.node_id == node_id)

    @property
    def controller_ids(self) -> set[int]:
        return {c.node_id for c in self.controllers}

    def format(self) -> None:
        initial = ",".join(f"{i}@127.0.0.1:{port}:{DIRECTORIES[i]}" for i, port in self.voters.items())
        for controller in self.controllers:
            controller.format(*(() if self.static else ("--initial-controllers", initial)))
        for broker in self.brokers:
            broker.format(*(() if self.static else ("--no-initial-controllers",)))

    def start(self, timeout_s: float = 60, without: Sequence[Node] = ()) -> None:
        for node in self.nodes:
            if node not in without:
                node.start(wait=False)
        for broker in self.brokers:
            broker.wait_ready(timeout_s)

    @contextlib.contextmanager
    def killed_at_the_end(self) -> Iterator[MixedQuorum]:
        """Prints every node's last lines when the body fails."""
        try:
            yield self
        except BaseException:
            print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(60)}" for n in self.nodes), sep="\n")
            raise
        finally:
            for node in self.nodes:
                node.kill()

    # -- what it says
    # ----------------------------------------------------------------------------------------------

    def describe(self, timeout_s: float = 20) -> QuorumInfo:
        """The leader's view; each time asked by a new client, as an old one may hold on to the old leader."""

        async def ask() -> QuorumInfo:
            async with AdminClient(
                bootstrap_controllers=self.bootstrap,
                request_timeout_s=2,
                api_timeout_s=2,
                retry_backoff_s=0.05,
            ) as admin:
                return await admin.describe_quorum()

        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return asyncio.run(ask())
            except (KafkaError, NetError):
                if time.monotonic() > deadline:
                    raise

    def leader(self, timeout_s: float = 30) -> MixedNode:
        found = wait_for(
            "a leader",
            lambda: self.controller(i) if (i := self.describe().leader_id) in self.controller_ids else None,
            timeout_s,
        )
        assert isinstance(found, MixedNode)
        return found

    def whole(self, timeout_s: float = 60, lag: int = 2) -> QuorumInfo:
        """Until the controllers, with the directories that are on their disks, are the voters, all
        replicas have fetched since now, and none is more than `lag` records behind."""
        since_ms = time.time() * 1000
        last: QuorumInfo | None = None

        def look() -> QuorumInfo | None:
            nonlocal last
            dead = [n.node_id for n in self.nodes if not n.running]
            assert not dead, f"nodes {dead} ended by themselves"
            with contextlib.suppress(KafkaError, NetError):
                last = self.describe(5)
                return last if self._is_whole(last, lag, since_ms) else None
            return None

        try:
            found = wait_for("all to follow", look, timeout_s, 0.1)
        except AssertionError as e:
            raise AssertionError(f"{e}; the leader says {last}") from None
        assert isinstance(found, QuorumInfo)
        return found

    def _is_whole(self, info: QuorumInfo, lag: int, since_ms: float) -> bool:
        observers = {o.replica_id: o for o in info.observers}
        if info.leader_id not in self.controller_ids or not observers.keys() >= {
            b.node_id for b in self.brokers
        }:
            return False
        if self.static:  # directory ids are known from kraft.version 1 on
            right = {v.replica_id for v in info.voters} == self.controller_ids
        else:
            right = {(v.replica_id, v.directory_id) for v in info.voters} == {
                (c.node_id, c.directory_id) for c in self.controllers
            }
        end = max(v.log_end_offset for v in info.voters)
        followers = [v for v in info.voters if v.replica_id != info.leader_id] + [
            observers[b.node_id] for b in self.brokers
        ]
        return right and all(f.last_fetch_ms >= since_ms and f.log_end_offset >= end - lag for f in followers)

    def observes(self, node: MixedNode, timeout_s: float = 60, lag: int = 2) -> None:
        """Until a controller that is no voter has the log."""

        def look() -> bool:
            info = self.describe()
            end = max(v.log_end_offset for v in info.voters)
            key = (node.node_id, node.directory_id)
            return any(
                (o.replica_id, o.directory_id) == key and o.log_end_offset >= end - lag
                for o in info.observers
            )

        wait_for(f"controller {node.node_id} to follow as an observer", look, timeout_s, 0.1)

    # -- what is done to it
    # ----------------------------------------------------------------------------------------------

    def create(self, name: str, timeout_s: float = 60) -> None:
        """One topic through our broker, asked for until it is there."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        last = [""]

        def made() -> bool:
            admin = self.broker.admin()  # must live until its answer is there
            future = admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=5, request_timeout=6)[name]
            try:
                future.result(8)
            except KafkaException as e:
                last[0] = str(e)
                return bool(e.args[0].name() == "TOPIC_ALREADY_EXISTS")
            return True

        try:
            wait_for(f"topic {name} to be created", made, timeout_s, 0.1)
        except AssertionError as e:
            raise AssertionError(f"{e}: {last[0]}") from None

    def lead(self, implementation: str) -> MixedNode:
        """A leader of this implementation, made where it is not: the third controller sleeps through a
        change, so that it cannot win against the one that is to lead when the leader goes."""
        led = self.leader()
        if led.impl == implementation:
            return led
        target = next(c for c in self.controllers if c.impl == implementation)
        third = next(c for c in self.controllers if c not in (led, target))
        third.stop()
        self.create(f"while-{third.node_id}-is-away-{time.time_ns()}")
        led.stop()
        third.start(wait=False)
        wait_for(f"controller {target.node_id} to lead", lambda: self.leader() is target, 60, 0.1)
        led.start(wait=False)
        self.whole()
        return target

    def tool(self, implementation: str, name: str, *args: object) -> str:
        """What a tool of either side prints, asking the controllers. AssertionError when it ends with
        an error."""
        words = ["--bootstrap-controller", self.bootstrap, *map(str, args)]
        if implementation == "java":
            return java.run(TOOLS[name], *words, version=self.kafka)
        done = subprocess.run(
            [str(BIN / name), *words], capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, f"{name} {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    # -- what is on its disks
    # ----------------------------------------------------------------------------------------------

    def disks_agree(self, topics: Sequence[str]) -> None:
        """Every disk has the same bytes at the same offsets, and makes the same metadata, with these
        topics."""
        disks = {c.node_id: read_disk(c.data) for c in self.controllers}
        end = min(disk.end for disk in disks.values())
        images = [disk.image_at(end) for disk in disks.values()]
        assert differences(disks, end) + same_metadata(images) == []
        assert set(topics) <= set(images[0].topics.by_name)

    def dumps_agree(self, printed: Callable[[], str]) -> None:
        """Both dump tools print the same of every log and snapshot; records of one offset are printed
        the same from every disk.

        printed: what was written to standard output since it was called last."""
        files = [
            p
            for c in self.controllers
            for kind in ("*.log", "*.checkpoint")
            for p in sorted((c.data / FOLDER).glob(kind))
        ]
        arguments = ["--cluster-metadata-decoder", "--files", ",".join(map(str, files))]
        theirs = java.run("kafka.tools.DumpLogSegments", *arguments, version=self.kafka)
        printed()
        assert dump_log.main(arguments) == 0
        # Java does not know what our tagged fields say: the start times of registrations, the directories of
        # the voters in LeaderChange, who caused a change. Everything else is equal.
        ours = re.sub(r',"startTimeMs":\d+', "", printed())
        ours = re.sub(r'({"voterId":\d+),"directoryId":"[^"]+"}', r"\1}", ours)
        ours = re.sub(r'("type":"NO_OP_RECORD","version":0,"data":){[^}]*}', r"\1{}", ours)
        assert ours == theirs
        known: dict[str, str] = {}
        for dump in theirs.split("Dumping ")[1:]:
            if ".log" in dump.splitlines()[0]:
                for line in dump.splitlines():
                    if line.startswith("| offset: "):
                        assert known.setdefault(line.split()[2], line) == line
        assert len(known) > 20
