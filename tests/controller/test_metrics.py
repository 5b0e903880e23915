"""What the metrics of partitions and brokers on a controller mean."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from quorate.controller import metrics
from quorate.controller.brokers.sessions import BrokerSessions
from quorate.controller.changes.purgatory import ResponsePurgatory
from quorate.controller.metrics import PartitionCounts, event_families
from quorate.metadata.image import RECOVERED, RECOVERING, MetadataImage, last_stable_offset, metadata_lag
from quorate.metadata.image.image import EMPTY, OpenTransaction
from quorate.metrics import quantiles
from quorate.protocol.errors import KafkaError
from tests.broker.fakes import registration
from tests.broker.world import image_of

Partitions = dict[int, Any]


def image(partitions: Partitions) -> MetadataImage:
    return image_of({"t": partitions})


def counted(*images: MetadataImage) -> PartitionCounts:
    counts = PartitionCounts()
    for one in images:
        for _ in counts.update(one):
            pass
    return counts


LED_BY_FIRST = registration(replicas=(1, 2, 3))
LED_BY_SECOND = registration(replicas=(1, 2, 3), leader=2)
LEADERLESS = registration(replicas=(1, 2, 3), isr=(1,), leader=-1)
UNCLEAN = registration(replicas=(1, 2, 3), isr=(3,), leader=3)._replace(leader_recovery_state=RECOVERING)
STILL_RECOVERING = registration(replicas=(1, 2, 3), isr=(2,), leader=-1)._replace(
    leader_recovery_state=RECOVERING
)

ELIGIBLE = registration(replicas=(1, 2, 3), isr=(), leader=-1)._replace(elr=(2,))

STEPS: list[tuple[str, list[Partitions], int, int]] = [
    ("nothing", [{}], 0, 0),
    ("preferred leaders", [{0: LED_BY_FIRST, 1: LED_BY_FIRST}], 0, 0),
    ("another leader", [{0: LED_BY_FIRST, 1: LED_BY_SECOND}], 1, 0),
    ("no leader", [{0: LEADERLESS}], 1, 0),
    ("a leader that moves", [{0: LED_BY_FIRST}, {0: LED_BY_SECOND}], 1, 0),
    ("a leader that returns", [{0: LED_BY_SECOND}, {0: LED_BY_FIRST}], 0, 0),
    ("a deleted partition", [{0: LED_BY_SECOND}, {}], 0, 0),
    ("an unclean election", [{0: LEADERLESS}, {0: UNCLEAN}], 1, 1),
    ("one that was seen before", [{0: LEADERLESS}, {0: UNCLEAN}, {0: UNCLEAN}], 1, 1),
    ("a second one while the first leader recovers", [{0: STILL_RECOVERING}, {0: UNCLEAN}], 1, 1),
    ("one before the first look", [{0: UNCLEAN}], 1, 0),
    (
        "the recovery after it",
        [{0: LEADERLESS}, {0: UNCLEAN}, {0: UNCLEAN._replace(leader_recovery_state=RECOVERED)}],
        1,
        1,
    ),
]


@pytest.mark.parametrize(("case", "steps", "imbalance", "unclean"), STEPS, ids=[step[0] for step in STEPS])
def test_imbalance_and_unclean_elections_follow_the_metadata(
    case: str, steps: list[Partitions], imbalance: int, unclean: int
) -> None:
    counts = counted(*map(image, steps))
    assert (counts.imbalance, counts.unclean_elections, counts.is_complete) == (imbalance, unclean, True)


def test_an_election_of_an_eligible_leader_replica_is_counted() -> None:
    elected = registration(replicas=(1, 2, 3), isr=(2,), leader=2)
    assert counted(image({0: ELIGIBLE}), image({0: elected})).elr_elections == 1
    assert counted(image({0: LEADERLESS}), image({0: elected})).elr_elections == 0
    assert counted(image({0: elected}), image({0: ELIGIBLE})).elr_elections == 0
    found = counted(image({0: ELIGIBLE}), image({0: elected}), image({0: elected}))
    assert (found.elr_elections, found.unclean_elections) == (1, 0)


def test_a_response_that_is_not_stable_in_time_is_counted() -> None:
    async def body() -> None:
        pending = ResponsePurgatory()
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for offset, (future, deadline) in enumerate(zip(futures, (5.0, 50.0), strict=True)):
            pending.add(offset, None, future, deadline=deadline, what="a change", with_offset=False)
        pending.expire(4.0)
        assert pending.expired_count == 0
        for now in (6.0, 7.0):
            pending.expire(now)
            assert pending.expired_count == 1
        assert isinstance(futures[0].exception(), KafkaError)
        pending.release(1)
        assert pending.expired_count == 1

    asyncio.run(body())


def test_very_many_partitions_are_counted_over_several_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PIECE", 10)
    monkeypatch.setattr(metrics, "AT_MOST", 50)
    large = image(dict.fromkeys(range(95), LED_BY_SECOND))
    counts = PartitionCounts()
    assert len(list(counts.update(large))) == 5
    assert (counts.imbalance, counts.is_complete) == (50, False)
    list(counts.update(large))
    assert (counts.imbalance, counts.is_complete) == (95, True)


@pytest.mark.parametrize(
    ("open_since", "stable", "lag"),
    [(None, 100, 9), (95, 95, 4), (91, 91, 0), (90, 90, 0), (200, 100, 9)],
)
def test_the_metadata_lag_ends_at_the_last_stable_offset(
    open_since: int | None, stable: int, lag: int
) -> None:
    transaction = None if open_since is None else OpenTransaction(None, open_since, EMPTY, ())
    found = replace(EMPTY, transaction=transaction)
    assert last_stable_offset(found, 100) == stable
    assert metadata_lag(found, 100, 90) == lag


def test_an_expired_session_is_counted_unless_its_broker_could_not_be_fenced() -> None:
    sessions = BrokerSessions(10.0)
    sessions.contact(1, 5, 0.0)
    sessions.contact(2, 6, 0.0)
    assert sessions.next_expired(11.0) == (1, 5)
    expired = sessions.next_expired(11.0)
    assert (expired, sessions.expired_count) == ((2, 6), 2)
    sessions.put_back_expired((2, 6), 11.0)
    assert sessions.expired_count == 1


def test_brokers_are_counted_by_the_state_of_their_registration() -> None:
    one, two, three = image_of({}).cluster.brokers.values()
    states = [replace(one, fenced=True), replace(two, fenced=False, in_controlled_shutdown=True)]
    states.append(replace(three, fenced=False, in_controlled_shutdown=False))
    cluster = replace(EMPTY.cluster, brokers=Map({broker.id: broker for broker in states}))
    found = {
        family.name.rsplit("_", 1)[1]: dict(family.series)
        for family in metrics._cluster_families(replace(EMPTY, cluster=cluster))
    }
    assert found == {
        "activebrokercount": {"": 1},
        "fencedbrokercount": {"": 1},
        "controlledshutdownbrokercount": {"": 1},
        "brokerregistrationstate": {
            f'broker="{one.id}"': 10,
            f'broker="{two.id}"': 20,
            f'broker="{three.id}"': 30,
        },
    }


def test_the_events_of_the_controller_are_its_requests() -> None:
    queued, processing = quantiles(3, [1.0]), quantiles(3, [2.0])
    found = {family.name: family.series[0][1] for family in event_families(queued, processing)}
    assert found == {
        "kafka_controller_controllereventmanager_eventqueuetimems": queued,
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems": processing,
        "kafka_controller_kafkacontroller_eventqueueoperationsstartedcount": 3,
    }
