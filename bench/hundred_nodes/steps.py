"""The steps, in their order, and what each measures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.hundred_nodes.client import Client, Partition
from bench.hundred_nodes.processes import Nodes

_CREATIONS_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Size:
    brokers: int = 95
    controllers: int = 5
    racks: int = 5
    topics: int = 200
    partitions: int = 200_000
    replicas: int = 3
    rolled: int = 19
    """Brokers that are restarted one after the other, all of one rack if it has as many."""
    idle_s: float = 30.0
    timeout_s: float = 900.0


@dataclass(slots=True)
class Run:
    """One run. `figures` has an entry for each step."""

    size: Size
    nodes: Nodes
    done: Callable[[dict[str, dict[str, Any]]], None] = lambda figures: None
    """Called with the figures after each step."""
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    client: Client = field(init=False)

    async def all(self) -> None:
        nodes, size = self.nodes, self.size
        with self.step("format"):
            nodes.format()
        ids = nodes.controller_ids + nodes.broker_ids
        self.client = Client(
            dict(zip(ids, nodes.addresses(ids), strict=True)),
            nodes.addresses(nodes.controller_ids),
            size.timeout_s,
        )
        try:
            await self.start()
            await self.idle("idle_without_topics")
            await self.create()
            await self.idle("idle")
            await self.roll_controllers()
            await self.roll_brokers()
            await self.lose_rack()
            await self.return_rack()
            await self.idle("idle_at_the_end")
            await self.end()
        finally:
            await self.client.close()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Measures the block: elapsed time, CPU time of the nodes and of this process."""
        figures: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
        nodes_before, own_before = self.nodes.cpu_s(), _own_cpu_s()
        controllers = {i: self.nodes.cpu_of(i) for i in self.nodes.controller_ids}
        began = time.monotonic()
        yield figures
        figures.setdefault("took_s", round(time.monotonic() - began, 2))
        for role, after in self.nodes.cpu_s().items():
            figures[f"{role}_cpu_s"] = round(after - nodes_before[role], 2)
        now = {i: self.nodes.cpu_of(i) for i in controllers}
        used = [now[i] - before if now[i] >= before else now[i] for i, before in controllers.items()]
        figures["busiest_controller_cpu_s"] = round(max(used), 2)
        figures["client_cpu_s"] = round(_own_cpu_s() - own_before, 2)
        self.nodes.check_running()
        self.figures[name] = figures
        print(name, figures, file=sys.stderr, flush=True)
        self.done(self.figures)

    @property
    def topics(self) -> list[str]:
        return [f"topic-{i:04d}" for i in range(self.size.topics)]

    @property
    def per_topic(self) -> int:
        return self.size.partitions // self.size.topics

    # -- the steps

    async def start(self) -> None:
        """All nodes at once, until every broker is in Metadata."""
        nodes = self.nodes
        with self.step("start") as figures:
            began = time.monotonic()
            nodes.start(nodes.controller_ids + nodes.broker_ids)
            figures["processes_s"] = round(time.monotonic() - began, 2)
            await self.client.until_brokers(nodes.broker_ids[0], set(nodes.broker_ids))
            await self.client.until_brokers(nodes.broker_ids[-1], set(nodes.broker_ids))

    async def create(self) -> None:
        """All topics, one in each request, until the last one is in the Metadata of each broker."""
        nodes = self.nodes
        waiting = list(reversed(self.topics))
        answers: list[float] = []

        async def worker(at: int) -> None:
            while waiting:
                topic, began = waiting.pop(), time.monotonic()
                await self.client.create_topic(at, topic, self.per_topic, self.size.replicas)
                answers.append(time.monotonic() - began)

        with self.step("create") as figures:
            began = time.monotonic()
            askers = nodes.broker_ids[:_CREATIONS_IN_FLIGHT]
            await asyncio.gather(*map(worker, askers))
            figures["answered_s"] = round(time.monotonic() - began, 2)
            figures["answer_p50_ms"] = round(1000 * statistics.median(answers), 1)
            figures["answer_max_ms"] = round(1000 * max(answers), 1)
            await self.client.until_all_know(nodes.broker_ids, self.topics[-1], self.per_topic)
            figures["known_everywhere_s"] = round(time.monotonic() - began, 2)
            figures["partitions"] = await self.full_isrs()
            figures |= self.lags()

    async def idle(self, name: str) -> None:
        """CPU time of a quiet cluster, and memory."""
        nodes = self.nodes
        with self.step(name) as figures:
            began, before = time.monotonic(), nodes.cpu_s()
            await asyncio.sleep(self.size.idle_s)
            passed = time.monotonic() - began
            for role, used in nodes.cpu_s().items():
                figures[f"{role}_cores"] = round((used - before[role]) / passed, 3)
            figures |= self.lags()
        for role, ids in (("controllers", nodes.controller_ids), ("brokers", nodes.broker_ids)):
            found = [nodes.memory(i) for i in ids]
            resident = [memory.resident for memory in found]
            figures[f"{role}_rss_mb"] = {
                "min": round(min(resident), 1),
                "median": round(statistics.median(resident), 1),
                "max": round(max(resident), 1),
            }
            figures[f"{role}_sum_mb"] = round(sum(memory.own for memory in found))

    async def roll_controllers(self) -> None:
        """Each controller in turn, the active one last: SIGTERM, start, until it has caught up."""
        nodes, took = self.nodes, []
        with self.step("roll_controllers") as figures:
            leader = (await self.client.quorum()).leader_id
            for node_id in sorted(nodes.controller_ids, key=lambda i: i == leader):
                began = time.monotonic()
                await asyncio.to_thread(nodes.stop, [node_id])
                nodes.start([node_id])
                await self.client.until_voter_caught_up(node_id, int(1000 * time.time()))
                took.append(time.monotonic() - began)
            figures["rolled"] = len(took)
            figures |= _spread("one_s", took) | self.lags()

    async def roll_brokers(self) -> None:
        """Brokers of one rack in turn: SIGTERM, start, until every ISR is full again."""
        nodes, stopped, took = self.nodes, [], []
        at = nodes.rack(self.size.racks - 1)[-1]
        with self.step("roll_brokers") as figures:
            for node_id in nodes.broker_ids[: self.size.rolled]:
                began = time.monotonic()
                await asyncio.to_thread(nodes.stop, [node_id])
                stopped.append(time.monotonic() - began)
                nodes.start([node_id])
                await self.client.until_brokers(node_id, set(nodes.broker_ids))
                await self.full_isrs(at)
                took.append(time.monotonic() - began)
            figures["rolled"] = len(took)
            figures |= _spread("stop_s", stopped) | _spread("one_s", took) | self.lags()

    async def lose_rack(self) -> None:
        """`kill -9` of all brokers of the last rack at once, until no leader is one of them."""
        nodes = self.nodes
        lost = nodes.rack(self.size.racks - 1)
        left = [i for i in nodes.broker_ids if i not in lost]
        gone = set(lost)
        leaderships = await self.leaderships(left[0], gone)
        waited = {i: nodes.waited_s(i) for i in nodes.controller_ids}
        with self.step("lose_rack") as figures:
            began = time.monotonic()
            await asyncio.to_thread(nodes.stop, lost, signal.SIGKILL)
            figures["killed_s"] = round(time.monotonic() - began, 2)
            fenced = asyncio.create_task(self.client.until_brokers(left[0], set(left)))
            fenced.add_done_callback(lambda _: figures.update(fenced_s=round(time.monotonic() - began, 2)))
            await self.client.until_partitions(
                left[0], self.topics, lambda p: p.leader_id >= 0 and p.leader_id not in gone
            )
            figures["leaders_moved_s"] = round(time.monotonic() - began, 2)
            await fenced
            await self.client.until_partitions(left[0], self.topics, lambda p: gone.isdisjoint(p.isr_nodes))
            figures["isrs_shrunk_s"] = round(time.monotonic() - began, 2)
            await self.client.until_partitions(
                left[-1], self.topics, lambda p: p.leader_id >= 0 and p.leader_id not in gone
            )
            figures["seen_at_another_broker_s"] = round(time.monotonic() - began, 2)
            figures["brokers"], figures["leaderships"] = len(lost), leaderships
            figures["controllers_waited_for_cpu_s"] = round(
                max(nodes.waited_s(i) - before for i, before in waited.items()), 2
            )
            figures |= self.lags()

    async def return_rack(self) -> None:
        """The lost brokers start again, until all ISRs are full."""
        nodes = self.nodes
        lost = nodes.rack(self.size.racks - 1)
        with self.step("return_rack") as figures:
            began = time.monotonic()
            nodes.start(lost)
            await self.client.until_brokers(nodes.broker_ids[0], set(nodes.broker_ids))
            figures["unfenced_s"] = round(time.monotonic() - began, 2)
            await self.full_isrs()
            figures["isrs_full_s"] = round(time.monotonic() - began, 2)
            figures |= self.lags()

    async def end(self) -> None:
        """SIGTERM to all brokers at once."""
        nodes = self.nodes
        with self.step("end") as figures:
            quorum = await self.client.quorum()
            figures["quorum_epoch"] = quorum.leader_epoch
            figures["metadata_offset"] = quorum.high_watermark
            began = time.monotonic()
            await asyncio.to_thread(nodes.stop, nodes.broker_ids)
            figures["brokers_s"] = round(time.monotonic() - began, 2)
            figures["warnings"] = nodes.logged(" WARN(ING)? ", nodes.controller_ids + nodes.broker_ids)
            figures["errors"] = nodes.logged(" ERROR ", nodes.controller_ids + nodes.broker_ids)

    # -- helpers

    async def full_isrs(self, at: int | None = None) -> int:
        def full(partition: Partition) -> bool:
            return len(partition.isr_nodes) == len(partition.replica_nodes) and partition.leader_id >= 0

        return await self.client.until_partitions(
            self.nodes.broker_ids[0] if at is None else at, self.topics, full
        )

    async def leaderships(self, at: int, of: set[int]) -> int:
        count = 0
        for topic in self.topics:
            count += sum(p.leader_id in of for p in await self.client.partitions(at, topic))
        return count

    def lags(self) -> dict[str, Any]:
        """The longest pauses of event loops in the last 30 to 60 seconds."""
        nodes = self.nodes
        return {
            "controllers_pause_ms": nodes.worst_lag_ms(nodes.controller_ids),
            "brokers_pause_ms": nodes.worst_lag_ms(nodes.broker_ids),
        }


def _spread(name: str, took: Sequence[float]) -> dict[str, dict[str, float]]:
    if not took:
        return {}
    values = {"median": statistics.median(took), "min": min(took), "max": max(took)}
    return {name: {key: round(value, 2) for key, value in values.items()}}


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measured(
    size: Size,
    folder: Path,
    config: dict[str, str],
    controller_nice: int = 0,
    done: Callable[[dict[str, dict[str, Any]]], None] = lambda figures: None,
) -> dict[str, dict[str, Any]]:
    """Runs all steps in an empty folder and returns their figures. `done` gets them after each step."""
    nodes = Nodes(folder, size.controllers, size.brokers, size.racks, config, controller_nice)
    run = Run(size, nodes, done)
    try:
        asyncio.run(run.all())
    finally:
        nodes.close()
    return run.figures
