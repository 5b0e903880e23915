"""The failure detector: which events prove that the process of a broker has ended."""

from __future__ import annotations

import pytest

from quorate.clock import NEVER
from quorate.controller.brokers.failure_detector import (
    FIRST_REACH_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_REACHING,
    NEW_TERM_PAUSE_S,
    PAUSE_S,
    REFUSALS,
    Address,
    Answer,
    Attempt,
    FailureDetector,
    Probe,
)
from quorate.controller.brokers.sessions import Session
from quorate.metadata.image.cluster import BrokerRegistration, Endpoint

ACCEPTED, REFUSED, UNKNOWN = Answer.ACCEPTED, Answer.REFUSED, Answer.UNKNOWN
INTERNAL, EXTERNAL = ("10.0.0.1", 9092), ("203.0.113.1", 9094)
SESSION = (1, 100)


def registration(
    broker_id: int = 1, epoch: int = 100, *addresses: Address, fenced: bool = False
) -> BrokerRegistration:
    listeners = tuple(
        Endpoint(f"L{index}", host, port, 0) for index, (host, port) in enumerate(addresses or (INTERNAL,))
    )
    return BrokerRegistration(broker_id, epoch, bytes(16), listeners, fenced=fenced)


class World:
    """A detector, the answers of the hosts, and the brokers that are connected."""

    def __init__(self, *registrations: BrokerRegistration) -> None:
        self.detector = FailureDetector()
        self.now = 50.0
        self.answers: dict[Address, Answer] = {}
        self.connected: set[Session] = set()
        self.ended: list[Session] = []
        self.probed: list[tuple[float, Session]] = []
        self.register(*(registrations or (registration(),)))

    def register(self, *registrations: BrokerRegistration) -> None:
        self.detector.registrations_changed(registrations, self.now)

    def begin(self) -> list[Probe]:
        return self.detector.begin(self.now, self.connected.__contains__)

    def finish(self, probe: Probe) -> None:
        attempts = [Attempt(self.answers.get(address, ACCEPTED), address) for address in probe.addresses]
        if self.detector.finished(probe, attempts, self.now, self.connected.__contains__):
            self.ended.append(probe.session)

    def run(self, seconds: float) -> None:
        """Runs the probes that become due within this time."""
        end = self.now + seconds
        while self.detector.next_due() <= end:
            self.now = max(self.now, self.detector.next_due())
            for probe in self.begin():
                if probe.suspicion:
                    self.probed.append((self.now, probe.session))
                self.finish(probe)
        self.now = end

    def reach(self) -> World:
        """Lets the detector reach the listeners of the brokers."""
        self.run(10.0)
        return self


def test_a_broker_that_lost_its_connections_and_refuses_new_ones_has_ended() -> None:
    world = World().reach()
    world.answers[INTERNAL] = REFUSED
    lost_at = world.now
    world.detector.suspect(1, world.now)
    world.run(1.0)
    assert world.ended == [SESSION]
    assert [round(at - lost_at, 3) for at, _ in world.probed] == [0.05, 0.25, 0.45]


@pytest.mark.parametrize("answer", [ACCEPTED, UNKNOWN])
def test_a_broker_whose_host_does_not_refuse_connections_is_left_to_its_session(answer: Answer) -> None:
    """A frozen broker, another process at its port, a host without power, a cut network."""
    world = World().reach()
    world.answers[INTERNAL] = answer
    world.detector.suspect(1, world.now)
    world.run(60.0)
    assert not world.ended
    assert len(world.probed) == pytest.approx(60 / LONGEST_PAUSE_S, abs=5)


def test_a_listener_that_was_never_reached_proves_nothing() -> None:
    """A firewall that rejects connections, a proxy without backends, a broker that does not listen yet."""
    world = World()
    world.answers[INTERNAL] = REFUSED
    world.reach()
    world.detector.suspect(1, world.now)
    world.run(60.0)
    assert not world.ended


def test_a_listener_that_is_bound_late_counts_when_it_was_reached() -> None:
    world = World()
    world.answers[INTERNAL] = REFUSED
    world.run(5.0)
    world.answers[INTERNAL] = ACCEPTED
    world.run(60.0)
    world.answers[INTERNAL] = REFUSED
    world.detector.suspect(1, world.now)
    world.run(1.0)
    assert world.ended == [SESSION]


@pytest.mark.parametrize(
    ("external_then", "external_now", "ended"),
    [
        (ACCEPTED, REFUSED, True),
        (ACCEPTED, ACCEPTED, False),
        (ACCEPTED, UNKNOWN, False),
        (UNKNOWN, UNKNOWN, True),  # never reachable from here: counts neither way
    ],
)
def test_every_listener_that_was_reached_must_refuse(
    external_then: Answer, external_now: Answer, ended: bool
) -> None:
    world = World(registration(1, 100, INTERNAL, EXTERNAL))
    world.answers[EXTERNAL] = external_then
    world.reach()
    world.answers = {INTERNAL: REFUSED, EXTERNAL: external_now}
    world.detector.suspect(1, world.now)
    world.run(1.0)
    assert world.ended == ([SESSION] if ended else [])


