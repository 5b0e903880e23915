"""The questions to a log with rare things: time goes back at a failover, a leader is elected
uncleanly while the last one recovers, a reassignment makes min.insync.replicas matter, a broker is
gone for good, and names have characters of HTML and of terminals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata import records as r
from quorate.protocol.schema import Data

from .conftest import LATE, ORDERS, config, partition, topic
from .question_oracle import Oracle
from .test_questions import RACKS, at, change, changed, leader_change, registered, write_steps
from .test_questions_generated import nulls_first, rows

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DAY = 86_400
SCRIPT = "<script>alert(1)</script>"
ESCAPE = "\x1b[2J\nnew line"

HISTORY: list[tuple[float, list[Data]]] = [
    (0, [leader_change(1, [1, 2])]),  # 0
    (0, [registered(1, 1, -5), registered(2, 2, -5), registered(3, 3, -5)]),  # 1 2 3
    (10, [changed(broker, fenced=-1) for broker in RACKS]),  # 4 5 6
    (60, [
        topic("orders", ORDERS),  # 7
        partition(ORDERS, 0, replicas=[1, 2], isr=[1, 2], leader=1),  # 8
        partition(ORDERS, 1, replicas=[1, 2], isr=[1, 2], leader=1),  # 9
        config("orders", "min.insync.replicas", "3"),  # 10
        r.NoOpRecord(principal=f"User:{SCRIPT}", client_id=ESCAPE, address="10.0.0.1", api=19),  # 11
    ]),
    # Broker 3 is added to the replicas: the effective min.insync.replicas is now 3.
    (100, [change(0, replicas=[1, 2, 3], adding_replicas=[3])]),  # 12
    (160, [change(0, isr=[1, 2, 3], adding_replicas=[])]),  # 13
    # An unclean election, and another one before the first leader has recovered.
    (200, [change(1, isr=[1])]),  # 14
    (210, [change(1, isr=[2], leader=2, leader_recovery_state=1)]),  # 15
    (220, [change(1, isr=[1], leader=1)]),  # 16
    (230, [change(1, isr=[1, 2], leader_recovery_state=0)]),  # 17
    # A member of the ELR is elected, which loses nothing.
    (240, [change(1, isr=[1], eligible_leader_replicas=[2])]),  # 18
    (250, [change(1, isr=[2], leader=2, eligible_leader_replicas=[])]),  # 19
    (260, [change(1, isr=[2, 1])]),  # 20
    # The next active controller's clock is two hours behind, and it is the day before again.
    (DAY + 3600, [change(0, leader=2)]),  # 21
    (DAY - 3600, [leader_change(2, [2, 3])]),  # 22
    (DAY - 3590, [change(0, leader=3)]),  # 23
    (DAY + 7200, [r.NoOpRecord()]),  # 24
    # Broker 3 leaves for good.
    (2 * DAY, [change(0, replicas=[1, 2], isr=[1, 2], leader=1)]),  # 25
    (2 * DAY + 10, [changed(3, shutdown=1)]),  # 26
    (2 * DAY + 20, [r.UnregisterBrokerRecord(broker_id=3)]),  # 27
    (2 * DAY + 30, [config("orders", SCRIPT, ESCAPE)]),  # 28
    (2 * DAY + 40, [topic("late", LATE), partition(LATE, 0, replicas=[1], isr=[1], leader=1)]),  # 29 30
    (3 * DAY, [r.NoOpRecord()]),  # 31
]  # fmt: skip


@pytest.fixture(scope="module")
def odd(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Oracle]:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update

    folder = tmp_path_factory.mktemp("odd")
    write_steps(folder, HISTORY)
    lake = lakes()
    update(lake, open_source(str(folder)), "c", report=lambda _: None)
    return lake, Oracle(folder)


def test_every_unclean_election_is_one(odd: tuple[Lake, Oracle]) -> None:
    from quorate.pipeline.questions import leaders
    from quorate.pipeline.questions.moments import period_of

    lake, oracle = odd
    columns = "offset time topic_id partition before leader leader_epoch kind"
    found = rows(leaders.elections(lake, "c", period_of(lake, "c")), columns)
    assert found == sorted(oracle.elections(), key=nulls_first)
    assert [row[-1] for row in found[:3]] == ["unclean", "unclean", "other"]


def test_a_reassignment_counts_for_min_insync_replicas_as_in_kafka(odd: tuple[Lake, Oracle]) -> None:
    """The replicas that it adds are not missing, but the partition now needs three in-sync replicas."""
    from quorate.pipeline.questions import replication
    from quorate.pipeline.questions.moments import period_of

    lake, _ = odd
    found = replication.degraded(lake, "c", period_of(lake, "c", 11, 13))
    columns = "partition times under_replicated_s under_min_isr_s offline_s still"
    assert rows(found, columns) == [(0, 1, 0, 60, 0, False)]


def test_numbers_stay_right_where_time_goes_back(odd: tuple[Lake, Oracle]) -> None:
    from quorate.pipeline.questions import balance, growth
    from quorate.pipeline.questions.moments import period_of

    lake, _ = odd
    of = (lake, "c", period_of(lake, "c"))
    found = rows(balance.balance(*of), "time broker_id replicas leaders preferred")
    days = [at(DAY * number) for number in range(4)]
    sums = {
        day: tuple([sum(row[place] for row in found if row[0] == day) for place in (2, 3, 4)]) for day in days
    }
    assert sums == {days[0]: (5, 2, 2), days[1]: (5, 2, 2), days[2]: (5, 3, 3), days[3]: (5, 3, 3)}
    grown = rows(growth.growth(*of), "time topics partitions replicas")
    assert grown == [(days[0], 1, 2, 5), (days[1], 1, 2, 5), (days[2], 2, 3, 5), (days[3], 2, 3, 5)]


def test_the_report_escapes_names_and_counts_the_brokers_that_there_are(
    odd: tuple[Lake, Oracle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.tools.lake.pipeline import main

    out, folder = tmp_path / "odd.html", odd[0].folder
    assert main(["report", "--lake", folder, "--out", str(out), "--title", SCRIPT]) == 0
    page = out.read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
    assert "\x1b" not in page
    assert "At the end, 2 brokers in 2 racks. Replicas of a broker: 2 to 3, 2.5 on average." in page
    assert "2 unclean" in page
    capsys.readouterr()
    assert main(["changes", "--lake", folder, "--key", f"principal=User:{SCRIPT}", "--wide"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and len(shown.splitlines()) == 5
    assert main(["diff", "--lake", folder, "--from", "27", "--to", "28"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and len(shown.splitlines()) == 1


def test_a_moment_before_the_events_that_are_left_is_refused_in_words(
    lakes: Callable[[], Lake], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update
    from quorate.tools.lake.pipeline import main

    write_steps(tmp_path, HISTORY[:5])
    lake = lakes()
    update(lake, open_source(str(tmp_path)), "c", report=lambda _: None)
    lake.expire("c", 8)
    assert main(["state", "--lake", lake.folder, "--entity", "brokers", "--at", "5", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    for period in (["--from", "5"], ["--to", "5"], ["--from", "3", "--to", "12"]):
        assert main(["elections", "--lake", lake.folder, *period]) == 1
        assert re.search("^Error: .*before offset 8.* have expired", capsys.readouterr().err)


NOTHING: list[tuple[float, list[Data]]] = [(0, [leader_change(1, [1])]), (0, [r.NoOpRecord()])]
OLDEST: list[tuple[float, list[Data]]] = [
    (0, [leader_change(1, [1])]),  # 0
    (0, [r.FeatureLevelRecord(name="metadata.version", feature_level=7)]),  # 1
    (0, [r.RegisterBrokerRecord(broker_id=1, incarnation_id=bytes([1] * 16), fenced=True)]),  # 2
    (5, [changed(1, fenced=-1)]),  # 3
    (10, [topic("orders", ORDERS), partition(ORDERS, replicas=[1], isr=[1], leader=1)]),  # 4 5
    (20, [changed(1, fenced=1), change(0, leader=-1)]),  # 6 7
    (50, [changed(1, fenced=-1), change(0, leader=1)]),  # 8 9
    (60, [r.NoOpRecord()]),  # 10
]  # fmt: skip


@pytest.mark.parametrize(
    ("history", "level", "figures"),
    [
        (NOTHING, 27, {"Topics": "0", "Changes of leaders": "0", "Failures of brokers": "0"}),
        (OLDEST, 7, {"Topics": "1", "Active brokers": "1 of 1", "Failures of brokers": "1",
                     "Longest recovery": "30 s", "Partitions that were offline": "1"}),
    ],
    ids=["nothing", "one broker of 3.3"],
)  # fmt: skip
def test_a_report_of_a_small_or_empty_cluster(
    lakes: Callable[[], Lake],
    tmp_path: Path,
    history: list[tuple[float, list[Data]]],
    level: int,
    figures: dict[str, str],
) -> None:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update
    from quorate.tools.lake.pipeline import main

    write_steps(tmp_path, history, level=level)
    lake, out = lakes(), tmp_path / "page.html"
    update(lake, open_source(str(tmp_path)), "c", report=lambda _: None)
    assert main(["report", "--lake", lake.folder, "--out", str(out)]) == 0
    found = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", out.read_text()))
    assert {name: found.get(name) for name in figures} == figures
    assert main(["report", "--lake", str(tmp_path / "none"), "--out", str(out)]) == 1
