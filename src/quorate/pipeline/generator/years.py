"""What happens to a large cluster in its years: rolling upgrades, outages, reassignments,
deletions, storms of configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from quorate.dataclass import dataclass
from quorate.pipeline.generator.cluster import SimulatedCluster, Size
from quorate.pipeline.generator.cycles import Cycle
from quorate.pipeline.generator.files import LogFiles
from quorate.protocol.uuids import uuid_text

BEGIN_MS: Final = 1_672_531_200_000
"""2023-01-01."""

LEVELS: Final = (20, 23, 26, 30, 33)
"""The metadata.versions of the upgrades."""

HOUR_S: Final = 3600.0
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Written:
    """The extent of the log that `generate` has written."""

    cluster_id: str
    records: int
    first_ms: int
    last_ms: int
    snapshots: int
    start_offset: int
    """Where the log begins."""


def generate(
    folder: Path,
    *,
    seed: int,
    records: int,
    size: Size | None = None,
    segment_bytes: int = 16 << 20,
    snapshot_every: int = 100_000,
    clean: bool = False,
    cycle: int | None = None,
) -> Written:
    """Writes a node's directory with at least so many records.

    With `clean`, what the last snapshot but one contains is deleted. With `cycle`, only about so
    many records are simulated, and are repeated without snapshots. Raises FileExistsError, OSError.
    """
    rng, size = Random(seed), size or Size()
    cluster_id = uuid_text(rng.randbytes(16))
    with LogFiles(folder, cluster_id, rng.randbytes(16), BEGIN_MS, segment_bytes) as files:
        files.lead(BEGIN_MS)
        years = Years(SimulatedCluster(rng, size, files, BEGIN_MS, LEVELS[0]))
        years.begin()
        snapshots: list[int] = []
        start = 0
        simulated = records if cycle is None else min(cycle, records)
        while files.end_offset < simulated:
            years.step()
            if files.end_offset >= (snapshots[-1] if snapshots else 0) + snapshot_every:
                files.snapshot(years.cluster.image, years.cluster.now_ms)
                snapshots.append(files.end_offset)
        last_ms = years.cluster.now_ms
        if simulated < records:
            years.end()
            last_ms = _repeat(files, years.cluster, records)
        if clean and len(snapshots) > 1:
            start = snapshots[-2]
            files.delete_before(start, years.cluster.now_ms)
        return Written(cluster_id, files.end_offset, BEGIN_MS, last_ms, len(snapshots), start)


def _repeat(files: LogFiles, cluster: SimulatedCluster, records: int) -> int:
    """Repeats the log until it has so many records. Returns the time of the last one."""
    size, now_ms = files.end_offset, cluster.now_ms
    cycle = Cycle.of(files.folder, cluster.ids, size, files.epoch, BEGIN_MS, now_ms)
    times = -(-records // size) - 1
    cycle.repeat(files, times, _DAY_MS)
    return now_ms + times * (now_ms - BEGIN_MS + _DAY_MS)


class Years:
    """The events, chosen at random."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self._rng = cluster.rng
        self._events: dict[Callable[[], None], int] = {
            self._create: 12,
            self._delete: 6,
            self._create_anew: 2,
            self._extend: 3,
            self._transaction: 2,
            self._restart: 3,
            self._upgrade: 1,
            self._outage: 2,
            self._reassign: 4,
            cluster.storm: 1,
            cluster.secure: 4,
            cluster.producer_ids: 5,
            cluster.fail_over: 2,
            cluster.idle: 20,
        }

    def begin(self) -> None:
        """The cluster is formatted, its brokers register, and its topics are created."""
        cluster = self.cluster
        cluster.set_level(LEVELS[0])
        for broker in range(1, cluster.size.brokers + 1):
            cluster.register(broker)
        for _ in range(cluster.size.topics):
            cluster.create(cluster.new_name())

    def end(self) -> None:
        """All topics are deleted."""
        for name in self.cluster.names():
            self.cluster.delete(name)

    def step(self) -> None:
        """Half a day passes on average, then a random event happens."""
        self.cluster.pass_time(self._rng.expovariate(1 / (12 * HOUR_S)))
        [event] = self._rng.choices(list(self._events), list(self._events.values()))
        event()

    def _create(self) -> None:
        if len(self.cluster.names()) < 2 * self.cluster.size.topics:
            self.cluster.create(self.cluster.new_name())

    def _delete(self) -> None:
        names = self.cluster.names()
        if len(names) > max(1, self.cluster.size.topics // 2):
            self.cluster.delete(self._rng.choice(names))

    def _create_anew(self) -> None:
        name = self._rng.choice(self.cluster.names())
        self.cluster.delete(name)
        self.cluster.pass_time(60)
        self.cluster.create(name)

    def _extend(self) -> None:
        self.cluster.extend(self._rng.choice(self.cluster.names()))

    def _transaction(self) -> None:
        self.cluster.create(self.cluster.new_name(), transaction=self._rng.choice(("end", "end", "abort")))

    def _restart(self) -> None:
        self._roll(self._rng.sample(self.cluster.live(), 1))

    def _upgrade(self) -> None:
        """A rolling upgrade, of which the finalization of features is the last step."""
        self._roll(self.cluster.live())
        level = next((level for level in LEVELS if level > self.cluster.level), None)
        if level is not None:
            self.cluster.set_level(level)

    def _roll(self, brokers: list[int]) -> None:
        for broker in brokers:
            self.cluster.stop(broker)
            self.cluster.pass_time(90)
            self.cluster.register(broker)
            self.cluster.pass_time(300)
            self.cluster.elect_preferred(broker)

    def _outage(self) -> None:
        """A broker, several or a rack fail at once and return hours later."""
        live = self.cluster.live()
        match self._rng.randrange(3):
            case 0:
                gone = self._rng.sample(live, 1)
            case 1:
                gone = self._rng.sample(live, min(3, len(live) - 1))
            case _:
                rack = self.cluster.rack(self._rng.choice(live))
                gone = [broker for broker in live if self.cluster.rack(broker) == rack]
        self.cluster.lose(gone)
        self.cluster.pass_time(self._rng.expovariate(1 / HOUR_S))
        for broker in gone:
            self.cluster.register(broker)
        for broker in gone:
            self.cluster.elect_preferred(broker)

    def _reassign(self) -> None:
        self.cluster.reassign(self._rng.randint(1, 30))
