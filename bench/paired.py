"""Compares an older checkout of Quorate with this one where their difference is smaller than the noise.

    python -m bench.paired --base OLD/.venv/bin --blocks 60

One node of each checkout runs at the same time, and short blocks of the same operations alternate between
them, so that both meet the same speed of the machine. The first of a pair changes from block to block. The
figure of an operation is the median over the blocks of (time of this checkout / time of the older one), with
the interval that holds the true median with a probability of 95 %. A ratio below 1 is faster.

With `--base .venv/bin` and `--base-config KEY=VALUE` both are this checkout, and only the nodes of
the base have the setting: what it costs, or saves.

The times are those of a creation, or of a block, in ms; of `produce_acks_...`, `consume` and
`replicated_produce` those of a MB; of `cpu_...` the processor time of the nodes for a block.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.probes.cluster import QUORATE_BIN, Cluster, admin, create_topics, percentile
from bench.probes.throughput import consumed_mb_per_s, produced_mb_per_s, produced_one_by_one

# What one block does.
SINGLE = 40
"""Creations one after the other."""
IN_FLIGHT = 200
"""Creations in flight."""
TOGETHER = 500
"""Topics in one request."""
PARTITIONS = 2_000
"""Partitions of one topic."""
RECORDS = 30_000
"""Records of 1 KiB that are produced."""
READ_RECORDS = 100_000
"""Records of 1 KiB that are consumed."""
WARM_UP = 2
"""Pairs of blocks that do not count."""
KEPT = ("bench", "read", "__consumer_offsets")
"""Topics that all blocks use."""


@dataclass(frozen=True)
class Side:
    """A cluster with its client."""

    cluster: Cluster
    client: AdminClient

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.cluster.nodes)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _single(side: Side, block: int) -> dict[str, float]:
    took = [
        _timed(lambda i=i: create_topics(side.client, NewTopic(f"s{block}-{i}", 1, 1)))  # type: ignore[misc]
        for i in range(SINGLE)
    ]
    return {"create_p50": percentile(took, 0.5), "create_p90": percentile(took, 0.9)}


def _in_flight(side: Side, block: int) -> dict[str, float]:
    def run() -> None:
        pending = [
            future
            for i in range(IN_FLIGHT)
            for future in side.client.create_topics(
                [NewTopic(f"p{block}-{i}", 1, 1)], operation_timeout=60, request_timeout=120
            ).values()
        ]
        for future in pending:
            future.result()

    return {"create_in_flight": _timed(run)}


def _together(side: Side, block: int) -> dict[str, float]:
    names = [f"t{block}-{i}" for i in range(TOGETHER)]
    return {
        "create_together": _timed(lambda: create_topics(side.client, *(NewTopic(n, 1, 1) for n in names)))
    }


def _partitions(side: Side, block: int) -> dict[str, float]:
    topic = NewTopic(f"b{block}", PARTITIONS, 1)
    return {"create_2000_partitions": _timed(lambda: create_topics(side.client, topic))}


def _produce(side: Side, block: int) -> dict[str, float]:
    figures = {}
    for acks in ("1", "all"):
        rate, errors = produced_mb_per_s(side.cluster.bootstrap, "bench", RECORDS, acks=acks)
        if errors:
            raise RuntimeError(f"a record was not delivered: {errors[0]}")
        figures[f"produce_acks_{acks}"] = 1 / rate
    return figures


def _produce_one(side: Side, block: int) -> dict[str, float]:
    took = produced_one_by_one(side.cluster.bootstrap, "bench", 100)
    return {"produce_one_p50": percentile(took, 0.5), "produce_one_p90": percentile(took, 0.9)}


def _consume(side: Side, block: int) -> dict[str, float]:
    if block == -WARM_UP:
        create_topics(side.client, NewTopic("read", 4, 1))
        _, errors = produced_mb_per_s(side.cluster.bootstrap, "read", READ_RECORDS, acks="all")
        if errors:
            raise RuntimeError(f"a record was not delivered: {errors[0]}")
    return {"consume": 1 / consumed_mb_per_s(side.cluster.bootstrap, "read", READ_RECORDS)}


def _replicated(side: Side, block: int) -> dict[str, float]:
    bootstrap = side.cluster.bootstrap
    rate, errors = produced_mb_per_s(bootstrap, "bench", RECORDS, acks="all")
    if errors:
        raise RuntimeError(f"a record was not delivered: {errors[0]}")
    took = produced_one_by_one(bootstrap, "bench", 100)
    return {
        "replicated_produce": 1 / rate,
        "replicated_one_p50": percentile(took, 0.5),
        "replicated_one_p90": percentile(took, 0.9),
    }


OPERATIONS: dict[str, Callable[[Side, int], dict[str, float]]] = {
    "single": _single,
    "in-flight": _in_flight,
    "together": _together,
    "partitions": _partitions,
    "produce": _produce,
    "produce-one": _produce_one,
    "consume": _consume,
    "replicated": _replicated,
}


def _clear(side: Side) -> None:
    """Deletes the topics of a block, so that each begins with the same metadata."""
    names = [name for name in side.client.list_topics(timeout=30).topics if name not in KEPT]
    if names:
        for future in side.client.delete_topics(names, operation_timeout=60).values():
            future.result()


def interval(values: list[float]) -> tuple[float, float]:
    """The interval that holds the median of the distribution with a probability of 95 %, by the sign test."""
    ordered, count = sorted(values), len(values)
    reach = round(1.96 * count**0.5 / 2)  # the number of values below the median has this deviation
    return ordered[max(0, count // 2 - reach)], ordered[min(count - 1, count // 2 + reach)]


def _compare(
    names: list[str], nodes: int, scripts: list[str], base_config: list[str], blocks: int
) -> dict[str, object]:
    """Runs the operations on two clusters of so many nodes. Returns the figures, which are also printed."""
    report: dict[str, object] = {}
    with ExitStack() as stack:
        sides = []
        for folder in scripts:
            cluster = stack.enter_context(Cluster(["quorate"] * nodes, combined=True, scripts=folder))
            if not sides:
                for node in cluster.nodes:
                    with node.properties.open("a") as file:
                        file.writelines(f"{line}\n" for line in base_config)
            cluster.start()
            sides.append(Side(cluster, admin(cluster.bootstrap)))
            create_topics(
                sides[-1].client, NewTopic("bench", 4, nodes, config={"retention.bytes": "50000000"})
            )
        for name in names:
            times: dict[str, tuple[list[float], list[float]]] = {}
            for block in range(-WARM_UP, blocks):
                for number in (0, 1) if block % 2 else (1, 0):
                    side = sides[number]
                    cpu = side.cpu_s()
                    found = OPERATIONS[name](side, block)
                    found[f"cpu_{name}"] = side.cpu_s() - cpu
                    if block >= 0:
                        for key, took in found.items():
                            times.setdefault(key, ([], []))[number].append(took)
                    _clear(side)
            for key, (base, new) in times.items():
                report[key] = figures = _figures(base, new)
                print(json.dumps({"figure": key, **figures}), flush=True)
    return report


def _figures(base: list[float], new: list[float]) -> dict[str, float]:
    ratios = [b / a for a, b in zip(base, new, strict=True) if a]
    low, high = interval(ratios)
    figures = {
        "base_ms": 1e3 * statistics.median(base),
        "new_ms": 1e3 * statistics.median(new),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "ratio_of_sums": sum(new) / sum(base),
    }
    return {key: round(value, 3) for key, value in figures.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # Without operations, argparse compares an empty list with the choices.
    parser.add_argument("operations", nargs="*", choices=[[], *OPERATIONS], help="default: all")
    parser.add_argument("--base", type=Path, required=True, help="console scripts of the older checkout")
    parser.add_argument(
        "--base-config", action="append", default=[], metavar="KEY=VALUE", help="for its nodes only"
    )
    parser.add_argument("--blocks", type=int, default=60, help="pairs of blocks for each operation")
    parser.add_argument("--out", type=Path, help="a file for the result, as JSON")
    args = parser.parse_args()
    base = str(args.base.resolve())
    names = args.operations or list(OPERATIONS)
    report: dict[str, object] = {}
    for nodes in (1, 3):
        chosen = [name for name in names if (name == "replicated") == (nodes == 3)]
        if chosen:
            report |= _compare(chosen, nodes, [base, QUORATE_BIN], args.base_config, args.blocks)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
