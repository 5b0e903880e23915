"""A quorum of processes under violence: every creation that was answered is on every replica's disk afterwards, once.

Clients create and delete topics and alter a config without pause; after each fault the logs and snapshots of three
controllers and a broker are read and compared. `python -m tests.e2e.quorum_campaign` does the same for as long as wanted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.types import NewTopic
from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from tests.e2e.campaign_quorum import BUSY, CONTROLLERS, QUICK, Quorum, running
from tests.e2e.quorum_campaign import Campaign
from tests.support.cluster import wait_for
from tests.support.disk import Disk
from tests.support.netns import Network

pytestmark = pytest.mark.timeout(120)
SILENCE_S = 1.5  # no creation may be answered for so long: several election timeouts


def violent(quorum: Quorum, *faults: str) -> Campaign:
    return Campaign(quorum, random.Random(20_261_122), faults)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with running(Quorum(tmp_path_factory.mktemp("processes"), settings=BUSY | QUICK)) as quorum:
        yield violent(quorum, "kill")


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with Network(4) as network, running(Quorum(tmp_path_factory.mktemp("links"), network, settings=BUSY | QUICK)) as quorum:
        yield violent(quorum)


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    base = tmp_path_factory.mktemp("disks")
    mounted = {i: Disk(base / f"disk{i}") for i in CONTROLLERS}
    try:
        with running(Quorum(base, disks=mounted, settings=BUSY | QUICK)) as quorum:
            yield violent(quorum)
    finally:
        for disk in mounted.values():
            disk.close()


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did or failed at, the next one finds a whole quorum, and no client at work."""
    yield
    for name in {"processes", "links", "disks"} & set(request.fixturenames):
        campaign: Campaign = request.getfixturevalue(name)
        campaign.quorum.restore()
        campaign.stop_and_check()


def checked(campaign: Campaign) -> None:
    campaign.stop_and_check()
    campaign.audit.check_replicas()


def nothing_is_answered(campaign: Campaign) -> None:
    """Once those answers have come that were on their way."""
    seen, since = campaign.load.acknowledged(), time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since
        if campaign.load.acknowledged() != seen:
            seen, since = campaign.load.acknowledged(), time.monotonic()
        return time.monotonic() - since > SILENCE_S

    wait_for("silence", quiet, 10)


# -- processes


def test_what_was_answered_around_five_kills_of_the_leader_is_on_every_disk_once(processes: Campaign) -> None:
    processes.run(5)
    processes.audit.check_replicas()
    assert len(processes.rounds) >= 5 and processes.audit.snapshots > 4
    assert processes.load.ledger.deleted and processes.load.ledger.config


def test_what_was_answered_before_all_controllers_were_killed_at_once_is_there(processes: Campaign) -> None:
    campaign, quorum = processes, processes.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    quorum.kill_all()
    for controller in quorum.controllers.values():
        controller.start()
    campaign.creations_flow("all were killed")
    checked(campaign)


def test_a_stopped_leader_is_replaced_and_when_it_goes_on_acknowledges_nothing(processes: Campaign) -> None:
    campaign, quorum = processes, processes.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    leader, epoch = quorum.leader(), quorum.epoch()
    old = quorum.controllers[leader]

    async def main() -> list[int]:
        direct = await Connection.connect(old.host, old.controller_port, client_id="direct")
        try:
            quorum.pause(leader)
            asked = [
                direct.send(
                    CreateTopicsRequest(
                        topics=[CreateTopicsRequest.CreatableTopic(name=f"late-{i}", num_partitions=1, replication_factor=1)],
                        timeout_ms=5000,
                    )
                )
                for i in range(3)
            ]
            await asyncio.to_thread(quorum.leader, tuple(quorum.others(leader)), epoch)
            await asyncio.to_thread(campaign.creations_flow, "the leader was replaced")
            assert not any(f.done() for f in asked)
            quorum.resume(leader)
            return [answer.topics[0].error_code for answer in await asyncio.wait_for(asyncio.gather(*asked), 20)]
        finally:
            direct.close()

    assert set(asyncio.run(main())) == {ErrorCode.NOT_CONTROLLER}
    campaign.creations_flow("it goes on")
    checked(campaign)
    assert not [name for name in campaign.audit.made if name.startswith("late-")]


