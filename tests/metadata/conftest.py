from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.golden import KINDS, unpack_golden

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories that Apache Kafka wrote, unpacked: 'dynamic' and 'static'."""
    return {kind: unpack_golden(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}
