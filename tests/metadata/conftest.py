from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.golden import ALL_KINDS, unpack_golden

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories that Apache Kafka wrote, unpacked: 'dynamic' and 'static' of 4.1.1, and with '4.4 '
    before it those of 4.4.0."""
    return {kind: unpack_golden(kind, tmp_path_factory.mktemp("golden")) for kind in ALL_KINDS}
