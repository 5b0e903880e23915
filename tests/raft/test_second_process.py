"""A voter's directory was copied and both processes run: only one of them counts for the high watermark."""

from __future__ import annotations

import logging

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.events import Received
from quorate.raft.core.raft import Raft
from quorate.raft.types import ReplicaKey, Role
from tests.raft.test_rules import started
from tests.raft.world import CLUSTER, directory

VOTER = ReplicaKey(2, directory(2))
FIRST, COPY, RESTARTED = 1_000, 2_000, 3_000


def leader() -> Raft:
    """Node 1 leads epoch 3, with three records of earlier epochs."""
    return started(Role.LEADER)


def fetch(r: Raft, start_time_ms: int, offset: int = 0, now: float = 5.1, i: int = 2) -> ErrorCode:
    """The error that a voter's Fetch without a wait gets. Its process started at `start_time_ms`."""
    q = m.Fetch(
        ReplicaKey(i, directory(i)),
        3,
        offset,
        (0, 1, 1, 2)[offset],
        0,
        cluster_id=CLUSTER,
        facts=m.ReplicaFacts(-1, start_time_ms),
    )
    effects = r.step(Received(q, "f"), now)
    return next(a.reply.error for a in effects.answers if a.token == "f")


BOTH = [FIRST, COPY] * 3


def errors(r: Raft, starts: list[int]) -> list[ErrorCode]:
    return [fetch(r, start) for start in starts]


NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        pytest.param([FIRST, FIRST, COPY, COPY, RESTARTED], [NONE] * 5, id="restarts"),
        pytest.param([FIRST, COPY, FIRST, COPY, COPY], [NONE] * 5, id="late requests of a dead process"),
        pytest.param(
            [FIRST, FIRST, COPY, FIRST, COPY, COPY],
            [NONE] * 6,
            id="a late request of a process that has fetched",
        ),
        pytest.param([0, FIRST, 0, FIRST, 0], [NONE] * 5, id="a process that does not tell"),
        pytest.param([COPY, FIRST, FIRST], [NONE] * 3, id="restart after the clock was set back"),
        pytest.param(
            [FIRST, COPY, FIRST, COPY, FIRST, COPY],
            [NONE, NONE, NONE, NONE, NONE, REFUSED],
            id="copy started later",
        ),
        pytest.param(
            [COPY, FIRST, COPY, FIRST, COPY, FIRST, COPY],
            [NONE, NONE, NONE, NONE, NONE, NONE, REFUSED],
            id="copy seen first",
        ),
    ],
)
def test_of_two_processes_that_fetch_as_one_voter_the_later_is_refused(
    starts: list[int], expected: list[ErrorCode]
) -> None:
    assert errors(leader(), starts) == expected


def test_the_remaining_process_is_served_once_the_other_no_longer_fetches() -> None:
    r = leader()
    errors(r, BOTH)
    assert fetch(r, COPY, now=5.2) is REFUSED
    assert fetch(r, COPY, now=5.1 + r.state.params.check_quorum_s) is NONE


def test_the_error_names_the_voter_and_both_start_times(caplog: pytest.LogCaptureFixture) -> None:
    r = leader()
    with caplog.at_level(logging.ERROR):
        errors(r, BOTH)
    (record,) = caplog.records
    for part in (str(VOTER), str(FIRST), str(COPY), "copy of the other's directory"):
        assert part in record.getMessage()


def test_what_a_refused_process_acknowledges_does_not_count() -> None:
    r = leader()
    errors(r, BOTH)
    fetch(r, COPY, offset=3)
    assert r.state.end_of(VOTER) == 0
    fetch(r, FIRST, offset=2)
    assert r.state.end_of(VOTER) == 2


def test_a_process_of_another_voter_is_not_refused() -> None:
    r = leader()
    errors(r, BOTH)
    assert fetch(r, COPY, i=3) is NONE
