"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_fsync() -> Iterator[None]:
    """No test here loses power, so nothing has to be on the disk. An fsync may take longer than the tests'
    election timeouts when another process writes gigabytes to the same disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        patch.setattr("os.fdatasync", lambda fd: None)
        yield
