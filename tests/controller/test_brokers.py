"""BrokerRegistration, BrokerHeartbeat and UnregisterBroker: errors, states, and the order of records."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.handlers.broker_heartbeat import broker_heartbeat
from quorate.controller.handlers.register_broker import register_broker
from quorate.controller.handlers.register_controller import register_controller
from quorate.controller.handlers.unregister_broker import unregister_broker
from quorate.controller.handlers.unregister_controller import unregister_controller
from quorate.controller.replication.fencing import fence_expired
from quorate.metadata.features import FIRST_CONTROLLER_UNREGISTRATION
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.controller_registration import ControllerRegistrationRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from quorate.protocol.messages.unregister_controller import UnregisterControllerRequest

from .support import CLUSTER, LATEST, Cluster, directory, uid

Feature = BrokerRegistrationRequest.Feature
Listener = BrokerRegistrationRequest.Listener


def registration(broker_id: int = 1, **changes: Any) -> BrokerRegistrationRequest:
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER,
        "incarnation_id": uid(0xB000 + broker_id),
        "listeners": [
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="b", port=9092, security_protocol=0)
        ],
        "features": [
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST),
            Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ],
        "log_dirs": [directory(broker_id)],
        "start_time_ms": 1234,
    }
    fields.update(changes)
    return BrokerRegistrationRequest(**fields)


def refused(cluster: Cluster, handler: Any, request: Any, version: int | None = None) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        cluster.run(handler, request, version)
    return raised.value.code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (
            {"listeners": [Listener(name="P", host="b", port=1, security_protocol=4)]},
            ErrorCode.INVALID_REGISTRATION,
        ),
        (
            {"listeners": [Listener(name="P", host="b", port=1, security_protocol=-1)]},
            ErrorCode.INVALID_REGISTRATION,
        ),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uid(2)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(1), directory(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(2)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {
                "features": [
                    Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=LATEST - 1
                    )
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            {
                "features": [
                    Feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST)
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,  # kraft.version 1 is in force and not offered
        ),
    ],
)
def test_registrations_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster().brokers(2)
    assert refused(cluster, register_broker, registration(**changes)) == code


def test_a_finalized_feature_that_the_broker_does_not_report_counts_as_level_0() -> None:
    cluster = Cluster()
    cluster.apply([FeatureLevelRecord(name="group.version", feature_level=1)])
    assert refused(cluster, register_broker, registration()) == ErrorCode.UNSUPPORTED_VERSION


def test_the_broker_epoch_is_the_next_offset_and_the_broker_begins_fenced() -> None:
    cluster = Cluster()
    offset = cluster.offset
    result = cluster.run(register_broker, registration(rack="r"))
    assert result.response.broker_epoch == offset
    known = cluster.image.cluster.brokers[1]
    assert (known.epoch, known.fenced, known.rack, known.start_time_ms) == (offset, True, "r", 1234)
    assert known.log_dirs == (directory(1),)


def test_directories_are_not_kept_below_metadata_version_17() -> None:
    cluster = Cluster(14)
    features = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST)]
    cluster.kraft_version = 0
    cluster.run(register_broker, registration(features=features, log_dirs=[]))
    assert cluster.image.cluster.brokers[1].log_dirs == ()


def test_the_same_incarnation_keeps_epoch_and_state() -> None:
    cluster = Cluster().brokers(1)
    cluster.shutting_down(1)
    cluster.broker_sessions.contact(1, 101, cluster.now)
    result = cluster.run(register_broker, registration(log_dirs=[directory(1), directory(1, 1)]))
    known = cluster.image.cluster.brokers[1]
    assert result.response.broker_epoch == 101
    assert (known.fenced, known.in_controlled_shutdown, len(known.log_dirs)) == (False, True, 2)


def test_another_incarnation_waits_until_the_session_expires() -> None:
    cluster = Cluster().brokers(1)
    cluster.broker_sessions.contact(1, 101, cluster.now)
    request = registration(incarnation_id=uid(0xB999))
    assert refused(cluster, register_broker, request) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now += cluster.config.broker_session_timeout_s + 0.1
    cluster.run(register_broker, request)
    assert cluster.image.cluster.brokers[1].incarnation_id == uid(0xB999)


def test_a_new_incarnation_leaves_the_isr_before_its_registration_is_written() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2])
    result = cluster.run(register_broker, registration(incarnation_id=uid(0xB999)))
    assert [type(record) for record in result.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert result.atomic is False
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)


@pytest.mark.parametrize(("previous_epoch", "version", "elr"), [(101, 4, (1,)), (-1, 4, ()), (101, 2, ())])
def test_only_a_clean_shutdown_keeps_a_replica_eligible(
    previous_epoch: int, version: int, elr: tuple[int, ...]
) -> None:
    cluster = Cluster(static={"min.insync.replicas": "2"})
    cluster.elr().brokers(1, 2)
    cluster.topic("t", [1, 2])
    features = [
        *registration().features,
        Feature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
    ]
    request = registration(
        incarnation_id=uid(0xB999), previous_broker_epoch=previous_epoch, features=features
    )
    cluster.run(register_broker, request, version)
    assert cluster.partition("t").isr == (2,)
    assert cluster.partition("t").elr == elr


# -- heartbeats


def heartbeat(broker_id: int = 1, **changes: Any) -> BrokerHeartbeatRequest:
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": 100 + broker_id,
        "current_metadata_offset": 10_000,
    }
    fields.update(changes)
    return BrokerHeartbeatRequest(**fields)


@pytest.mark.parametrize("request_", [heartbeat(9), heartbeat(1, broker_epoch=5)])
def test_heartbeats_of_unknown_registrations_are_stale(request_: BrokerHeartbeatRequest) -> None:
    assert refused(Cluster().brokers(1), broker_heartbeat, request_) == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("fenced", "leads", "wants", "answer", "fenced_after"),
    [
        # (caught up, fenced, should shut down) in the answer
        (True, False, {"want_fence": True}, (True, True, False), True),
        (True, False, {}, (True, False, False), False),
        (True, False, {"current_metadata_offset": 0}, (False, True, False), True),
        (True, False, {"want_shut_down": True}, (True, True, True), True),
        (False, False, {}, (True, False, False), False),
        (False, False, {"want_fence": True}, (True, True, False), True),
        (False, False, {"want_fence": True, "want_shut_down": True}, (True, True, True), True),
        (False, False, {"want_shut_down": True}, (True, True, True), True),
        (False, True, {"want_shut_down": True}, (True, False, False), False),
        (False, True, {"want_fence": True}, (True, True, False), True),
    ],
)
def test_next_states(
    fenced: bool, leads: bool, wants: dict[str, Any], answer: tuple[bool, bool, bool], fenced_after: bool
) -> None:
    cluster = Cluster().brokers(2).brokers(1, fenced=fenced)
    if leads:
        cluster.topic("t", [1, 2])
    response = cluster.run(broker_heartbeat, heartbeat(**wants)).response
    assert (response.is_caught_up, response.is_fenced, response.should_shut_down) == answer
    assert cluster.image.cluster.brokers[1].fenced is fenced_after


def test_unfencing_comes_before_the_elections_that_it_allows() -> None:
    cluster = Cluster().brokers(1, fenced=True)
    cluster.topic("t", [1], isr=[1], leader=-1)
    records = cluster.run(broker_heartbeat, heartbeat()).records
    assert [type(record) for record in records] == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
    assert cluster.partition("t").leader == 1


def test_fencing_comes_after_the_partition_changes() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2])
    records = cluster.run(broker_heartbeat, heartbeat(want_fence=True)).records
    assert [type(record) for record in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)


def test_a_sole_member_stays_in_the_isr_without_a_leader() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2], isr=[1])
    cluster.run(broker_heartbeat, heartbeat(want_fence=True))
    partition = cluster.partition("t")
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == (
        (1,),
        -1,
        1,
        1,
    )


def test_controlled_shutdown_moves_leaderships_and_waits_for_the_slowest_broker() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2])
    result = cluster.run(broker_heartbeat, heartbeat(want_shut_down=True))
    assert [type(record) for record in result.records] == [
        BrokerRegistrationChangeRecord,
        PartitionChangeRecord,
    ]
    assert result.touch is not None
    assert result.touch.in_controlled_shutdown
    cluster.broker_sessions.begin_shutdown(1, cluster.offset - 1)
    assert cluster.partition("t").leader == 2
    cluster.broker_sessions.touch(2, False, cluster.offset - 2)
    waiting = cluster.run(broker_heartbeat, heartbeat(want_shut_down=True))
    assert (waiting.response.should_shut_down, waiting.records) == (False, [])
    cluster.broker_sessions.touch(2, False, cluster.offset - 1)
    done = cluster.run(broker_heartbeat, heartbeat(want_shut_down=True))
    assert done.response.should_shut_down
    assert cluster.image.cluster.brokers[1].fenced


def test_the_last_broker_may_leave_with_its_partitions() -> None:
    cluster = Cluster().brokers(1)
    cluster.topic("t", [1])
    cluster.run(broker_heartbeat, heartbeat(want_shut_down=True))
    assert cluster.partition("t").leader == -1
    cluster.broker_sessions.begin_shutdown(1, cluster.offset - 1)
    assert cluster.run(broker_heartbeat, heartbeat(want_shut_down=True)).response.should_shut_down


def test_offline_directories_take_their_replicas_out_of_the_isr() -> None:
    cluster = Cluster().brokers(1, directories=2).brokers(2)
    cluster.topic("t", [1, 2])
    result = cluster.run(broker_heartbeat, heartbeat(offline_log_dirs=[directory(1, 0)]))
    assert [type(record) for record in result.records] == [
        PartitionChangeRecord,
        BrokerRegistrationChangeRecord,
    ]
    assert cluster.partition("t").isr == (2,)
    assert cluster.image.cluster.brokers[1].log_dirs == (directory(1, 1),)
    assert cluster.run(broker_heartbeat, heartbeat(offline_log_dirs=[directory(1, 0)])).records == []


def test_a_broker_that_unfences_leads_nothing_in_a_directory_that_it_reports_as_offline() -> None:
    """It would stay the leader: the directory is reported once, and the replica that could lead is only
    looked for where there is no leader. Kafka's controller elects it."""
    cluster = Cluster().elr().brokers(1, directories=2).brokers(2)
    cluster.topic("t", [1, 2])
    cluster.apply(
        [
            ConfigRecord(
                resource_type=ConfigResourceType.TOPIC,
                resource_name="t",
                name="min.insync.replicas",
                value="2",
            )
        ]
    )
    for broker_id in (2, 1):
        cluster.run(broker_heartbeat, heartbeat(broker_id, want_fence=True))
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, (1, 2))
    failed = heartbeat(offline_log_dirs=[directory(1, 0)])
    assert cluster.run(broker_heartbeat, failed).response.is_fenced
    assert not cluster.run(broker_heartbeat, failed).response.is_fenced
    assert not cluster.image.cluster.brokers[1].fenced
    assert cluster.image.cluster.brokers[1].log_dirs == (directory(1, 1),)
    assert cluster.partition("t").leader == -1
    cluster.run(broker_heartbeat, heartbeat(2))
    assert cluster.partition("t").leader == 2


