"""How often a message of the same kind is logged."""

from __future__ import annotations

from quorate.rate_limited_log import INTERVAL_S, RateLimitedLog


def test_a_kind_of_message_is_logged_at_once_and_then_at_intervals_with_a_count() -> None:
    log = RateLimitedLog()
    assert log.due("a", 0.0) == ""
    assert [log.due("a", 0.02 * i) for i in range(1, 100)] == [None] * 99
    assert log.due("b", 1.0) == ""
    assert log.due("a", INTERVAL_S) == " (99 more like this in 10 s)"
    assert log.due("a", 3 * INTERVAL_S) == ""
