"""One run: a cluster, its clients, two lanes of faults, the check at the end, and the record of it all."""

from __future__ import annotations

import datetime
import os
import platform
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

import quorate
from quorate.records.batch import CorruptRecordError
from quorate.testing import ClusterError
from tests.chaos.checker import Violation, check
from tests.chaos.clients import (
    QUIET,
    Acknowledgements,
    Client,
    Member,
    NumberProducer,
    Reader,
    Watcher,
    list_offsets,
    offsets_consumer,
    read_everything,
)
from tests.chaos.cluster import STOP_TIMEOUT_S, ChaosCluster, rack_of
from tests.chaos.faults import ONLY_WIDE, Kind, Lane, schedule
from tests.chaos.history import FinalPartition, FinalState, History, Partition
from tests.chaos.nemesis import InjectedFault, Nemesis
from tests.chaos.operators import Mover, Operator
from tests.chaos.replicas import differences, producer_epochs, read_replica
from tests.chaos.samples import growth, percentiles_ms, sample

ROOT = Path(__file__).resolve().parents[2]
KEPT, TRIMMED = "kept", "trimmed"
PARTITIONS: Sequence[Partition] = [(KEPT, 0), (KEPT, 1), (KEPT, 2), (TRIMMED, 0), (TRIMMED, 1)]
_SOAK_S = 3600
"""From this length on, the memory of the processes must be bounded."""


@dataclass(frozen=True, slots=True)
class Settings:
    seed: int = 1
    minutes: float = 10.0
    kinds: tuple[Kind, ...] = tuple(kind for kind in Kind if kind not in ONLY_WIDE)
    """of faults; none for a soak"""
    rate: float = 300.0
    """records a second, of all producers"""
    bound_s: float = 120.0
    """until the cluster has recovered from a fault"""
    sample_every_s: float = 60.0
    operator_pause_s: float = 0.5
    operator_replicas: int = 3
    """of the topics that come and go"""
    wide: bool = False
    """Whether brokers have two log directories and racks, replicas move, and the reader is in a rack."""


