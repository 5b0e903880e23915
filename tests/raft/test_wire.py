"""What becomes of messages that are not those of a peer as it should be."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import EncodeError, ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.fetch import FetchRequest
from quorate.raft.core import messages as m
from quorate.raft.runtime.wire import replies as wire
from quorate.raft.runtime.wire.requests import decode_request, encode_request
from tests.raft.world import address, voter


@pytest.mark.parametrize("version", range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1))
def test_a_refused_fetch_is_answered_in_every_version(version: int) -> None:
    reply = m.FetchReply(ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=2)
    answer = wire.encode_reply(reply, FetchRequest(), version, address(2))
    assert answer.encode(version)


@pytest.mark.parametrize(("keys", "votes"), [((1, 18, 52, 53), True), ((0, 1, 3, 18), False), ((), False)])
def test_who_does_not_serve_vote_is_no_controller(keys: tuple[int, ...], votes: bool) -> None:
    told = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=k, max_version=1) for k in keys]
    )
    probe = wire.decode_response(told, m.ProbeVersions(), "CONTROLLER")
    assert isinstance(probe, m.ProbeReply)
    assert probe.supports_vote is votes


@pytest.mark.parametrize(("version", "ack_when_committed"), [(0, True), (1, True), (1, False)])
def test_version_1_of_add_raft_voter_may_be_answered_before_the_commit(
    version: int, ack_when_committed: bool
) -> None:
    request = encode_request(m.AddVoter(voter(4), "cluster", 5000, ack_when_committed))
    decoded = decode_request(AddRaftVoterRequest.decode(request.encode(version), version), version)
    assert isinstance(decoded, m.AddVoter)
    assert decoded.ack_when_committed is ack_when_committed


def test_version_0_of_add_raft_voter_cannot_ask_for_an_early_answer() -> None:
    with pytest.raises(EncodeError):
        encode_request(m.AddVoter(voter(4), ack_when_committed=False)).encode(0)
