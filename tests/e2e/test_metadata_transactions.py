"""Changes of more than 10,000 records on real controllers. The leader is killed within one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quorate.tools.dump import dump_log
from tests.e2e.campaign_quorum import Quorum, running
from tests.support.metadata_disk import differences, read_disk, same_metadata
from tests.support.transactions import LIMIT, create, kill_within, markers

pytestmark = pytest.mark.timeout(180)

COMPLETE, UNFINISHED = 12_000, 40_000


def test_the_next_leader_aborts_the_transaction_of_a_killed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(Quorum(tmp_path, settings=dict(LIMIT))) as quorum:
        first = quorum.leader()
        asyncio.run(create(quorum.controllers[first], "complete", COMPLETE))
        quorum.settle()
        dying = quorum.controllers[first]
        others = tuple(i for i in quorum.controllers if i != first)
        follower = quorum.controllers[others[0]].metadata
        asyncio.run(kill_within(dying, follower, "unfinished", UNFINISHED))
        second = quorum.leader(among=others)
        asyncio.run(create(quorum.controllers[second], "after", COMPLETE))
        dying.start()
        quorum.settle()
        disks = [read_disk(c.data) for c in quorum.controllers.values()]
        end = min(disk.end for disk in disks)
        images = [disk.image_at(end) for disk in disks]
        assert differences(dict(enumerate(disks)), end) + same_metadata(images) == []
        counts = {name: len(topic.partitions) for name, topic in images[0].topics.by_name.items()}
        assert counts == {"complete": COMPLETE, "after": COMPLETE}
        visible = quorum.broker.admin().list_topics(timeout=20).topics
        assert {name: len(visible[name].partitions) for name in visible} == counts
    log = max((quorum.controllers[second].metadata).glob("*.log"))
    capsys.readouterr()
    assert dump_log.main(["--cluster-metadata-decoder", "--files", str(log)]) == 0
    begin, end_, abort = (f"{kind}_TRANSACTION_RECORD" for kind in ("BEGIN", "END", "ABORT"))
    assert markers(capsys.readouterr().out) == [begin, end_, begin, end_, begin, abort, begin, end_]
