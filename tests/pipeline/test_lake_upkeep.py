"""The upkeep of a lake: versions of its schema, compaction, and the expiry of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quorate.metadata import records as r

from .conftest import ORDERS, change, config, partition, topic, write_log
from .test_lake import apply, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(400)]

BY_ANN = r.NoOpRecord(principal="User:ann", client_id="cli", address="10.0.0.1", api=19)
BATCHES = [
    [topic("orders", ORDERS), config("orders", "k", "1"), partition(ORDERS), BY_ANN],  # 0 to 3
    [change(ORDERS, leader=2)],  # 4
    [config("orders", "k", "2")],  # 5
    [change(ORDERS, leader=1)],  # 6
]


def command(*words: str) -> int:
    from quorate.tools.lake.pipeline import main

    return main(list(words))


@pytest.fixture(scope="module")
def runs(
    lakes: Callable[[], Lake], copied: Callable[[Lake], Lake], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lake, Lake]:
    """A lake after a run of the records 0 to 4, and the same after another run."""
    folder = tmp_path_factory.mktemp("log")
    first = lakes()
    write_log(folder, 0, BATCHES[:2])
    apply(first, folder)
    second = copied(first)
    write_log(folder, 0, BATCHES)
    apply(second, folder)
    return first, second


@pytest.fixture
def grown(runs: tuple[Lake, Lake], copied: Callable[[Lake], Lake]) -> Lake:
    """A copy of the lake after both runs."""
    return copied(runs[1])


def data_files(lake: Lake) -> dict[str, int]:
    """The files with rows, in use or not."""
    tables = [path for path in Path(lake.folder).iterdir() if path.is_dir()]
    return {table.name: len(list(table.glob("cluster=*/*.parquet"))) for table in tables}


def without_events(lake: Lake) -> dict[str, list[str]]:
    return {table: rows for table, rows in contents(lake).items() if table != "events" and rows}


# -- who -----------------------------------------------------------------------------------------------


def test_each_state_says_who_caused_it(runs: tuple[Lake, Lake]) -> None:
    rows = runs[1].read("partitions").orderBy("valid_from_offset").select("changed_by").collect()
    assert [row[0] and row[0].asDict() for row in rows] == [
        {"principal": "User:ann", "client_id": "cli", "address": "10.0.0.1", "api": 19, "reason": None},
        None,
        None,
    ]


# -- compaction ----------------------------------------------------------------------------------------


def test_compaction_joins_files_and_changes_no_row(
    grown: Lake, tmp_path: Path, copied: Callable[[Lake], Lake], capsys: pytest.CaptureFixture[str]
) -> None:
    undisturbed = copied(grown)
    before, many = contents(grown), data_files(grown)
    assert command("compact", "--lake", grown.folder, "--dry-run") == 0
    assert "events: 2 files, " in capsys.readouterr().out
    assert (contents(grown), data_files(grown)) == (before, many)
    assert many["events"] > 1
    assert command("compact", "--lake", grown.folder, "--retain-hours", "0", "--yes") == 0
    assert "2 are small and joined" in capsys.readouterr().out
    kinds = {"events": 1, "topics": 1, "partitions": 2, "configs": 2}  # what holds, and what has ended
    assert data_files(grown) == kinds
    assert contents(grown) == before
    # A run continues where the lake was, as if nothing had happened.
    write_log(tmp_path, 0, [*BATCHES, [change(ORDERS, leader=2)]])
    assert [apply(lake, tmp_path).start for lake in (grown, undisturbed)] == [7, 7]
    assert contents(grown) == contents(undisturbed)


def test_only_what_joins_files_is_a_commit(grown: Lake) -> None:
    """To delete files is none: Delta would write it without the lock that commits take."""

    def commits() -> dict[str, int]:
        logs = Path(grown.folder).glob("*/_delta_log")
        return {log.parent.name: len(list(log.glob("*.json"))) for log in logs}

    before = commits()
    assert command("compact", "--lake", grown.folder, "--retain-hours", "0", "--yes") == 0
    assert commits() == before | {"events": before["events"] + 1}


def test_files_to_which_a_table_has_referred_lately_are_kept(grown: Lake) -> None:
    begun = grown.read("partitions").orderBy("valid_from_offset")
    before, many = begun.collect(), data_files(grown)
    assert command("compact", "--lake", grown.folder, "--yes") == 0
    assert all(count >= many[table] for table, count in data_files(grown).items())
    assert begun.collect() == before


def test_files_of_an_older_release_which_have_present_and_ended_states_are_divided(
    grown: Lake, tmp_path: Path, copied: Callable[[Lake], Lake]
) -> None:
    undisturbed = copied(grown)
    for table in ("events", "topics", "partitions", "configs"):
        rows = grown.read(table).coalesce(1)
        rows.write.format("delta").mode("overwrite").save(grown.path(table))
    write_log(tmp_path, 0, [*BATCHES, [change(ORDERS, leader=2)], [change(ORDERS, leader=3)]])
    assert [apply(lake, tmp_path).start for lake in (grown, undisturbed)] == [7, 7]
    assert contents(grown) == contents(undisturbed)


# -- expiry --------------------------------------------------------------------------------------------


def test_expired_events_are_removed_and_all_states_stay(
    grown: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(grown)
    expiry = ("expire", "--lake", grown.folder, "--older-than", "1970-01-01T00:00:05.5")
    assert command(*expiry, "--dry-run") == 0
    assert "c: 6 events before offset 6 are older than 1970-01-01 00:00:05 UTC" in capsys.readouterr().out
    assert contents(grown) == before
    assert command(*expiry, "--yes") == 0
    assert [row["offset"] for row in grown.read("events").collect()] == [6]
    assert without_events(grown) == {table: rows for table, rows in before.items() if table != "events"}
    assert command(*expiry, "--yes") == 0
    assert "c: 0 events before offset 6" in capsys.readouterr().out
    # A run needs only what was kept.
    write_log(tmp_path, 0, [*BATCHES, [change(ORDERS, leader=2)]])
    done = apply(grown, tmp_path)
    assert (done.start, done.end) == (7, 8)
    assert grown.read("partitions").where("valid_to_offset IS NULL").collect()[0]["leader"] == 2


def test_the_last_event_never_expires(grown: Lake, tmp_path: Path) -> None:
    """A run compares it with the log."""
    assert command("expire", "--lake", grown.folder, "--older-than", "0m", "--yes") == 0
    assert [row["offset"] for row in grown.read("events").collect()] == [6]
    write_log(tmp_path, 0, [*BATCHES[:3], [change(ORDERS, leader=3)]], epoch=2)
    from quorate.pipeline.tables.lake import LakeError

    with pytest.raises(
        LakeError, match="differs from what the lake has applied of cluster c from offset 6 on"
    ):
        apply(grown, tmp_path)


def test_a_table_that_lost_commits_is_not_computed_from_what_is_left_of_the_events(
    grown: Lake, tmp_path: Path
) -> None:
    from quorate.pipeline.tables.lake import LakeError

    assert command("expire", "--lake", grown.folder, "--older-than", "1970-01-01T00:00:05.5", "--yes") == 0
    last = max(Path(grown.path("partitions"), "_delta_log").glob("*.json"))
    last.unlink()
    last.with_suffix(".crc").unlink(missing_ok=True)
    write_log(tmp_path, 0, BATCHES)
    with pytest.raises(LakeError, match=r"^partitions of cluster c .* lost commits, .* before offset 6"):
        apply(grown, tmp_path)


# -- the schema ----------------------------------------------------------------------------------------


def of_schema_1(lakes: Callable[[], Lake], lake: Lake) -> Lake:
    """A lake with the same rows, as the release with schema 1 wrote it."""
    old = lakes()
    for table in ("events", "topics", "partitions", "configs"):
        version = lake.progress(table, "c").version
        writer = lake.read(table).drop("changed_by").write.format("delta").partitionBy("cluster")
        writer.option("txnAppId", "quorate-tables/1/c").option("txnVersion", version).save(old.path(table))
    return old


def test_a_lake_of_an_older_release_is_brought_to_the_newest_schema(
    lakes: Callable[[], Lake], runs: tuple[Lake, Lake], capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.pipeline.tables.lake import LakeError

    first, _ = runs
    old = of_schema_1(lakes, first)
    with pytest.raises(LakeError, match=r"has schema 1, .* 2: quorate-pipeline migrate --lake"):
        old.clusters()
    assert command("migrate", "--lake", old.folder, "--dry-run") == 0
    assert "c: schema 1 to 2: each state says who or what caused it" in capsys.readouterr().out
    assert old.schemas("events") == {"c": 1}
    assert command("migrate", "--lake", old.folder, "--yes") == 0
    assert contents(old) == contents(first)


def test_a_run_migrates_too(
    lakes: Callable[[], Lake], runs: tuple[Lake, Lake], grown: Lake, tmp_path: Path
) -> None:
    old = of_schema_1(lakes, runs[0])
    write_log(tmp_path, 0, BATCHES)
    assert apply(old, tmp_path).end == 7
    assert contents(old) == contents(grown)


def test_tables_that_need_expired_events_are_not_migrated(
    lakes: Callable[[], Lake], runs: tuple[Lake, Lake], capsys: pytest.CaptureFixture[str]
) -> None:
    old = of_schema_1(lakes, runs[0])
    old.expire("c", 4)
    assert command("migrate", "--lake", old.folder, "--yes") == 1
    assert "events of cluster c before offset 4 have expired, so acls, " in capsys.readouterr().err


def test_a_step_adds_columns_and_a_lake_of_a_later_release_is_refused(
    grown: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.pipeline.tables import schema
    from quorate.pipeline.tables.lake import LakeError

    lake = grown
    write_log(tmp_path, 0, BATCHES)
    before = contents(lake)
    steps = (*schema.MIGRATIONS, schema.Migration(3, "a test", fills={"topics": {"loud": "upper(topic)"}}))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "SCHEMA", 3)
        patch.setattr(schema, "MIGRATIONS", steps)
        schema.migrate(lake, lambda _: None, steps)
        assert schema.outdated(lake) == {}
    assert [row["loud"] for row in lake.read("topics").collect()] == ["ORDERS"]
    assert lake.progress("topics", "c", 3) == lake.progress("topics", "c", 2)
    assert contents(lake)["partitions"] == before["partitions"]
    with pytest.raises(
        LakeError, match=r"topics has schema 3, .* up to 2: upgrade quorate|events has schema 3"
    ):
        apply(lake, tmp_path)
    assert command("state", "--lake", lake.folder, "--entity", "topics") == 1


@pytest.mark.parametrize(
    ("text", "age"), [("90d", timedelta(90)), ("12h", timedelta(hours=12)), ("5m", timedelta(minutes=5))]
)
def test_an_age_is_a_time(text: str, age: timedelta) -> None:
    from quorate.tools.lake.upkeep import moment

    assert abs(datetime.now(UTC) - age - moment(text)) < timedelta(minutes=1)
    assert moment("2026-11-21T09:20:54") == datetime(2026, 11, 21, 9, 20, 54, tzinfo=UTC)