def test_a_session_of_an_older_epoch_fences_no_broker() -> None:
    cluster = Cluster().brokers(1)
    assert fence_expired(cluster.view, [(1, 77)]) == ([], None)
    assert fence_expired(cluster.view, [(9, 101)]) == ([], None)
    assert len(fence_expired(cluster.view, [(1, 101)])[0]) == 1


def test_unregistering_first_removes_the_broker_from_the_isr() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", [1, 2])
    result = cluster.run(unregister_broker, UnregisterBrokerRequest(broker_id=1))
    assert result.response.error_message == "", "as Kafka's"
    assert [type(record) for record in result.records] == [PartitionChangeRecord, UnregisterBrokerRecord]
    assert 1 not in cluster.image.cluster.brokers
    assert (
        refused(cluster, unregister_broker, UnregisterBrokerRequest(broker_id=1))
        == ErrorCode.BROKER_ID_NOT_REGISTERED
    )


def test_controllers_register_from_metadata_version_15_on() -> None:
    request = ControllerRegistrationRequest(
        controller_id=3,
        incarnation_id=uid(3),
        listeners=[
            ControllerRegistrationRequest.Listener(name="CONTROLLER", host="c", port=9, security_protocol=0)
        ],
    )
    assert refused(Cluster(14), register_controller, request) == ErrorCode.UNSUPPORTED_VERSION
    cluster = Cluster()
    result = cluster.run(register_controller, request)
    assert result.response.error_message == "", "as Kafka's"
    (record,) = result.records
    assert isinstance(record, RegisterControllerRecord)
    assert cluster.image.cluster.controllers[3].listeners[0].port == 9


