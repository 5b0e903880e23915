"""How long a tool takes from being typed until it ends, on an idle cluster: `python -m bench.tools [--runs N]`.

Each command runs several times, the commands in turn. The CPU time is that of the tool's process; the elapsed time
also has what the nodes take, and on a busy machine what other processes take.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quorate.metadata.features import FEATURES, LATEST_STABLE_LEVEL
from quorate.net.client import Connection
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.testing import KafkaCluster

BIN = Path(sys.executable).parent
LIMIT_S = 0.3


def commands(cluster: KafkaCluster, folder: Path) -> list[list[str]]:
    """One or two usual calls of every console script."""
    b = ["--bootstrap-server", cluster.bootstrap_servers]
    c = ["--bootstrap-controller", cluster.bootstrap_controllers]
    data = next(path for path in folder.rglob("__cluster_metadata-0")).parent
    properties = next(folder.rglob("*.properties"))
    reassignment = folder / "reassignment.json"
    reassignment.write_text('{"version":1,"partitions":[]}')
    segment = next(data.glob("__cluster_metadata-0/*.log"))
    election = ["--election-type", "preferred", "--all-topic-partitions"]
    return [
        ["quorate", "status", *b],
        ["quorate", "doctor", str(data)],
        ["quorate", "completion", "bash"],
        ["kafka-topics", *b, "--list"],
        ["kafka-topics", *b, "--describe"],
        ["kafka-configs", *b, "--describe", "--entity-type", "topics", "--entity-name", "orders"],
        ["kafka-configs", *b, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"],
        ["kafka-console-producer", *b, "--topic", "orders"],
        ["kafka-console-consumer", *b, "--topic", "orders", "--from-beginning", "--max-messages", "1"],
        ["kafka-consumer-groups", *b, "--list"],
        ["kafka-get-offsets", *b, "--topic", "orders"],
        ["kafka-log-dirs", *b, "--describe"],
        ["kafka-leader-election", *b, *election],
        ["kafka-reassign-partitions", *b, "--list"],
        ["kafka-metadata-quorum", *b, "describe", "--status"],
        ["kafka-metadata-quorum", *c, "describe", "--replication"],
        ["kafka-cluster", "cluster-id", *b],
        ["kafka-cluster", "list-endpoints", *b],
        ["kafka-features", *b, "describe"],
        ["kafka-broker-api-versions", *b],
        ["kafka-metadata-shell", "--controllers", cluster.bootstrap_controllers, "ls", "/image"],
        ["kafka-metadata-shell", "--directory", str(data), "ls", "/image"],
        ["kafka-storage", "info", "--config", str(properties)],
        ["kafka-storage", "random-uuid"],
        ["kafka-dump-log", "--cluster-metadata-decoder", "--files", str(segment)],
        ["kafka-server-stop", "--help"],
        ["kafka-server-start", "--help"],
        ["kafka-delete-records", "--help"],
        *(
            [script, "--help"]
            for script in ("quorate", "kafka-topics", "kafka-configs", "kafka-console-consumer")
        ),
    ]


def run(words: list[str]) -> tuple[float, float]:
    """The elapsed seconds and the CPU seconds of one run."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]], stdin=subprocess.PIPE, stdout=out, stderr=out
        )
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if process.returncode not in (0, 1) or b"Traceback" in (text := out.read()):
            raise SystemExit(f"{words}: status {process.returncode}\n{text.decode()}")
    return elapsed, usage.ru_utime + usage.ru_stime


def measure(todo: list[list[str]], runs: int) -> None:
    """Runs the commands in turn and prints a line for each."""
    times: list[list[tuple[float, float]]] = [[] for _ in todo]
    for _ in range(runs):
        for number, words in enumerate(todo):
            times[number].append(run(words))
    for words, found in zip(todo, times, strict=True):
        cpu, elapsed = [c for _, c in found], [e for e, _ in found]
        shown = " ".join(word for word in words if not word.startswith(("127.", "/tmp")))
        figures = (min(cpu), statistics.median(cpu), min(elapsed), statistics.median(elapsed))
        mark = "" if min(elapsed) <= LIMIT_S else "  <-- above the limit"
        print("{:6.3f} {:6.3f}  {:6.3f} {:6.3f}  ".format(*figures) + shown[:80] + mark, flush=True)


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
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; {args.runs} runs; least, median")
    print(f"{'CPU s':>13}  {'elapsed s':>13}  command")
    with tempfile.TemporaryDirectory() as folder, KafkaCluster(1, 1, folder=folder) as cluster:
        run(
            ["kafka-topics", "--bootstrap-server", cluster.bootstrap_servers, "--create", "--topic", "orders"]
        )
        measure(commands(cluster, Path(folder)), args.runs)
        fake = range(100, 100 + args.nodes)
        asyncio.run(register(cluster.bootstrap_controllers, cluster.cluster_id, fake))
        print(f"with {args.nodes} more brokers:")
        where = ["--bootstrap-server", cluster.bootstrap_servers]
        measure([["quorate", "status", *where], ["quorate", "status", *where, "--json"]], args.runs)


if __name__ == "__main__":
    main()
