"""The replicas of a broker, as metadata deltas change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fakes import registration
from .world import Broker, image_of


def test_an_unexpected_error_of_one_partition_leaves_the_others_of_a_delta_in_force(tmp_path: Path) -> None:
    names = ("t0", "t1", "t2")
    broker = Broker(tmp_path, image_of({}))

    def listener(topic: str, _partition: int, _epoch: int | None) -> None:
        if topic == "t1":
            raise RuntimeError("a bug")

    broker.replicas.subscribe_leadership(listener)
    with pytest.raises(ExceptionGroup, match="some partitions"):
        broker.publish(image_of({name: {0: registration()} for name in names}))
    assert {partition.topic for partition in broker.replicas.leaders()} == set(names)
    with pytest.raises(ExceptionGroup):
        broker.publish(image_of({}))
    assert not broker.replicas.partitions
    broker.close()
