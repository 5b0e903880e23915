"""Probes of how fast records are written, replicated and read."""

from __future__ import annotations

import re
import subprocess
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from bench.probes.cluster import Cluster, admin, create_topics, kafka_classpath, latencies_ms

Figures = dict[str, object]

KIB = bytes(range(256)) * 4


def produced_mb_per_s(
    bootstrap: str, topic: str, records: int, **settings: object
) -> tuple[float, list[object]]:
    """The rate of records of 1 KiB through librdkafka, and the errors."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.size": 1 << 17,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "compression.type": "none",
            **settings,
        }
    )
    errors: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(error)

    began = time.perf_counter()
    for i in range(records):
        while True:
            try:
                producer.produce(topic, KIB, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    return records * len(KIB) / 1e6 / (time.perf_counter() - began), errors


def produced_one_by_one(bootstrap: str, topic: str, count: int) -> list[float]:
    """The seconds until each record is acknowledged by all replicas, with one in flight."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    took = []
    for _ in range(count):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        producer.flush(10)
        took.append(time.perf_counter() - began)
    return took


def consumed_mb_per_s(bootstrap: str, topic: str, records: int) -> float:
    """The rate from the first records that arrive."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "probe",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1 << 22,
            "queued.max.messages.kbytes": 1 << 18,
        }
    )
    consumer.subscribe([topic])
    first: list[object] = []
    while not first:
        first = consumer.consume(10_000, 5)
    began, received = time.perf_counter(), len(first)
    while received < records:
        received += len(consumer.consume(10_000, 5))
    took = time.perf_counter() - began
    consumer.close()
    return (received - len(first)) * len(KIB) / 1e6 / took


def produce(impl: str) -> Figures:
    """One node, four partitions, 1 KiB records through librdkafka; then they are read."""
    records = 300_000
    with Cluster([impl], combined=True) as cluster:
        cluster.start()
        create_topics(admin(cluster.bootstrap), NewTopic("bench", 4, 1))
        figures: Figures = {}
        for acks in ("1", "all"):
            rate, errors = produced_mb_per_s(cluster.bootstrap, "bench", records, acks=acks)
            assert not errors, errors[0]
            figures[f"produce_acks_{acks}_mb_s"] = rate
        figures["consume_mb_s"] = consumed_mb_per_s(cluster.bootstrap, "bench", 2 * records)
        figures |= latencies_ms("produce_one", produced_one_by_one(cluster.bootstrap, "bench", 500))
        node = cluster.nodes[0]
        return {**figures, "cpu_s": node.cpu_s(), "rss_mb": node.rss_mb()}


def replicated(impl: str) -> Figures:
    """Three nodes that are broker and controller, three replicas, acks=all."""
    with Cluster([impl] * 3, combined=True) as cluster:
        cluster.start()
        create_topics(admin(cluster.bootstrap), NewTopic("bench", 3, 3))
        time.sleep(2)
        rate, errors = produced_mb_per_s(cluster.bootstrap, "bench", 100_000, acks="all")
        return {
            "produce_rf3_mb_s": rate,
            "errors": len(errors),
            **latencies_ms("rf3_one", produced_one_by_one(cluster.bootstrap, "bench", 300)),
            "rss_mb_sum": sum(node.rss_mb() for node in cluster.nodes),
        }


def kafka_tool(name: str, *arguments: object) -> str:
    """The last line that one of Apache Kafka's own tools prints."""
    command = [
        "java",
        "-Xmx512M",
        *kafka_classpath(),
        f"org.apache.kafka.tools.{name}",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def perf_tools(impl: str, nodes: int = 1, records: int = 400_000) -> Figures:
    """Apache Kafka's own producer and consumer performance tools: a load that no Python client limits."""
    gigabytes = records * len(KIB) / 1e9
    with Cluster([impl] * nodes, combined=True) as cluster:
        cluster.start()
        create_topics(admin(cluster.bootstrap), NewTopic("perf", 6, nodes))
        time.sleep(2)

        def cpu_s() -> float:
            return sum(node.cpu_s() for node in cluster.nodes)

        figures: Figures = {}
        for acks in ("1", "all"):
            cpu = cpu_s()
            settings = [
                f"bootstrap.servers={cluster.bootstrap}",
                f"acks={acks}",
                "batch.size=131072",
                "linger.ms=5",
            ]
            size = ["--num-records", records, "--record-size", len(KIB), "--throughput", -1]
            out = kafka_tool("ProducerPerformance", "--topic", "perf", *size, "--producer-props", *settings)
            rate, p99 = re.search(r"\(([\d.]+) MB/sec", out), re.search(r"(\d+) ms 99th", out)
            assert rate and p99, out
            figures[f"acks_{acks}_mb_s"] = float(rate[1])
            figures[f"acks_{acks}_p99_ms"] = float(p99[1])
            figures[f"acks_{acks}_broker_cpu_s_per_gb"] = (cpu_s() - cpu) / gigabytes
        cpu = cpu_s()
        where = ["--bootstrap-server", cluster.bootstrap, "--topic", "perf", "--timeout", 60_000]
        out = kafka_tool("ConsumerPerformance", *where, "--messages", 2 * records)
        figures["consume_mb_s"] = float(out.split(",")[8])
        figures["consume_broker_cpu_s_per_gb"] = (cpu_s() - cpu) / (2 * gigabytes)
        return figures


def perf_tools_rf3(impl: str) -> Figures:
    """As `perf_tools`, with three nodes and three replicas."""
    return perf_tools(impl, 3, 150_000)


def end_to_end(impl: str) -> Figures:
    """From produce to a consumer that waits: 100 records a second, one at a time."""
    with Cluster([impl], combined=True) as cluster:
        cluster.start()
        create_topics(admin(cluster.bootstrap), NewTopic("e2e", 1, 1))
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "probe", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["e2e"])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        producer.produce("e2e", b"0")
        producer.flush(10)
        while not consumer.consume(1, 0.1):
            continue
        took = []
        for _ in range(600):
            began = time.perf_counter()
            producer.produce("e2e", b"x" * 100)
            producer.poll(0)
            while not consumer.consume(1, 0.01):
                producer.poll(0)
            took.append(time.perf_counter() - began)
            time.sleep(max(0.0, 0.01 - took[-1]))
        consumer.close()
        return latencies_ms("end_to_end", took[100:])  # the first ones warm both sides
