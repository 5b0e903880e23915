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


def test_each_state_says_who_caused_it(lake: Lake, tmp_path: Path) -> None:
    write_log(tmp_path, 0, BATCHES)
    apply(lake, tmp_path)
    rows = lake.read("partitions").orderBy("valid_from_offset").select("changed_by").collect()
    assert [row[0] and row[0].asDict() for row in rows] == [
        {"principal": "User:ann", "client_id": "cli", "address": "10.0.0.1", "api": 19, "reason": None},
        None,
        None,
    ]


def of_schema_1(lakes: Callable[[], Lake], lake: Lake) -> Lake:
    """A lake with the same rows, as the release with schema 1 wrote it."""
    old = lakes()
    for table in ("events", "topics", "partitions", "configs"):
        version = lake.progress(table, "c").version
        writer = lake.read(table).drop("changed_by").write.format("delta").partitionBy("cluster")
        writer.option("txnAppId", "quorate-tables/1/c").option("txnVersion", version).save(old.path(table))
    return old


def test_a_lake_of_an_older_release_is_brought_to_the_newest_schema(
    lakes: Callable[[], Lake], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.pipeline.tables.lake import LakeError

    write_log(tmp_path, 0, BATCHES[:3])
    newest = lakes()
    apply(newest, tmp_path)
    old, migrated = of_schema_1(lakes, newest), of_schema_1(lakes, newest)
    with pytest.raises(LakeError, match=r"has schema 1, .* 2: quorate-pipeline migrate --lake"):
        old.clusters()
    assert command("migrate", "--lake", migrated.folder, "--dry-run") == 0
    assert "c: schema 1 to 2: each state says who or what caused it" in capsys.readouterr().out
    assert migrated.schemas("events") == {"c": 1}
    assert command("migrate", "--lake", migrated.folder, "--yes") == 0
    assert contents(migrated) == contents(newest)
    # A run migrates, too, and applies what is new.
    write_log(tmp_path, 0, BATCHES)
    for lake in (newest, old):
        assert apply(lake, tmp_path).end == 7
    assert contents(old) == contents(newest)


def test_a_step_adds_columns_and_a_lake_of_a_later_release_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.pipeline.tables import schema
    from quorate.pipeline.tables.lake import LakeError

    write_log(tmp_path, 0, BATCHES)
    apply(lake, tmp_path)
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
