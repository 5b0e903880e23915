"""Requests and responses of peers that do not follow the protocol."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.fetch import FetchRequest
from quorate.raft.core import messages as m
from quorate.raft.runtime.wire import replies as wire
from tests.raft.world import address


@pytest.mark.parametrize("version", range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1))
def test_a_refused_fetch_is_answered_in_every_version(version: int) -> None:
    reply = m.FetchReply(ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=2)
    answer = wire.encode_reply(reply, FetchRequest(), version, address(2))
    assert answer.encode(version)


@pytest.mark.parametrize(("keys", "votes"), [((1, 18, 52, 53), True), ((0, 1, 3, 18), False), ((), False)])
def test_a_node_that_does_not_serve_vote_is_not_a_controller(keys: tuple[int, ...], votes: bool) -> None:
    told = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=k, max_version=1) for k in keys]
    )
    probe = wire.decode_response(told, m.ProbeVersions(), "CONTROLLER")
    assert isinstance(probe, m.ProbeReply)
    assert probe.supports_vote is votes
