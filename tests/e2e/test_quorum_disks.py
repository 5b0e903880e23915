"""A quorum whose disks are full, fail, or lose everything that was not synced: every answered change
survives.

After each fault the logs and snapshots of all nodes are read and compared, as in `test_quorum_violence.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.e2e.campaign_quorum import BUSY, CONTROLLERS, QUICK, Quorum, running
from tests.e2e.quorum_campaign import Campaign
from tests.support.disk import Disk

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def quorum_at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    base = tmp_path_factory.mktemp("quorum")
    disks = {i: Disk(base / f"disk{i}") for i in CONTROLLERS}
    try:
        with running(Quorum(base, disks=disks, settings=BUSY | QUICK)) as quorum:
            yield Campaign(quorum, random.Random(20_261_122), ())
    finally:
        for disk in disks.values():
            disk.close()


@pytest.fixture
def campaign(quorum_at_work: Campaign) -> Iterator[Campaign]:
    """A quorum for all tests of this module. It is restored after each test, and no client runs."""
    yield quorum_at_work
    quorum_at_work.quorum.restore()
    quorum_at_work.stop_and_check()


@pytest.mark.parametrize("whose", ["leader", "follower"])
@pytest.mark.parametrize("how", ["full", "failed"])
def test_a_controller_with_a_failed_disk_stops_and_catches_up_after_the_repair(
    campaign: Campaign, how: str, whose: str
) -> None:
    quorum = campaign.quorum
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
    campaign.stop_and_check_all()


def test_answered_changes_survive_a_power_failure_of_all_controllers(campaign: Campaign) -> None:
    for _ in range(2):
        campaign.load.start()
        campaign.creations_flow("the start")
        campaign.quorum.lose_power()
        campaign.creations_flow("the power failed")
        campaign.stop_and_check_all()