def test_a_controllers_security_protocol_must_be_a_known_one() -> None:
    listener = ControllerRegistrationRequest.Listener(
        name="CONTROLLER", host="c", port=1, security_protocol=99
    )
    request = ControllerRegistrationRequest(controller_id=2, incarnation_id=uid(7), listeners=[listener])
    assert refused(Cluster(), register_controller, request) == ErrorCode.INVALID_REGISTRATION


def unregister_at_33(view: Any, request: UnregisterControllerRequest, ctx: Any) -> Any:
    view.metadata_version = FIRST_CONTROLLER_UNREGISTRATION
    return unregister_controller(view, request, ctx)


def test_a_controller_is_unregistered_from_metadata_version_33_on() -> None:
    cluster = Cluster(27)
    cluster.apply([RegisterControllerRecord(controller_id=3, incarnation_id=uid(3))])
    request = UnregisterControllerRequest(controller_id=3)
    assert refused(cluster, unregister_controller, request) == ErrorCode.UNSUPPORTED_VERSION
    result = cluster.run(unregister_at_33, request)
    assert result.records == [UnregisterControllerRecord(controller_id=3)]
    assert result.response.error_message == ""
    assert not cluster.image.cluster.controllers
    assert refused(cluster, unregister_at_33, request) == ErrorCode.CONTROLLER_ID_NOT_REGISTERED


@pytest.mark.parametrize("handler", [unregister_controller, unregister_at_33])
def test_the_active_controller_does_not_unregister_itself(handler: Any) -> None:
    cluster = Cluster(27)
    own = cluster.view.config.node_id
    cluster.apply([RegisterControllerRecord(controller_id=own, incarnation_id=uid(3))])
    request = UnregisterControllerRequest(controller_id=own)
    assert refused(cluster, handler, request) == ErrorCode.INVALID_REQUEST
