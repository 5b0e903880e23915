"""Injects the scheduled faults into a running cluster, heals them, and waits for its recovery."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quorate.testing import ClusterError
from tests.chaos.cluster import STOP_TIMEOUT_S, ChaosCluster
from tests.chaos.faults import Fault, Kind, Lane, selected

_MAY_END = {Kind.FULL_DISK, Kind.FAILING_DISK}
"""A node that cannot write its metadata log ends."""
_FREE_BYTES = 400_000
"""The most that can still be written to a full disk."""
_FSYNC_MS, _READ_MS = 150, 60
"""The longest delays of a slow disk."""
_RESTARTS_WITHOUT = 0.5
"""The severity of a failing directory from which on the broker is killed and started while it fails."""
_NOTICED_S = 1.0
_POLL_S = 0.1


@dataclass
class InjectedFault:
    """A fault that took effect. Times are monotonic seconds."""

    number: int
    lane: str
    kind: str
    victim: int
    peer: int | None
    led: bool
    """whether the victim was the active controller"""
    start: float
    ended: bool = False
    """whether the fault ended the process of the victim"""
    healed: float = 0.0
    recovered: float = 0.0
    log_position: int = 0
    """the size of the victim's log before the fault"""
    starts: int = 0
    """how often the victim was started"""


class Nemesis:
    """One lane of faults, in a thread of its own. `failure` is what made it end early."""

    def __init__(
        self,
        cluster: ChaosCluster,
        faults: Iterator[Fault],
        *,
        bound_s: float,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[InjectedFault], None] = lambda _: None,
        lock: threading.Lock,
    ) -> None:
        """`lock` is shared by all lanes: KafkaCluster is not thread-safe."""
        self.injected: list[InjectedFault] = []
        self.failure: str | None = None
        self._cluster, self._kafka = cluster, cluster.kafka
        self._faults = faults
        self._bound_s = bound_s
        self._clock = clock
        self._report = report
        self._lock = lock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Starts no further fault, heals the current one and waits for the recovery from it."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for fault in self._faults:
                if self._over.wait(fault.pause_s):
                    return
                self._apply(fault)
        except Exception as e:  # every failure ends the run
            self.failure = f"{type(e).__name__}: {e}"

    def _apply(self, fault: Fault) -> None:
        victim, led = self._victim(fault)
        peer = None
        if fault.kind is Kind.CUT:
            peer = selected(fault.peer_share, [n for n in self._cluster.nodes if n != victim])
        done = InjectedFault(fault.number, str(fault.lane), str(fault.kind), victim, peer, led, self._clock())
        done.log_position = self._cluster.log_end(victim)
        self.injected.append(done)
        self._inject(fault, done)
        self._over.wait(fault.lasts_s)
        self._heal(fault, done)
        done.healed = self._clock()
        self._recover(fault, done)
        done.recovered = self._clock()
        self._report(done)

    def _victim(self, fault: Fault) -> tuple[int, bool]:
        if fault.lane is Lane.BROKERS:
            return selected(fault.victim_share, self._cluster.brokers), False
        active = self._cluster.active_controller(self._bound_s)
        others = [n for n in self._cluster.controllers if n != active]
        return (active, True) if fault.on_leader else (selected(fault.victim_share, others), False)

    def _inject(self, fault: Fault, done: InjectedFault) -> None:
        victim = done.victim
        with self._lock:
            match fault.kind:
                case Kind.STOP:  # ends although the other lane waits: a majority of the controllers is there
                    self._kafka.stop(victim, timeout_s=STOP_TIMEOUT_S)
                    done.ended = True
                case Kind.KILL:
                    self._kafka.kill(victim)
                    done.ended = True
                case Kind.FREEZE:
                    self._kafka.freeze(victim)
                case Kind.CUT:
                    self._kafka.cut(victim, done.peer)
                case Kind.ISOLATE:
                    self._kafka.cut(victim)
                case Kind.FULL_DISK:
                    self._kafka.full_disk(victim, free_bytes=int(fault.severity * _FREE_BYTES))
                case Kind.FAILING_DISK:
                    self._kafka.fail_disk(victim)
                case Kind.FAILING_DIRECTORY:
                    self._kafka.fail_disk(victim, self._cluster.log_directories(victim)[1])
                    if fault.severity > _RESTARTS_WITHOUT:
                        self._kafka.kill(victim)
                        self._kafka.start(victim, wait=False)
                case Kind.SLOW_DISK:
                    self._kafka.slow_disk(
                        victim, fsync_ms=fault.severity * _FSYNC_MS, read_ms=fault.severity * _READ_MS
                    )

    def _heal(self, fault: Fault, done: InjectedFault) -> None:
        victim = done.victim
        with self._lock:
            match fault.kind:
                case Kind.FREEZE:
                    self._kafka.thaw(victim)
                case Kind.CUT:
                    self._kafka.heal(victim, done.peer)
                case Kind.ISOLATE:
                    self._kafka.heal(victim)
                case Kind.FULL_DISK:
                    self._kafka.free_disk(victim)
                case Kind.FAILING_DISK:
                    self._kafka.repair_disk(victim)
                case Kind.FAILING_DIRECTORY:
                    self._kafka.repair_disk(victim)
                    # Only a restart brings a log directory back.
                    if fault.again or fault.severity > _RESTARTS_WITHOUT:  # it may still start
                        self._kafka.kill(victim)
                    else:
                        self._kafka.stop(victim, timeout_s=STOP_TIMEOUT_S)
                case Kind.SLOW_DISK:
                    self._kafka.slow_disk(victim)
        if fault.kind in (Kind.KILL, Kind.STOP, Kind.FAILING_DIRECTORY):
            self._start(done)
        if fault.kind is Kind.KILL and fault.again:
            time.sleep(fault.severity)  # the moment of the kill is the random input
            with self._lock:
                self._kafka.kill(victim)
            self._start(done)

    def _start(self, done: InjectedFault) -> None:
        done.starts += 1
        with self._lock:
            self._kafka.start(done.victim, wait=False)

    def _recover(self, fault: Fault, done: InjectedFault) -> None:
        """Waits until the cluster is complete again. Raises ClusterError if it takes too long."""
        if fault.kind in _MAY_END:
            time.sleep(_NOTICED_S)  # a write that failed just before the disk was healed is logged meanwhile
        since_ms = time.time() * 1000
        deadline = self._clock() + self._bound_s
        while True:
            if not self._kafka.is_running(done.victim):
                if fault.kind not in _MAY_END or done.starts:
                    tail = self._kafka.log_tail(done.victim)
                    raise ClusterError(f"node {done.victim} ended by itself after {done}\n{tail}")
                done.ended = True
                self._start(done)
            if not done.starts and self._cluster.ends(done.victim, done.log_position):
                missing = f"node {done.victim} has not ended yet"
            elif fault.lane is Lane.BROKERS:
                missing = self._cluster.incomplete_brokers()
            else:
                missing = self._cluster.incomplete_quorum(since_ms)
            if missing is None:
                return
            if self._clock() > deadline:
                raise ClusterError(f"no recovery in {self._bound_s:g} s after {done}: {missing}")
            time.sleep(_POLL_S)  # polls other processes
