"""Voter sets, their overlap, and histories that are truncated and trimmed together with the log."""

from __future__ import annotations

import pytest

from quorate.raft.core.control_records import voter_set, voters_record
from quorate.raft.core.voters import History, Membership, Voter, VoterSet
from quorate.raft.types import RaftError, ReplicaKey
from quorate.records.control import VotersRecord
from tests.raft.world import LISTENER, address, directory, voter


def of(*ids: int) -> VoterSet:
    return VoterSet.of(voter(i) for i in ids)


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(size: int, majority: int) -> None:
    assert of(*range(size)).majority == majority


@pytest.mark.parametrize(
    ("before", "after", "overlap"),
    [
        ([1], [1, 2], True),
        ([1, 2, 3], [1, 2], True),
        ([1, 2, 3], [1, 2, 4], True),
        ([1, 2, 3], [1, 4, 5], False),
        ([1, 2, 3], [1, 2, 3, 4, 5], False),
        ([1, 2, 3], [1], False),
    ],
)
def test_consecutive_sets_differ_by_one_at_most(before: list[int], after: list[int], overlap: bool) -> None:
    assert of(*before).overlaps(of(*after)) is overlap
    members = Membership()
    members.add_voters(0, of(*before))
    if overlap:
        members.add_voters(1, of(*after))
    else:
        with pytest.raises(RaftError):
            members.add_voters(1, of(*after))


def test_another_directory_of_the_same_id_is_not_a_voter_unless_the_entry_has_none() -> None:
    assert of(1).is_voter(ReplicaKey(1, directory(1)))
    assert not of(1).is_voter(ReplicaKey(1, directory(9)))
    static = VoterSet.static({1: address(1)}, LISTENER)
    assert static.is_voter(ReplicaKey(1, directory(9)))
    assert not static.has_key(ReplicaKey(1, directory(9)))


def test_an_update_fills_in_an_empty_directory_and_never_overwrites_one() -> None:
    static = VoterSet.static({1: address(1)}, LISTENER)
    filled = static.updated(1, {LISTENER: ("h", 1)}, (0, 1), directory(1))
    assert filled.by_id[1] == Voter(ReplicaKey(1, directory(1)), {LISTENER: ("h", 1)}, (0, 1))
    assert filled.updated(1, {}, (0, 1), directory(9)).by_id[1].key.directory_id == directory(1)


def test_the_record_is_decoded_from_its_bytes() -> None:
    voters = of(1, 2, 3)
    assert voter_set(VotersRecord.decode(voters_record(voters).encode(0), 0)) == voters


def test_a_repeated_id_is_refused() -> None:
    with pytest.raises(RaftError):
        VoterSet.of([voter(1), voter(1)])


def test_history_by_offset_truncation_and_trimming() -> None:
    history: History[str] = History()
    assert history.last() is None
    for offset, value in ((-1, "boot"), (10, "a"), (20, "b")):
        history.add(offset, value)
    assert [history.at(o) for o in (-2, -1, 9, 10, 19, 25)] == [
        None, (-1, "boot"), (-1, "boot"), (10, "a"), (10, "a"), (20, "b"),
    ]  # fmt: skip
    with pytest.raises(RaftError):
        history.add(20, "again")
    history.truncate_from(20)
    assert history.last() == (10, "a")
    history.add(30, "c")
    history.trim_before(15)
    assert history.at(9) is None
    assert history.at(15) == (10, "a")


def test_truncation_brings_back_the_static_set() -> None:
    static = VoterSet.static({1: address(1)}, LISTENER)
    members = Membership(static)
    members.add_kraft_version(5, 1)
    members.add_voters(6, of(1))
    assert (members.current, members.kraft_version, members.current_offset) == (of(1), 1, 6)
    members.truncate_from(5)
    assert (members.current, members.kraft_version, members.current_offset) == (static, 0, None)


def test_kraft_version_never_falls() -> None:
    members = Membership()
    members.add_kraft_version(1, 1)
    with pytest.raises(RaftError):
        members.add_kraft_version(2, 0)
