"""A quorum whose links are cut in one or both directions: no answered change is lost, and every majority
with contact continues.

After each cut the logs and snapshots of all nodes are read and compared, as in `test_quorum_violence.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.campaign_quorum import BUSY, QUICK, Quorum, running
from tests.e2e.quorum_campaign import Campaign
from tests.support.cluster import wait_for
from tests.support.netns import Network

pytestmark = pytest.mark.timeout(240)
SILENCE_S = 2.0  # no creation may be answered for so long: several election timeouts


@pytest.fixture(scope="module")
def quorum_at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with (
        Network(4) as network,
        running(Quorum(tmp_path_factory.mktemp("quorum"), network, settings=BUSY | QUICK)) as quorum,
    ):
        yield Campaign(quorum, random.Random(20_261_122), ())


@pytest.fixture
def campaign(quorum_at_work: Campaign) -> Iterator[Campaign]:
    """A quorum for all tests of this module. It is restored after each test, and no client runs."""
    yield quorum_at_work
    quorum_at_work.quorum.restore()
    quorum_at_work.stop_and_check()


def nothing_is_answered(campaign: Campaign) -> None:
    """Checks that no request is answered, after the responses that were in flight."""
    seen, since = campaign.load.acknowledged(), time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since
        if campaign.load.acknowledged() != seen:
            seen, since = campaign.load.acknowledged(), time.monotonic()
        return time.monotonic() - since > SILENCE_S

    wait_for("silence", quiet, 10)


def silenced(quorum: Quorum, leader: int) -> None:
    for other in quorum.others(leader):
        quorum.cut_one_way(leader, other)


def deafened(quorum: Quorum, leader: int) -> None:
    for other in quorum.others(leader):
        quorum.cut_one_way(other, leader)


def isolated(quorum: Quorum, leader: int) -> None:
    quorum.cut(leader, *quorum.others(leader))


@pytest.mark.parametrize("cut", [isolated, silenced, deafened])
def test_a_leader_without_links_to_its_followers_is_replaced_even_for_a_broker_that_reaches_it(
    campaign: Campaign, cut: Callable[[Quorum, int], None]
) -> None:
    quorum = campaign.quorum
    campaign.load.start()
    campaign.creations_flow("the start")
    leader, epoch = quorum.leader(), quorum.epoch()
    cut(quorum, leader)
    successor = quorum.leader(tuple(quorum.others(leader)), after=epoch)
    campaign.creations_flow("the cut")
    wait_for(
        "the old leader to resign", lambda: (t := quorum.controllers[leader].told()) and t.leader != leader
    )
    quorum.heal()
    campaign.stop_and_check_all()
    assert quorum.leader() == successor


def test_a_follower_without_a_link_to_the_leader_does_not_depose_it(campaign: Campaign) -> None:
    quorum = campaign.quorum
    campaign.load.start()
    leader, epoch = quorum.leader(), quorum.epoch()
    lonely = quorum.others(leader)[0]
    quorum.cut(leader, lonely)
    wait_for(
        "it to miss the leader", lambda: "follower -> prospective" in quorum.controllers[lonely].log_tail(5)
    )
    campaign.creations_flow("the cut")
    assert (quorum.leader(), quorum.epoch()) == (leader, epoch)
    quorum.heal()
    campaign.stop_and_check_all()


def test_followers_without_a_link_between_them_elect_no_leader(campaign: Campaign) -> None:
    quorum = campaign.quorum
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
    campaign.stop_and_check_all()
