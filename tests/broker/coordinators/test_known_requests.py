"""Requests that are known by their bytes."""

from __future__ import annotations

import pytest

from quorate.broker.coordinators.group.requests import known_requests
from quorate.broker.coordinators.group.requests.known_requests import KnownRequests


def test_all_requests_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_requests, "_KEPT", 2)
    known = KnownRequests[bytes, int]()
    known.keep(b"a", 1)
    known.keep(b"b", 2)
    assert known == {b"a": 1, b"b": 2}
    known.keep(b"c", 3)
    assert known == {b"c": 3}
