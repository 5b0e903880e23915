"""How long `quorate.testing` takes to start a cluster and to end it: `python -m bench.cluster_start
[--rounds N]`."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time

from quorate.testing import KafkaCluster

SIZES = ((1, 1), (3, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="clusters of each size (10)")
    rounds = parser.parse_args().rounds
    print(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; {rounds} clusters of each size; "
        "median (least, most)"
    )
    for controllers, brokers in SIZES:
        starts, ends = [], []
        used = cpu_s()
        for _ in range(rounds):
            began = time.perf_counter()
            cluster = KafkaCluster(controllers, brokers)
            served = time.perf_counter()
            cluster.close()
            starts.append(served - began)
            ends.append(time.perf_counter() - served)
        spent = (cpu_s() - used) / rounds
        print(
            f"controllers={controllers} brokers={brokers}: started in {shown(starts)}, ended in {shown(ends)}"
        )
        print(f"  {spent:.2f} s of CPU for each", flush=True)


def cpu_s() -> float:
    """CPU time of this process and of the nodes that have ended: other than the elapsed time, hardly
    more on a busy machine."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def shown(times_s: list[float]) -> str:
    return f"{statistics.median(times_s):.2f} s ({min(times_s):.2f}, {max(times_s):.2f})"


if __name__ == "__main__":
    main()