@dataclass
class Load:
    """All clients of a run."""

    servers: str
    settings: Settings
    directories: Mapping[int, Sequence[Path]] = field(default_factory=dict)
    """the log directories of each broker"""
    history: History = field(default_factory=History)
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)

    def __post_init__(self) -> None:
        def dice(name: str) -> random.Random:
            return random.Random(f"{self.settings.seed} {name}")

        servers, history = self.servers, self.history
        self.operator = Operator(
            servers, history, dice("operator"), pause_s=self.settings.operator_pause_s,
            replicas=self.settings.operator_replicas, kept=[KEPT, TRIMMED], trimmed=[p for p in PARTITIONS if p[0] == TRIMMED],
        )  # fmt: skip
        self.producers = [
            NumberProducer(
                number, servers, history, self.acknowledgements, PARTITIONS, self.settings.rate / 2,
                **config,
            )
            for number, config in (
                (1, {"linger.ms": 0, "batch.num.messages": 1}),  # so that five batches are often in flight
                (2, {"compression.type": "zstd"}),
            )
        ]  # fmt: skip
        self.members = [Member(i, servers, history, [KEPT, TRIMMED], dice(f"member {i}")) for i in (1, 2)]
        wide = self.settings.wide
        self.readers = [Reader(servers, history, PARTITIONS)]
        if wide:
            rack = rack_of(list(self.directories)[-1])
            self.readers.append(
                Reader(servers, history, PARTITIONS, f"reader in {rack}", **{"client.rack": rack})
            )
        self.mover = Mover(servers, history, dice("mover"), self.directories, PARTITIONS) if wide else None
        self.watcher = Watcher(servers, history, PARTITIONS)

    @property
    def clients(self) -> list[Client]:
        moving = [self.mover] if self.mover is not None else []
        return [*self.producers, *self.readers, *self.members, self.watcher, self.operator, *moving]

    def start(self) -> None:
        """Creates the topics of the producers and starts all clients."""
        for topic in (KEPT, TRIMMED):
            count = sum(name == topic for name, _ in PARTITIONS)
            self.operator.create(topic, count, 3, **{"retention.ms": "-1"})
        for client in self.clients:
            client.start()

    def stop(self, timeout_s: float = 120) -> None:
        """Ends the clients: producers first, then consumers when they have read all records."""
        for client in (*self.producers, self.operator):
            client.over.set()
        if self.mover is not None:
            self.mover.stop()
        for producer in self.producers:
            producer.stop()
        self.operator.give_up()
        self.operator.stop()
        self._await_consumers(timeout_s)
        for client in (*self.readers, *self.members, self.watcher):
            client.over.set()
        for client in (*self.readers, *self.members, self.watcher):
            client.stop()

    def abandon(self) -> None:
        """Ends the clients without waiting for anything."""
        self.operator.give_up()
        for client in self.clients:
            client.over.set()

    def _await_consumers(self, timeout_s: float) -> None:
        """Waits until the readers and the group are at the end of each partition, for at most a time. The
        checker reports who is not."""
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        deadline = time.monotonic() + timeout_s
        try:
            starts = list_offsets(admin, PARTITIONS, OffsetSpec.earliest(), timeout_s)
            ends = list_offsets(admin, PARTITIONS, OffsetSpec.latest(), timeout_s)
        except KafkaException as e:
            self.history.client_errors.append(f"the ends of the partitions are not known: {e}")
            return

        def behind() -> bool:
            return any(
                min(
                    max((commit.offset for commit in held.commits[-3:]), default=0),
                    *(held.read[r.name].offsets[-1] + 1 if held.read[r.name] else 0 for r in self.readers),
                )
                < end
                for partition, end in ends.items()
                if starts[partition] < end
                for held in [self.history.partitions[partition]]
            )

        while behind() and time.monotonic() < deadline:
            time.sleep(0.05)  # polls the other threads


def final_state(cluster: ChaosCluster, history: History) -> FinalState:
    """Reads the state of a cluster without faults, in which no client writes.

    Raises AssertionError, KafkaException, CorruptRecordError.
    """
    servers = cluster.kafka.bootstrap_servers
    final = FinalState()
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    partitions = [TopicPartition(t, p) for t, p in PARTITIONS]
    starts = list_offsets(admin, PARTITIONS, OffsetSpec.earliest())
    ends = list_offsets(admin, PARTITIONS, OffsetSpec.latest())
    consumer = offsets_consumer(servers)
    committed = {(tp.topic, tp.partition): tp.offset for tp in consumer.committed(partitions, timeout=60)}
    consumer.close()
    records = read_everything(servers, PARTITIONS)
    assigned = {
        (str(topic.name), partition.partition_index): sorted(partition.replica_nodes)
        for topic in cluster.metadata(cluster.brokers[0]).topics
        for partition in topic.partitions
    }
    for key in PARTITIONS:
        offset = committed.get(key, -1)
        name = f"{key[0]}-{key[1]}"
        replicas = {broker: read_replica(cluster.replica(broker, name)) for broker in assigned[key]}
        final.partitions[key] = FinalPartition(
            starts[key],
            ends[key],
            records[key],
            offset if offset >= 0 else None,
            producer_epochs(replicas[assigned[key][0]]),
            list(differences(replicas)),
        )
    for broker in cluster.brokers:
        topics = cluster.metadata(broker).topics
        final.topics[broker] = {str(topic.name) for topic in topics if not topic.is_internal}
    for name, topic in history.topics.items():
        if topic.created and not topic.delete_requested:
            resource = ConfigResource(ResourceType.TOPIC, name)
            try:
                found = admin.describe_configs([resource])[resource].result()
            except KafkaException:
                continue  # reported as a missing topic
            final.configs[name] = {key: str(entry.value) for key, entry in found.items()}
    return final


