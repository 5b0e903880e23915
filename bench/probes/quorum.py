"""Probes of three controllers, and of brokers that die."""

from __future__ import annotations

import contextlib
import itertools
import signal
import statistics
import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from bench.probes import wire
from bench.probes.cluster import Cluster, Node, admin, create_topics, latencies_ms

Figures = dict[str, object]


def quorum_topics(impl: str) -> Figures:
    """Three controllers and a broker: the time of one creation, and the rate of many in flight."""
    with Cluster([impl] * 3, [impl]) as cluster:
        cluster.start()
        client = admin(cluster.bootstrap)
        for i in range(20):
            create_topics(client, NewTopic(f"warm{i}", 1, 1))
        single = []
        for i in range(100):
            began = time.perf_counter()
            create_topics(client, NewTopic(f"t{i}", 1, 1))
            single.append(time.perf_counter() - began)
        count = 200 if impl == "java" else 2000
        began = time.perf_counter()
        pending = [
            future
            for i in range(count)
            for future in client.create_topics(
                [NewTopic(f"p{i}", 1, 1)], operation_timeout=60, request_timeout=120
            ).values()
        ]
        for future in pending:
            future.result()
        return {
            **latencies_ms("create", single),
            "in_flight_per_s": count / (time.perf_counter() - began),
            "controller_rss_mb": max(node.rss_mb() for node in cluster.controller_nodes),
        }


def active_controller(cluster: Cluster) -> Node:
    """The controller that answers DescribeQuorum without an error."""
    while True:
        for node in cluster.controller_nodes:
            with contextlib.suppress(OSError):
                if node.running.poll() is None and not wire.describe_quorum_error(node.controller_port):
                    return node
        time.sleep(0.05)


class Creations:
    """Creates topics one after the other, 2 ms apart, in a thread; `done` holds when each succeeded."""

    def __init__(self, bootstrap: str) -> None:
        self.done: list[float] = []
        self._client = admin(bootstrap)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(0.002):
            number += 1
            topic = NewTopic(f"f{number}", 1, 1)
            try:
                for future in self._client.create_topics(
                    [topic], operation_timeout=1, request_timeout=2
                ).values():
                    future.result()
                self.done.append(time.perf_counter())
            except KafkaException:
                continue  # the next topic is tried; the gap shows how long none succeeded

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def failover(impl: str, sig: int = signal.SIGKILL, rounds: int = 7) -> Figures:
    """The longest time without a successful creation around the death of the active controller."""
    gaps = []
    for _ in range(rounds):
        with Cluster([impl] * 3, [impl]) as cluster:
            cluster.start()
            creations = Creations(cluster.bootstrap)
            time.sleep(3)
            leader = active_controller(cluster)
            time.sleep(1)
            died = time.perf_counter()
            leader.kill(sig)
            while time.perf_counter() - died < 30 and not any(t > died + 0.05 for t in creations.done[-3:]):
                time.sleep(0.01)
            time.sleep(2)
            creations.stop()
            around = [t for t in creations.done if t > died - 1]
            gaps.append(max(b - a for a, b in itertools.pairwise(around)))
    return {
        "gap_s": [round(gap, 3) for gap in gaps],
        "median_s": statistics.median(gaps),
        "max_s": max(gaps),
    }


def failover_term(impl: str) -> Figures:
    """As `failover`, by SIGTERM."""
    return failover(impl, signal.SIGTERM)


def broker_death(impl: str) -> dict[str, float]:
    """kill -9 of a broker that leads a partition of two replicas.

    `metadata_s` is the time until Metadata of the other broker no longer names it; `produce_s` the time
    until the other broker, as the new leader, acknowledges a record with acks=all.
    """
    with Cluster([impl], [impl, impl]) as cluster:
        cluster.start()
        survivor, victim = cluster.broker_nodes
        client = admin(f"127.0.0.1:{survivor.broker_port}")
        replicas = [victim.node_id, survivor.node_id]
        create_topics(client, NewTopic("t", 1, replica_assignment=[replicas]))
        records = wire.batch_of_one(b"x" * 100)
        time.sleep(2)
        if error := wire.produce_error(victim.broker_port, "t", 0, records):
            raise RuntimeError(f"the leader answers Produce with error {error} before it is killed")
        client.list_topics(timeout=5)
        died = time.perf_counter()
        victim.kill()
        while victim.node_id in client.list_topics(timeout=5).brokers:
            time.sleep(0.002)
        metadata_s = time.perf_counter() - died
        while wire.produce_error(survivor.broker_port, "t", 0, records):
            time.sleep(0.002)
        return {"metadata_s": metadata_s, "produce_s": time.perf_counter() - died}


def fencing(impl: str) -> Figures:
    """Two brokers, one of which ends: seconds until Metadata no longer names it."""
    figures: Figures = {}
    for name, sig in (("kill", signal.SIGKILL), ("term", signal.SIGTERM)):
        with Cluster([impl], [impl, impl]) as cluster:
            cluster.start()
            client = admin(f"127.0.0.1:{cluster.broker_nodes[0].broker_port}")
            time.sleep(2)
            began = time.perf_counter()
            cluster.broker_nodes[1].kill(sig)
            while len(client.list_topics(timeout=5).brokers) > 1:
                time.sleep(0.02)
            figures[f"{name}_out_of_metadata_s"] = time.perf_counter() - began
    return figures
