from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories that Apache Kafka wrote, unpacked: 'dynamic' and 'static'."""
    found = {}
    for kind in ("dynamic", "static"):
        target = tmp_path_factory.mktemp(kind)
        with tarfile.open(GOLDEN / f"kafka-4.1.1-{kind}.tar.xz") as archive:
            archive.extractall(target, filter="data")
        found[kind] = target
    return found