class Run:
    """One run. `violations` is empty if it passed."""

    def __init__(self, settings: Settings, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self.settings = settings
        self.violations: list[Violation] = []
        self.interrupted = False
        self._say_line = say
        self._started = time.monotonic()
        self._took_s = 0.0
        self._samples: list[list[dict[str, Any]]] = []
        self._sampled: list[dict[str, object]] = []
        self._fencings: list[str] = []
        self.cluster = ChaosCluster(folder, wide=settings.wide)
        self.load = Load(
            self.cluster.kafka.bootstrap_servers,
            settings,
            {broker: self.cluster.log_directories(broker) for broker in self.cluster.brokers},
        )
        lock = threading.Lock()
        self.lanes = [
            Nemesis(self.cluster, schedule(settings.seed, lane, kinds), bound_s=settings.bound_s,
                    report=self._report, lock=lock)
            for lane in (Lane.CONTROLLERS, Lane.BROKERS)
            for kinds in [tuple(k for k in settings.kinds if lane is Lane.BROKERS or k not in ONLY_WIDE)]
            if kinds
        ]  # fmt: skip

    def say(self, text: str) -> None:
        self._say_line(f"{time.monotonic() - self._started:7.1f} {text}")

    def run(self) -> None:
        """Runs for the given time and checks the history. A KeyboardInterrupt ends the faults early; the
        check is done all the same."""
        self._started = time.monotonic()
        self.load.start()
        self.say(
            f"the cluster serves: controllers {self.cluster.controllers}, brokers {self.cluster.brokers}"
        )
        for lane in self.lanes:
            lane.start()
        try:
            self._wait()
        except KeyboardInterrupt:
            self.interrupted = True
            self.say("interrupted")
        self._took_s = time.monotonic() - self._started
        for lane in self.lanes:
            lane.stop()
        self._take_sample()
        self._fencings = self.cluster.fencings()
        self.violations += [Violation("progress", lane.failure) for lane in self.lanes if lane.failure]
        if self.violations:
            self.load.abandon()
        else:
            self._finish()
        self.violations += [Violation("traceback", text) for text in self.cluster.tracebacks()]
        if not self.settings.kinds:
            self.violations += [Violation("fencing", text) for text in self._fencings]
        if self._took_s >= _SOAK_S and not self.settings.kinds:
            self.violations += [Violation("memory", text) for text in growth(self._samples)]

    def close(self) -> None:
        self.load.abandon()
        self.cluster.kafka.close()

    def _wait(self) -> None:
        end = self._started + self.settings.minutes * 60
        next_sample = self._started + self.settings.sample_every_s
        while (now := time.monotonic()) < end:
            if any(lane.failure for lane in self.lanes) or self.load.history.client_errors:
                return
            if now >= next_sample:
                self._take_sample()
                next_sample += self.settings.sample_every_s
            time.sleep(max(0.0, min(0.2, end - now)))  # the length of the run

    def _finish(self) -> None:
        self.say("the faults are healed; waiting for the clients")
        history = self.load.history
        # After an error the clients may never get everything.
        self.load.stop(10 if history.client_errors else 120)
        history.cut_off = [
            (fault.start, fault.recovered)
            for lane in self.lanes
            for fault in lane.injected
            if fault.kind in (Kind.CUT, Kind.ISOLATE)
            and (fault.victim in self.cluster.brokers or fault.peer in self.cluster.brokers)
        ]
        try:
            final = final_state(self.cluster, history)
        except (AssertionError, KafkaException, CorruptRecordError, OSError) as e:
            self.violations.append(Violation("progress", f"the final state cannot be read: {e!r}"))
            final = FinalState()
        self.violations += check(history, final)
        if self.settings.wide and not history.read_from_followers.total():
            self.violations.append(Violation("progress", "no reader was served by a follower"))
        try:
            self.cluster.kafka.stop(timeout_s=STOP_TIMEOUT_S)
        except ClusterError as e:
            self.violations.append(Violation("progress", str(e)))
        self.say(f"checked {self._acknowledged()} acknowledged records: {len(self.violations)} violations")

    def _acknowledged(self) -> int:
        return sum(len(held.acknowledged) for held in self.load.history.partitions.values())

    def _report(self, fault: InjectedFault) -> None:
        gap = self.load.acknowledgements.longest_gap_s(fault.start, fault.recovered)
        peer = f"-{fault.peer}" if fault.peer is not None else ""
        self.say(
            f"{fault.kind} of {'the active ' if fault.led else ''}node {fault.victim}{peer} for "
            f"{fault.healed - fault.start:.1f} s, recovered in {fault.recovered - fault.healed:.1f} s, "
            f"a partition without acknowledgement for {gap:.1f} s; {self._acknowledged()} records"
        )

    def _take_sample(self) -> None:
        nodes = sample(self.cluster)
        latency = percentiles_ms(self.load.acknowledgements.take_latencies())
        self._samples.append(nodes)
        self._sampled.append(
            {
                "at_s": round(time.monotonic() - self._started),
                "load_average": round(os.getloadavg()[0], 1),
                "acknowledged": self._acknowledged(),
                "acknowledgement": latency,
                "nodes": nodes,
            }
        )
        memory = ", ".join(f"{s['node']}: {s['rss_mb']} MB {s['files']} files" for s in nodes)
        self.say(f"sample: {memory}; acknowledged in {latency.get('median_ms')} ms (median)")

    def result(self) -> dict[str, object]:
        """The record of the run, for its JSON file."""
        history, settings = self.load.history, self.settings
        faults = [fault for lane in self.lanes for fault in lane.injected]
        kinds = ",".join(settings.kinds) or "none"
        return {
            "command": f"python -m tests.chaos --minutes {settings.minutes:g} --seed {settings.seed} "
            f"--faults {kinds} --rate {settings.rate:g}{' --wide' if settings.wide else ''}",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "result": "passed" if not self.violations else "failed",
            "violations": [str(violation) for violation in self.violations],
            "interrupted": self.interrupted,
            "seed": settings.seed,
            "seconds": round(self._took_s),
            "versions": versions(),
            "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
            "faults": {
                "total": len(faults),
                "by_kind": dict(sorted(Counter(f"{f.lane} {f.kind}" for f in faults).items())),
                "processes_ended": sum(f.ended for f in faults),
            },
            "fencings": len(self._fencings),
            "clients": {
                "acknowledged": self._acknowledged(),
                "read": sum(len(r) for held in history.partitions.values() for r in held.read.values()),
                "read_from_followers": history.read_from_followers.total(),
                "commits": sum(len(held.commits) for held in history.partitions.values()),
                "high_watermarks": sum(len(held.watermarks) for held in history.partitions.values()),
                "joins_of_the_group": sum(member.joined for member in self.load.members),
                "changes_of_topics": self.load.operator.changes,
                "moves": self.load.mover.moves if self.load.mover is not None else {},
                "topics_created": sum(topic.created for topic in history.topics.values()),
                "topics_deleted": sum(topic.deleted for topic in history.topics.values()),
                "retried": dict(history.retried.most_common()),
            },
            "samples": self._sampled,
            "every_fault": [self._figures(fault) for fault in faults],
        }

    def _figures(self, fault: InjectedFault) -> dict[str, object]:
        figures = asdict(fault) | {"at_s": fault.start - self._started}
        if fault.recovered:
            figures["lasted_s"] = fault.healed - fault.start
            figures["recovered_in_s"] = fault.recovered - fault.healed
            gap = self.load.acknowledgements.longest_gap_s(fault.start, fault.recovered)
            figures["longest_gap_s"] = gap
        for name in ("start", "healed", "recovered", "log_position"):
            del figures[name]
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in figures.items()}


def versions() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "quorate": quorate.__version__,
        "python": platform.python_version(),
        "confluent_kafka": confluent_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
    }
