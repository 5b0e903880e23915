"""The questions to a lake of a written log, whose answers were computed by hand. All read one lake.

The log is of 25 hours: brokers 1, 2 and 3 in the racks a, b and a, a failure of each, a failover of
the active controller, an unclean election, and a topic that is deleted. Its times are seconds after
the first record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.metadata import records as r
from quorate.metadata.features import record_version
from quorate.metadata.framing import encode_record
from quorate.protocol.schema import Data
from quorate.records.batch import build_control_batch, build_metadata_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage

from .conftest import LATE, ORDERS, config, partition, topic

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
RACKS = {1: "a", 2: "b", 3: "a"}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    """The time in JSON."""
    return at(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def leader_change(leader: int, granting: list[int]) -> LeaderChangeMessage:
    voters = LeaderChangeMessage.Voter
    return LeaderChangeMessage(
        leader_id=leader,
        voters=[voters(voter_id=node) for node in (1, 2, 3)],
        granting_voters=[voters(voter_id=node) for node in granting],
    )


def registered(broker: int, process: int, started: float) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker, incarnation_id=bytes([process] * 16), rack=RACKS[broker], fenced=True,
        start_time_ms=int(at(started).timestamp() * 1000),
    )  # fmt: skip


def changed(broker: int, fenced: int = 0, shutdown: int = 0) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id=broker, fenced=fenced, in_controlled_shutdown=shutdown)


def change(number: int, topic_id: bytes = ORDERS, **changes: object) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=number, topic_id=topic_id, **changes)  # type: ignore[arg-type]


def by(user: str, api: int) -> r.NoOpRecord:
    return r.NoOpRecord(principal=f"User:{user}", client_id="admin", address="10.0.0.1", api=api)


HISTORY: list[tuple[float, list[Data]]] = [
    (0, [leader_change(1, [1, 2])]),  # 0
    (0, [registered(1, 1, -5), registered(2, 2, -5), registered(3, 3, -5)]),  # 1 2 3
    (10, [changed(broker, fenced=-1) for broker in RACKS]),  # 4 5 6
    (60, [
        topic("orders", ORDERS),  # 7
        partition(ORDERS, 0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1),  # 8
        partition(ORDERS, 1, replicas=[2, 3, 1], isr=[2, 3, 1], leader=2),  # 9
        config("orders", "min.insync.replicas", "2"), by("ann", 19),  # 10 11
    ]),
    (120, [topic("small", LATE), partition(LATE, 0, replicas=[3], isr=[3], leader=3), by("bob", 19)]),  # 12 13 14
    # Broker 2 fails, and broker 3 is shut down while it is away.
    (1000, [change(0, isr=[1, 3]), change(1, isr=[3, 1], leader=3), changed(2, fenced=1)]),  # 15 16 17
    (1100, [changed(3, shutdown=1)]),  # 18
    (1101, [change(0, isr=[1]), change(1, isr=[1], leader=1), change(0, LATE, leader=-1)]),  # 19 20 21
    (1110, [changed(3, fenced=1)]),  # 22
    (1200, [leader_change(2, [2, 3])]),  # 23
    (1300, [registered(2, 4, 1290)]),  # 24
    (1310, [changed(2, fenced=-1)]),  # 25
    (1320, [change(0, isr=[1, 2]), change(1, isr=[1, 2])]),  # 26 27
    (1400, [registered(3, 5, 1390)]),  # 28
    (1410, [changed(3, fenced=-1), change(0, LATE, leader=3)]),  # 29 30
    (1500, [change(0, isr=[1, 2, 3]), change(1, isr=[2, 3, 1])]),  # 31 32
    (1600, [change(1, leader=2)]),  # 33
    (1700, [change(0, leader=2, isr=[2], leader_recovery_state=1)]),  # 34
    (1710, [change(0, isr=[2, 1, 3], leader_recovery_state=0)]),  # 35
    # A day later: a topic is deleted, and broker 1 is started again before it is fenced.
    (90_010, [r.RemoveTopicRecord(topic_id=LATE), by("bob", 20)]),  # 36 37
    (90_020, [registered(1, 6, 90_015), change(0, isr=[2, 3]), change(1, isr=[2, 3])]),  # 38 39 40
    (90_040, [config("orders", "min.insync.replicas", "3"), by("ann", 44)]),  # 41 42
    (90_050, [changed(1, fenced=-1)]),  # 43
    (90_060, [change(0, isr=[1, 2, 3]), change(1, isr=[1, 2, 3])]),  # 44 45
    (90_100, [r.NoOpRecord()]),  # 46
]  # fmt: skip


def write_steps(folder: Path, history: list[tuple[float, list[Data]]], *, level: int = 27) -> None:
    """A log with a batch for each time, in the versions of a metadata.version."""
    offset, epoch = 0, 0
    with (folder / f"{0:020d}.log").open("wb") as out:
        for seconds, records in history:
            place = {"base_offset": offset, "timestamp": int(at(seconds).timestamp() * 1000)}
            if isinstance(records[0], LeaderChangeMessage):
                epoch += 1
                found = (ControlRecordType.LEADER_CHANGE, records[0].encode(0))
                out.write(build_control_batch([found], leader_epoch=epoch, **place))
            else:
                values = [encode_record(record, record_version(record.KEY, level)) for record in records]
                out.write(build_metadata_batch(values, leader_epoch=epoch, **place))
            offset += len(records)


@pytest.fixture(scope="module")
def asked(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of the log."""
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update

    folder = tmp_path_factory.mktemp("history")
    write_steps(folder, HISTORY)
    lake = lakes()
    update(lake, open_source(str(folder)), "c", report=lambda _: None)
    return lake


Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ask(asked: Lake, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command and returns its rows, in its columns or in some of them."""
    from quorate.tools.lake.pipeline import main

    def run(*words: str, only: str | None = None) -> list[Any]:
        command, *others = words
        assert main([command, "--lake", asked.folder, *others, "--json"]) == 0, capsys.readouterr().err
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return rows if only is None else [tuple([row[name] for name in only.split()]) for row in rows]

    return run


def test_who_changed_what(ask: Ask) -> None:
    rows = ask("changes", "--key", "principal=User:ann")
    assert [(row["offset"], row["record"], row["topic"], row["partition"], row["api"]) for row in rows] == [
        (7, "TOPIC_RECORD", "orders", None, "CREATE_TOPICS"),
        (8, "PARTITION_RECORD", "orders", 0, "CREATE_TOPICS"),
        (9, "PARTITION_RECORD", "orders", 1, "CREATE_TOPICS"),
        (10, "CONFIG_RECORD", "orders", None, "CREATE_TOPICS"),
        (41, "CONFIG_RECORD", "orders", None, "INCREMENTAL_ALTER_CONFIGS"),
    ]
    assert rows[-1] | {} == {
        "offset": 41, "time": text(90_040), "record": "CONFIG_RECORD", "topic": "orders", "topic_id": None,
        "partition": None, "broker_id": None, "resource_type": "TOPIC", "resource_name": "orders",
        "key": "min.insync.replicas", "value": "3", "principal": "User:ann", "client_id": "admin",
        "address": "10.0.0.1", "api": "INCREMENTAL_ALTER_CONFIGS", "reason": None,
    }  # fmt: skip
    removed = ask("changes", "--key", "record=REMOVE_TOPIC_RECORD", only="offset topic principal")
    assert removed == [(36, "small", "User:bob")]


def test_changes_are_counted_by_author(ask: Ask) -> None:
    totals = ask("changes", "--total", "--to", "40", only="principal api record records topics")
    assert totals[0] == (None, None, "PARTITION_CHANGE_RECORD", 15, 2)
    assert [row for row in totals if row[0] is not None] == [
        ("User:ann", "CREATE_TOPICS", "PARTITION_RECORD", 2, 1),
        ("User:ann", "CREATE_TOPICS", "CONFIG_RECORD", 1, 1),
        ("User:ann", "CREATE_TOPICS", "TOPIC_RECORD", 1, 1),
        ("User:bob", "CREATE_TOPICS", "PARTITION_RECORD", 1, 1),
        ("User:bob", "CREATE_TOPICS", "TOPIC_RECORD", 1, 1),
        ("User:bob", "DELETE_TOPICS", "REMOVE_TOPIC_RECORD", 1, 1),
    ]


def test_each_election_has_its_kind(ask: Ask) -> None:
    assert ask("elections", only="offset topic partition before leader kind") == [
        (16, "orders", 1, 2, 3, "other"),
        (20, "orders", 1, 3, 1, "other"),
        (21, "small", 0, 3, -1, "none"),
        (30, "small", 0, -1, 3, "preferred"),
        (33, "orders", 1, 1, 2, "preferred"),
        (34, "orders", 0, 1, 2, "unclean"),
    ]


def test_changes_of_leaders_by_broker_rack_and_hour(ask: Ask) -> None:
    counters = "gained lost preferred unclean created"
    assert ask("leaders", "--by", "total", only=f"broker_id rack {counters}") == [
        (-1, None, 1, 1, 0, 0, 0),
        (1, "a", 1, 2, 0, 0, 1),
        (2, "b", 2, 1, 1, 1, 1),
        (3, "a", 2, 2, 1, 0, 1),
    ]
    assert ask("leaders", "--by", "day", "--racks", only=f"time rack {counters}") == [
        (text(0), None, 1, 1, 0, 0, 0),
        (text(0), "a", 3, 4, 1, 0, 2),
        (text(0), "b", 2, 1, 1, 1, 1),
    ]
    later = ask("leaders", "--from", "2026-03-01T00:25", "--by", "minute", only="time broker_id gained lost")
    assert later == [
        (text(1560), 1, 0, 1),
        (text(1560), 2, 1, 0),
        (text(1680), 1, 0, 1),
        (text(1680), 2, 1, 0),
    ]


def test_brokers_that_left_and_joined_the_isr(ask: Ask) -> None:
    assert ask("isr", "--by", "total", only="broker_id rack left joined") == [
        (1, "a", 3, 3),
        (2, "b", 2, 2),
        (3, "a", 3, 3),
    ]
    assert ask("isr", "--from", "35", only="time broker_id left joined") == [(text(90_000), 1, 2, 2)]


def test_time_under_replicated_below_min_isr_and_offline(ask: Ask) -> None:
    columns = "topic partition times under_replicated_s under_min_isr_s offline_s still"
    assert ask("degraded", only=columns) == [
        ("small", 0, 1, 0, 0, 309, False),
        ("orders", 0, 3, 550, 249, 0, False),  # min.insync.replicas is 2, and 3 in the last 20 s
        ("orders", 1, 2, 540, 239, 0, False),
    ]
    # A period has only its part, and does not know what follows.
    part = ask("degraded", "--from", "2026-03-01T00:20", "--to", "2026-03-01T00:22", only=columns)
    assert part == [
        ("small", 0, 1, 0, 0, 120, True),
        ("orders", 0, 1, 120, 120, 0, True),
        ("orders", 1, 1, 120, 120, 0, True),
    ]


def test_the_brokers_value_of_min_isr_is_for_topics_without_their_own(ask: Ask) -> None:
    """A topic with fewer replicas than that is not below it."""
    rows = ask("degraded", "--min-isr", "3", only="topic partition under_min_isr_s")
    assert rows == [("small", 0, 0), ("orders", 0, 249), ("orders", 1, 239)]


def test_degraded_partitions_over_time(ask: Ask) -> None:
    first, second = ask("degraded", "--by", "day", only="time under_replicated under_min_isr offline")
    assert first == (text(0), *[pytest.approx(seconds / 86_400) for seconds in (1010, 448, 309)])
    assert second == (text(86_400), *[pytest.approx(seconds / 3700) for seconds in (80, 40, 0)])


def test_availability_of_brokers(ask: Ask) -> None:
    columns = "broker_id rack registered_s active_s controlled_shutdown_s fenced_s outages restarts state"
    assert ask("availability", only=columns) == [
        (1, "a", 90_100, 90_060, 0, 40, 1, 1, "active"),
        (2, "b", 90_100, 89_780, 0, 320, 1, 1, "active"),
        (3, "a", 90_100, 89_780, 10, 310, 1, 1, "active"),
    ]
    assert ask("availability", only="availability")[0] == (pytest.approx(100 * 90_060 / 90_100),)
    of_third = [row for row in ask("availability", "--states", "--to", "28") if row["broker_id"] == 3]
    assert [(row["state"], row["from_time"], row["seconds"]) for row in of_third] == [
        ("fenced", text(0), 10),
        ("active", text(10), 1090),
        ("controlled shutdown", text(1100), 10),
        ("fenced", text(1110), 290),
        ("fenced", text(1400), 0),
    ]


def test_restarts_by_start_time(ask: Ask) -> None:
    assert ask("restarts", only="broker_id offset time start_time before ran_s") == [
        (2, 24, text(1300), text(1290), "fenced", 1300),
        (3, 28, text(1400), text(1390), "fenced", 1400),
        (1, 38, text(90_020), text(90_015), "active", 90_020),
    ]


def test_time_to_recover_after_each_failure(ask: Ask) -> None:
    columns = "broker_id kind offset time returned_time recovered_time away_s recovery_s partitions offline"
    assert ask("recovery", only=columns) == [
        (2, "fenced", 17, text(1000), text(1310), text(1500), 310, 500, 2, 0),
        (3, "controlled shutdown", 18, text(1100), text(1410), text(1500), 310, 400, 3, 1),
        (1, "restarted", 38, text(90_020), text(90_050), text(90_060), 30, 40, 2, 0),
    ]
    # At offset 30 both brokers are back, but not yet in the ISR.
    assert ask(
        "recovery", "--to", "30", only="broker_id returned_time recovered_time recovery_s partitions"
    ) == [
        (2, text(1310), None, None, 2),
        (3, text(1410), None, None, 3),
    ]


def test_growth_by_day(ask: Ask) -> None:
    columns = (
        "time topics topics_created topics_deleted partitions partitions_created partitions_deleted replicas"
    )
    assert ask("growth", only=columns) == [
        (text(0), 2, 2, 0, 3, 3, 0, 7),
        (text(86_400), 1, 0, 1, 2, 0, 1, 6),
    ]
    assert ask("growth", "--from", "35", only=columns) == [
        (text(0), 2, 0, 0, 3, 0, 0, 7),
        (text(86_400), 1, 0, 1, 2, 0, 1, 6),
    ]


def test_balance_of_brokers_and_racks(ask: Ask) -> None:
    assert ask("balance", only="time broker_id rack replicas leaders preferred") == [
        (text(0), 1, "a", 2, 0, 1),
        (text(0), 2, "b", 2, 2, 1),
        (text(0), 3, "a", 3, 1, 1),
        (text(86_400), 1, "a", 2, 0, 1),
        (text(86_400), 2, "b", 2, 2, 1),
        (text(86_400), 3, "a", 2, 0, 0),
    ]
    assert ask("balance", "--racks", "--from", "35", only="time rack replicas leaders preferred") == [
        (text(0), "a", 5, 1, 2),
        (text(0), "b", 2, 2, 1),
        (text(86_400), "a", 4, 0, 1),
        (text(86_400), "b", 2, 2, 1),
    ]


def test_failovers_of_the_controller_and_its_voters(ask: Ask) -> None:
    columns = "offset time epoch controller_id before led_s silent_s voters granting_voters"
    assert ask("failovers", only=columns) == [
        (0, text(0), 1, 1, None, 1200, None, [1, 2, 3], [1, 2]),
        (23, text(1200), 2, 2, 1, 88_900, 90, [1, 2, 3], [2, 3]),
    ]
    static = ask("voters", only="offset record voters added removed")
    assert static == [(0, "LEADER_CHANGE", ["1", "2", "3"], ["1", "2", "3"], [])]


def test_topics_that_nobody_changed(ask: Ask) -> None:
    """Changes of leaders and of the ISR do not count."""
    columns = "topic partitions created_time changed_time changed_by unchanged_days"
    assert ask("unchanged", "--from", "14", "--to", "2026-03-02T01:00", only=columns) == [
        ("orders", 2, text(60), text(60), "CONFIG_RECORD", pytest.approx((90_000 - 60) / 86_400)),
        ("small", 1, text(120), text(120), "PARTITION_RECORD", pytest.approx((90_000 - 120) / 86_400)),
    ]
    assert ask("unchanged", "--from", "14") == []


def test_a_period_outside_of_the_lake_is_refused(asked: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    from quorate.tools.lake.pipeline import main

    assert main(["elections", "--lake", asked.folder, "--from", "20", "--to", "10"]) == 1
    assert "the period ends before it begins" in capsys.readouterr().err
    assert main(["changes", "--lake", asked.folder, "--key", "who=ann"]) == 1
    assert "--key who=ann: COLUMN=VALUE, with one of the columns offset, time" in capsys.readouterr().err


@pytest.mark.lake
def test_what_is_after_the_expired_events_is_answered_as_before(
    asked: Lake, copied: Callable[[Lake], Lake], capsys: pytest.CaptureFixture[str]
) -> None:
    """States and histories also of the time before, and the quorum's records do not expire."""
    from quorate.tools.lake.pipeline import main

    lake = copied(asked)
    assert main(["expire", "--lake", lake.folder, "--older-than", at(1050).isoformat(), "--yes"]) == 0
    assert "17 events before offset 18" in capsys.readouterr().out
    left = lake.read("events").orderBy("offset").select("offset").collect()
    assert [row["offset"] for row in left] == [0, *range(18, 47)]
    for question in (
        "state --entity brokers --at 10",
        "diff --from 3 --to 30 --entity partitions",
        "history --entity topics",
        "changes --from 18",
        "failovers --from 18",
        "voters --from 18",
        "recovery --from 18",
    ):
        told = []
        for each in (asked, lake):
            assert main([*question.split(), "--lake", each.folder, "--json"]) == 0
            told.append(capsys.readouterr().out)
        assert told[0] == told[1] != "", question
    assert main(["changes", "--lake", lake.folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["offset"] == 18
    for period in (["--from", "5"], ["--to", "5"]):
        assert main(["changes", "--lake", lake.folder, *period]) == 1
        reason = "offset 5 of cluster c is before offset 18, up to which the events have expired"
        assert reason in capsys.readouterr().err
    assert main(["state", "--lake", lake.folder, "--entity", "topics", "--at", text(100)]) == 1
    assert "no records of cluster c up to" in capsys.readouterr().err


def test_every_answer_has_the_columns_that_it_describes(asked: Lake) -> None:
    from quorate.pipeline.questions import (
        availability,
        balance,
        changes,
        growth,
        leaders,
        quorum,
        recovery,
        replication,
        unchanged,
    )
    from quorate.pipeline.questions.moments import period_of
    from quorate.pipeline.questions.spans import Unit

    of = (asked, "c", period_of(asked, "c"))
    for rows, columns in (
        (changes.changes(*of), changes.COLUMNS),
        (changes.authors(*of), changes.AUTHORS),
        (leaders.elections(*of), leaders.ELECTIONS),
        (leaders.leader_changes(*of), leaders.COLUMNS),
        (replication.degraded(*of), replication.COLUMNS),
        (replication.degraded_over_time(*of, Unit.HOUR), replication.SERIES),
        (replication.isr_changes(*of), replication.ISR_CHANGES),
        (availability.availability(*of), availability.COLUMNS),
        (availability.restarts(*of), availability.RESTARTS),
        (recovery.recovery(*of), recovery.COLUMNS),
        (growth.growth(*of), growth.COLUMNS),
        (balance.balance(*of), balance.COLUMNS),
        (quorum.failovers(*of), quorum.FAILOVERS),
        (quorum.voters_history(*of), quorum.VOTERS),
        (unchanged.unchanged(*of), unchanged.COLUMNS),
    ):
        assert rows.dtypes == [(column.name, column.kind) for column in columns]
