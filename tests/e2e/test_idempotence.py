"""All brokers stop at once under an idempotent producer. `idempotence_campaign` does the same for as long as wanted."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.e2e.idempotence_campaign import Campaign, cluster


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.timeout(240)
def test_nothing_is_lost_or_twice_when_all_brokers_stop_at_once(tmp_path: Path, how: signal.Signals) -> None:
    with cluster(tmp_path) as nodes:
        Campaign(nodes, random.Random(20_261_122), [how]).run(3)
