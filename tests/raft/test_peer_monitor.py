"""Warnings about voters that cannot be reached and about missing leaders: rare, and with instructions."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.raft.core import messages as m
from quorate.raft.core import transitions
from quorate.raft.core.events import Replied
from quorate.raft.core.raft import Raft
from quorate.raft.runtime.peer_monitor import AGAIN_S, CHANGED_S, LOST_S, NO_LEADER_S, PeerMonitor
from quorate.raft.runtime.reachability import MAX_ADDRESSES, Reachability
from quorate.raft.types import Address, Role
from tests.raft.test_rules import started
from tests.raft.world import LISTENER, MemoryLog, address


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def now_ms(self) -> int:
        return 0


ELSEWHERE = ("elsewhere", 9077)


class Transport:
    on_lost = None

    def __init__(self) -> None:
        self.warmed: list[Address] = []

    def warm(self, addresses: Iterable[Address]) -> None:
        self.warmed = list(addresses)


def warnings(r: Raft, times: Iterable[float], caplog: pytest.LogCaptureFixture) -> list[str]:
    reaching, transport = PeerMonitor(Reachability(Clock())), Transport()
    caplog.clear()
    for now in times:
        reaching.check(r.state, transport, now)  # type: ignore[arg-type]
    assert transport.warmed == [address(2), address(3)]
    return [
        r.getMessage()
        for r in caplog.records
        if r.levelname == "WARNING" and not NO_LEADER.match(r.getMessage())
    ]


def moved(role: Role) -> Raft:
    r = started(role)
    assert isinstance(r.state.log, MemoryLog)
    r.state.params = replace(r.state.params, endpoints={LISTENER: ELSEWHERE})
    return r


NO_LEADER = re.compile(
    r"\[Raft id=1\] (no leader for \d+ s( in epoch|: this node is no voter)|leader \d+ has not been heard)"
)
EVERY_3_S = [3.0 * i for i in range(42)]


@pytest.mark.parametrize(
    "role", [Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED]
)
def test_a_voter_that_has_moved_and_finds_no_leader_warns_once_a_minute(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    said = warnings(moved(role), EVERY_3_S, caplog)
    assert len(said) == 2
    assert (
        f"no leader for {LOST_S:.0f} s: this controller is at elsewhere:9077, but the voter set says n1:9001"
        in said[0]
    )
    assert "start 1 of them with the old listeners" in said[0]


def test_a_leader_and_a_follower_in_contact_with_its_leader_do_not_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert warnings(moved(Role.LEADER), EVERY_3_S, caplog) == []
    r = moved(Role.FOLLOWER)
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch)
    )
    r.step(
        Replied(m.Peer(2, address(2)), request, m.FetchReply(leader_id=2, epoch=3, high_watermark=0)), 100.0
    )
    assert warnings(r, [100.0 + LOST_S - 0.1], caplog) == []
    assert len(warnings(r, [100.0 + LOST_S], caplog)) == 1


def test_a_leader_that_was_replaced_has_time_to_find_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    r, reaching = moved(Role.LEADER), PeerMonitor(Reachability(Clock()))
    reaching.check(r.state, Transport(), 100.0)  # type: ignore[arg-type]
    transitions.become_unattached(r.state, 9, None, 101.0)
    reaching.check(r.state, Transport(), 103.0)  # type: ignore[arg-type]
    assert not [
        x for x in caplog.records if x.levelname in ("INFO", "WARNING") and NO_LEADER.match(x.getMessage())
    ]
    assert not [x for x in caplog.records if x.levelname == "WARNING"]


def test_a_voter_at_its_address_in_the_voter_set_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(started(Role.UNATTACHED), EVERY_3_S, caplog) == []


def changed(endpoints: Mapping[str, Address], listener: str = LISTENER) -> Raft:
    r = started(Role.FOLLOWER)
    r.state.params = replace(r.state.params, endpoints=endpoints, listener_name=listener)
    return r


def test_a_controller_whose_listener_has_another_name_than_the_voters_endpoints_logs_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = changed({"CTRL": address(1)}, "CTRL")
    reaching, transport = PeerMonitor(Reachability(Clock())), Transport()
    for now in EVERY_3_S:
        r.state.leader_heard_at = now
        reaching.check(r.state, transport, now)  # type: ignore[arg-type]
    said = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(said) == 3
    assert "voter 2, 3 cannot be reached: this controller's listener for the quorum is CTRL" in said[0]
    assert "in the voter set they have CONTROLLER" in said[0]
    assert '"The controllers\' listener gets another name"' in said[0]


def test_a_controller_with_the_address_of_another_voter_names_that_voter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = changed({LISTENER: address(2)})
    r.state.leader_heard_at = 1e9
    said = warnings(r, EVERY_3_S, caplog)
    assert len(said) == 3
    assert "n2:9002" in said[0]
    assert "is the endpoint of voter 2-" in said[0]


def test_nothing_is_logged_without_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    r = changed({LISTENER: address(1)})
    r.state.leader_heard_at = 1e9
    assert warnings(r, EVERY_3_S, caplog) == []


# --- no leader ------------------------------------------------------------------------------------


def refused() -> KafkaConnectionError:
    error = KafkaConnectionError("cannot connect to n2:9002: Connect call failed")
    error.__cause__ = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9002)")
    return error


def unresolved() -> KafkaConnectionError:
    error = KafkaConnectionError("cannot connect to n3:9003: Name or service not known")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    return error


class World:
    """A monitored replica and the outcomes of its requests."""

    def __init__(self, r: Raft) -> None:
        self.r, self.clock = r, Clock()
        self.requests = Reachability(self.clock)
        self.reaching = PeerMonitor(self.requests)

    def look(self, now: float, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
        """Runs the check at this time. Returns (level, text) of the messages about a missing leader."""
        caplog.clear()
        caplog.set_level("INFO")
        self.clock.time = now
        self.reaching.check(self.r.state, Transport(), now)  # type: ignore[arg-type]
        return [(x.levelname, x.getMessage()) for x in caplog.records if NO_LEADER.match(x.getMessage())]


def test_a_voter_without_a_leader_names_the_voters_that_it_cannot_reach_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(started(Role.UNATTACHED))
    world.requests.failed(address(2), refused())
    world.clock.time = 1.0
    world.requests.failed(address(3), unresolved())
    assert world.look(NO_LEADER_S - 0.1, caplog) == []
    text = (
        f"[Raft id=1] no leader for 3 s in epoch {world.r.state.epoch}: 2 of the 3 voters are needed to "
        "elect one; voter 2 at n2:9002 cannot be reached for 3 s: Connection refused; voter 3 at n3:9003 "
        "cannot be reached for 2 s: the host name cannot be resolved (Name or service not known)"
    )
    assert world.look(3.0, caplog) == [("INFO", text)]
    assert world.look(14.0, caplog) == []
    ((level, said),) = world.look(LOST_S, caplog)
    assert level == "WARNING" and "no leader for 15 s" in said
    assert [bool(world.look(LOST_S + 3.0 * i, caplog)) for i in range(1, 41)] == [
        3.0 * i % AGAIN_S == 0 for i in range(1, 41)
    ]


def test_a_changed_situation_is_logged_sooner_but_not_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(started(Role.UNATTACHED))
    world.requests.failed(address(2), refused())
    world.look(20.0, caplog)
    world.requests.answered(address(2))
    world.requests.failed(address(3), RequestTimedOut("no answer of n3:9003 within 2 s"))
    assert world.look(20.0 + CHANGED_S - 0.1, caplog) == []
    ((_, said),) = world.look(20.0 + CHANGED_S, caplog)
    assert "; voter 2 at n2:9002 answers; voter 3 at n3:9003 cannot be reached for 10 s: timed out" in said
    assert world.look(20.0 + 2 * CHANGED_S, caplog) == []


def test_a_leader_and_a_follower_in_contact_with_its_leader_log_no_missing_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for role in (Role.LEADER, Role.FOLLOWER):
        world = World(started(role))
        if role is Role.FOLLOWER:
            request = next(
                q
                for link in world.r.state.links.values()
                for q in link.in_flight.values()
                if isinstance(q, m.Fetch)
            )
            reply = m.FetchReply(leader_id=2, epoch=world.r.state.epoch, high_watermark=0)
            world.r.step(Replied(m.Peer(2, address(2)), request, reply), 100.0)
        assert world.look(100.5, caplog) == []
        assert world.reaching.no_leader_reason(world.r.state, 100.5) is None


def test_a_node_that_is_no_voter_names_the_nodes_it_asks(caplog: pytest.LogCaptureFixture) -> None:
    r = started(Role.UNATTACHED)
    r.state.params = replace(
        r.state.params, can_vote=False, bootstrap=(address(1), ("elsewhere", 9077), ("::1", 9078))
    )
    world = World(r)
    world.requests.failed(ELSEWHERE, refused())
    ((_, said),) = world.look(5.0, caplog)
    assert (
        "no leader for 5 s: this node is no voter and asks the others for it; voter 2 at n2:9002 has not "
        "answered yet" in said
    )
    assert said.endswith(
        "elsewhere:9077 cannot be reached for 5 s: Connection refused; [::1]:9078 has not answered yet"
    )


def test_the_number_of_known_addresses_is_bounded() -> None:
    requests = Reachability(Clock())
    for i in range(MAX_ADDRESSES + 100):
        requests.failed(("host", i), refused())
        requests.answered(("other", i))
    assert requests.describe(("host", 0)) == "has not answered yet"
    assert requests.describe(("host", MAX_ADDRESSES + 99)).endswith("Connection refused")
    assert requests.describe(("other", MAX_ADDRESSES + 99)) == "answers"
