"""How long a plan for a large cluster takes, in processor time, and how much memory.

    python -m bench.plan [--partitions 1000000] [--brokers 100]

Every case runs in a process of its own. Topics have 100 partitions with three replicas; brokers are
in five racks; the bytes of partitions are log-normal (mean 27 MB) with a fixed seed. Result:
bench/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.result import heading
from quorate.planner.cluster import Broker, Cluster, ClusterBuilder
from quorate.planner.plan import ReassignmentPlan, make_plan
from quorate.planner.report import summary
from quorate.planner.request import Request

RACKS = 5
TOPIC_PARTITIONS = 100


def cluster(partitions: int, brokers: int, used: int, *, factor: int = 3, aware: bool = True) -> Cluster:
    """Replicas at random on the first `used` brokers; `aware` puts those of a partition in
    different racks."""
    rng = random.Random(1)
    builder = ClusterBuilder(Broker(b, f"rack-{b % RACKS}") for b in range(brokers))
    by_rack = [[b for b in range(used) if b % RACKS == rack] for rack in range(RACKS)]
    for number in range(partitions):
        if aware:
            replicas = [rng.choice(by_rack[rack]) for rack in rng.sample(range(RACKS), factor)]
        else:
            replicas = rng.sample(range(used), factor)
        topic, index = divmod(number, TOPIC_PARTITIONS)
        builder.add(f"topic-{topic}", index, replicas, replicas[0], int(rng.lognormvariate(16, 1.5)))
    return builder.build()


Case = tuple[Callable[[int, int], Cluster], Callable[[int, int], Request]]

CASES: dict[str, Case] = {
    "balance, racks ignored so far": (
        lambda partitions, brokers: cluster(partitions, brokers, brokers, aware=False),
        lambda partitions, brokers: Request(balance=True),
    ),
    "balance onto a tenth more brokers": (
        lambda partitions, brokers: cluster(partitions, brokers, brokers * 9 // 10),
        lambda partitions, brokers: Request(balance=True),
    ),
    "drain a tenth of the brokers": (
        lambda partitions, brokers: cluster(partitions, brokers, brokers),
        lambda partitions, brokers: Request(drain=frozenset(range(brokers // 10))),
    ),
    "add a fifth more brokers": (
        lambda partitions, brokers: cluster(partitions, brokers, brokers * 4 // 5),
        lambda partitions, brokers: Request(add=frozenset(range(brokers * 4 // 5, brokers))),
    ),
    "replication factor 2 to 3": (
        lambda partitions, brokers: cluster(partitions, brokers, brokers, factor=2),
        lambda partitions, brokers: Request(
            replication={f"topic-{t}": 3 for t in range(-(-partitions // TOPIC_PARTITIONS))}
        ),
    ),
}


def measure(name: str, partitions: int, brokers: int) -> dict[str, object]:
    make_cluster, make_request = CASES[name]
    begin = time.process_time()
    found = make_cluster(partitions, brokers)
    loaded = time.process_time()
    plan = make_plan(found, make_request(partitions, brokers))
    planned = time.process_time()
    explained = summary(plan)
    end = time.process_time()
    return {
        "load_cpu_s": round(loaded - begin, 1),
        "plan_cpu_s": round(planned - loaded, 1),
        "explain_cpu_s": round(end - planned, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "replicas_moved": explained["replicasToMove"],
        "gb_moved": round(explained["bytesToMove"] / 1e9),
        "waves": len(explained["waves"]),
        "missed": [goal["goal"] for goal in explained["goals"] if not goal["after"]],
        "fullest": _fullest(plan),
    }


def _fullest(plan: ReassignmentPlan) -> dict[str, float]:
    """The load of the fullest broker in relation to its fair share."""
    state, goals = plan.state, plan.goals
    pairs = {
        "replicas": (state.replicas, goals.replicas),
        "bytes": (state.bytes, goals.bytes),
        "leaders": (state.leaders, goals.leaders),
        "leader bytes": (state.leader_bytes, goals.leader_bytes),
    }
    return {
        name: round(max(loads[b] / band.share[b] for b in state.eligible), 3)
        for name, (loads, band) in pairs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--case", choices=CASES, help="measure only this one, and print it")
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(measure(args.case, args.partitions, args.brokers)))
        return
    load = os.getloadavg()[0]
    figures = {}
    for name in CASES:
        command = [sys.executable, "-m", "bench.plan", "--case", name]
        size = ["--partitions", str(args.partitions), "--brokers", str(args.brokers)]
        done = subprocess.run([*command, *size], capture_output=True, text=True, check=True)
        figures[name] = json.loads(done.stdout)
        print(name, figures[name], flush=True)
    result = {
        **heading("plan", 1),
        "load_average": round(load, 1),
        "partitions": args.partitions,
        "brokers": args.brokers,
        "figures": figures,
    }
    target = Path(__file__).parent / "results" / "plan.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
