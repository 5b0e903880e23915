"""`quorate decommission` and the disks of the other brokers: a replica lies in one directory, so it
goes where one volume has room for it."""

from __future__ import annotations

from itertools import product

import pytest

from quorate.admin.types import LogDirDescription
from quorate.planner.cluster import Broker as PlannedBroker
from quorate.planner.cluster import ClusterBuilder, NoPlaceError
from quorate.planner.plan import make_plan
from quorate.planner.request import Request
from quorate.tools.operations.plan import Progress
from quorate.tools.operations.plans.decommission import Decommission
from quorate.tools.plan.log_dirs import rooms_of
from tests.tools.test_operation_plans import broker, cluster, part
from tests.tools.test_plan import directory


@pytest.mark.parametrize(
    ("sizes", "rooms", "brokers"),
    [
        ([100], {4: (90, 60), 5: (100, 10)}, [5]),
        ([60, 60], {4: (100, 100), 5: (110, 90)}, [4, 5]),
        ([60, 50, 40], {4: (70, 70), 5: (80,)}, None),
        ([40, 40, 40], {4: (70, 50), 5: (50,)}, None),
    ],
    ids=["one disk", "each has two disks", "three replicas", "a disk for each"],
)
def test_each_replica_goes_where_one_directory_has_room(
    sizes: list[int], rooms: dict[int, tuple[int, ...]], brokers: list[int] | None
) -> None:
    """The rooms of the volumes count one by one, and not their sum."""
    nodes = [broker(b, capacity=sum(room), rooms=room) for b, room in rooms.items()]
    topics = [part(name, [6], size=size) for size, name in zip(sizes, "abc", strict=False)]
    plan = Decommission(6).plan(cluster(*topics, brokers=[*nodes, broker(6)], level=29), Progress())
    assert not plan.refusals
    assert any("not every directory of broker 5 has room for 100" in note for note in plan.notes) == (
        100 in sizes
    )
    came: dict[int, list[int]] = {}
    for tp, new in plan.steps[0].data.items():  # type: ignore[attr-defined]
        came.setdefault(new[0], []).append(sizes["abc".index(tp.topic)])
    assert brokers is None or sorted(came) == brokers
    for b, sizes_of in came.items():
        assert any(
            all(sum(s for s, v in zip(sizes_of, choice, strict=True) if v == n) <= room
                for n, room in enumerate(rooms[b]))
            for choice in product(range(len(rooms[b])), repeat=len(sizes_of))
        )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([100], "no other broker has room for the replica of a-0 with 100 bytes: broker 4 has "
         "directories with room for 90, 60, broker 5 has directories with room for 95, 95"),
        ([61, 61, 61, 61, 61], "no other broker has room for the replica of "),
        ([50, 50, 50, 50, 50], ""),
    ],
)  # fmt: skip
def test_a_decommission_is_refused_without_a_single_directory_with_room(
    sizes: list[int], reason: str
) -> None:
    nodes = [broker(4, capacity=150, rooms=(90, 60)), broker(5, capacity=190, rooms=(95, 95)), broker(6)]
    topics = [part(name, [6], size=size) for size, name in zip(sizes, "abcde", strict=False)]
    plan = Decommission(6).plan(cluster(*topics, brokers=nodes, level=29), Progress())
    [refusal] = plan.refusals
    assert refusal.reason.startswith(reason)
    assert "--disk-limit" in refusal.remedy


@pytest.mark.parametrize(
    ("directories", "limit", "rooms"),
    [
        ([directory(1000, 600, 100), directory(500, 500)], 1.0, (600, 500)),
        ([directory(1000, 600, 100), directory(500, 90)], 0.8, (400, 0)),
        ([directory(1000, 600, 100), directory(1000, 600)], 0.8, (400,)),
        ([directory(1000, 600), directory(0, 0, error="KAFKA_STORAGE_ERROR")], 0.8, (400,)),
        ([directory(1000, 600), LogDirDescription("/e", None, 900, 900, {}, cordoned=True)], 0.8, (400,)),
        ([directory(-1, -1, 100)], 0.8, None),
        ([], 0.8, None),
    ],
    ids=[
        "two volumes",
        "one is too full",
        "one volume",
        "one is offline",
        "one is cordoned",
        "unknown",
        "none",
    ],
)
def test_the_room_of_each_volume(
    directories: list[LogDirDescription], limit: float, rooms: tuple[int, ...] | None
) -> None:
    assert rooms_of(directories, limit) == rooms


@pytest.mark.parametrize("balance", [False, True])
def test_a_plan_moves_no_replica_to_a_broker_without_a_disk_for_it(balance: bool) -> None:
    def planned(largest: int) -> dict[int, int]:
        builder = ClusterBuilder([PlannedBroker(1), PlannedBroker(2, largest=largest), PlannedBroker(3)])
        for partition, size in enumerate([100, 10, 10, 10]):
            builder.add("t", partition, [1], 1, size)
        plan = make_plan(builder.build(), Request(drain=frozenset({1}), balance=balance))
        return {plan.cluster.sizes[p]: plan.replicas(p)[0] for p in plan.moves}

    assert planned(99)[100] == 3
    builder = ClusterBuilder([PlannedBroker(1), PlannedBroker(2, largest=99)])
    builder.add("t", 0, [1], 1, 100)
    with pytest.raises(NoPlaceError, match="no broker that could have a replica of partition t-0 has room"):
        make_plan(builder.build(), Request(drain=frozenset({1}), balance=balance))
