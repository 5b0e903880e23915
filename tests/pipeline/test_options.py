"""The options of the data source. Without a Spark session."""

from __future__ import annotations

import pytest

from quorate.pipeline.datasource.bounds import FIRST_TIME_MS, LAST_TIME_MS, Bounds, Mode
from quorate.pipeline.datasource.options import parse_options
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
        (
            {"path": "/a", "endTime": "9"},
            "option endTime is '9', but must be a time such as 2026-11-21T09:20:54",
        ),
        (
            {"path": "/a", "startTime": "0001-01-01T00:00+05:00"},
            "option startTime is '0001-01-01T00:00.05:00', but",
        ),
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


def test_times_are_in_utc_unless_they_name_a_zone_and_their_end_is_exclusive() -> None:
    given = {
        "path": "/a",
        "startTime": "2026-01-02T03:04:05.006",
        "endTime": "2026-01-02T04:04:05.006001+01:00",
    }
    milliseconds = 1_767_323_045_006
    bounds = parse_options(given).bounds
    assert (bounds.first_time_ms, bounds.last_time_ms) == (milliseconds, milliseconds)
    with pytest.raises(ValueError, match="option startTime is not for streams"):
        parse_options(given, stream=True)


def test_an_open_range_of_times_ends_with_the_calendar() -> None:
    """As with a filter, a time that is null is in no range."""
    bounds = parse_options({"path": "/a", "endTime": "2026-01-02"}).bounds
    assert bounds.first_time_ms == FIRST_TIME_MS
    bounds = parse_options({"path": "/a", "startTime": "2026-01-02"}).bounds
    assert bounds.last_time_ms == LAST_TIME_MS
    assert parse_options({"path": "/a"}).bounds == Bounds()
