"""The times of early heartbeats: soon, and not too many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from quorate.broker.early_heartbeats import PER_BROKER_S, EarlyHeartbeats
from quorate.metadata.image import MetadataDelta
from quorate.metadata.image.cluster import ClusterImage
from quorate.metadata.image.image import MetadataImage

from .fakes import broker

ME = 1
INTERVAL_S = 2.0


def image(
    count: int, leaving: tuple[int, ...] = (), fenced: tuple[int, ...] = (), epoch: int = 5
) -> MetadataImage:
    """A cluster of brokers 1 to count."""
    ids = range(1, count + 1)
    made = {i: broker(i, epoch=epoch, fenced=i in fenced, shutting_down=i in leaving) for i in ids}
    return MetadataImage(cluster=ClusterImage(brokers=Map(made)))


class World:
    """One broker's decisions; `sent` are the times of its early heartbeats."""

    def __init__(self, count: int) -> None:
        self.early = EarlyHeartbeats(ME, INTERVAL_S)
        self.image = image(count)
        self.sent: list[float] = []

    def publish(self, image: MetadataImage, now: float) -> None:
        step, self.image = MetadataDelta(self.image, image), image
        pause = self.early.metadata_applied(step, now)
        if pause is not None:
            assert pause >= 0
            self.sent.append(now + pause)

    def go_on(self, now: float) -> None:
        """Metadata without a change of brokers."""
        self.publish(replace(self.image, provenance=self.image.provenance), now)


def test_nothing_is_sent_early_without_a_controlled_shutdown() -> None:
    world = World(3)
    for step in range(100):
        world.publish(image(3, fenced=(2,) if step % 2 else ()), step / 100)
    assert world.sent == []


def test_the_shutdown_of_another_broker_is_reported_at_once() -> None:
    world = World(3)
    world.publish(image(3, leaving=(2,)), 10.0)
    assert world.sent == [10.0]


def test_a_shutdown_that_was_under_way_before_the_first_step_is_reported() -> None:
    world = World(3)
    world.image = image(3, leaving=(2,))
    world.go_on(10.0)
    assert world.sent == [10.0]


def test_a_new_shutdown_does_not_wait_for_the_heartbeat_that_a_long_one_is_due() -> None:
    world = World(3)
    world.publish(image(3, leaving=(2,)), 10.0)
    for millisecond in range(1, 3_000):
        world.go_on(10.0 + millisecond / 1000)
    assert world.sent[-1] > 13.02
    world.publish(image(3, leaving=(2, 3)), 13.02)
    assert world.sent[-1] == 13.02


def test_a_hundred_brokers_report_one_shutdown_one_after_the_other() -> None:
    before, after = image(100), image(100, leaving=(7,), fenced=(3, 50))
    pauses = {}
    for node_id in range(1, 101):
        if node_id not in (3, 7, 50):
            pauses[node_id] = EarlyHeartbeats(node_id, INTERVAL_S).metadata_applied(
                MetadataDelta(before, after), 10.0
            )
    expected = {node_id: n * PER_BROKER_S for n, node_id in enumerate(sorted(pauses))}
    assert pauses == pytest.approx(expected)


def test_the_brokers_own_shutdown_is_not_reported() -> None:
    world = World(3)
    world.publish(image(3, leaving=(ME,)), 10.0)
    assert world.sent == []


def test_more_records_are_reported_with_growing_distances() -> None:
    """The leaderships are moved in many batches, and the last one matters."""
    world = World(2)
    world.publish(image(2, leaving=(2,)), 10.0)
    for millisecond in range(1, 4_000):
        world.go_on(10.0 + millisecond / 1000)
    distances = [b - a for a, b in zip(world.sent, world.sent[1:], strict=False)]
    assert distances[0] <= 0.01 and distances == sorted(distances) and distances[-1] <= INTERVAL_S
    assert len(world.sent) <= 12


def test_steps_before_a_pending_early_heartbeat_cause_no_other_one() -> None:
    world = World(100)
    world.publish(image(100, leaving=(2,)), 10.0)
    world.go_on(10.01)
    world.go_on(10.02)
    assert world.sent == [10.0, 10.0 + 100 * PER_BROKER_S]


def test_nothing_is_sent_early_after_the_shutdowns_of_others() -> None:
    world = World(3)
    world.publish(image(3, leaving=(2,)), 10.0)
    world.publish(image(3, leaving=(2,), fenced=(2,)), 10.5)
    world.go_on(11.0)
    assert world.sent == [10.0]


def test_the_next_shutdown_is_reported_as_soon_as_the_first() -> None:
    world = World(3)
    world.publish(image(3, leaving=(2,)), 10.0)
    for millisecond in range(1, 1_000):
        world.go_on(10.0 + millisecond / 1000)
    world.publish(image(3, leaving=(2,), fenced=(2,)), 20.0)
    world.publish(image(3, leaving=(2, 3), fenced=(2,)), 21.0)
    world.publish(image(3, fenced=(2,)), 22.0)
    world.publish(image(3, leaving=(3,), epoch=6), 23.0)  # the same one again, after it had come back
    assert world.sent[-2:] == [21.0, 23.0]


def test_a_hundred_brokers_that_leave_one_after_the_other_do_not_flood_the_controller() -> None:
    world = World(100)
    for millisecond in range(0, 990, 10):  # a rolling shutdown of all others within a second
        world.publish(image(100, leaving=tuple(range(2, 3 + millisecond // 10))), 10.0 + millisecond / 1000)
    distances = [b - a for a, b in zip(world.sent, world.sent[1:], strict=False)]
    assert min(distances) >= 100 * PER_BROKER_S - 1e-9


def test_each_step_is_reported() -> None:
    world = World(2)
    world.publish(image(2, leaving=(2,)), 0.0)
    now = 0.0
    for step in range(50):
        now += (step % 7) / 100
        world.go_on(now)
        assert now <= world.sent[-1] <= now + INTERVAL_S
