"""A quorum of processes that are killed and suspended: every replica's disk has each answered change exactly
once.

Clients create and delete topics and alter a config without pause; after each fault the logs and snapshots of
three controllers and a broker are read and compared. `python -m tests.e2e.quorum_campaign` repeats this for
many rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.types import NewTopic
from quorate.net.client import Connection
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from tests.e2e.campaign_quorum import BUSY, QUICK, Quorum, running
from tests.e2e.quorum_campaign import Campaign

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def quorum_at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with running(Quorum(tmp_path_factory.mktemp("quorum"), settings=BUSY | QUICK)) as quorum:
        yield Campaign(quorum, random.Random(20_261_122), ("kill",))


@pytest.fixture
def campaign(quorum_at_work: Campaign) -> Iterator[Campaign]:
    """A quorum for all tests of this module. It is restored after each test, and no client runs."""
    yield quorum_at_work
    quorum_at_work.quorum.restore()
    quorum_at_work.stop_and_check()


def test_answered_changes_are_on_every_disk_once_after_five_kills_of_the_leader(campaign: Campaign) -> None:
    campaign.run(5)
    campaign.audit.check_replicas()
    assert len(campaign.rounds) >= 5 and campaign.audit.snapshots > 4
    assert campaign.load.ledger.deleted and campaign.load.ledger.config


def test_answered_changes_survive_a_kill_of_all_controllers(campaign: Campaign) -> None:
    quorum = campaign.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    quorum.kill_all()
    for controller in quorum.controllers.values():
        controller.start()
    campaign.creations_flow("all were killed")
    campaign.stop_and_check_all()


def test_a_suspended_leader_is_replaced_and_acknowledges_nothing_when_it_continues(
    campaign: Campaign,
) -> None:
    quorum = campaign.quorum
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
                        topics=[
                            CreateTopicsRequest.CreatableTopic(
                                name=f"late-{i}", num_partitions=1, replication_factor=1
                            )
                        ],
                        timeout_ms=5000,
                    )
                )
                for i in range(3)
            ]
            await asyncio.to_thread(quorum.leader, tuple(quorum.others(leader)), epoch)
            await asyncio.to_thread(campaign.creations_flow, "the leader was replaced")
            assert not any(f.done() for f in asked)
            quorum.resume(leader)
            return [
                answer.topics[0].error_code for answer in await asyncio.wait_for(asyncio.gather(*asked), 20)
            ]
        finally:
            direct.close()

    assert set(asyncio.run(main())) == {ErrorCode.NOT_CONTROLLER}
    campaign.creations_flow("it goes on")
    campaign.stop_and_check_all()
    assert not [name for name in campaign.audit.made if name.startswith("late-")]


def test_requests_to_a_suspended_leader_reach_its_successor(campaign: Campaign) -> None:
    quorum = campaign.quorum
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
    campaign.stop_and_check_all()


def test_a_suspended_follower_delays_nothing_and_catches_up(campaign: Campaign) -> None:
    quorum = campaign.quorum
    leader, epoch = quorum.leader(), quorum.epoch()
    follower = quorum.others(leader)[0]
    campaign.load.start()
    quorum.pause(follower)
    campaign.creations_flow("a follower was stopped")
    assert quorum.leader(tuple(quorum.others(follower))) == leader
    quorum.resume(follower)
    campaign.stop_and_check_all()
    assert quorum.epoch() == epoch
