"""Injects faults into a quorum of processes under a stream of topic creations. Each round has one fault,
then an audit of every disk.

    python -m tests.e2e.quorum_campaign --rounds 100 --seed 1 --faults kill --json FILE

Faults: `kill` (SIGKILL of the leader, sometimes again while it starts), `all` (SIGKILL of all controllers at
once), `term` (SIGTERM of the leader), `stop` (SIGSTOP and SIGCONT), `cut` (links, as root), `disk` (full or
failing, as root), `power` (a power failure of all controllers, which loses everything that was not synced;
as root).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.e2e.campaign_audit import Audit, segments
from tests.e2e.campaign_load import Load
from tests.e2e.campaign_quorum import BROKER, BUSY, CONTROLLERS, QUICK, Quorum, running
from tests.support.cluster import wait_for
from tests.support.disk import Disk
from tests.support.netns import Network

FAULTS = ("kill", "all", "term", "stop", "cut", "disk", "power")
CLEANED_WITHIN_S = 90  # a node cleans its log every minute


@dataclass
class Round:
    """The effect of one fault. Times are in seconds, as observed by clients."""

    number: int
    fault: str
    leader: int  # before the fault
    victims: list[int]
    gap_s: float = (
        0.0  # longest time without an acknowledged creation, from the fault until creations flow again
    )
    mended_gap_s: float = 0.0  # the same from then to the end of the round: the victim comes back
    back_s: float = 0.0  # from the victim's start until all follow one leader and have the same
    created: int = 0  # acknowledged in the whole campaign so far


@dataclass
class Campaign:
    quorum: Quorum
    rng: random.Random
    faults: tuple[str, ...]
    clean_every: int = 0  # in each so many-th round the leader dies right after it has cleaned its log
    pause_s: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    kills_at_start: int = 0

    def __post_init__(self) -> None:
        self.load = Load(self.quorum.broker, pause_s=self.pause_s)
        self.audit = Audit({i: n.metadata for i, n in self.quorum.nodes.items()})

        self.load.prepare()

    def run(self, count: int, tell: Callable[[str], None] = lambda _: None) -> None:
        for number in range(1, count + 1):
            self._round(number, tell)

    def finish(self) -> None:
        """Checks that each replica has the complete history, that all nodes stop cleanly, and that no log
        has a traceback."""
        self.audit.check_replicas()
        for node in reversed(self.quorum.nodes.values()):
            assert node.stop() == 0, f"node {node.node_id} did not end in order"
        for node in self.quorum.nodes.values():
            assert "Traceback" not in (node.base / "out.log").read_text(errors="replace"), (
                f"node {node.node_id} has a traceback"
            )

    def _round(self, number: int, tell: Callable[[str], None]) -> None:
        quorum, load, rng = self.quorum, self.load, self.rng
        fault = rng.choice(self.faults)
        load.start()
        self.creations_flow("the start of the round")  # or the gap would begin before it
        leader = quorum.leader()
        if self.clean_every and number % self.clean_every == 0:
            self._until_cleaned(leader)
            leader = quorum.leader()
        time.sleep(rng.uniform(0.05, 1.0))  # the moment of the fault is the random input
        now = Round(number, fault, leader, [leader])
        at = time.perf_counter()
        mend = getattr(self, f"_{fault}")(now)
        self.creations_flow(f"{now.fault} of {now.victims} (leader {leader})")
        flowed = time.perf_counter()
        now.gap_s = round(load.ledger.gap_s(at, flowed), 4)
        mend()
        quorum.settle()
        ended = time.perf_counter()
        now.back_s = round(ended - flowed, 3)
        self.stop_and_check()
        now.mended_gap_s = round(load.ledger.gap_s(flowed, ended), 4)
        now.created = load.acknowledged()
        self.rounds.append(now)
        tell(
            f"round {number}: {now.fault} {now.victims} (leader {leader}), gap {now.gap_s * 1000:.0f} ms, "
            f"back after {now.back_s:.2f} s, {now.created} creations, {self.audit.end} offsets, "
            f"{self.audit.snapshots} snapshots"
        )

    def creations_flow(self, after: str, timeout_s: float = 40) -> None:
        """Waits until more creations are acknowledged than can be in flight now."""
        before = self.load.acknowledged()
        wait_for(f"creations after {after}", lambda: self.load.acknowledged() > before + 10, timeout_s, 0.005)

    def stop_and_check(self) -> None:
        """Stops the clients, and checks that all replicas agree and that every disk has each answered change
        exactly once."""
        self.load.stop()
        self.audit.advance(self.quorum.settle())
        self.audit.check(self.load.ledger)

    def stop_and_check_all(self) -> None:
        """Like `stop_and_check`, and checks that the files of each replica alone give the same image."""
        self.stop_and_check()
        self.audit.check_replicas()

    def _until_cleaned(self, leader: int) -> None:
        """Waits until the log was cleaned, with audits meanwhile, because deleted segments cannot be read
        later."""
        directory = self.quorum.controllers[leader].metadata
        first = segments(directory)[0][0]

        def cleaned() -> bool:
            told = [n.told() for n in self.quorum.nodes.values()]
            if None not in told:
                self.audit.advance(min(t.high_watermark for t in told if t))
            return segments(directory)[0][0] > first

        wait_for("the log to be cleaned", cleaned, CLEANED_WITHIN_S, 0.2)

    # -- each does its harm at once, and gives what mends it

    def _kill(self, now: Round) -> Callable[[], None]:
        victim = self.quorum.controllers[now.leader]
        victim.kill()

        def mend() -> None:
            while self.rng.random() < 0.2:
                victim.start()
                time.sleep(self.rng.uniform(0.05, 0.5))
                assert victim.running, f"a start failed\n{victim.log_tail()}"
                victim.kill()
                self.kills_at_start += 1
            victim.start()

        return mend

    def _all(self, now: Round) -> Callable[[], None]:
        now.victims = list(CONTROLLERS)
        self.quorum.kill_all()
        for controller in self.quorum.controllers.values():
            controller.start()
        return lambda: None

    def _term(self, now: Round) -> Callable[[], None]:
        victim = self.quorum.controllers[now.leader]
        assert victim.proc is not None
        victim.proc.terminate()

        def mend() -> None:
            assert victim.stop(20) == 0
            victim.start()

        return mend

    def _stop(self, now: Round) -> Callable[[], None]:
        now.victims = [self.rng.choice((now.leader, now.leader, self.quorum.others(now.leader)[0]))]
        self.quorum.pause(now.victims[0])
        return lambda: self.quorum.resume(now.victims[0])

    def _cut(self, now: Round) -> Callable[[], None]:
        quorum, leader = self.quorum, now.leader
        first, second = self.rng.sample(quorum.others(leader), 2)
        how = self.rng.choice(
            ("leader alone", "leader dumb", "leader deaf", "leader and one", "followers", "leader and broker")
        )
        now.fault = f"cut: {how}"
        match how:
            case "leader alone":
                quorum.cut(leader, first, second)
            case "leader dumb":
                quorum.cut_one_way(leader, first, second)
            case "leader deaf":
                quorum.cut_one_way(first, leader)
                quorum.cut_one_way(second, leader)
            case "leader and one":
                quorum.cut(leader, first)
            case "followers":
                quorum.cut(first, second)
            case (
                _
            ):  # nobody else can act for this leader, and it is one for its voters: only the cut's end helps
                quorum.cut(leader, BROKER)
                time.sleep(self.rng.uniform(0.2, 2.0))
                quorum.heal()
        return quorum.heal

    def _disk(self, now: Round) -> Callable[[], None]:
        victim = self.rng.choice((now.leader, self.quorum.others(now.leader)[0]))
        how = self.rng.choice(("full", "failed"))
        now.fault, now.victims = f"disk: {how}", [victim]
        node, disk = self.quorum.controllers[victim], self.quorum.disks[victim]
        disk.fill() if how == "full" else disk.fail()

        def mend() -> None:
            assert node.proc is not None
            assert node.proc.wait(30) == 1, "a node whose disk is broken must stop"
            assert str(node.metadata.parent) in node.log_tail(20), "it must name the disk"
            disk.free() if how == "full" else disk.replug()
            node.start()

        return mend

    def _power(self, now: Round) -> Callable[[], None]:
        now.victims = list(CONTROLLERS)
        self.quorum.lose_power()
        return lambda: None

    # -- the figures

    def figures(self) -> dict[str, object]:
        ledger = self.load.ledger
        told: dict[str, object] = {
            "rounds": len(self.rounds),
            "created": len(ledger.created),
            "answered_as_existing": len(ledger.exists),
            "deleted": len(ledger.deleted),
            "configs": ledger.config,
            "unanswered": ledger.unanswered,
            "errors": ledger.errors,
            "lost": 0,  # the audit raises otherwise
            "twice": 0,
            "offsets": self.audit.end,
            "batches": self.audit.batches,
            "snapshots_compared": self.audit.snapshots,
            "kills_at_start": self.kills_at_start,
        }
        for fault in sorted({r.fault for r in self.rounds}):
            gaps = [r.gap_s for r in self.rounds if r.fault == fault]
            backs = [r.back_s for r in self.rounds if r.fault == fault]
            told[fault] = {
                "rounds": len(gaps),
                "gap_median_s": round(statistics.median(gaps), 4),
                "gap_p95_s": sorted(gaps)[int(0.95 * (len(gaps) - 1))],
                "gap_max_s": max(gaps),
                "back_median_s": round(statistics.median(backs), 3),
                "back_max_s": max(backs),
            }
        return told


def campaign(base: Path, count: int, seed: int, faults: tuple[str, ...], clean_every: int = 0, pause_s: float = 0.0,
             quick: bool = True, tell: Callable[[str], None] = lambda _: None) -> Campaign:  # fmt: skip
    disks = {i: Disk(base / f"disk{i}", 48) for i in CONTROLLERS} if {"disk", "power"} & set(faults) else {}
    network = Network(4) if "cut" in faults else None
    try:
        with (
            network or nullcontext(),
            running(Quorum(base, network, disks, BUSY | (QUICK if quick else {}))) as quorum,
        ):
            done = Campaign(quorum, random.Random(seed), faults, clean_every, pause_s)
            done.run(count, tell)
            done.finish()
            return done
    finally:
        for disk in disks.values():
            disk.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="faults on a quorum under load, each followed by an audit of every disk"
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="kill", help=f"of {','.join(FAULTS)}; each round draws one")
    parser.add_argument(
        "--clean-every",
        type=int,
        default=0,
        help="each so many-th round hits right after the log was cleaned",
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of each client after each answer")
    parser.add_argument(
        "--default-timeouts",
        action="store_true",
        help="Kafka's of the quorum, not the short ones of the tests",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    faults = tuple(args.faults.split(","))
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    base = Path(tempfile.mkdtemp(prefix="quorum-"))
    started, load_before = time.perf_counter(), os.getloadavg()[0]
    try:
        done = campaign(
            base,
            args.rounds,
            args.seed,
            faults,
            args.clean_every,
            args.pause,
            not args.default_timeouts,
            _say,
        )
    except BaseException:
        print(f"seed {args.seed}; what is left: {base}", file=sys.stderr)
        raise
    shutil.rmtree(base)
    result = {
        "command": f"python -m tests.e2e.quorum_campaign --rounds {args.rounds} --seed {args.seed} --faults {args.faults}"
        + (f" --clean-every {args.clean_every}" if args.clean_every else "")
        + (f" --pause {args.pause}" if args.pause else "")
        + (" --default-timeouts" if args.default_timeouts else ""),
        "seconds": round(time.perf_counter() - started, 1),
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        **done.figures(),
        "each": [asdict(r) for r in done.rounds],
    }
    text = json.dumps(result, indent=1)
    if args.json:
        args.json.write_text(text + "\n")
    print(text if not args.json else json.dumps({k: v for k, v in result.items() if k != "each"}, indent=1))


if __name__ == "__main__":
    main()
