"""How long a tool takes from being typed until it ends, on an idle cluster: `python -m bench.tools
[--runs N]`.

Each command runs several times, the commands in turn, and after each its twin of Apache Kafka 4.1.1
on the same cluster, with the options of Kafka's scripts for the JVM (without the shell script
itself). The CPU time is that of the tool's process; the elapsed time also has what the nodes take,
and on a busy machine what other processes take. Quorate's modules are compiled beforehand, as they
are in an installed package.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import quorate
from bench.result import heading
from quorate.metadata.features import FEATURES, LATEST_STABLE_LEVEL
from quorate.net.client import Connection
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.testing import KafkaCluster
from tests.support import java

BIN = Path(sys.executable).parent
LIMIT_S = 0.3
TOOLS = "org.apache.kafka.tools"
JVM = [
    *("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *(
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
    ),
]
"""What kafka-run-class.sh passes."""


@dataclass
class Call:
    """A command line of Quorate, the main class of Kafka's tool of the same name, and the seconds
    of each run. `twin_words` are given where Kafka's tool takes other words."""

    words: list[str]
    main_class: str | None = None
    twin_words: list[str] | None = None
    times: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The command line without addresses and options that name files; of a path its last part."""
        hidden = ("127.", "--bootstrap", "--files", "--config", "--offset-json", "--reassignment-json")
        return " ".join(Path(word).name for word in self.words if not word.startswith(hidden))

    def command_lines(self, jars: Path | None) -> Iterator[tuple[str, list[str]]]:
        yield "quorate", [str(BIN / self.words[0]), *self.words[1:]]
        if jars is not None and self.main_class is not None:
            words = self.words[1:] if self.twin_words is None else self.twin_words
            yield "java", ["java", *JVM, "-cp", f"{jars}/*", self.main_class, *words]


def calls(cluster: KafkaCluster, folder: Path) -> list[Call]:
    """One or two usual calls of every console script."""
    b = ["--bootstrap-server", cluster.bootstrap_servers]
    c = ["--bootstrap-controller", cluster.bootstrap_controllers]
    data = next(path for path in folder.rglob("__cluster_metadata-0")).parent
    properties = str(next(folder.rglob("*.properties")))
    reassignment = folder / "reassignment.json"
    reassignment.write_text('{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1]}]}')
    offsets = folder / "offsets.json"
    offsets.write_text('{"version":1,"partitions":[{"topic":"orders","partition":0,"offset":0}]}')
    segment = str(shutil.copy(next(data.glob("__cluster_metadata-0/*.log")), folder))
    """A copy: Kafka's shell refuses the file of a running node."""
    election = ["--election-type", "preferred", "--all-topic-partitions"]
    topic = ["--describe", "--entity-type", "topics", "--entity-name", "orders"]
    broker = ["--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"]
    read = ["--topic", "orders", "--from-beginning", "--max-messages", "1"]
    configs = "kafka.admin.ConfigCommand"
    reassign = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    verify = ["--verify", "--reassignment-json-file", str(reassignment)]
    return [
        Call(["kafka-topics", *b, "--list"], f"{TOOLS}.TopicCommand"),
        Call(["kafka-topics", *b, "--describe"], f"{TOOLS}.TopicCommand"),
        Call(["kafka-configs", *b, *topic], configs),
        Call(["kafka-configs", *b, *broker], configs),
        Call(["kafka-console-producer", *b, "--topic", "orders"], f"{TOOLS}.ConsoleProducer"),
        Call(["kafka-console-consumer", *b, *read], f"{TOOLS}.consumer.ConsoleConsumer"),
        Call(["kafka-consumer-groups", *b, "--list"], f"{TOOLS}.consumer.group.ConsumerGroupCommand"),
        Call(["kafka-get-offsets", *b, "--topic", "orders"], f"{TOOLS}.GetOffsetShell"),
        Call(
            ["kafka-delete-records", *b, "--offset-json-file", str(offsets)], f"{TOOLS}.DeleteRecordsCommand"
        ),
        Call(["kafka-log-dirs", *b, "--describe"], f"{TOOLS}.LogDirsCommand"),
        Call(["kafka-leader-election", *b, *election], f"{TOOLS}.LeaderElectionCommand"),
        Call(["kafka-reassign-partitions", *b, "--list"], reassign),
        Call(["kafka-reassign-partitions", *b, *verify], reassign),
        Call(["kafka-metadata-quorum", *b, "describe", "--status"], f"{TOOLS}.MetadataQuorumCommand"),
        Call(["kafka-metadata-quorum", *c, "describe", "--replication"], f"{TOOLS}.MetadataQuorumCommand"),
        Call(["kafka-cluster", "cluster-id", *b], f"{TOOLS}.ClusterTool"),
        Call(["kafka-cluster", "list-endpoints", *b], f"{TOOLS}.ClusterTool"),
        Call(["kafka-features", *b, "describe"], f"{TOOLS}.FeatureCommand"),
        Call(["kafka-broker-api-versions", *b], f"{TOOLS}.BrokerApiVersionsCommand"),
        Call(
            ["kafka-metadata-shell", "--snapshot", segment, "ls", "/image"],
            "org.apache.kafka.shell.MetadataShell",
        ),
        Call(["kafka-metadata-shell", "--controllers", cluster.bootstrap_controllers, "ls", "/image"]),
        Call(["kafka-metadata-shell", "--directory", str(data), "ls", "/image"]),
        Call(["kafka-storage", "info", "--config", properties], "kafka.tools.StorageTool"),
        Call(["kafka-storage", "random-uuid"], "kafka.tools.StorageTool"),
        Call(
            ["kafka-dump-log", "--cluster-metadata-decoder", "--files", segment],
            "kafka.tools.DumpLogSegments",
        ),
        Call(["kafka-topics", "--help"], f"{TOOLS}.TopicCommand"),
        Call(["kafka-configs", "--help"], configs),
        Call(["kafka-console-consumer", "--help"], f"{TOOLS}.consumer.ConsoleConsumer"),
        Call(["kafka-server-start", "--help"], "kafka.Kafka"),
        Call(["kafka-server-stop", "--help"]),
        Call(["quorate", "--help"]),
        Call(["quorate", "status", *b]),
        Call(["quorate", "doctor", str(data)]),
        Call(["quorate", "doctor", properties]),
        Call(["quorate", "completion", "bash"]),
    ]


