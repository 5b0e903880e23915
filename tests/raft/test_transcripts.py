"""Named scenarios of the core: the texts in `transcripts/` must equal the current behaviour.

After an intended change, `REWRITE_TRANSCRIPTS=1 scripts/test tests/raft/test_transcripts.py` rewrites them.
Read the difference.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.transcripts.session import TranscriptError, replay

HERE = Path(__file__).parent / "transcripts"
STORIES = sorted(HERE.glob("*.txt"))
REWRITE = bool(os.environ.get("REWRITE_TRANSCRIPTS"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_transcript_matches_the_simulation(story: Path) -> None:
    text = story.read_text()
    now = replay(text)
    if REWRITE:
        story.write_text(now)
    else:
        assert now.splitlines() == text.splitlines(), "see this file's first lines"


def test_every_named_scenario_has_a_transcript() -> None:
    assert {path.stem for path in STORIES} >= {
        "first_election",
        "pre_vote_refused",
        "leader_killed",
        "partition_and_truncation",
        "check_quorum",
        "graceful_shutdown",
        "late_follower_snapshot",
        "divergence",
        "add_voter",
        "add_voter_catching_up",
        "remove_voter",
        "remove_leader",
        "queued_change",
        "kraft_version_upgrade",
        "voter_change_undone",
        "changed_endpoints",
        "auto_join",
        "torn_quorum_state",
    }


def said(story: str) -> str:
    return " ".join((HERE / f"{story}.txt").read_text().split())


@pytest.mark.parametrize(
    ("story", "sentence"),
    [
        ("pre_vote_refused", "n2 refuses n3 its pre-vote in epoch 1: it hears its leader n1"),
        ("partition_and_truncation", "n1 truncates from 6 to 4"),
        ("check_quorum", "n1 becomes resigned in epoch 1: no majority has fetched for 3 s"),
        ("graceful_shutdown", "n3 becomes candidate in epoch 2: n1 has asked it to take over"),
        ("late_follower_snapshot", "n3 loads the snapshot 8-1"),
        ("divergence", "n3 tells n1 that its log, which ends at 7-1, differs from 4-1 on"),
        ("remove_leader", "n1 becomes resigned in epoch 1: it is no voter any more"),
        ("voter_change_undone", "n1 counts n1, n2 and n3 as voters, by the record at offset 2"),
        ("changed_endpoints", "n3 asks n1 to note that it is at elsewhere:9103"),
        ("auto_join", "n4 asks n1 to add n4 as a voter"),
        ("auto_join", "n4 notes on its disk that it has been removed"),
        ("torn_quorum_state", "n2 becomes unattached in epoch 1: it knows no leader"),
    ],
)
def test_each_transcript_contains_its_decisive_line(story: str, sentence: str) -> None:
    assert sentence in said(story)


def test_rewriting_a_transcript_keeps_its_prose() -> None:
    text = "A story\n\n> world voters=1 seed=3\n> start\n    something else\n\nThe end.\n"
    now = replay(text)
    assert now.startswith("A story\n\n> world voters=1 seed=3\n> start\n")
    assert now.endswith("\n\nThe end.\n")
    assert "something else" not in now
    assert "n1 becomes leader of epoch 1, by the votes of n1" in now
    assert replay(now) == now


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("> start", "there is no world yet"),
        ("> world voters=3 seed=1\n> dance", "no such command: dance"),
        ("> world voters=3 seed=1\n> run until all is well", "no such condition"),
        ("> world voters=3 seed=1\n> start n1\n> run until n1 leads", "n1 leads: not within 60 s"),
        ("> world voters=3 seed=1\n> kill n9", "there is no n9"),
        ("> world voters=3 seed=1\n> start\n> write a", "nobody leads"),
    ],
)
def test_a_scenario_that_cannot_run_reports_the_reason(commands: str, reason: str) -> None:
    with pytest.raises(TranscriptError, match=reason):
        replay(commands + "\n")
