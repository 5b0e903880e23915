"""A voter that nobody finds says so, seldom, and with the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from quorate.raft import messages as m
from quorate.raft.core import Raft
from quorate.raft.reaching import LOST_S, Reaching
from quorate.raft.types import Address, Role
from tests.raft.test_rules import started
from tests.raft.world import LISTENER, MemoryLog, address

ELSEWHERE = ("elsewhere", 9077)


class Transport:
    on_lost = None

    def __init__(self) -> None:
        self.warmed: list[Address] = []

    def warm(self, addresses: Iterable[Address]) -> None:
        self.warmed = list(addresses)


def warnings(r: Raft, times: Iterable[float], caplog: pytest.LogCaptureFixture) -> list[str]:
    reaching, transport = Reaching(), Transport()
    caplog.clear()
    for now in times:
        reaching.look(r, transport, now)  # type: ignore[arg-type]
    assert transport.warmed == [address(2), address(3)]
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def moved(role: Role) -> Raft:
    r = started(role)
    assert isinstance(r.log, MemoryLog)
    r.params = replace(r.params, endpoints={LISTENER: ELSEWHERE})
    return r


EVERY_3_S = [3.0 * i for i in range(42)]


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED])
def test_a_voter_that_is_not_where_the_voter_set_says_and_finds_no_leader_warns_once_a_minute(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    said = warnings(moved(role), EVERY_3_S, caplog)
    assert len(said) == 2
    assert f"no leader for {LOST_S:.0f} s: this controller is at elsewhere:9077, but the voter set says n1:9001" in said[0]
    assert "start 1 of them with the old listeners" in said[0]


def test_who_leads_or_hears_its_leader_does_not(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(moved(Role.LEADER), EVERY_3_S, caplog) == []
    r = moved(Role.FOLLOWER)
    request = next(q for link in r.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch))
    r.step(m.Replied(m.Peer(2, address(2)), request, m.FetchReply(leader_id=2, epoch=3, high_watermark=0)), 100.0)
    assert warnings(r, [100.0 + LOST_S - 0.1], caplog) == []
    assert len(warnings(r, [100.0 + LOST_S], caplog)) == 1


def test_a_leader_that_was_unseated_has_time_to_find_the_next(caplog: pytest.LogCaptureFixture) -> None:
    r, reaching = moved(Role.LEADER), Reaching()
    reaching.look(r, Transport(), 100.0)  # type: ignore[arg-type]
    r.become_unattached(9, None, 101.0)
    reaching.look(r, Transport(), 103.0)  # type: ignore[arg-type]
    assert not [x for x in caplog.records if x.levelname == "WARNING"]


def test_who_is_where_the_voter_set_says_has_nothing_to_mend_there(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(started(Role.UNATTACHED), EVERY_3_S, caplog) == []


def changed(endpoints: Mapping[str, Address], listener: str = LISTENER) -> Raft:
    r = started(Role.FOLLOWER)
    r.params = replace(r.params, endpoints=endpoints, listener_name=listener)
    return r


def test_a_controller_whose_listener_has_another_name_than_the_voters_endpoints_says_which(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = changed({"CTRL": address(1)}, "CTRL")
    reaching, transport = Reaching(), Transport()
    for now in EVERY_3_S:
        r.heard_at = now
        reaching.look(r, transport, now)  # type: ignore[arg-type]
    said = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(said) == 3
    assert "voter 2, 3 cannot be reached: this controller's listener for the quorum is CTRL" in said[0]
    assert "in the voter set they have CONTROLLER" in said[0]
    assert '"The controllers\' listener gets another name"' in said[0]


def test_a_controller_with_the_address_of_another_voter_says_whose(caplog: pytest.LogCaptureFixture) -> None:
    r = changed({LISTENER: address(2)})
    r.heard_at = 1e9
    said = warnings(r, EVERY_3_S, caplog)
    assert len(said) == 3
    assert "n2:9002" in said[0]
    assert "is the endpoint of voter 2-" in said[0]


def test_in_order_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    r = changed({LISTENER: address(1)})
    r.heard_at = 1e9
    assert warnings(r, EVERY_3_S, caplog) == []
