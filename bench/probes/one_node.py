"""Probes of one node that is broker and controller."""

from __future__ import annotations

import signal
import statistics
import time

from confluent_kafka.admin import NewTopic

from bench.probes.cluster import Cluster, admin, create_topics, latencies_ms, partition_count, wait_ready

Figures = dict[str, object]


def coldstart(impl: str) -> Figures:
    """Start until Metadata is answered, memory two seconds later, SIGTERM until the end; medians of three."""
    starts, memory, stops = [], [], []
    for _ in range(3):
        with Cluster([impl], combined=True) as cluster:
            began = time.perf_counter()
            cluster.start()
            starts.append(time.perf_counter() - began)
            time.sleep(2)
            node = cluster.nodes[0]
            memory.append(node.rss_mb())
            began = time.perf_counter()
            node.kill(signal.SIGTERM)
            node.running.wait(30)
            stops.append(time.perf_counter() - began)
    return {
        "start_s": statistics.median(starts),
        "rss_mb": statistics.median(memory),
        "stop_s": statistics.median(stops),
    }


def topics(impl: str) -> Figures:
    """Creations one after the other, pipelined, 1,000 in one request, one of 2,000 partitions; a restart."""
    with Cluster([impl], combined=True) as cluster:
        cluster.start()
        client = admin(cluster.bootstrap)
        for i in range(20):
            create_topics(client, NewTopic(f"warm{i}", 1, 1))
        single = []
        for i in range(100):
            began = time.perf_counter()
            create_topics(client, NewTopic(f"t{i}", 1, 1))
            single.append(time.perf_counter() - began)

        began = time.perf_counter()
        pending = [
            future
            for i in range(200)
            for future in client.create_topics(
                [NewTopic(f"p{i}", 1, 1)], operation_timeout=60, request_timeout=120
            ).values()
        ]
        for future in pending:
            future.result()
        pipelined = 200 / (time.perf_counter() - began)

        began = time.perf_counter()
        create_topics(client, *(NewTopic(f"q{i}", 1, 1) for i in range(1000)))
        together = 1000 / (time.perf_counter() - began)

        began = time.perf_counter()
        create_topics(client, NewTopic("big", 2000, 1))
        big = time.perf_counter() - began

        partitions = 20 + 100 + 200 + 1000 + 2000
        began = time.perf_counter()
        while partition_count(client) < partitions:
            time.sleep(0.005)
        visible = time.perf_counter() - began
        began = time.perf_counter()
        partition_count(client)
        all_topics = time.perf_counter() - began

        node = cluster.nodes[0]
        rss, cpu = node.rss_mb(), node.cpu_s()
        node.kill()
        began = time.perf_counter()
        node.start()
        wait_ready(cluster.bootstrap, 1, 300)
        while partition_count(client) < partitions:
            time.sleep(0.02)
        return {
            **latencies_ms("create", single),
            "pipelined_per_s": pipelined,
            "one_request_1000_per_s": together,
            "topic_2000_s": big,
            "visible_after_answer_s": visible,
            "metadata_all_s": all_topics,
            "partitions": partitions,
            "rss_mb": rss,
            "cpu_s": cpu,
            "restart_s": time.perf_counter() - began,
        }


def partitions(impl: str, count: int = 10_000) -> Figures:
    """Ten thousand partitions by five requests, until all are visible.

    Quorate is limited to 4,096 open files. Apache Kafka keeps the limit of this shell, as it needs more.
    """
    with Cluster([impl], combined=True) as cluster:
        node = cluster.nodes[0]
        node.start(None if impl == "java" else 4096)
        wait_ready(cluster.bootstrap, 1)
        client = admin(cluster.bootstrap)
        began = time.perf_counter()
        for i in range(5):
            create_topics(client, NewTopic(f"big{i}", count // 5, 1))
        answered = time.perf_counter() - began
        while partition_count(client) < count and time.perf_counter() - began < 120:
            time.sleep(0.02)
        visible = time.perf_counter() - began
        time.sleep(5)
        return {
            "answered_s": answered,
            "visible_s": visible,
            "alive": node.running.poll() is None,
            "rss_mb": node.rss_mb(),
        }
