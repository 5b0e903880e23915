"""What the metrics of topics, replicas and logs mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.broker.metrics.replicas import ReplicaFamilies
from quorate.broker.metrics.topic_stats import BrokerTopicStats
from quorate.metrics import Family
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest

from .fakes import registration
from .world import Broker, batch_of, image_of, produce, topic_id_of

CHANGES: Any = SimpleNamespace(expansions=3, shrinks=2, failures=1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, image_of({"t": {0: registration()}}))
    yield broker
    broker.close()


def collected(families: Iterator[Family | None]) -> dict[str, dict[str, Any]]:
    """The series of each family by the last part of its name."""
    return {family.name.split("_", 2)[2]: dict(family.series) for family in families if family is not None}


def replicas(broker: Broker) -> dict[str, dict[str, Any]]:
    return collected(ReplicaFamilies(broker.replicas, CHANGES).families())


def topics(broker: Broker) -> dict[str, dict[str, Any]]:
    return collected(broker.replicas.stats.families())


# The image of a partition; whether this broker (1) counts it as led, under-replicated, under its
# min.insync.replicas (2), at it, and under reassignment.
ROLES = [
    ("alone", {"replicas": (1,), "isr": (1,)}, (1, 0, 0, 1, 0)),
    ("complete", {"replicas": (1, 2, 3), "isr": (1, 2, 3)}, (1, 0, 0, 0, 0)),
    ("one is missing", {"replicas": (1, 2, 3), "isr": (1, 2)}, (1, 1, 0, 1, 0)),
    ("two are missing", {"replicas": (1, 2, 3), "isr": (1,)}, (1, 1, 1, 0, 0)),
    ("followed", {"replicas": (2, 1), "isr": (2,), "leader": 2}, (0, 0, 0, 0, 0)),
    ("leaderless", {"replicas": (2, 1), "isr": (2,), "leader": -1}, (0, 0, 0, 0, 0)),
    ("growing", {"replicas": (1, 2, 3), "isr": (1, 2), "adding_replicas": (3,)}, (1, 1, 0, 1, 1)),
    ("shrinking", {"replicas": (1, 2, 3), "isr": (1, 2, 3), "removing_replicas": (3,)}, (1, 0, 0, 0, 1)),
]


@pytest.mark.parametrize(("case", "image", "expected"), ROLES, ids=[case for case, _, _ in ROLES])
def test_the_replica_manager_counts_led_partitions_by_the_state_of_their_isr(
    tmp_path: Path, case: str, image: dict[str, Any], expected: tuple[int, ...]
) -> None:
    configs = {(2, "t"): {"min.insync.replicas": "2"}}
    changes = {name: image.pop(name) for name in list(image) if name.endswith("ing_replicas")}
    partition = registration(**image)._replace(**changes)
    broker = Broker(tmp_path, image_of({"t": {0: partition}}, configs=configs))
    found = replicas(broker)
    names = (
        "leadercount",
        "underreplicatedpartitions",
        "underminisrpartitioncount",
        "atminisrpartitioncount",
    )
    counts = [found[f"replicamanager_{name}"][""] for name in (*names, "reassigningpartitions")]
    assert tuple(counts) == expected
    where = 'topic="t",partition="0"'
    leads, under, under_min, at_min, _ = expected
    assert found["partition_underreplicated"][where] == under
    assert found["partition_underminisr"][where] == under_min
    assert found["partition_atminisr"][where] == at_min
    assert found["partition_insyncreplicascount"][where] == (len(image["isr"]) if leads else 0)
    assert found["partition_replicascount"][where] == (len(image["replicas"]) if leads else 0)
    broker.close()


def test_changes_of_isrs_are_counted_by_their_outcome(broker: Broker) -> None:
    found = replicas(broker)
    outcomes = ("isrexpands", "isrshrinks", "failedisrupdates")
    assert [found[f"replicamanager_{name}_total"][""] for name in outcomes] == [3, 2, 1]


def test_a_log_is_shown_with_its_size_and_offsets(broker: Broker) -> None:
    batch = batch_of(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=0)
    broker.ask(produce("t", (0, batch)))
    found, where = replicas(broker), 'topic="t",partition="0"'
    assert found["log_size"] == {where: len(batch)}
    assert found["log_logstartoffset"] == {where: 0}
    assert found["log_logendoffset"] == {where: 3}
    assert found["log_numlogsegments"] == {where: 1}
    assert found["partition_laststableoffsetlag"] == {where: 0}
    assert found["replicamanager_produceridcount"] == {"": 1}


def test_a_partition_in_a_failed_directory_is_an_offline_replica(broker: Broker) -> None:
    broker.replicas.go_offline([("t", 0)])
    found = replicas(broker)
    assert found["replicamanager_offlinereplicacount"] == {"": 1}
    assert found["replicamanager_partitioncount"] == {"": 0}


def test_waiting_requests_are_counted_by_what_they_wait_for(tmp_path: Path) -> None:
    broker = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2), isr=(1, 2))}}))
    broker.ask(produce("t", (0, batch_of(b"a"))))  # waits for broker 2
    broker.ask(fetch(offset=1))
    sizes = replicas(broker)["delayedoperationpurgatory_purgatorysize"]
    assert sizes == {
        'delayedOperation="Fetch"': 1,
        'delayedOperation="Produce"': 1,
        'delayedOperation="DeleteRecords"': 0,
    }
    assert replicas(broker)["delayedoperationpurgatory_numdelayedoperations"] == sizes
    broker.close()


def test_a_request_that_waits_for_several_partitions_is_one(tmp_path: Path) -> None:
    both = registration(replicas=(1, 2), isr=(1, 2))
    broker = Broker(tmp_path, image_of({"t": {0: both, 1: both}}))
    waiting = broker.ask(produce("t", (0, batch_of(b"a")), (1, batch_of(b"b")), timeout_ms=1))
    found = replicas(broker)
    produces = 'delayedOperation="Produce"'
    assert found["delayedoperationpurgatory_purgatorysize"][produces] == 2
    assert found["delayedoperationpurgatory_numdelayedoperations"][produces] == 1
    assert topics(broker)["delayedproducemetrics_expires_total"] == {"": 0}
    broker.wait(waiting, ApiKey.PRODUCE)
    assert replicas(broker)["delayedoperationpurgatory_numdelayedoperations"][produces] == 0
    assert topics(broker)["delayedproducemetrics_expires_total"] == {"": 2}
    broker.close()


@pytest.mark.parametrize(("replica", "who"), [(-1, "consumer"), (2, "follower")])
def test_a_fetch_without_enough_data_until_its_time_is_over_is_counted(
    tmp_path: Path, replica: int, who: str
) -> None:
    broker = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2), isr=(1, 2))}}))
    broker.ask(produce("t", (0, batch_of(b"a")), acks=1))
    request = fetch(offset=1, replica=replica)
    request.max_wait_ms = 1
    broker.wait(broker.ask(request), ApiKey.FETCH)
    expected = {'fetcherType="consumer"': 0, 'fetcherType="follower"': 0} | {f'fetcherType="{who}"': 1}
    assert topics(broker)["delayedfetchmetrics_expires_total"] == expected
    broker.close()


def test_followed_partitions_that_fail_are_counted(broker: Broker) -> None:
    client = 'clientId="Replica"'
    assert replicas(broker)["replicafetchermanager_failedpartitionscount"] == {client: 0}
    broker.replicas.fetchers = SimpleNamespace(failed_count=3, lags=lambda: iter(()))  # type: ignore[assignment]
    assert replicas(broker)["replicafetchermanager_failedpartitionscount"] == {client: 3}
    broker.replicas.fetchers = None


def test_the_lag_of_each_followed_partition_is_shown_and_the_greatest_of_all(broker: Broker) -> None:
    one, other = SimpleNamespace(topic="t", partition=0), SimpleNamespace(topic="t", partition=1)
    lags = [(2, iter([(one, 4), (other, 9)])), (3, iter([(SimpleNamespace(topic="u", partition=5), 0)]))]
    broker.replicas.fetchers = SimpleNamespace(failed_count=0, lags=lambda: iter(lags))  # type: ignore[assignment]
    found = replicas(broker)
    broker.replicas.fetchers = None
    assert found["replicafetchermanager_maxlag"] == {'clientId="Replica"': 9}
    assert found["fetcherlagmetrics_consumerlag"] == {
        'clientId="ReplicaFetcherThread-0-2",topic="t",partition="0"': 4,
        'clientId="ReplicaFetcherThread-0-2",topic="t",partition="1"': 9,
        'clientId="ReplicaFetcherThread-0-3",topic="u",partition="5"': 0,
    }


def test_the_numbers_of_ten_thousand_partitions_are_read_in_slices(tmp_path: Path) -> None:
    broker = Broker(tmp_path, image_of({"t": {i: registration() for i in range(10_000)}}))
    steps = list(ReplicaFamilies(broker.replicas, CHANGES).families())
    assert sum(step is None for step in steps) >= 50
    [size] = [step for step in steps if step is not None and step.name == "kafka_cluster_partition_atminisr"]
    assert len(size.series) == 10_000
    broker.close()


# --- topics ---------------------------------------------------------------------------------------


def fetch(offset: int = 0, partition: int = 0, replica: int = -1) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=60_000 if offset else 0,
        min_bytes=1,
        max_bytes=1 << 20,
        replica_state=FetchRequest.ReplicaState(replica_id=replica),
        topics=[
            FetchRequest.FetchTopic(
                topic_id=topic_id_of("t"),
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )


def test_produced_and_consumed_bytes_are_counted_by_topic_and_in_sum(broker: Broker) -> None:
    batches = [batch_of(b"a"), batch_of(b"b", b"c")]
    for batch in batches:
        broker.ask(produce("t", (0, batch)))
    broker.ask(fetch())
    size = sum(map(len, batches))
    expected = {
        "messagesin": 3,
        "bytesin": size,
        "totalproducerequests": 2,
        "bytesout": size,
        "totalfetchrequests": 1,
        "failedproducerequests": 0,
        "failedfetchrequests": 0,
        "bytesrejected": 0,
    }
    found = topics(broker)
    for name, value in expected.items():
        assert found[f"brokertopicmetrics_{name}_total"] == {'topic="t"': value, "": value}, name
    assert found["brokertopicmetrics_replicationbytesout_total"] == {"": 0}


def test_what_a_follower_reads_counts_as_replication(tmp_path: Path) -> None:
    broker = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2), isr=(1, 2))}}))
    batch = batch_of(b"a")
    broker.ask(produce("t", (0, batch), acks=1))
    broker.ask(fetch(replica=2))
    found = topics(broker)
    assert found["brokertopicmetrics_replicationbytesout_total"] == {"": len(batch)}
    assert found["brokertopicmetrics_bytesout_total"][""] == 0
    broker.close()


REFUSALS = [  # the error, whether Kafka counts a failed request, and whether the bytes count as rejected
    (ErrorCode.MESSAGE_TOO_LARGE, 0, 1),
    (ErrorCode.RECORD_LIST_TOO_LARGE, 0, 1),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0),
    (ErrorCode.CORRUPT_MESSAGE, 0, 0),
    (ErrorCode.KAFKA_STORAGE_ERROR, 0, 0),
    (ErrorCode.NOT_ENOUGH_REPLICAS, 1, 0),
    (ErrorCode.INVALID_TXN_STATE, 1, 0),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 0),
    (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 0),
]


@pytest.mark.parametrize(("error", "failed", "rejected"), REFUSALS)
def test_a_refused_batch_counts_as_failed_unless_the_client_must_look_elsewhere(
    error: ErrorCode, failed: int, rejected: int
) -> None:
    stats = BrokerTopicStats()
    stats.topic("t")
    stats.produce_failed("t", 100, error)
    found = collected(stats.families())
    assert found["brokertopicmetrics_failedproducerequests_total"][""] == failed
    assert found["brokertopicmetrics_bytesrejected_total"][""] == 100 * rejected
    assert stats.errors == {("Produce", error): 1}


def test_a_refused_produce_request_is_counted_where_it_is_answered(broker: Broker) -> None:
    broker.ask(produce("t", (0, b"no batch"), (1, batch_of(b"a"))))
    errors = broker.replicas.stats.errors
    assert errors[("Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] == 1
    assert sum(errors.values()) == 2


def test_an_append_that_times_out_is_counted(tmp_path: Path) -> None:
    broker = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2), isr=(1, 2))}}))
    broker.wait(broker.ask(produce("t", (0, batch_of(b"a")), timeout_ms=1)), ApiKey.PRODUCE)
    assert broker.replicas.stats.errors == {("Produce", ErrorCode.REQUEST_TIMED_OUT): 1}
    broker.close()


READS = [  # the error of a read, whether the partition counts, and whether it counts as failed
    (ErrorCode.NONE, 1, 0),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0),
    (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 0),
    (ErrorCode.FENCED_LEADER_EPOCH, 0, 0),
    (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 1),
    (ErrorCode.CORRUPT_MESSAGE, 1, 1),
]


@pytest.mark.parametrize(("error", "counted", "failed"), READS)
def test_only_an_unexpected_error_makes_a_read_fail(error: ErrorCode, counted: int, failed: int) -> None:
    stats = BrokerTopicStats()
    result = SimpleNamespace(error=error, size=10)
    stats.fetched([SimpleNamespace(topic="t")], [result], by_follower=False)
    found = collected(stats.families())
    assert found["brokertopicmetrics_totalfetchrequests_total"][""] == counted
    assert found["brokertopicmetrics_failedfetchrequests_total"][""] == failed
    assert found["brokertopicmetrics_bytesout_total"][""] == (10 if error == ErrorCode.NONE else 0)


def test_the_sums_do_not_fall_when_the_broker_loses_a_topic(broker: Broker) -> None:
    broker.ask(produce("t", (0, batch_of(b"a"))))
    broker.publish(image_of({}))
    replicas(broker)
    found = topics(broker)["brokertopicmetrics_messagesin_total"]
    assert found == {"": 1}


def test_topics_that_clients_invent_leave_no_trace(broker: Broker) -> None:
    for i in range(100):
        broker.ask(produce(f"invented-{i}", (0, batch_of(b"a"))), 12)
    assert set(broker.replicas.stats.topics) <= {"t"}