def test_a_client_of_a_stopped_leader_gets_through_to_its_successor(processes: Campaign) -> None:
    campaign, quorum = processes, processes.quorum
    leader = quorum.leader()
    bootstrap = [f"{c.host}:{c.controller_port}" for c in quorum.controllers.values()]

    async def main() -> None:
        async with AdminClient(bootstrap_controllers=bootstrap, request_timeout_s=1.0) as admin:
            for name, paused in (("before-the-stop", False), ("while-it-is-stopped", True)):
                if paused:
                    quorum.pause(leader)
                campaign.load.ledger.attempted.add(name)
                result = await admin.create_topics([NewTopic(name, 1, 1)])
                assert not isinstance(result[name], Exception), result[name]
                campaign.load.ledger.created[name] = time.perf_counter()

    asyncio.run(main())
    quorum.resume(leader)
    checked(campaign)


def test_a_stopped_follower_is_not_missed_and_catches_up(processes: Campaign) -> None:
    campaign, quorum = processes, processes.quorum
    leader, epoch = quorum.leader(), quorum.epoch()
    follower = quorum.others(leader)[0]
    campaign.load.start()
    quorum.pause(follower)
    campaign.creations_flow("a follower was stopped")
    assert quorum.leader(tuple(quorum.others(follower))) == leader
    quorum.resume(follower)
    checked(campaign)
    assert quorum.epoch() == epoch


# -- links


def silenced(quorum: Quorum, leader: int) -> None:
    for other in quorum.others(leader):
        quorum.cut_one_way(leader, other)


def deafened(quorum: Quorum, leader: int) -> None:
    for other in quorum.others(leader):
        quorum.cut_one_way(other, leader)


def isolated(quorum: Quorum, leader: int) -> None:
    quorum.cut(leader, *quorum.others(leader))


@pytest.mark.parametrize("cut", [isolated, silenced, deafened])
def test_a_leader_cut_from_its_followers_is_replaced_also_for_the_broker_that_still_reaches_it(
    links: Campaign, cut: Callable[[Quorum, int], None]
) -> None:
    campaign, quorum = links, links.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    leader, epoch = quorum.leader(), quorum.epoch()
    cut(quorum, leader)
    successor = quorum.leader(tuple(quorum.others(leader)), after=epoch)
    campaign.creations_flow("the cut")
    wait_for("the old leader to resign", lambda: (t := quorum.controllers[leader].told()) and t.leader != leader)
    quorum.heal()
    checked(campaign)
    assert quorum.leader() == successor


def test_a_follower_cut_from_the_leader_alone_unseats_nobody(links: Campaign) -> None:
    campaign, quorum = links, links.quorum
    campaign.load.start()
    leader, epoch = quorum.leader(), quorum.epoch()
    lonely = quorum.others(leader)[0]
    quorum.cut(leader, lonely)
    wait_for("it to miss the leader", lambda: "follower -> prospective" in quorum.controllers[lonely].log_tail(5))
    campaign.creations_flow("the cut")
    assert (quorum.leader(), quorum.epoch()) == (leader, epoch)
    quorum.heal()
    checked(campaign)


def test_followers_that_cannot_hear_one_another_elect_nobody_when_the_leader_dies(links: Campaign) -> None:
    campaign, quorum = links, links.quorum
    campaign.load.start()
    leader, epoch = quorum.leader(), quorum.epoch()
    quorum.cut(*quorum.others(leader))
    campaign.creations_flow("the cut")
    assert (quorum.leader(), quorum.epoch()) == (leader, epoch)
    quorum.controllers[leader].kill()
    nothing_is_answered(campaign)
    quorum.heal()
    campaign.creations_flow("the cut was healed")
    quorum.controllers[leader].start()
    checked(campaign)


# -- disks


@pytest.mark.parametrize("whose", ["leader", "follower"])
@pytest.mark.parametrize("how", ["full", "failed"])
def test_a_controller_whose_disk_is_broken_stops_and_catches_up_when_it_is_mended(disks: Campaign, how: str, whose: str) -> None:
    campaign, quorum = disks, disks.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    leader = quorum.leader()
    victim = leader if whose == "leader" else quorum.others(leader)[0]
    node, disk = quorum.controllers[victim], quorum.disks[victim]
    disk.fill() if how == "full" else disk.fail()
    try:
        campaign.creations_flow(f"the disk of the {whose} is {how}")
        assert node.proc is not None and node.proc.wait(20) == 1
        assert str(node.metadata.parent) in node.log_tail(20)
        assert "Traceback" not in node.log_tail(1000)
    finally:
        disk.free() if how == "full" else disk.replug()
    node.start()
    checked(campaign)


def test_what_was_answered_before_the_power_of_all_controllers_failed_is_there(disks: Campaign) -> None:
    campaign = disks
    for _ in range(2):
        campaign.load.start()
        campaign.creations_flow("the start")
        campaign.quorum.lose_power()
        campaign.creations_flow("the power failed")
        checked(campaign)
