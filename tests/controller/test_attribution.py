"""Each change of the metadata says who or what caused it, in its batch and in the audit log."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from quorate.controller.changes.attribution import MAX_CHARACTERS, Attribution, AttributionRecords
from quorate.controller.changes.audit import AuditLog
from quorate.metadata.framing import decode_record
from quorate.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from quorate.node.logging_config import LineFormatter
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.schema import Data

from .large_changes import answered, large, until
from .requests import beat, broker, run, topics
from .support import Harness
from .test_envelope import envelope

ANN = {"principal": "User:ann", "client_host": "10.0.0.7"}


async def started(**config: Any) -> Harness:
    return await Harness(attribution=True, **config).start()


def causes(records: Sequence[Data]) -> list[Attribution]:
    """The attributions in order."""
    return [
        Attribution(r.principal, r.client_id, r.address, r.api, r.reason)
        for r in records
        if isinstance(r, NoOpRecord)
    ]


def kinds(records: Sequence[Data]) -> list[str]:
    return [type(record).__name__ for record in records]


# -- who


def test_the_last_record_of_a_change_names_the_client_and_the_api() -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        end = h.raft.log.end
        response = await h.call(topics("a"), **ANN)
        assert response.topics[0].error_code == ErrorCode.NONE
        records = h.records_from(end)
        assert kinds(records) == ["TopicRecord", "PartitionRecord", "NoOpRecord"]
        assert causes(records) == [Attribution("User:ann", "test", "10.0.0.7", ApiKey.CREATE_TOPICS)]
        assert h.controller.state.image.provenance.offset == h.raft.log.end - 1

    run(test())


def test_a_forwarded_request_names_the_client_of_the_broker() -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        end = h.raft.log.end
        answer = await h.call(
            envelope(topics("a"), client_host_address=bytes([10, 1, 2, 3])), principal="User:b"
        )
        assert answer.committed_offset == h.raft.log.end - 1
        assert causes(h.records_from(end)) == [
            Attribution("User:alice", "app", "10.1.2.3", ApiKey.CREATE_TOPICS)
        ]

    run(test())


def test_requests_of_brokers_name_their_api() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        epoch = await broker(h, 1)
        assert [cause.api for cause in causes(h.records_from(end))] == [
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
        ]
        registered = h.controller.state.image.cluster.brokers[1]
        assert registered.epoch == epoch, "the broker epoch is the offset of the registration"
        assert isinstance(h.records[-4], RegisterBrokerRecord)

    run(test())


# -- what for


def test_a_broker_that_is_fenced_has_the_reason_of_its_fencing() -> None:
    async def test() -> None:
        h = await started()
        for broker_id in (1, 2, 3):
            await broker(h, broker_id)
        await h.call(topics("a"))
        sessions = {i: b.epoch for i, b in h.controller.state.image.cluster.brokers.items()}
        end = h.raft.log.end
        h.advance(8)
        for broker_id in (2, 3):
            await beat(h, broker_id, sessions[broker_id])
        assert causes(h.records_from(end)) == [], "heartbeats that change nothing"
        h.advance(2)
        records = h.records_from(end)
        assert any(isinstance(r, BrokerRegistrationChangeRecord) for r in records)
        assert causes(records) == [Attribution(reason=f"session of broker 1 at epoch {sessions[1]} expired")]
        h.raft.commit()
        end = h.raft.log.end
        h.advance(20)
        (cause,) = causes(h.records_from(end))
        assert cause.reason is not None
        assert sorted(cause.reason.split("; ")) == [
            f"session of broker {i} at epoch {sessions[i]} expired" for i in (2, 3)
        ]

    run(test())


def test_a_process_that_has_ended_is_the_reason_of_its_fencing() -> None:
    async def test() -> None:
        h = await started()
        epoch = await broker(h, 1)
        end = h.raft.log.end
        h.controller.broker_ended((1, epoch))
        assert [cause.reason for cause in causes(h.records_from(end))] == ["process of broker 1 ended"]

    run(test())


def test_the_first_records_of_a_cluster_and_of_a_controller_have_a_reason() -> None:
    async def test() -> None:
        h = await started()
        found = [(type(r), causes(h.records[i:])[0].reason) for i, r in enumerate(h.records)]
        reasons = dict(found)
        assert "bootstrap record" in (reasons[FeatureLevelRecord] or "")
        assert reasons[RegisterControllerRecord] == "registration of this controller"

    run(test())


def test_a_no_op_that_shows_that_the_controller_is_alive_has_no_attribution() -> None:
    async def test() -> None:
        h = await started(max_idle_interval_s=0.5)
        end = h.raft.log.end
        h.advance(1.2)
        records = h.records_from(end)
        assert kinds(records) == ["NoOpRecord"] * 2
        assert causes(records) == [Attribution()] * 2

    run(test())


def test_without_the_setting_the_log_is_that_of_apache_kafka() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        await h.call(topics("a"), **ANN)
        assert causes(h.records) == []

    run(test())


# -- changes of several batches


def test_each_part_of_a_metadata_transaction_names_its_client() -> None:
    async def test() -> None:
        h = await started(max_records_per_op=1_000_000)
        await broker(h)
        end = h.raft.log.end
        response = await answered(h, h.send(large(partitions=700), **ANN))
        assert response.topics[0].error_code == ErrorCode.NONE
        batches = [b for b in h.raft.log.batches if b.base_offset >= end]
        assert len(batches) == 3
        for batch in batches:
            found = [decode_record(value)[0] for value in batch.values]
            assert causes(found) == [Attribution("User:ann", "test", "10.0.0.7", ApiKey.CREATE_TOPICS)]
            assert isinstance(found[-1], NoOpRecord)
        assert h.controller.state.image.transaction is None

    run(test())


def test_no_record_follows_the_abort_of_a_transaction() -> None:
    """Kafka's MetadataBatchLoader applies what was aborted if a later record of the delivery follows."""

    async def test() -> None:
        h = await started(max_records_per_op=1_000_000)
        await broker(h)
        answer = h.send(large(partitions=2_000))
        await until(lambda: h.controller.state.next_image.transaction is not None, each_turn=lambda: None)
        h.raft.follow(2, 2)
        h.raft.become_leader(3)
        aborts = [i for i, record in enumerate(h.records) if isinstance(record, AbortTransactionRecord)]
        assert aborts == [len(h.records) - 1]
        with pytest.raises(KafkaError):
            await answer

    run(test())


