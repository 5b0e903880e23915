"""The lines of the audit log follow the order of the events, and none is lost at an error."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from quorate.controller.changes.audit import AuditLog
from quorate.metadata.records import NoOpRecord
from quorate.net.dispatch import RequestContext
from quorate.node.logging_config import configure
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .requests import broker, run, topics
from .support import Harness
from .test_concurrent_portions import MANY, partitions, run_until_answered


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the audit log. The list grows."""
    found: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.extend(record.getMessage().splitlines())

    audit, handler = logging.getLogger("quorate.audit"), Lines()
    level = audit.level
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    yield found
    audit.removeHandler(handler)
    audit.setLevel(level)


def create_topics() -> RequestContext:
    return RequestContext(
        api_key=ApiKey.CREATE_TOPICS, api_version=7, correlation_id=1, client_id="test", listener="C"
    )


def test_the_line_of_a_refusal_follows_those_of_the_changes_before_it(lines: list[str]) -> None:
    async def test() -> None:
        audit = AuditLog(1)
        audit.write_later(asyncio.get_running_loop())
        audit.own_written("first", [NoOpRecord()], 0)
        audit.committed(0)
        audit.request_failed(create_topics(), topics("second"), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        audit.own_written("third", [NoOpRecord()], 1)
        audit.committed(1)
        while len(lines) < 3:
            await asyncio.sleep(0)
        assert 'reason="first"' in lines[0]
        assert "topics second" in lines[1] and "outcome=refused" in lines[1]
        assert 'reason="third"' in lines[2]

    run(test())


def test_a_refusal_without_changes_before_it_has_its_line_at_once(lines: list[str]) -> None:
    async def test() -> None:
        audit = AuditLog(1)
        audit.write_later(asyncio.get_running_loop())
        audit.request_failed(create_topics(), topics("a"), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert len(lines) == 1

    run(test())


def test_a_request_that_is_refused_after_its_first_portion_has_a_line(lines: list[str]) -> None:
    async def test() -> None:
        h = await Harness(attribution=True).start()
        for broker_id in (1, 2):
            await broker(h, broker_id)
        await partitions(h, MANY, 1, 2)
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
        del lines[:]
        answers = await run_until_answered(
            h, *[h.send(UnregisterBrokerRequest(broker_id=1)) for _ in range(2)]
        )
        refused = [answer for answer in answers if isinstance(answer, KafkaError)]
        assert [error.code for error in refused] == [ErrorCode.BROKER_ID_NOT_REGISTERED]
        assert [line for line in lines if "errors=BROKER_ID_NOT_REGISTERED" in line] != []

    run(test())


def test_a_line_that_the_output_cannot_encode_does_not_lose_the_others() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    try:
        configure("INFO", stream)
        lines = ["first", "client=Zo\xeb", "third"]
        logging.getLogger("quorate.audit").info("\n".join(lines), extra={"lines": lines})
    finally:
        root.handlers[:], root.level = handlers, level
    logging.StreamHandler(stream).flush()
    assert [line.split(b" INFO ")[1] for line in written.getvalue().splitlines()] == [
        b"first (quorate.audit)",
        b"client=Zo\\xeb (quorate.audit)",
        b"third (quorate.audit)",
    ]
