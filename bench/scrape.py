"""For how long `/metrics` of a broker with many written partitions holds up its event loop.

    python -m bench.scrape                               # 10,000 partitions with a record each
    python -m bench.scrape --case "a topic each"         # a topic for each partition
    python -m bench.scrape --json bench/results/scrape.json

The broker leads all partitions, of a hundred topics or of as many as there are partitions, or
follows another that leads them.

A scraper reads the page again and again, while a probe asks a listener of the same node for
ApiVersions every two milliseconds. The longest turn is the longest time for which the probe waited,
less the time for which node and probe had no CPU. The probe runs before for as long without a
scraper: that turn is of what the node does by itself. CPU is that of the node for one page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from bench.broker_stop import cpu_s
from bench.result import heading
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from quorate.records.record import Record
from tests.support.cluster import Node, free_ports, wait_for
from tests.support.loop_probe import probing

HTTP = "quorate.http.listen"
IN_REQUEST = 50
"""Topics that a request names. A creation may make 10,000 records."""
PASSING = {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
WRITTEN = "kafka_log_log_logendoffset"
LED = "kafka_server_replicamanager_leadercount"


@dataclass(frozen=True)
class Scrapes:
    """What a number of pages has cost. Times of turns in milliseconds."""

    pages: int
    series: int
    page_bytes: int
    cpu_s: float
    """Of the node, for one page (median)."""
    elapsed_s: float
    """Until one page was read (median)."""
    longest_turn_ms: float
    longest_turns_ms: list[float]
    idle_longest_turn_ms: float
    """Of the same node in the same time without a scraper."""


def read_page(node: Node) -> str:
    """Returns /metrics of a node."""
    with urllib.request.urlopen(f"http://{node.extra[HTTP]}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def value_of(page: str, name: str) -> float:
    """Returns the value of a metric that has no labels."""
    [found] = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(found.split()[1])


def fill(node: Node, partitions: int, each: int, replicas: list[int]) -> None:
    """Creates topics of `each` partitions and appends one record to every partition."""
    names = [(f"many-{i}", min(each, partitions - at)) for i, at in enumerate(range(0, partitions, each))]
    with AdminClient(node.bootstrap) as admin:
        for at in range(0, len(names), IN_REQUEST):
            some = [
                NewTopic(name, assignment=dict.fromkeys(range(count), replicas))
                for name, count in names[at : at + IN_REQUEST]
            ]
            errors = [error for error in admin.create_topics(some).values() if error is not None]
            assert not errors, errors[0]
    asyncio.run(_append(node, names))


async def _append(node: Node, names: list[tuple[str, int]]) -> None:
    topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    record = Record(offset=0, timestamp=time.time_ns() // 1_000_000, key=None, value=b"x" * 100, headers=[])
    batch = bytes(build_batch([record]))
    connection = await Connection.connect("127.0.0.1", node.broker_port, timeout_s=30)
    for at in range(0, len(names), IN_REQUEST):
        left = {(name, index) for name, count in names[at : at + IN_REQUEST] for index in range(count)}
        while left:  # a broker may learn of its leadership after the topic was created
            data = [
                topic(name=name, partition_data=[partition(index=i, records=batch) for _, i in group])
                for name, group in groupby(sorted(left), key=itemgetter(0))
            ]
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data)
            done = (await connection.call(request, timeout_s=120, version=9)).responses
            errors = {(t.name, p.index): p.error_code for t in done for p in t.partition_responses}
            assert set(errors.values()) <= PASSING, errors
            left = {key for key in left if errors[key]}
    connection.close()


def longest_turns_ms(node: Node, body: Callable[[], None]) -> list[float]:
    """Returns the longest waits of a probe of the node while the body runs, the longest first."""
    assert node.proc is not None
    with probing(node.broker_port, node.proc.pid) as probe:
        body()
    return [milliseconds for _, milliseconds in probe.slowest]


def measure(node: Node, pages: int) -> Scrapes:
    """Reads the page of a node so many times."""
    assert node.proc is not None
    pid, page, times = node.proc.pid, read_page(node), list[tuple[float, float]]()

    def scrape() -> None:
        for _ in range(pages):
            cpu, began = cpu_s(pid), time.monotonic()
            read_page(node)
            times.append((cpu_s(pid) - cpu, time.monotonic() - began))

    turns = longest_turns_ms(node, scrape)
    took = sum(elapsed for _, elapsed in times)
    idle = longest_turns_ms(node, lambda: time.sleep(took))
    return Scrapes(
        pages=pages,
        series=sum(not line.startswith("#") for line in page.splitlines()),
        page_bytes=len(page),
        cpu_s=round(statistics.median(cpu for cpu, _ in times), 3),
        elapsed_s=round(statistics.median(elapsed for _, elapsed in times), 3),
        longest_turn_ms=turns[0],
        longest_turns_ms=turns,
        idle_longest_turn_ms=idle[0],
    )


def run(folder: Path, partitions: int, each: int, pages: int, *, replicated: bool = False) -> Scrapes:
    """Forms a cluster, writes to all partitions, waits until the node shows them all, and measures."""
    one = Node(folder / "one", 1, extra={HTTP: f"127.0.0.1:{free_ports(1)[0]}"})
    nodes = [one]
    if replicated:
        extra = {HTTP: f"127.0.0.1:{free_ports(1)[0]}"}
        nodes.append(Node(folder / "two", 2, "broker", voters=one.voters, extra=extra))
    try:
        for node in nodes:
            node.format()
            node.start()
        scraped = nodes[-1]
        fill(one, partitions, each, [1, 2] if replicated else [1])

        def is_written() -> bool:
            page = read_page(scraped)
            full = sum(line.startswith(f"{WRITTEN}{{") and line.endswith(" 1") for line in page.splitlines())
            return full == partitions and value_of(page, LED) == (0 if replicated else partitions)

        wait_for("the records of all partitions", is_written, 300, 1.0)
        return measure(scraped, pages)
    finally:
        for node in nodes:
            node.kill()


CASES = {"a hundred topics": (100, False), "a topic each": (1, False), "follower": (100, True)}
"""Partitions of a topic, and whether another broker leads them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=20, help="scrapes (20)")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures to this file")
    args = parser.parse_args()
    load, cases = round(os.getloadavg()[0], 1), {}
    for case in args.case:
        each, replicated = CASES[case]
        with tempfile.TemporaryDirectory() as folder:
            done = run(Path(folder), args.partitions, each, args.pages, replicated=replicated)
        cases[case] = asdict(done)
        print(
            f"{case}: {done.series} series, {done.page_bytes / 1e6:.1f} MB, CPU {done.cpu_s} s, "
            f"elapsed {done.elapsed_s} s; longest turns {done.longest_turns_ms} ms, "
            f"without a scraper {done.idle_longest_turn_ms} ms",
            flush=True,
        )
    if args.json:
        result = heading("scrape", args.pages) | {
            "load_average": load,
            "partitions": args.partitions,
            "cases": cases,
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
