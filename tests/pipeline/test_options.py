"""The options of the data source, and what filters add to them. Without a Spark session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from quorate.pipeline.datasource.bounds import Bounds, Mode
from quorate.pipeline.datasource.options import Options, parse_options
from quorate.pipeline.live.offsets import StreamOffset


def test_options_are_parsed_without_regard_to_case() -> None:
    options = parse_options({"path": "/a, /b", "STARTOFFSET": "5", "endoffset": "9", "mode": "permissive"})
    assert options.paths == ("/a", "/b")
    assert options.bounds == Bounds(5, 9)
    assert options.mode is Mode.PERMISSIVE
    assert "json" in options.selection.columns


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs a directory, load.PATH., or the option controllers"),
        (
            {"path": "/a", "startOffest": "1"},
            "has no option startOffest, only path, controllers, columns, types, startOffset",
        ),
        ({"path": "/a", "controllers": "a:1"}, "reads either a path or the option controllers, not both"),
        ({"path": "/a", "kafka.client.id": "x"}, "option kafka.client.id is only for the option controllers"),
        ({"path": "/a", "startingOffset": "latest"}, "option startingOffset is for streams only"),
        ({"path": "/a", "startOffset": "x"}, "option startOffset is 'x', but must be a number from 0 on"),
        ({"path": "/a", "sliceBytes": "0"}, "option sliceBytes is '0', but must be a number from 1 on"),
        ({"path": "/a", "mode": "x"}, "option mode is 'X': FAILFAST, PERMISSIVE or DROPMALFORMED"),
        ({"path": "/a", "snapshots": "x"}, "option snapshots is 'x': all, base, resets, latest or none"),
    ],
)
def test_an_unknown_option_or_value_is_refused_with_the_known_ones(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_options(given)


def test_a_stream_has_its_own_options() -> None:
    given = {
        "CONTROLLERS": "a:1,b:2",
        "kafka.Client.Id": "x",
        "startingoffset": "7",
        "maxOffsetsPerTrigger": "9",
    }
    options = parse_options(given, stream=True)
    assert (options.controllers, options.client) == ("a:1,b:2", {"client.id": "x"})
    assert (options.starting, options.max_offsets) == (StreamOffset(7), 9)
    with pytest.raises(ValueError, match="option endOffset is not for streams"):
        parse_options({"path": "/a", "endOffset": "9"}, stream=True)


def pushed(*filters: Any) -> Options:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
    from quorate.pipeline.datasource.pushdown import push_filters

    return push_filters(parse_options({"path": "/a", "startOffset": "3"}), filters)


def test_filters_of_offsets_types_and_snapshots_narrow_the_read() -> None:
    d = pytest.importorskip("pyspark.sql.datasource", reason="PySpark is not installed")
    offset, kind = ("offset",), ("type",)
    assert pushed(d.GreaterThan(offset, 4), d.LessThanOrEqual(offset, 8)).bounds == Bounds(5, 9)
    assert pushed(d.GreaterThanOrEqual(offset, 1), d.LessThan(offset, 8)).bounds == Bounds(3, 8)
    assert pushed(d.EqualTo(offset, 7)).bounds == Bounds(7, 8)
    assert pushed(d.EqualTo(offset, 1)).bounds == Bounds(3, 2)
    assert pushed(d.In(kind, ("A", "B")), d.EqualTo(kind, "B")).selection.types == {"B"}
    assert pushed(d.IsNull(("snapshot",))).snapshots == "none"
    assert not pushed(d.IsNotNull(("snapshot",))).log
    above = pushed(d.GreaterThan(offset, 4))
    assert [above.may_have(end) for end in (0, 5, 6, 99)] == [False, False, True, True]
    below = pushed(d.LessThan(offset, 4))
    assert [below.may_have(end) for end in (0, 4, 5)] == [True, True, False]
    assert pushed(d.Not(d.EqualTo(kind, "B")), d.EqualTo(("key",), "k")) == pushed()


def test_filters_of_times_keep_every_batch_that_may_match() -> None:
    d = pytest.importorskip("pyspark.sql.datasource", reason="PySpark is not installed")
    time, at = ("timestamp",), datetime(2026, 1, 2, 3, 4, 5, 6_500, tzinfo=UTC)
    milliseconds = 1_767_323_045_006
    bounds = pushed(d.GreaterThan(time, at), d.LessThan(time, at)).bounds
    assert bounds.first_time_ms in (milliseconds - 1, milliseconds)
    assert bounds.last_time_ms in (milliseconds, milliseconds + 1)
    both = pushed(d.EqualTo(time, at)).bounds
    assert (both.first_time_ms, both.last_time_ms) == (bounds.first_time_ms, bounds.last_time_ms)