# -- bounds


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (None, None),
        ("", ""),
        ("x" * MAX_CHARACTERS, "x" * MAX_CHARACTERS),
        ("x" * 32_767, "x" * (MAX_CHARACTERS - 3) + "..."),
        ("é" * 1_000, "é" * (MAX_CHARACTERS - 3) + "..."),
    ],
)
def test_long_names_are_clipped(text: str | None, written: str | None) -> None:
    cause = Attribution(text, text, text, 19, text)
    value = AttributionRecords().value(cause)
    record, version = decode_record(value)
    assert version == 0
    assert causes([record]) == [Attribution(written, written, written, 19, written)]
    assert len(value) < 4 * 2 * MAX_CHARACTERS + 40


def test_many_clients_take_a_bounded_amount_of_memory() -> None:
    records = AttributionRecords()
    for number in range(5_000):
        assert causes([decode_record(records.value(Attribution(client_id=str(number))))[0]]) == [
            Attribution(client_id=str(number))
        ]
    assert len(records._values) <= 1_000


# -- the audit log


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the audit log. The list grows."""
    found: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines = record.getMessage().splitlines()
            found.extend([line.removeprefix("[QuorumController id=1] ") for line in lines])

    audit, handler = logging.getLogger("quorate.audit"), Lines()
    level = audit.level
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    yield found
    audit.removeHandler(handler)
    audit.setLevel(level)


def test_a_change_has_a_line_when_it_is_committed(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        del lines[:]
        answer = h.send(topics("a", "b"), **ANN)
        assert lines == [], "it is not committed yet"
        h.raft.commit()
        await answer
        assert lines == [
            'principal=User:ann client=test address=10.0.0.7 api=CREATE_TOPICS change="topics a, b" '
            f"outcome=committed offset={h.raft.log.end - 1}"
        ]

    run(test())


def test_changes_that_are_committed_together_have_a_line_each_in_the_log_of_the_process() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    audit = logging.getLogger("quorate.audit")

    async def test() -> None:
        h = await started()
        await broker(h)
        stream.truncate(0)
        stream.seek(0)
        answers = [h.send(topics(name), **ANN) for name in ("a", "b")]
        h.raft.commit()
        for answer in answers:
            await answer

    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    try:
        run(test())
    finally:
        audit.removeHandler(handler)
        audit.setLevel(logging.NOTSET)
    found = stream.getvalue().splitlines()
    assert [line[line.index("change=") :].rpartition("offset=")[0] for line in found] == [
        'change="topics a" outcome=committed ',
        'change="topics b" outcome=committed ',
    ]
    for line in found:
        assert re.match(
            r"\[\d{4}-\d\d-\d\d [\d:,]+\] INFO \[QuorumController id=1\] principal=User:ann ", line
        )
        assert line.endswith(" (quorate.audit)")


def test_an_answer_does_not_wait_for_the_line_of_its_change(lines: list[str]) -> None:
    async def test() -> None:
        audit = AuditLog(1)
        audit.write_later(asyncio.get_running_loop())
        for offset in range(5):
            audit.own_written("a test", [NoOpRecord()], offset)
        audit.committed(2)
        assert lines == [], "the client of the change has its answer first"
        while not lines:
            await asyncio.sleep(0)
        assert [line.rpartition(" ")[2] for line in lines] == ["offset=0", "offset=1", "offset=2"]

    run(test())


@pytest.mark.parametrize("end", ["the controller closes", "its term ends"])
def test_the_lines_of_committed_changes_are_written_at_the_end(lines: list[str], end: str) -> None:
    async def test() -> None:
        audit = AuditLog(1)
        audit.write_later(asyncio.get_running_loop())
        audit.own_written("a test", [NoOpRecord()], 0)
        audit.own_written("a test", [NoOpRecord()], 1)
        audit.committed(0)
        audit.close() if end == "the controller closes" else audit.term_ended()
        assert "outcome=committed offset=0" in lines[0]
        if end == "its term ends":
            assert "outcome=unknown offset=1" in lines[1]

    run(test())


def test_a_refused_change_has_a_line_with_the_error(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        await h.call(topics("a"))
        del lines[:]
        await h.call(topics("a"), **ANN)
        await h.call(topics("a", "b", "a/b"), **ANN)
        who = "principal=User:ann client=test address=10.0.0.7 api=CREATE_TOPICS"
        assert lines == [
            f'{who} change="topics a" outcome=refused errors=TOPIC_ALREADY_EXISTS',
            f'{who} change="topics a, b, a/b" outcome=committed offset={h.raft.log.end - 1} '
            "errors=TOPIC_ALREADY_EXISTS,INVALID_TOPIC_EXCEPTION",
        ]

    run(test())


def test_dry_runs_heartbeats_and_requests_of_brokers_that_are_refused_have_no_line(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        epoch = await broker(h)
        await h.call(topics("a"))
        del lines[:]
        await h.call(topics("a", validate_only=True))
        await beat(h, 1, epoch)
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            await h.call(AlterPartitionRequest(broker_id=1, broker_epoch=epoch - 1))
        assert lines == []

    run(test())


def test_a_change_of_the_controller_has_a_line_with_its_reason(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        epoch = await broker(h)
        del lines[:]
        h.advance(20)
        h.raft.commit()
        assert lines == [
            f'reason="session of broker 1 at epoch {epoch} expired" '
            f'change="1 BrokerRegistrationChangeRecord" outcome=committed offset={h.raft.log.end - 1}'
        ]

    run(test())


def test_a_change_that_a_lost_leader_has_written_has_an_unknown_outcome(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        del lines[:]
        answer = h.send(topics("a"), **ANN)
        h.raft.follow(2, 2)
        with pytest.raises(Exception, match="active controller"):
            await answer
        assert len(lines) == 1
        assert f"outcome=unknown offset={h.raft.log.end - 1}" in lines[0]

    run(test())


def test_secrets_and_line_feeds_of_clients_stay_out_of_the_audit_log(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        await h.call(topics("a"))
        del lines[:]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="86400000")
                    ],
                )
            ]
        )
        await h.call(request, principal='User:e\nvil "x"', client_host="10.0.0.7")
        (line,) = lines
        assert line.startswith(
            'principal="User:e\\nvil \\"x\\"" client=test address=10.0.0.7 '
            'api=INCREMENTAL_ALTER_CONFIGS change="topic a (retention.ms)" outcome=committed'
        )
        assert "86400000" not in line

    run(test())


def test_the_audit_log_can_be_switched_off(lines: list[str]) -> None:
    async def test() -> None:
        logging.getLogger("quorate.audit").setLevel(logging.WARNING)
        h = await started()
        await broker(h)
        await h.call(topics("a"))
        assert lines == []
        assert causes(h.records)

    run(test())


def test_many_subjects_are_named_up_to_a_limit(lines: list[str]) -> None:
    async def test() -> None:
        h = await started()
        await broker(h)
        names = [f"t{n}" for n in range(9)]
        await h.call(topics(*names))
        del lines[:]
        state = DeleteTopicsRequest.DeleteTopicState
        await h.call(DeleteTopicsRequest(topics=[state(name=name) for name in names]))
        assert 'change="topics t0, t1, t2, t3, t4, ..."' in lines[0]

    run(test())
