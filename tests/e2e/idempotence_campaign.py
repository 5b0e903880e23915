"""Repeatedly stops all brokers at once while an idempotent producer runs: no record may be lost or repeated.

Three combined nodes, replication factor 3, `min.insync.replicas` 2, one librdkafka producer that lives
through all rounds. In each round all nodes get SIGTERM or SIGKILL within a moment and are started again. The
producer retries unacknowledged batches with the sequence numbers of the first attempt, so the leaders must
distinguish retries from gaps (KIP-98).

    python -m tests.e2e.idempotence_campaign --rounds 20 --seed 1 --signal TERM
    python -m tests.e2e.idempotence_campaign --rounds 3 --impl java
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic

from tests.support.cluster import Node, free_ports, wait_for
from tests.support.ledger import QUIET, read_partition

TOPIC = "numbers"
PARTITIONS = 3
OUTSTANDING = 600
"""Records without an answer at which the load waits: enough for five batches in flight and more behind
them."""
RESTART_S = 120.0
STOP_S = 330.0
"""Kafka's own limit of a controlled shutdown is 300 s: a node that has lost its quorum may use it up."""


@contextmanager
def cluster(base: Path, impl: str = "quorate", **extra: object) -> Iterator[list[Node]]:
    """Three running combined nodes in a static quorum; killed at the end."""
    voters = dict(zip((1, 2, 3), free_ports(3), strict=True))
    nodes = [
        Node(
            base / f"n{i}",
            node_id=i,
            impl=impl,
            static=True,
            voters=voters,
            controller_port=voters[i],
            extra={"offsets.topic.replication.factor": 3, "auto.create.topics.enable": "false", **extra},
        )
        for i in voters
    ]
    try:
        for node in nodes:
            node.format()
        start_all(nodes)
        yield nodes
    except BaseException:
        for node in nodes:
            print(f"-- node {node.node_id}\n{node.log_tail()}", file=sys.stderr)
        raise
    finally:
        for node in nodes:
            node.kill()


def start_all(nodes: list[Node]) -> None:
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_ready(RESTART_S)


def bootstrap_of(nodes: list[Node]) -> str:
    return ",".join(node.bootstrap for node in nodes)


