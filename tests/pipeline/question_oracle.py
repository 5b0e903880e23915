"""Answers to the questions, computed from the controller's image after each offset, to compare the two.

The way is another one than that of the tables: each offset is looked at, and what holds after it
counts until the next record. It is slow, and has no intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quorate.metadata.framing import decode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.partitions import PartitionImage
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import control_records, iter_batches, metadata_values
from quorate.records.control import ControlRecordType, LeaderChangeMessage

Key = tuple[str, int]
MIN_ISR = "min.insync.replicas"
TOPIC, BROKER = 2, 4


@dataclass(frozen=True)
class Step:
    """What holds after an offset."""

    offset: int
    time: datetime
    epoch: int
    record: Data | LeaderChangeMessage | None
    image: MetadataImage

    @property
    def partitions(self) -> dict[Key, PartitionImage]:
        found: dict[Key, PartitionImage] = {}
        for topic in self.image.topics.by_id.values():
            for number in topic.partitions.ids():
                state = topic.partitions.get(number)
                assert state is not None
                found[uuid_text(topic.id), number] = state
        return found

    def name(self, topic_id: str) -> str:
        return next(t.name for t in self.image.topics.by_id.values() if uuid_text(t.id) == topic_id)

    def broker_state(self, broker: int) -> str | None:
        found = self.image.cluster.broker(broker)
        if found is None:
            return None
        return (
            "fenced" if found.fenced else "controlled shutdown" if found.in_controlled_shutdown else "active"
        )


def steps_of(folder: Path) -> Iterator[Step]:
    image = EMPTY
    for path in sorted(folder.glob("*.log")):
        for header, batch in iter_batches(path.read_bytes()):
            time = datetime.fromtimestamp(header.max_timestamp / 1000, UTC)
            records: list[Any]
            if header.is_control:
                records = [
                    LeaderChangeMessage.read(value, 0, 0)[0]
                    if kind == ControlRecordType.LEADER_CHANGE
                    else None
                    for kind, value in control_records(batch)
                ]
            else:
                records = [decode_record(value)[0] for value in metadata_values(batch)]
            for at, record in enumerate(records):
                offset = header.base_offset + at
                if not header.is_control:
                    image = apply_records(
                        image, [record], offset=offset, epoch=header.leader_epoch,
                        timestamp_ms=header.max_timestamp,
                    )  # fmt: skip
                yield Step(offset, time, header.leader_epoch, record, image)


def lacks(state: PartitionImage) -> bool:
    wanted = set(state.replicas) - set(state.adding_replicas)
    return len(state.isr) < len(wanted) or state.leader == -1


def missing(state: PartitionImage) -> set[int]:
    if state.leader == -1:
        return set(state.replicas)
    return set(state.replicas) - set(state.adding_replicas) - set(state.isr)


def was_clean(state: PartitionImage, before: PartitionImage) -> bool:
    """Whether an election cannot have lost records."""
    recovers = state.leader_recovery_state == 1 and before.leader_recovery_state == 0
    return not recovers and state.leader in (-1, *before.isr, *before.elr)


class Oracle:
    """The answers for the records after the offset `first` up to `last`."""

    def __init__(self, folder: Path, first: int = -1, last: int | None = None) -> None:
        every = list(steps_of(folder))
        self.first, self.last = first, len(every) - 1 if last is None else last
        self.steps = every[: self.last + 1]
        self.begin = every[max(first, 0)].time
        self.end = self.steps[-1].time
        self.states = [step.partitions for step in self.steps]
        self.names = {
            uuid_text(topic.id): topic.name for step in every for topic in step.image.topics.by_id.values()
        }

    def pairs(self) -> Iterator[tuple[int, Step]]:
        """The steps of the period, with their offsets."""
        for offset in range(max(self.first + 1, 0), self.last + 1):
            yield offset, self.steps[offset]

    def before(self, offset: int) -> dict[Key, PartitionImage]:
        return self.states[offset - 1] if offset else {}

    def lengths(self) -> Iterator[tuple[int, datetime, datetime]]:
        """Each offset of which the state holds in the period, from when and until when."""
        for offset in range(max(self.first, 0), self.last):
            yield offset, self.steps[offset].time, self.steps[offset + 1].time

    # -- partitions --------------------------------------------------------------------------------------

    def elections(self) -> list[tuple[Any, ...]]:
        found = []
        for offset, step in self.pairs():
            for key, state in self.states[offset].items():
                before = self.before(offset).get(key)
                if before is None or before.leader_epoch == state.leader_epoch:
                    continue
                kind = (
                    "none" if state.leader == -1
                    else "again" if state.leader == before.leader
                    else "unclean" if not was_clean(state, before)
                    else "preferred" if state.leader == state.replicas[0]
                    else "other"
                )  # fmt: skip
                found.append(
                    (offset, step.time, key[0], key[1], before.leader, state.leader, state.leader_epoch, kind)
                )
        return sorted(found)

    def leader_changes(self, hours: bool) -> dict[Any, list[int]]:
        """Gained, lost, preferred, unclean and created by time and broker."""
        found: dict[Any, list[int]] = defaultdict(lambda: [0] * 5)

        def add(time: datetime, broker: int, place: int) -> None:
            found[*((hour(time),) if hours else ()), broker][place] += 1

        for _, time, _, _, before, leader, _, kind in self.elections():
            if before != leader:
                add(time, leader, 0)
                add(time, before, 1)
                for place, name in ((2, "preferred"), (3, "unclean")):
                    if kind == name:
                        add(time, leader, place)
        for offset, step in self.pairs():
            for key, state in self.states[offset].items():
                if key not in self.before(offset):
                    add(step.time, state.leader, 4)
        return dict(found)

    def isr_changes(self) -> dict[int, tuple[int, int]]:
        left: Counter[int] = Counter()
        joined: Counter[int] = Counter()
        for offset, _ in self.pairs():
            for key, state in self.states[offset].items():
                before = self.before(offset).get(key)
                if before is not None:
                    left.update((set(before.isr) & set(state.replicas)) - set(state.isr))
                    joined.update(set(state.isr) - set(before.isr))
        return {broker: (left[broker], joined[broker]) for broker in {*left, *joined}}

    def flags(self, offset: int, key: Key, min_isr: int) -> tuple[bool, bool, bool]:
        """Under-replicated, below min.insync.replicas, offline."""
        state, resources = self.states[offset][key], self.steps[offset].image.configs.resources
        of_topic = resources.get((TOPIC, self.names[key[0]]), {}).get(MIN_ISR)
        of_all = resources.get((BROKER, ""), {}).get(MIN_ISR)
        value = int(of_topic or of_all or min_isr)
        wanted = set(state.replicas) - set(state.adding_replicas)
        return (
            len(state.isr) < len(wanted),
            len(state.isr) < min(value, len(state.replicas)),
            state.leader == -1,
        )

    def degraded(self, min_isr: int = 1) -> dict[Key, tuple[float, ...]]:
        found: dict[Key, list[float]] = defaultdict(lambda: [0.0] * 3)
        for offset, since, until in self.lengths():
            for key in self.states[offset]:
                for place, flag in enumerate(self.flags(offset, key, min_isr)):
                    if flag:
                        found[key][place] += (until - since).total_seconds()
        return {key: tuple(value) for key, value in found.items() if any(value)}

    def degraded_by_day(self, min_isr: int = 1) -> dict[datetime, tuple[float, ...]]:
        """The average number of partitions with each flag."""
        sums: dict[datetime, list[float]] = {day: [0.0] * 3 for day in self.days()}
        for offset, since, until in self.lengths():
            flags = [self.flags(offset, key, min_isr) for key in self.states[offset]]
            for start in self.days():
                length = (min(until, start + timedelta(days=1)) - max(since, start)).total_seconds()
                for place in range(3):
                    sums[start][place] += max(0, length) * sum(flag[place] for flag in flags)
        averages = {}
        for start, values in sums.items():
            length = (min(self.end, start + timedelta(days=1)) - max(self.begin, start)).total_seconds()
            averages[start] = tuple([value / length if length > 0 else 0.0 for value in values])
        return averages

    def days(self) -> list[datetime]:
        start = day(self.begin)
        return [start + timedelta(days=n) for n in range((self.end - start).days + 1)]

    def at_the_end_of_days(self) -> dict[datetime, int]:
        """The last offset of each day."""
        times = [step.time for step in self.steps]
        return {
            start: bisect_right(times, start + timedelta(days=1, microseconds=-1)) - 1
            for start in self.days()
        }

    def balance(self) -> dict[Any, tuple[int, int, int]]:
        """Replicas, leaders and preferred leaders by day and broker."""
        found: dict[Any, tuple[int, int, int]] = {}
        for start, offset in self.at_the_end_of_days().items():
            states = self.states[max(offset, self.first)].values()
            for broker in self.brokers():
                found[start, broker] = (
                    sum(broker in state.replicas for state in states),
                    sum(broker == state.leader for state in states),
                    sum(broker == state.replicas[0] for state in states),
                )
        return found

    def growth(self) -> dict[datetime, tuple[int, ...]]:
        """Topics, created, deleted; partitions, created, deleted; replicas."""
        made: dict[datetime, list[int]] = {start: [0] * 4 for start in self.days()}
        for offset, step in self.pairs():
            now, then = self.states[offset], self.before(offset)
            topics, before = {key[0] for key in now}, {key[0] for key in then}
            for place, count in enumerate(
                (
                    len(topics - before),
                    len(before - topics),
                    len(now.keys() - then.keys()),
                    len(then.keys() - now.keys()),
                )
            ):
                made[day(step.time)][place] += count
        found = {}
        for start, offset in self.at_the_end_of_days().items():
            states = self.states[max(offset, self.first)]
            new, gone, more, fewer = made[start]
            replicas = sum(len(state.replicas) for state in states.values())
            found[start] = (len({key[0] for key in states}), new, gone, len(states), more, fewer, replicas)
        return found

    def unchanged(self) -> dict[str, int]:
        """Topics and the offset of their last change, of which none is in the period."""
        last: dict[str, int] = {}
        for offset, step in enumerate(self.steps):
            now, then = self._settings(offset), self._settings(offset - 1)
            for topic in {uuid_text(topic.id) for topic in step.image.topics.by_id.values()}:
                if now.get(topic) != then.get(topic):
                    last[topic] = offset
        there = {uuid_text(topic.id) for topic in self.steps[-1].image.topics.by_id.values()}
        return {topic: offset for topic, offset in last.items() if topic in there and offset <= self.first}

    def _settings(self, offset: int) -> dict[str, Any]:
        if offset < 0:
            return {}
        image, found = self.steps[offset].image, defaultdict[str, list[Any]](list)
        for topic in image.topics.by_id.values():
            found[uuid_text(topic.id)].append(dict(image.configs.resources.get((TOPIC, topic.name), {})))
        for (topic_id, number), state in self.states[offset].items():
            moves = tuple(state.replicas), tuple(state.adding_replicas), tuple(state.removing_replicas)
            found[topic_id].append((number, moves))
        return found

    # -- nodes -------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        return sorted({broker for step in self.steps for broker in step.image.cluster.brokers})

    def availability(self) -> dict[int, tuple[float, ...]]:
        """Active, in controlled shutdown, fenced, in seconds; outages and restarts."""
        found = {}
        for broker in self.brokers():
            seconds: Counter[str | None] = Counter()
            for offset, since, until in self.lengths():
                seconds[self.steps[offset].broker_state(broker)] += (until - since).total_seconds()  # type: ignore[assignment]
            outages = restarts = 0
            for offset, step in self.pairs():
                before = self.steps[offset - 1] if offset else None
                state = step.broker_state(broker)
                was = before.broker_state(broker) if before is not None else None
                outages += was == "active" and state not in ("active", None)
                if before is not None and was is not None and state is not None:
                    restarts += self._process(before, broker) != self._process(step, broker)
            parts = [seconds[name] for name in ("active", "controlled shutdown", "fenced")]
            found[broker] = (*parts, outages, restarts)
        return found

    @staticmethod
    def _process(step: Step, broker: int) -> bytes:
        return step.image.cluster.brokers[broker].incarnation_id

    def recovery(self) -> list[tuple[Any, ...]]:
        """Broker, offset, time, time of its return, time of the recovery, partitions."""
        lacking = list(self._lacking())
        found = []
        for broker in self.brokers():
            every = [step.broker_state(broker) for step in self.steps]
            for offset, step in self.pairs():
                if offset == 0 or every[offset - 1] != "active" or every[offset] in ("active", None):
                    continue
                after = next(
                    (at for at in range(offset, self.last + 1) if every[at] in ("active", None)), None
                )
                returned = after if after is not None and every[after] == "active" else None
                of = [
                    until
                    for since, until, brokers in lacking
                    if broker in brokers
                    and (returned is None or since <= returned)
                    and (until is None or until > offset)
                ]
                if not of:
                    recovered = returned
                else:
                    recovered = None if None in of else max(at for at in of if at is not None)
                times = [None if at is None else self.steps[at].time for at in (returned, recovered)]
                found.append((broker, offset, step.time, *times, len(of)))
        return sorted(found)

    def _lacking(self) -> Iterator[tuple[int, int | None, set[int]]]:
        """The spans of offsets in which a partition lacked brokers, and these."""
        for key in {key for states in self.states for key in states}:
            since, brokers = -1, set[int]()
            for offset, states in enumerate(self.states):
                state = states.get(key)
                lacking = state is not None and lacks(state)
                if since < 0 and lacking:
                    since, brokers = offset, set()
                if since >= 0 and not lacking:
                    yield since, offset, brokers
                    since = -1
                if lacking and state is not None:
                    brokers |= missing(state)
            if since >= 0:
                yield since, None, brokers

    def failovers(self) -> list[tuple[Any, ...]]:
        """Offset, time, epoch, controller, the one before, how long it led, and the silence before."""
        changes = [step for step in self.steps if isinstance(step.record, LeaderChangeMessage)]
        found = []
        for number, step in enumerate(changes):
            assert isinstance(step.record, LeaderChangeMessage)
            before = changes[number - 1] if number else None
            until = changes[number + 1].time if number + 1 < len(changes) else self.end
            silent = (
                None if before is None else (step.time - self.steps[step.offset - 1].time).total_seconds()
            )
            leader = None if before is None else before.record.leader_id  # type: ignore[union-attr]
            led = (until - step.time).total_seconds()
            if step.offset > self.first:
                found.append((step.offset, step.time, step.epoch, step.record.leader_id, leader, led, silent))
        return found


def hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def day(time: datetime) -> datetime:
    return hour(time).replace(hour=0)