@pytest.mark.parametrize("refusals", range(REFUSALS))
def test_a_broker_that_reconnects_is_no_longer_suspected(refusals: int) -> None:
    world = World().reach()
    world.answers[INTERNAL] = REFUSED
    world.detector.suspect(1, world.now)
    world.run(0.06 + PAUSE_S * (refusals - 1) if refusals else 0.0)
    assert len(world.probed) == refusals
    world.connected.add(SESSION)
    world.run(60.0)
    assert not world.ended
    assert len(world.probed) == refusals


def in_the_last_probe() -> tuple[World, Probe]:
    """A broker that has refused two probes, and the third one, which has begun."""
    world = World().reach()
    world.answers[INTERNAL] = REFUSED
    world.detector.suspect(1, world.now)
    world.run(0.05 + PAUSE_S * 1.5)  # two refusals
    world.now = world.detector.next_due()
    (last,) = world.begin()
    return world, last


def test_a_broker_that_reconnects_during_a_probe_is_no_longer_suspected() -> None:
    world, last = in_the_last_probe()
    world.connected.add(SESSION)
    world.finish(last)
    assert not world.ended
    assert world.detector.next_due() == NEVER


def test_a_lost_connection_starts_the_count_of_refusals_again() -> None:
    """The broker reconnected, and lost this connection too, between two probes."""
    world = World().reach()
    world.answers[INTERNAL] = REFUSED
    for _ in range(100):
        world.detector.suspect(1, world.now)
        world.run(0.4)  # two refusals
    assert not world.ended


def test_an_accepted_connection_starts_the_count_of_refusals_again() -> None:
    world = World().reach()
    world.detector.suspect(1, world.now)
    for index in range(30):
        world.answers[INTERNAL] = ACCEPTED if index % REFUSALS == 0 else REFUSED
        world.now = world.detector.next_due()
        (probe,) = world.begin()
        world.finish(probe)
    assert not world.ended


@pytest.mark.parametrize("replaced", [registration(1, 200), registration(1, 100, fenced=True)])
def test_a_probe_decides_only_about_the_incarnation_that_it_examined(replaced: BrokerRegistration) -> None:
    """The broker was restarted, or fenced, while the last probe was under way."""
    world, last = in_the_last_probe()
    world.register(replaced)
    world.finish(last)
    world.run(60.0)
    assert not world.ended


def test_a_new_active_controller_probes_the_brokers_that_do_not_connect() -> None:
    world = World(registration(1), registration(2, 101, EXTERNAL)).reach()
    world.answers[INTERNAL] = REFUSED  # broker 1 died with the previous active controller
    began = world.now
    world.detector.term_began(began)
    world.run(NEW_TERM_PAUSE_S / 2)
    world.connected.add((2, 101))
    world.run(2.0)
    assert world.ended == [SESSION]
    assert {session for _, session in world.probed} == {SESSION}
    assert world.probed[0][0] == began + NEW_TERM_PAUSE_S


def test_a_standby_only_reaches_brokers() -> None:
    world = World().reach()
    world.answers[INTERNAL] = REFUSED
    world.detector.suspect(1, world.now)
    world.detector.term_ended()
    world.run(60.0)
    assert not world.probed


def test_a_probe_of_an_earlier_term_decides_nothing() -> None:
    world, last = in_the_last_probe()
    world.detector.term_ended()
    world.detector.term_began(world.now)
    world.finish(last)
    assert not world.ended


def test_few_brokers_are_reached_at_the_same_time() -> None:
    world = World(*(registration(broker_id, 100 + broker_id) for broker_id in range(100)))
    world.now += FIRST_REACH_PAUSE_S
    probes = world.begin()
    assert len(probes) == MAX_REACHING
    assert world.detector.next_due() == NEVER
    world.finish(probes[0])
    assert len(world.begin()) == 1
    world.register()  # all brokers are gone
    for probe in probes[1:]:
        world.finish(probe)
    world.register(registration())
    world.now += FIRST_REACH_PAUSE_S
    assert len(world.begin()) == 1


def test_listeners_that_cannot_be_reached_are_tried_ever_more_rarely() -> None:
    world = World()
    world.answers[INTERNAL] = UNKNOWN
    tries = 0
    while world.now < 50.0 + 3600.0:
        world.now = world.detector.next_due()
        for probe in world.begin():
            tries += 1
            world.finish(probe)
    assert 55 <= tries <= 70