class NumberProducer:
    """Writes the numbers 0, 1, 2, ... to each partition through one idempotent producer, in a thread of its
    own.

    The producer never gives up a record, so each number must be in its partition exactly once, in order.
    """

    def __init__(self, bootstrap: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 1,  # so that five are always in flight
                "message.timeout.ms": 600_000,
                "retry.backoff.ms": 50,
                "error_cb": self._client_error,
                **QUIET,
            }
        )
        self.sent = 0
        self.acknowledged: dict[int, dict[int, int]] = {
            p: {} for p in range(PARTITIONS)
        }  # partition -> offset -> number
        self.errors: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float = 60) -> None:
        """Stops sending and waits until everything is acknowledged."""
        self._over.set()
        self._thread.join(10)
        left = self._producer.flush(timeout_s)
        self.check()
        assert left == 0, f"{left} records were not acknowledged in {timeout_s} s"

    def abandon(self) -> None:
        self._over.set()
        self._thread.join(10)
        self._producer.purge()

    def check(self) -> None:
        """Raises an AssertionError if the client has given up: a fatal error, or a record that failed."""
        assert not self.errors, self.errors[:3]

    @property
    def answered(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def goes_on(self, timeout_s: float = 60) -> None:
        """Waits until each partition acknowledges records that were not even sent before."""
        sent = self.sent // PARTITIONS

        def acknowledged() -> bool:
            self.check()
            return all(len(held) > sent for held in self.acknowledged.values())

        wait_for("records to be acknowledged", acknowledged, timeout_s)

    def _client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(f"{message.partition()}: {error}")
            return
        partition, offset = message.partition(), message.offset()
        value = message.value()
        assert partition is not None and offset is not None and value is not None
        number = int(value)
        held = self.acknowledged[partition]
        if offset in held:
            self.errors.append(
                f"offset {offset} of partition {partition} was given to {held[offset]} and to {number}"
            )
        held[offset] = number

    def _run(self) -> None:
        try:
            while not self._over.is_set() and not self.errors:
                if len(self._producer) < OUTSTANDING:
                    for partition in range(PARTITIONS):
                        self._producer.produce(
                            TOPIC,
                            b"%d" % (self.sent // PARTITIONS),
                            partition=partition,
                            on_delivery=self._delivered,
                        )
                        self.sent += 1
                self._producer.poll(0.0005)
        except (KafkaException, BufferError) as error:
            self.errors.append(str(error))


@dataclass
class Campaign:
    nodes: list[Node]
    rng: random.Random
    signals: list[signal.Signals]
    segment_ms: int = 300  # segments roll during each round: a roll takes a snapshot of the producers too
    tell: Callable[[str], None] = lambda _: None
    stops_s: list[float] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)

    def run(self, rounds: int) -> dict[str, object]:
        """The rounds and the check at the end. Raises an AssertionError at the first fault."""
        bootstrap = bootstrap_of(self.nodes)
        admin = self.nodes[0].admin()
        config = {"min.insync.replicas": "2", "segment.ms": str(self.segment_ms)}
        topic = NewTopic(TOPIC, PARTITIONS, len(self.nodes), config=config)
        for created in admin.create_topics([topic], operation_timeout=30).values():
            created.result()
        load = NumberProducer(bootstrap)
        load.start()
        try:
            load.goes_on()
            for number in range(1, rounds + 1):
                self._round(number, load)
            load.finish()
        except BaseException:
            load.abandon()
            raise
        for partition, held in load.acknowledged.items():
            self._check_partition(bootstrap, partition, held)
        for node in self.nodes:
            assert "Traceback" not in (node.base / "out.log").read_text(errors="replace"), (
                f"node {node.node_id} has a traceback"
            )
        return {
            "rounds": rounds,
            "records": load.answered,
            "stop_max_s": round(max(self.stops_s), 2),
            "recovery_max_s": round(max(self.recoveries_s), 2),
        }

    def _round(self, number: int, load: NumberProducer) -> None:
        time.sleep(self.rng.uniform(0.05, 1.0))  # the moment of the stop is the random input
        how = self.rng.choice(self.signals)
        began = time.perf_counter()
        for node in self.rng.sample(self.nodes, len(self.nodes)):
            assert node.proc is not None
            node.proc.send_signal(how)
        for node in self.nodes:
            assert node.proc is not None
            status = node.proc.wait(STOP_S)
            assert how == signal.SIGKILL or status in (0, 143), f"node {node.node_id} ended with {status}"
        stopped = time.perf_counter()
        start_all(self.nodes)
        load.goes_on()
        self.stops_s.append(stopped - began)
        self.recoveries_s.append(time.perf_counter() - stopped)
        self.tell(
            f"round {number}: {how.name}, stopped in {self.stops_s[-1]:.1f} s, writing again after "
            f"{self.recoveries_s[-1]:.1f} s, {load.answered} records"
        )

    def _check_partition(self, bootstrap: str, partition: int, acknowledged: dict[int, int]) -> None:
        """Checks that every number exists once, in order, and that acknowledged numbers are at the
        acknowledged offset."""
        there = [int(value) for value in read_partition(bootstrap, TOPIC, partition, "read_uncommitted")]
        assert there == list(range(len(there))), f"{TOPIC}-{partition}: {_first_disorder(there)}"
        assert acknowledged == dict(enumerate(there)), (
            f"{TOPIC}-{partition}: answers differ from what is there"
        )


def _first_disorder(numbers: list[int]) -> str:
    at = next(i for i, number in enumerate(numbers) if i != number)
    return f"offset {at} holds {numbers[at]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Stops all brokers at once under an idempotent producer.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--signal", choices=("TERM", "KILL", "both"), default="TERM")
    parser.add_argument("--impl", choices=("quorate", "java"), default="quorate")
    parser.add_argument("--segment-ms", type=int, default=300)
    args = parser.parse_args()
    signals = {"TERM": [signal.SIGTERM], "KILL": [signal.SIGKILL], "both": [signal.SIGTERM, signal.SIGKILL]}[
        args.signal
    ]
    with tempfile.TemporaryDirectory() as base, cluster(Path(base), args.impl) as nodes:
        campaign = Campaign(
            nodes,
            random.Random(args.seed),
            signals,
            args.segment_ms,
            lambda line: print(line, file=sys.stderr, flush=True),
        )
        figures = campaign.run(args.rounds)
    print(json.dumps({"implementation": args.impl, "signal": args.signal, "seed": args.seed, **figures}))


if __name__ == "__main__":
    main()
