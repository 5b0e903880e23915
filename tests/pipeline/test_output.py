"""Rows of answers as text: names and values may contain anything."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.tables.declaration import Column
from quorate.tools.lake.output import json_lines, table_lines
from quorate.tools.lake.questions import diff_line
from quorate.tools.lake.report.contents import text_of
from quorate.tools.topic_history import text_lines

ESCAPE = "a\nb\x1b[2J\x9bc\u202e"
SHOWN = r"a\nb\x1b[2J\x9bc\u202e"


def test_characters_that_change_the_terminal_are_escaped() -> None:
    row = {"key": ESCAPE, "value": {"name": ESCAPE}, "list": [ESCAPE, "é"]}
    _, line = table_lines(list(row), [row])
    assert line.split() == [SHOWN, f"name={SHOWN}", f"{SHOWN},é"]
    assert text_of(Column("key", "string", ""), ESCAPE) == SHOWN
    change = {"name": "value", "before": ESCAPE, "after": ESCAPE}
    found = {"entity": "configs", "key": f'{{"key":"{ESCAPE}"}}', "change": "changed", "columns": [change]}
    assert diff_line(found) == f'~ configs {{"key":"{SHOWN}"}}: value {SHOWN} -> {SHOWN}'


def test_the_history_of_a_topic_escapes_them_too() -> None:
    config = {"field": "k", "old": None, "new": ESCAPE}
    event = {
        "topic": ESCAPE, "topic_id": "x", "offset": 1, "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "partition": None, "event": "config set", "changes": [config],
    }  # fmt: skip
    heading, line = text_lines(iter([event]))
    assert heading == f"{SHOWN}  x"
    assert line.endswith(f"config k = {SHOWN}")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in a time zone with daylight saving."""
    monkeypatch.setitem(os.environ, "TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_the_hour_that_there_is_twice_is_shown_in_utc() -> None:
    """Spark gives times without a zone, in that of the process."""
    for hour in (0, 1):
        moment = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
        local = datetime.fromtimestamp(moment.timestamp())
        assert (local.hour, local.fold) == (2, hour)
        row = {"time": local}
        assert list(table_lines(["time"], [row]))[1] == f"2026-10-25 0{hour}:30:00.000"
        assert list(json_lines([row])) == [f'{{"time": "2026-10-25T0{hour}:30:00.000Z"}}']
