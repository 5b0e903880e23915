"""What the wire room makes of requests that no peer of ours sends."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.raft import messages as m
from quorate.raft import wire
from tests.raft.world import address


@pytest.mark.parametrize("version", range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1))
def test_a_refused_fetch_is_answered_in_every_version(version: int) -> None:
    reply = m.FetchReply(ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=2)
    answer = wire.encode_reply(reply, FetchRequest(), version, address(2))
    assert answer.encode(version)
