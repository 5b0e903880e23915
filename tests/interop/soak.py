"""One metadata quorum of Apache Kafka's controllers and ours, under load and random faults, for a given
time.

    python -m tests.interop.soak --minutes 60 --seed 1 --json bench/results/soak.json

Three controllers start as ours, Java's, ours. Six times in the run one of them is stopped and continues as
the other implementation on the same directory, so that every mix of two and one occurs. Clients create,
configure and delete topics through a broker of each implementation. Every 20 to 60 s the leader or a
follower is killed or shut down, never two at once. From time to time a voter of each implementation is
removed and added by the tools of either one, also with a new disk.

These conditions are checked every few minutes and at the end, while the load is paused. All disks have the
same bytes at the same offsets, over the complete run. The three disks give the same metadata. Every answered
creation exists exactly once, with the answered id, and every deleted topic is gone. Both brokers describe
the same topics. After each fault all three controllers catch up within --bound. The first violation ends the
run with status 1; the directories are kept in --keep.

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
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import quorate
from quorate.metadata.framing import decode_record
from quorate.metadata.records import RemoveTopicRecord, TopicRecord
from quorate.records.batch import control_records
from quorate.records.control import ControlRecordType, LeaderChangeMessage
from tests.interop.soak_cluster import SMALL, Change, Cluster, Fault
from tests.interop.soak_load import Load, Stream, longest_gap
from tests.support import java
from tests.support.cluster import BIN, Node
from tests.support.metadata_disk import (
    Disk,
    DiskBatch,
    configs_of_no_topic,
    differences,
    read_disk,
    same_metadata,
)

ROOT = Path(__file__).resolve().parents[2]
SWAPS = (3, 2, 1, 3, 2)
"""Controllers in the order in which they change: qjq, qjj, qqj, jqj, jqq, jjq."""


class Soak:
    """The schedule, the checks and the record of a run."""

    def __init__(self, args: argparse.Namespace, cluster: Cluster) -> None:
        """`cluster` must be running. The load starts at once."""
        self.args, self.random, self.cluster = args, random.Random(args.seed), cluster
        self.load = Load(
            [
                Stream(letter, broker.bootstrap, args.seed, pause_s=args.pause, keep=150)
                for letter, broker in zip("qj", cluster.brokers, strict=True)
            ]
        )
        self.faults: list[Fault] = []
        self.changes: list[Change] = []
        self.samples: list[dict[str, object]] = []
        self.periods: list[dict[str, object]] = []
        self.checks = 0
        self.never_seen = self.stale_configs = 0
        self._sums: dict[int, int] = {}
        self._next_offset = 0
        self._topics: dict[str, bytes] = {}
        self._ids: set[bytes] = set()
        self.elections: Counter[str] = Counter()
        self.first_epoch = self.last_epoch = 0
        self.took_s = 0.0

    # -- the run
    # ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        cluster, length_s = self.cluster, self.args.minutes * 60
        cluster.started = time.monotonic()
        self._period()
        least, most = self.args.fault_every
        steps = {
            "swap": length_s / (len(SWAPS) + 1),
            "voters": length_s / 15,
            "check": length_s / 20,
            "sample": length_s / 12,
        }
        due = {"fault": self.random.uniform(least, most), **steps}
        swaps = iter(SWAPS)
        rounds = 0
        while (now := time.monotonic() - cluster.started) < length_s:
            assert self.load.failure is None, self.load.failure
            what = min(due, key=lambda key: due[key])
            if due[what] > now:
                time.sleep(min(0.2, due[what] - now))  # the schedule is of times
                continue
            match what:
                case "fault":
                    kind = self.random.choice(("kill", "shutdown"))
                    self._after(
                        cluster.disturb(
                            kind, self.random.choice(("leader", "follower")), self.random.uniform(0.5, 6)
                        )
                    )
                    due["fault"] = time.monotonic() - cluster.started + self.random.uniform(least, most)
                    continue
                case "swap":
                    node_id = next(swaps, None)
                    if node_id is not None:
                        victim = cluster.controller(node_id)
                        role = "leader" if victim is cluster.leader() else "follower"
                        self._after(cluster.disturb_node(victim, "swap", role, 1.0))
                        self._period()
                case "voters":
                    self._voters(rounds)
                    rounds += 1
                case "check":
                    self.check()
                case "sample":
                    self.sample()
            due[what] += steps[what]
        self.check()
        self.sample()
        self.took_s = time.monotonic() - cluster.started
        self.load.stop()
        assert self.load.failure is None, self.load.failure
        self._memory_is_bounded()

    def _period(self) -> None:
        self.periods.append(
            {"from_s": round(time.monotonic() - self.cluster.started), "controllers": self.cluster.letters}
        )
        self.say(f"controllers are {self.cluster.letters}")

    def _after(self, fault: Fault) -> None:
        """Waits for the next response to each stream, and records the gaps."""
        deadline = time.monotonic() + self.args.bound
        for stream in self.load.streams:
            while not stream.ledger.answered or stream.ledger.answered[-1] <= fault.end:
                assert time.monotonic() < deadline, (
                    f"no answer through broker {stream.name} for 60 s after {fault}"
                )
                assert self.load.failure is None, self.load.failure
                time.sleep(0.02)
            gap = longest_gap(stream.ledger.answered, fault.start, fault.end)
            fault.gaps_s[{"q": "quorate", "j": "java"}[stream.name]] = round(gap, 3)
        fault.load = os.getloadavg()[0]
        self.faults.append(fault)
        self.say(
            f"{fault.what} of the {fault.role} ({fault.victim}) in {fault.quorum}: gaps {fault.gaps_s} s, "
            f"caught up in {fault.caught_up_s:.1f} s, {fault.new_leader} leads"
        )

    def _voters(self, number: int) -> None:
        """Replaces a voter: each implementation and each pair of tools in turn, every second time with a new
        disk."""
        cluster = self.cluster
        kind = ("quorate", "java")[number % 2]
        tools = (("java", "quorate"), ("quorate", "java"), ("java", "java"), ("quorate", "quorate"))[
            number // 2 % 4
        ]
        victim = self.random.choice([c for c in cluster.controllers if c.impl == kind])
        done = cluster.change_voter(victim, tools, new_disk=number % 4 >= 2)
        self.changes += done
        for change in done:
            self.say(
                f"{change.what} {change.victim} ({change.role}) under {change.leader} by the tool of "
                f"{change.tool}"
            )

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.cluster.started:7.1f} {text}", flush=True)

    # -- what must hold
    # ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks all conditions. Raises AssertionError with all violations."""
        self.load.pause(self.args.bound)
        watermark = self.cluster.caught_up().high_watermark
        disks = self._disks(watermark)
        end = min(disk.end for disk in disks.values())
        wrong = differences(disks, end, self._sums)
        self._replay(disks, end)
        images = {node_id: disk.image_at(end) for node_id, disk in disks.items()}
        wrong += same_metadata(images.values())
        image = images[1]
        self.stale_configs = max(self.stale_configs, *(len(configs_of_no_topic(i)) for i in images.values()))
        living = {name: value for s in self.load.streams for name, value in s.ledger.living.items()}
        there = {t.name: t.id for t in image.topics.by_id.values() if not t.name.startswith("__")}
        wrong += [f"lost: {name}" for name in living.keys() - there.keys()]
        wrong += [f"there, but not created or deleted: {name}" for name in there.keys() - living.keys()]
        for stream in self.load.streams:
            for name, topic_id in stream.ledger.ids.items():
                if there.get(name, topic_id) != topic_id:
                    wrong.append(f"{name} has another id than was answered")
                if not self.never_seen and topic_id not in self._ids:
                    wrong.append(f"{name} was answered with an id that no log holds")
        wrong += [
            f"{name}: retention.ms is not {value}"
            for name, value in living.items()
            if name in there and image.configs.topic(name).get("retention.ms") != value
        ]
        assert not wrong, "\n".join(wrong[:50])
        self._brokers_tell(set(living))
        self.checks += 1
        self.say(
            f"check {self.checks}: {len(living)} topics, offset {end}, {len(self._sums)} batches compared"
        )
        self.load.resume()

    def _disks(self, watermark: int) -> dict[int, Disk]:
        """Reads all three disks, when each has everything below the high watermark."""
        deadline = time.monotonic() + 30
        while True:
            disks = {c.node_id: read_disk(c.data) for c in self.cluster.controllers}
            if min(disk.end for disk in disks.values()) >= watermark - 1:
                return disks
            assert time.monotonic() < deadline, f"not on all disks in 30 s: offset {watermark - 1}"
            time.sleep(0.1)

    def _replay(self, disks: dict[int, Disk], end: int) -> None:
        """Replays all batches since the last check from any disk that has them. Checks that no topic and no
        id is created twice."""
        batches: dict[int, DiskBatch] = {}
        for disk in disks.values():
            batches |= {b.base_offset: b for b in disk.batches if self._next_offset <= b.base_offset <= end}
        for base_offset, batch in sorted(batches.items()):
            if base_offset != self._next_offset:
                self.never_seen += base_offset - self._next_offset
            self._next_offset = batch.last_offset + 1
            if batch.header.is_control:
                self._control(batch)
                continue
            for value in batch.values:
                match decode_record(value)[0]:
                    case TopicRecord(name=name, topic_id=topic_id):
                        assert name not in self._topics or self.never_seen, (
                            f"{name} was created twice, at {base_offset}"
                        )
                        assert topic_id not in self._ids, f"the id of {name} was given before"
                        self._topics[name] = topic_id
                        self._ids.add(topic_id)
                    case RemoveTopicRecord(topic_id=topic_id):
                        self._topics = {n: i for n, i in self._topics.items() if i != topic_id}

    def _control(self, batch: DiskBatch) -> None:
        for kind, value in control_records(batch.data):
            if kind == ControlRecordType.LEADER_CHANGE:
                leader = LeaderChangeMessage.decode(value, 0).leader_id
                at = self.cluster.implementation_at(leader, batch.timestamp_ms / 1000)
                self.elections[at] += 1
                self.first_epoch, self.last_epoch = self.first_epoch or batch.epoch, batch.epoch

    def _brokers_tell(self, living: set[str]) -> None:
        deadline = time.monotonic() + 30
        while any(names != living for names in self.load.names()):
            assert time.monotonic() < deadline, (
                f"a broker tells other topics than there are: {self.load.names()}"
            )
            time.sleep(0.1)

    def sample(self) -> None:
        for node in self.cluster.nodes:
            rss, files = rss_bytes_and_files(node)
            assert node.proc is not None
            started = Path(f"/proc/{node.proc.pid}").stat().st_mtime
            self.samples.append(
                {
                    "at_s": round(time.monotonic() - self.cluster.started), "node": node.node_id, "role": node.roles,
                    "impl": node.impl, "rss_mb": round(rss / 1e6, 1), "files": files, "up_s": round(time.time() - started),
                }
            )  # fmt: skip

    def _memory_is_bounded(self) -> None:
        """Our broker runs from start to end. Its memory may grow only little in the second half of the
        run."""
        own = [s for s in self.samples if s["node"] == self.cluster.broker.node_id]
        half = own[len(own) // 2]
        assert own[-1]["rss_mb"] <= 1.25 * half["rss_mb"], own  # type: ignore[operator]
        assert own[-1]["files"] <= half["files"] + 50, own  # type: ignore[operator]

    # -- the record
    # ----------------------------------------------------------------------------------------------

    def result(self, violation: str | None) -> dict[str, object]:
        ledgers = [s.ledger for s in self.load.streams]
        faults = Counter((f.what, f.role, f.victim) for f in self.faults)
        changes = Counter((c.what, c.victim, c.role, c.leader, c.tool) for c in self.changes)
        return {
            "command": f"python -m tests.interop.soak --minutes {self.args.minutes:g} --seed {self.args.seed}",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "result": violation or "passed",
            "seed": self.args.seed,
            "seconds": round(self.took_s or time.monotonic() - self.cluster.started),
            "versions": versions(),
            "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "load": [round(x, 1) for x in os.getloadavg()]},
            "controllers": self.periods,
            "faults": {
                "total": len(self.faults),
                "by_kind": [
                    {"what": w, "role": r, "victim": v, "count": n} for (w, r, v), n in sorted(faults.items())
                ],
            },
            "exit_statuses_after_sigterm": dict(sorted(self.cluster.ended.items())),
            "elections": {"led_by": dict(self.elections), "epochs": [self.first_epoch, self.last_epoch]},
            "changes": {
                "created": sum(ledger.created for ledger in ledgers),
                "deleted": sum(len(ledger.deleted) for ledger in ledgers),
                "configured": sum(ledger.configured for ledger in ledgers),
                "attempts_repeated": sum(ledger.retried for ledger in ledgers),
                "found_created_by_an_earlier_attempt": sum(ledger.told_exists for ledger in ledgers),
            },
            "longest_gap_s": self._gaps(),
            "bound_s": self.args.bound,
            "caught_up_after_restart_s": {
                impl: spread([f.caught_up_s for f in self.faults if f.what != "swap" and f.victim == impl])
                for impl in ("quorate", "java")
            },
            "voters_changed": [
                {"what": w, "victim": v, "role": r, "leader": led, "tool": t, "count": n}
                for (w, v, r, led, t), n in sorted(changes.items())
            ],
            "voter_tool_runs_repeated": sum(c.tries - 1 for c in self.changes),
            "checks": {
                "count": self.checks, "batches_compared": len(self._sums), "last_offset": self._next_offset - 1,
                "offsets_cleaned_before_a_check_saw_them": self.never_seen,
                "most_configs_of_deleted_topics_in_a_snapshot_of_kafka": self.stale_configs,
            },
            "memory": self.samples,
            "every_fault": [
                {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(f).items() if k not in ("start", "end")}
                for f in self.faults
            ],
        }  # fmt: skip

    def _gaps(self) -> list[dict[str, object]]:
        """The gaps by kind of fault, role and implementation of the affected controller, and implementation
        with the majority."""

        def key(f: Fault) -> tuple[str, str, str, str]:
            return f.what, f.role, f.victim, "quorate" if f.quorum.count("q") > 1 else "java"

        return [
            {
                "what": k[0], "role": k[1], "victim": k[2], "majority": k[3],
                "through_our_broker": spread([f.gaps_s["quorate"] for f in self.faults if key(f) == k]),
                "through_javas_broker": spread([f.gaps_s["java"] for f in self.faults if key(f) == k]),
            }
            for k in sorted({key(f) for f in self.faults})
        ]  # fmt: skip


def spread(xs: list[float]) -> dict[str, float]:
    return (
        {"count": len(xs), "median": round(statistics.median(xs), 3), "max": round(max(xs), 3)}
        if xs
        else {"count": 0}
    )


def rss_bytes_and_files(node: Node) -> tuple[int, int]:
    """Resident memory and open files of a node that runs."""
    assert node.proc is not None
    process = Path(f"/proc/{node.proc.pid}")
    kib = next(
        line.split()[1] for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS:")
    )
    return int(kib) * 1024, len(list((process / "fd").iterdir()))


def versions() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    jvm = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()
    return {
        "commit": commit.stdout.strip(), "quorate": quorate.__version__, "kafka": java.KAFKA_VERSION,
        "python": platform.python_version(), "java": jvm[0] if jvm else "",
    }  # fmt: skip


def same_code() -> None:
    """Checks that the nodes run the code of this repository. Raises SystemExit."""
    asked = [str(BIN / "python"), "-c", "import quorate; print(quorate.__file__)"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_relative_to(ROOT / "src"):
        raise SystemExit(
            f"the nodes would run {found}, not the code of {ROOT}: set PYTHONPATH={ROOT / 'src'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the record of the run is written")
    parser.add_argument(
        "--keep", type=Path, help="the nodes' directories, instead of temporary ones that vanish"
    )
    parser.add_argument(
        "--fault-every", type=float, nargs=2, default=(20, 60), metavar="S", help="least and most seconds"
    )
    parser.add_argument(
        "--bound", type=float, default=90, metavar="S", help="until all have caught up after a fault"
    )
    parser.add_argument(
        "--pause", type=float, default=0.15, help="seconds between the changes of one stream, on average"
    )
    args = parser.parse_args()
    same_code()
    logging.getLogger("quorate").setLevel(logging.ERROR)  # that a controller is away is the purpose
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        cluster = Cluster(
            args.keep or Path(temporary), "qjq", brokers_of="qj", extra=SMALL,
            dice=random.Random(args.seed + 1), bound_s=args.bound,
        )  # fmt: skip
        violation: str | None = None
        soak: Soak | None = None
        try:
            cluster.up()
            soak = Soak(args, cluster)
            soak.run()
        except Exception as e:
            violation = f"{type(e).__name__}: {e}"
            traceback.print_exc()
            for node in cluster.nodes:
                lines = [
                    line
                    for line in node.log_tail(2000).splitlines()
                    if node.impl == "quorate" or " INFO " not in line
                ]
                print(f"--- {node.node_id} {node.impl}", *lines[-15:], sep="\n", file=sys.stderr)
        finally:
            cluster.down()
        if args.json is not None and soak is not None:
            args.json.write_text(json.dumps(soak.result(violation), indent=1) + "\n")
        return 1 if violation else 0


if __name__ == "__main__":
    sys.exit(main())