def run(command: list[str]) -> tuple[float, float]:
    """The elapsed seconds and the CPU seconds of one run."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out)
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
        may_end_with_1 = "--help" in command or "doctor" in command
        if process.returncode not in ((0, 1) if may_end_with_1 else (0,)) or b"Traceback" in text:
            raise SystemExit(f"{command}: status {process.returncode}\n{text.decode()}")
    return elapsed, usage.ru_utime + usage.ru_stime


def measure(todo: list[Call], runs: int, jars: Path | None) -> None:
    """Runs the commands in turn and prints a line for each."""
    for _ in range(runs):
        for call in todo:
            for whose, command in call.command_lines(jars):
                call.times.setdefault(whose, []).append(run(command))
    for call in todo:
        for whose, found in call.times.items():
            cpu, elapsed = [c for _, c in found], [e for e, _ in found]
            figures = (min(cpu), statistics.median(cpu), min(elapsed), statistics.median(elapsed))
            mark = "  <-- above the limit" if whose == "quorate" and min(cpu) > LIMIT_S else ""
            line = f"{call.shown[:78]}{mark}" if whose == "quorate" else "  the same, Apache Kafka"
            print("{:6.3f} {:6.3f}  {:6.3f} {:6.3f}  ".format(*figures) + line, flush=True)


def figures_of(todo: list[Call]) -> dict[str, object]:
    """The CPU and the elapsed seconds of each command, least and median."""

    def summary(values: list[float]) -> dict[str, float]:
        return {"min": round(min(values), 3), "median": round(statistics.median(values), 3)}

    return {
        call.shown: {
            whose: {"cpu_s": summary([c for _, c in found]), "elapsed_s": summary([e for e, _ in found])}
            for whose, found in call.times.items()
        }
        for call in todo
    }


def use_compiled_modules(folder: Path) -> None:
    """Compiles the package for the tools that are started from here on."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    compileall.compile_dir(Path(quorate.__file__).parent, quiet=2)


async def register(controller: str, cluster_id: str, brokers: range) -> None:
    """Registers brokers that do not exist. They stay fenced."""
    host, _, port = controller.rpartition(":")
    connection = await Connection.connect(host, int(port))
    feature, listener = BrokerRegistrationRequest.Feature, BrokerRegistrationRequest.Listener
    features = [
        feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST_STABLE_LEVEL)
    ]
    features += [
        feature(name=each.name, min_supported_version=0, max_supported_version=each.latest_stable)
        for each in FEATURES.values()
    ]
    for broker in brokers:
        answer = await connection.call(
            BrokerRegistrationRequest(
                broker_id=broker,
                cluster_id=cluster_id,
                incarnation_id=os.urandom(16),
                listeners=[listener(name="PLAINTEXT", host="127.0.0.1", port=1)],
                features=features,
                log_dirs=[os.urandom(16)],
                start_time_ms=1,
            ),
            10.0,
        )
        assert answer.error_code == 0, answer
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each command (5)")
    parser.add_argument("--nodes", type=int, default=100, help="registered brokers for quorate status (100)")
    parser.add_argument("--without-java", action="store_true", help="only Quorate's tools")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures to this file")
    args = parser.parse_args()
    jars = None if args.without_java else java.jars()
    load_before = round(os.getloadavg()[0], 1)
    print(f"load average {load_before} on {os.cpu_count()} CPUs; {args.runs} runs; least, median")
    print(f"{'CPU s':>13}  {'elapsed s':>13}  command")
    with (
        tempfile.TemporaryDirectory() as compiled,
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(1, 1, folder=folder) as cluster,
    ):
        use_compiled_modules(Path(compiled))
        where = ["--bootstrap-server", cluster.bootstrap_servers]
        run([str(BIN / "kafka-topics"), *where, "--create", "--topic", "orders"])
        todo = calls(cluster, Path(folder))
        measure(todo, args.runs, jars)
        fake = range(100, 100 + args.nodes)
        asyncio.run(register(cluster.bootstrap_controllers, cluster.cluster_id, fake))
        print(f"with {args.nodes} more brokers:")
        wide = [Call(["quorate", "status", *where]), Call(["quorate", "status", *where, "--json"])]
        measure(wide, args.runs, None)
    if args.json:
        result = heading("tools", args.runs) | {
            "kafka": java.KAFKA_VERSION if jars else None,
            "load_average": {"before": load_before, "after": round(os.getloadavg()[0], 1)},
            "figures": figures_of(todo),
            f"with {args.nodes} more brokers": figures_of(wide),
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
