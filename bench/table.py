"""Writes the table of docs/benchmarks.md from bench/results/*.json: `python -m bench.table`.

The sections after it stay as they are.
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = {  # figure -> what it says
    "coldstart": {
        "start_s": "start to first Metadata, s",
        "rss_mb": "memory when idle, MB",
        "stop_s": "SIGTERM to end, s",
    },
    "topics": {
        "create_p50_ms": "create a topic, p50, ms",
        "create_p99_ms": "create a topic, p99, ms",
        "pipelined_per_s": "creations in flight, per second",
        "one_request_1000_per_s": "1,000 topics in one request, per second",
        "visible_after_answer_s": "until 3,320 partitions are in Metadata, s",
        "restart_s": "back after kill -9 with 3,320 partitions, s",
    },
    "partitions": {
        "visible_s": "10,000 partitions until all are visible, s (ours with 4,096 open files)",
        "rss_mb": "memory with 10,000 partitions, MB",
    },
    "produce": {
        "produce_acks_1_mb_s": "librdkafka, produce, acks 1, MB/s",
        "produce_acks_all_mb_s": "librdkafka, produce, acks all, MB/s",
        "consume_mb_s": "librdkafka, consume, MB/s",
        "produce_one_p50_ms": "one acknowledged record, p50, ms",
        "produce_one_p99_ms": "one acknowledged record, p99, ms",
    },
    "perf_tools": {
        "acks_1_mb_s": "Java tools, produce, acks 1, MB/s",
        "acks_all_mb_s": "Java tools, produce, acks all, MB/s",
        "consume_mb_s": "Java tools, consume, MB/s",
        "acks_1_broker_cpu_s_per_gb": "broker CPU, acks 1, s/GB",
        "acks_all_broker_cpu_s_per_gb": "broker CPU, acks all, s/GB",
        "consume_broker_cpu_s_per_gb": "broker CPU, consume, s/GB",
    },
    "perf_tools_rf3": {
        "acks_1_mb_s": "Java tools, three nodes, replication factor 3, produce, acks 1, MB/s "
        "(`python -m bench.compare perf_tools_rf3`)",
        "acks_all_mb_s": "the same, acks all, MB/s",
        "acks_1_broker_cpu_s_per_gb": "the same, CPU of all brokers, acks 1, s/GB",
        "acks_all_broker_cpu_s_per_gb": "the same, acks all, s/GB",
    },
    "requests": {
        "produce_per_s": "50 connections with a small Produce each in flight, per second "
        "(`python -m bench.compare requests`)",
        "produce_cpu_us": "the same, CPU of the node for a request, µs",
        "metadata_per_s": "the same of Metadata, per second",
        "metadata_cpu_us": "the same, CPU, µs",
        "fetch_per_s": "the same of Fetch, per second",
        "fetch_cpu_us": "the same, CPU, µs",
        "offset_commit_per_s": "the same of OffsetCommit, per second",
        "offset_commit_cpu_us": "the same, CPU, µs",
    },
    "end_to_end": {
        "end_to_end_p50_ms": "from produce to a consumer that waits, p50, ms (`python -m bench.compare "
        "end_to_end`)",
        "end_to_end_p99_ms": "the same, p99, ms",
    },
    "quorum_topics": {
        "create_p50_ms": "three controllers: create a topic, p50, ms",
        "in_flight_per_s": "three controllers: creations in flight, per second",
    },
    "failover_kill": {
        "median_s": "kill -9 of the active controller to the next topic, median, s",
        "max_s": "the same, the worst, s",
    },
    "failover_term": {
        "median_s": "SIGTERM of the active controller to the next topic, median, s",
        "max_s": "the same, the worst, s",
    },
    "failover_kill_busy": {
        "median_s": "kill -9 of the active controller while two other processes want both cores, median, s "
        "(`python -m bench.failover kill --busy 2`)",
        "max_s": "the same, the worst, s",
    },
    "failover_broker_busy": {
        "metadata_median_s": "kill -9 of a broker, until Metadata no longer names it, both cores busy, "
        "median, s (`python -m bench.failover broker --busy 2`)",
        "metadata_max_s": "the same, the worst, s",
    },
    "snapshot_fetch": {
        "mb_per_s": "a late controller fetches a snapshot of a million partitions (125 MB, "
        "verified, fsynced), MB/s",
        "leader_answers_max_ms": "the leader's longest answer meanwhile, ms",
    },
    "snapshot_start": {
        "active_s": "a controller starts on a snapshot of a million partitions, until it has created "
        "a topic, s (`python -m bench.snapshot_start`)",
        "create_p50_ms": "the same, create a topic after that, p50, ms",
        "rss_mb": "the same, memory, MB",
        "replaced_s": "kill -9 of the active one of three with this snapshot to the next topic, s",
        "replaced_few_s": "the same with 20 partitions, s",
    },
    "zone": {
        "leaderships_moved_cpu_s": "10 of 30 brokers lost, a million partitions: 333,240 leaderships "
        "moved, s of controller CPU (`python -m bench.zone`)",
        "fenced_cpu_s": "the same, until all of their million replicas have left the ISRs and they "
        "are fenced, s of CPU",
        "turn_p99_ms": "the same, 99 of 100 turns of the controller take at most, ms of CPU",
        "longest_turn_ms": "the same, the longest turn, ms of CPU",
        "longest_collection_ms": "the same, the longest collection of garbage, a part of its turn, ms of CPU",
        "replay_cpu_s": "a standby or broker replays these changes, s of CPU",
        "replay_longest_step_ms": "the same, its longest step, ms of CPU",
    },
    "restart": {
        "restart_s": "kill -9 with 2,000 written partitions of 1 MB, until the last batch of each is read, s "
        "(`python -m bench.restart --rounds 1`)",
        "restart_cpu_s": "the same, CPU of the node, s",
    },
    "restart_10000": {
        "restart_s": "the same with 10,000 partitions, s (`python -m bench.restart --partitions 10000 "
        "--rounds 1 --one-directory`)",
        "restart_cpu_s": "the same, CPU of the node, s",
    },
    "broker_stop": {
        "stop_s": "SIGTERM to the end of a broker that leads 100,000 partitions, s "
        "(`python -m bench.broker_stop --partitions 100000`)",
        "stop_cpu_s": "the same, CPU of the broker, s",
        "controller_cpu_s": "the same, CPU of the controller, s",
        "rss_mb": "the same, memory of the broker before, MB",
    },
    "replicated": {
        "produce_rf3_mb_s": "three nodes, replication factor 3, acks all, MB/s",
        "rf3_one_p50_ms": "the same, one record, p50, ms",
    },
}
HEAD = """# Measured against Apache Kafka

Apache Kafka 4.1.1 and Quorate in turn on one machine, the same clients for both
(`python -m bench.compare`; medians, minimum to maximum in brackets; files in `bench/results/`). The
machine has 2 cores, shared by node and client, and other work ran on it: compare the columns with
each other and with nothing else.

| figure | Apache Kafka | Quorate | ratio | runs |
|---|---|---|---|---|
"""


def number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def main() -> None:
    rows = []
    for probe, figures in FIGURES.items():
        path = ROOT / "bench" / "results" / f"{probe}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        for key, says in figures.items():
            cells = []
            for impl in ("java", "quorate"):
                f = result["figures"].get(impl, {}).get(key)
                cells.append(f"{number(f['median'])} ({number(f['min'])}-{number(f['max'])})" if f else "-")
            rows.append(
                f"| {says} | {cells[0]} | {cells[1]} | "
                f"{result.get('ratio_quorate_to_java', {}).get(key, '-')} | "
                f"{result['rounds']} |"
            )
    page = ROOT / "docs" / "benchmarks.md"
    _, heading, sections = page.read_text().partition("\n## ")
    page.write_text(HEAD + "\n".join(rows) + "\n" + heading + sections)


if __name__ == "__main__":
    main()
