"""Brokers of Apache Kafka and ours in one cluster, under load and random faults, for a given time.

    python -m tests.interop.broker_soak --minutes 60 --seed 1 --json bench/results/broker_soak.json

Three controllers (ours, Java's, ours) and three brokers (Java's, ours, Java's). An idempotent
producer with acks=all writes numbered records to six partitions that all brokers have, and two
consumers read them, one of them from the broker in its rack. Every few seconds there is one fault,
and the next one comes when all replicas are in sync again:

    kill, shutdown    of a broker or a controller, which starts again after up to 6 s
    freeze            SIGSTOP for up to 12 s: longer than a session, so that the broker may be fenced
    swap              a broker continues as the other implementation on the same directories
    reassign          a partition moves to two or three brokers, in a random order
    election          each partition's first replica leads

At checkpoints and at the end, while the load is paused: each partition's log has every acknowledged record
once, in order and at the answered offset, and no other. All its replicas have the same bytes up to the high
watermark, and the same as at the checkpoints before. Both consumers have read each record once and in order.
The controllers' logs have the same bytes and metadata. The first violation ends the run with status 1; the
directories are kept in --keep.

What the random numbers choose depends on the seed alone; when it happens depends on the machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import platform
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.interop.soak import rss_bytes_and_files, same_code, spread, versions
from tests.interop.soak_cluster import SMALL
from tests.support import java
from tests.support.mixed import MixedNode
from tests.support.mixed_brokers import BROKERS, PARTITIONS, SETTINGS, TOPIC, MixedBrokers
from tests.support.numbered_load import NumberedLoad, NumberedReader

OTHER = {"quorate": "java", "java": "quorate"}
WEIGHTS = {"kill": 4, "shutdown": 3, "freeze": 3, "swap": 2, "reassign": 3, "election": 2}
"""How often each fault is chosen, in relation."""
CONTROLLER_SHARE = 0.25
"""Of the faults that a controller may have."""


@dataclass(slots=True)
class Fault:
    """One fault, and its effect."""

    at_s: float
    what: str
    role: str = ""  # broker, controller
    victim: str = ""  # quorate, java
    brokers: str = ""  # their implementations when it happened: "jqj"
    gap_s: float = 0.0  # the longest time without an acknowledgement of one partition
    in_sync_s: float = 0.0  # from the restart until all replicas are in sync
    load: float = 0.0


class BrokerSoak:
    """The schedule, the checks and the record of a run."""

    def __init__(self, args: argparse.Namespace, cluster: MixedBrokers) -> None:
        """`cluster` must be running, under load."""
        assert cluster.load is not None
        self.args, self.cluster, self.random = args, cluster, random.Random(args.seed)
        self.load: NumberedLoad = cluster.load
        rack = cluster.rack(cluster.brokers[1])
        self.readers = [NumberedReader(cluster.servers, TOPIC, PARTITIONS, r) for r in ("", rack)]
        self.faults: list[Fault] = []
        self.samples: list[dict[str, object]] = []
        self.ended: Counter[str] = Counter()
        self.checks = 0
        self.started = time.monotonic()
        self.took_s = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        print(f"{self.elapsed_s:7.1f} {text}", flush=True)

    # -- the run
    # ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        length_s = self.args.minutes * 60
        check_every_s = min(180.0, length_s / 5)
        next_check = check_every_s
        while self.elapsed_s < length_s:
            time.sleep(self.random.uniform(*self.args.fault_every))  # the schedule is of times
            self.fault()
            if self.elapsed_s >= next_check:
                self.check()
                next_check = self.elapsed_s + check_every_s
        self.check()
        self.took_s = self.elapsed_s

    def fault(self) -> None:
        """Does one fault and waits until everything is in sync again and all partitions are written."""
        what = self.random.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        fault = Fault(
            round(self.elapsed_s, 1), what, brokers="".join(b.impl[0] for b in self.cluster.brokers)
        )
        self.load.forget_gaps()
        if what == "reassign":
            self._reassign()
        elif what == "election":
            self.cluster.elect_preferred(timeout_s=self.args.bound)
        else:
            node = self._victim(what)
            fault.role, fault.victim = node.roles, node.impl
            self._disturb(node, what)
        restarted = time.monotonic()
        self.cluster.in_sync(timeout_s=self.args.bound)
        self.cluster.whole(self.args.bound)
        fault.in_sync_s = round(time.monotonic() - restarted, 2)
        self.load.flows(self.args.bound)
        for reader in self.readers:
            assert reader.failure is None, reader.failure
        fault.gap_s = round(self.load.longest_gap_s, 3)
        fault.load = round(os.getloadavg()[0], 1)
        self.faults.append(fault)
        self.say(
            f"{what} {fault.role} {fault.victim} in {fault.brokers}: gap {fault.gap_s} s, in sync after "
            f"{fault.in_sync_s} s, {self.load.acknowledged} records"
        )

    def _victim(self, what: str) -> MixedNode:
        """A swap takes a broker of the majority, so that both kinds remain."""
        if what == "swap":
            rare = self.cluster.rare
            return self.random.choice([b for b in self.cluster.brokers if b is not rare])
        controller = self.random.random() < CONTROLLER_SHARE
        return self.random.choice(self.cluster.controllers if controller else self.cluster.brokers)

    def _disturb(self, node: MixedNode, what: str) -> None:
        assert node.proc is not None
        if what == "freeze":
            node.proc.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(1, 12))  # the fault's own length
            node.proc.send_signal(signal.SIGCONT)
            return
        if what == "kill" or (what == "swap" and self.random.random() < 0.5):
            node.kill()
        else:
            status = node.stop(self.args.bound)
            self.ended[f"{node.impl} {status}"] += 1
            # Apache Kafka ends with 1 when it is told to stop before all of its publishers are there.
            assert status == 0 or node.impl == "java", f"{node.impl} {node.node_id} ended with {status}"
        time.sleep(self.random.uniform(0.5, 6))  # the fault's own length
        if what == "swap":
            node.impl = OTHER[node.impl]
        node.start(timeout_s=self.args.bound)

    def _reassign(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        wanted = self.random.sample(BROKERS, self.random.choice((2, 3, 3)))
        self.cluster.reassign(TOPIC, {partition: wanted})
        self.cluster.wait_for_partitions(
            f"partition {partition} to move to {wanted}",
            TOPIC,
            lambda ps: [*ps[partition].replicas] == wanted,
            self.args.bound,
        )

    # -- what must hold
    # ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks all conditions. Raises AssertionError with the violations."""
        self.load.pause(self.args.bound)
        wrong = self.cluster.violations(self.args.bound)
        assert not wrong, "\n".join(wrong[:50])
        for reader in self.readers:
            reader.reaches([len(p.offsets) for p in self.load.partitions], self.args.bound)
        self.checks += 1
        self.sample()
        self.say(f"check {self.checks}: {self.load.acknowledged} records, {self.batches} batches compared")
        self.load.resume()

    @property
    def batches(self) -> int:
        return sum(len(checker.sums) for checker in self.cluster.checkers)

    def sample(self) -> None:
        for node in self.cluster.nodes:
            rss, files = rss_bytes_and_files(node)
            self.samples.append(
                {
                    "at_s": round(self.elapsed_s), "node": node.node_id, "role": node.roles, "impl": node.impl,
                    "rss_mb": round(rss / 1e6, 1), "files": files,
                }
            )  # fmt: skip

    # -- the record
    # ----------------------------------------------------------------------------------------------

    def result(self, violation: str | None) -> dict[str, object]:
        kinds = Counter((f.what, f.role, f.victim) for f in self.faults)
        return {
            "command": f"python -m tests.interop.broker_soak --minutes {self.args.minutes:g} --seed {self.args.seed}",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "result": violation or "passed",
            "seed": self.args.seed,
            "seconds": round(self.took_s or self.elapsed_s),
            "versions": versions() | {"kafka": self.cluster.kafka},
            "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
            "controllers": self.cluster.implementations,
            "records_acknowledged": self.load.acknowledged,
            "checks": {"count": self.checks, "batches_compared": self.batches},
            "exit_statuses_after_sigterm": dict(sorted(self.ended.items())),
            "faults": {
                "total": len(self.faults),
                "by_kind": [
                    {"what": w, "role": r, "victim": v, "count": n} | self._times(w, r, v)
                    for (w, r, v), n in sorted(kinds.items())
                ],
            },
            "memory": self.samples,
            "every_fault": [asdict(f) for f in self.faults],
        }

    def _times(self, *key: str) -> dict[str, object]:
        found = [f for f in self.faults if (f.what, f.role, f.victim) == key]
        return {
            "longest_gap_s": spread([f.gap_s for f in found]),
            "in_sync_after_s": spread([f.in_sync_s for f in found]),
        }


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the record of the run is written")
    parser.add_argument(
        "--keep", type=Path, help="the nodes' directories, instead of temporary ones that vanish"
    )
    parser.add_argument("--controllers", default="qjq", help="their implementations; default qjq")
    parser.add_argument("--brokers", default="jqj", help="their implementations at first; default jqj")
    parser.add_argument(
        "--kafka", default=java.LATEST_VERSION, choices=java.VERSIONS, help="release of Java's"
    )
    parser.add_argument(
        "--fault-every", type=float, nargs=2, default=(3, 12), metavar="S", help="least and most seconds"
    )
    parser.add_argument(
        "--bound", type=float, default=120, metavar="S", help="until all is in sync after a fault"
    )
    parser.add_argument("--rate", type=int, default=300, help="records a second")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    same_code()
    logging.getLogger("quorate").setLevel(logging.ERROR)  # that a node is away is the purpose
    with tempfile.TemporaryDirectory(prefix="broker-soak-") as temporary:
        cluster = MixedBrokers(
            args.keep or Path(temporary), args.controllers, brokers_of=args.brokers, kafka=args.kafka,
            extra=SETTINGS | SMALL,
        )  # fmt: skip
        violation: str | None = None
        soak: BrokerSoak | None = None
        try:
            cluster.up(args.rate, 5 * args.bound)
            soak = BrokerSoak(args, cluster)
            soak.run()
        except (Exception, KeyboardInterrupt) as e:
            violation = f"{type(e).__name__}: {e}"
            traceback.print_exc()
            for node in cluster.nodes:
                print(f"--- {node.node_id} {node.impl}", node.log_tail(25), sep="\n", file=sys.stderr)
        finally:
            for reader in soak.readers if soak is not None else ():
                reader.stop()
            cluster.down()
        if args.json is not None and soak is not None:
            args.json.write_text(json.dumps(soak.result(violation), indent=1) + "\n")
        return 1 if violation else 0


if __name__ == "__main__":
    sys.exit(main())
