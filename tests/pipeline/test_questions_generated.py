"""The questions to a lake of generated years, compared with answers that are computed from the
image after each offset. Whole history, and a part of it that begins and ends in the middle of
outages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import generate

from .conftest import LOG
from .question_oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quorate.pipeline.questions.moments import Period
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SIZE = Size(brokers=4, racks=2, topics=4, partitions=3)
RECORDS = 900

Asked = tuple["Lake", str, "Period"]


@pytest.fixture(scope="module")
def filled(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Path]:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update

    folder = tmp_path_factory.mktemp("generated") / "node"
    generate(folder, seed=7, records=RECORDS, size=SIZE)
    lake = lakes()
    update(lake, open_source(str(folder)), "c", report=lambda _: None)
    return lake, folder / LOG


@pytest.fixture(scope="module", params=[(None, None), (300, 700)], ids=["all", "part"])
def both(request: pytest.FixtureRequest, filled: tuple[Lake, Path]) -> tuple[Asked, Oracle]:
    from quorate.pipeline.questions.moments import period_of

    lake, folder = filled
    since, until = request.param
    period = period_of(lake, "c", since, until)
    return (lake, "c", period), Oracle(folder, -1 if since is None else since, until)


def nulls_first(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]


def rows(frame: DataFrame, columns: str) -> list[tuple[Any, ...]]:
    found = [
        tuple([v.astimezone(UTC) if isinstance(v, datetime) else v for v in row])
        for row in frame.select(*columns.split()).collect()
    ]
    return sorted(found, key=nulls_first)


def near(found: Any) -> Any:
    return pytest.approx(found, abs=0.0011)


def test_the_period(both: tuple[Asked, Oracle]) -> None:
    (_, _, period), oracle = both
    assert (period.begin, period.end) == (oracle.begin, oracle.end)


def test_elections(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import leaders

    asked, oracle = both
    columns = "offset time topic_id partition before leader leader_epoch kind"
    found = rows(leaders.elections(*asked), columns)
    assert found == sorted(oracle.elections(), key=nulls_first)
    assert len(found) > 20


@pytest.mark.parametrize("hours", [True, False])
def test_leader_changes(both: tuple[Asked, Oracle], hours: bool) -> None:
    from quorate.pipeline.questions import leaders
    from quorate.pipeline.questions.spans import Unit

    asked, oracle = both
    frame = leaders.leader_changes(*asked, Unit.HOUR if hours else Unit.TOTAL)
    keys = "time broker_id" if hours else "broker_id"
    found = rows(frame, f"{keys} gained lost preferred unclean created")
    assert {row[:-5]: list(row[-5:]) for row in found} == oracle.leader_changes(hours)


def test_isr_changes(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import replication
    from quorate.pipeline.questions.spans import Unit

    asked, oracle = both
    found = rows(replication.isr_changes(*asked, Unit.TOTAL), "broker_id left joined")
    assert {row[0]: row[1:] for row in found} == oracle.isr_changes()


@pytest.mark.parametrize("min_isr", [1, 3])
def test_degraded(both: tuple[Asked, Oracle], min_isr: int) -> None:
    from quorate.pipeline.questions import replication

    asked, oracle = both
    columns = "topic_id partition under_replicated_s under_min_isr_s offline_s"
    found = {row[:2]: row[2:] for row in rows(replication.degraded(*asked, min_isr), columns)}
    found = {key: value for key, value in found.items() if any(value)}
    expected = oracle.degraded(min_isr)
    assert found.keys() == expected.keys()
    for key, value in found.items():
        assert value == near(expected[key]), key


def test_degraded_by_day(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import replication
    from quorate.pipeline.questions.spans import Unit

    asked, oracle = both
    found = rows(
        replication.degraded_over_time(*asked, Unit.DAY), "time under_replicated under_min_isr offline"
    )
    expected = oracle.degraded_by_day()
    assert [row[0] for row in found] == sorted(expected)
    for row in found:
        assert row[1:] == near(expected[row[0]]), row[0]


def test_availability(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import availability

    asked, oracle = both
    columns = "broker_id active_s controlled_shutdown_s fenced_s outages restarts"
    found = rows(availability.availability(*asked), columns)
    expected = oracle.availability()
    assert [row[0] for row in found] == sorted(expected)
    for row in found:
        assert row[1:] == near(expected[row[0]])


def test_recovery(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import recovery

    asked, oracle = both
    columns = "broker_id offset time returned_time recovered_time partitions"
    found = rows(recovery.recovery(*asked), columns)
    assert found == sorted(oracle.recovery(), key=nulls_first)
    assert len(found) > 3


def test_growth(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import growth

    asked, oracle = both
    columns = (
        "time topics topics_created topics_deleted partitions partitions_created partitions_deleted replicas"
    )
    assert {row[0]: row[1:] for row in rows(growth.growth(*asked), columns)} == oracle.growth()


def test_balance(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import balance

    asked, oracle = both
    found = rows(balance.balance(*asked), "time broker_id replicas leaders preferred")
    assert {row[:2]: row[2:] for row in found} == oracle.balance()


def test_failovers(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import quorum

    asked, oracle = both
    columns = "offset time epoch controller_id before led_s silent_s"
    found = rows(quorum.failovers(*asked), columns)
    assert found == sorted(oracle.failovers(), key=nulls_first)


def test_unchanged(both: tuple[Asked, Oracle]) -> None:
    from quorate.pipeline.questions import unchanged

    asked, oracle = both
    found = rows(unchanged.unchanged(*asked), "topic_id changed_time")
    expected = {topic: oracle.steps[offset].time for topic, offset in oracle.unchanged().items()}
    assert dict(found) == expected
