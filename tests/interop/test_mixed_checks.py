"""The comparison of disks in the mixed tests and in the soak detects the differences that it must detect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.metadata.framing import encode_record
from quorate.metadata.records import ConfigRecord, FeatureLevelRecord, RemoveTopicRecord, TopicRecord
from quorate.protocol.schema import Data
from quorate.records.batch import build_metadata_batch
from tests.interop.soak_load import longest_gap
from tests.support.metadata_disk import FOLDER, configs_of_no_topic, differences, read_disk, same_metadata

ONE, TWO = bytes([1] * 16), bytes([2] * 16)
FEATURES = FeatureLevelRecord(name="metadata.version", feature_level=27)


def disk(
    tmp_path: Path, name: str, *batches: Sequence[Data], base_offsets: Sequence[int] | None = None
) -> Path:
    """A metadata directory whose log holds these batches."""
    folder = tmp_path / name / FOLDER
    folder.mkdir(parents=True)
    data, offset = b"", 0
    for i, records in enumerate(batches):
        offset = base_offsets[i] if base_offsets else offset
        values = [encode_record(record, 0) for record in records]
        data += build_metadata_batch(values, base_offset=offset, leader_epoch=1, timestamp=1_700_000_000_000)
        offset += len(records)
    (folder / f"{0:020d}.log").write_bytes(data)
    return tmp_path / name


def test_different_bytes_at_one_offset_are_detected_also_between_two_checks(tmp_path: Path) -> None:
    one = read_disk(disk(tmp_path, "one", [FEATURES], [TopicRecord(name="a", topic_id=ONE)]))
    same = read_disk(disk(tmp_path, "same", [FEATURES], [TopicRecord(name="a", topic_id=ONE)]))
    other = read_disk(disk(tmp_path, "other", [FEATURES], [TopicRecord(name="a", topic_id=TWO)]))
    assert differences({1: one, 2: same}, 1) == []
    assert len(differences({1: one, 2: other}, 1)) == 1
    assert differences({1: one, 2: other}, 0) == []  # what is behind the common end is not committed yet
    known: dict[int, int] = {}
    differences({1: one}, 1, known)
    assert len(differences({1: other}, 1, known)) == 1


def test_a_lost_topic_is_detected_in_the_metadata(tmp_path: Path) -> None:
    whole = read_disk(disk(tmp_path, "whole", [FEATURES], [TopicRecord(name="a", topic_id=ONE)]))
    lost = read_disk(disk(tmp_path, "lost", [FEATURES], [FEATURES]))
    assert same_metadata([whole.image_at(1), whole.image_at(1)]) == []
    assert same_metadata([whole.image_at(1), lost.image_at(1)]) == ["topics differ"]


def test_only_a_deleted_topics_configuration_may_be_left_over(tmp_path: Path) -> None:
    def config(name: str) -> ConfigRecord:
        return ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="1")

    topic = TopicRecord(name="a", topic_id=ONE)
    clean = read_disk(
        disk(tmp_path, "clean", [FEATURES, topic, config("a"), RemoveTopicRecord(topic_id=ONE)])
    )
    left = read_disk(disk(tmp_path, "left", [FEATURES, topic, RemoveTopicRecord(topic_id=ONE), config("a")]))
    assert configs_of_no_topic(clean.image_at(3)) == set()
    assert configs_of_no_topic(left.image_at(3)) == {(2, "a")}
    assert same_metadata([clean.image_at(3), left.image_at(3)]) == []
    living = read_disk(disk(tmp_path, "living", [FEATURES, topic, config("a"), FEATURES]))
    without = read_disk(disk(tmp_path, "without", [FEATURES, topic, FEATURES, FEATURES]))
    assert same_metadata([living.image_at(3), without.image_at(3)]) == ["configs differ"]


def test_a_gap_and_a_changed_byte_are_detected(tmp_path: Path) -> None:
    topic = TopicRecord(name="a", topic_id=ONE)
    with pytest.raises(AssertionError, match="offset 3 where 1 is due"):
        read_disk(disk(tmp_path, "hole", [FEATURES], [topic], base_offsets=[0, 3]))
    path = disk(tmp_path, "changed", [FEATURES], [topic])
    log = path / FOLDER / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-3] + b"\xff" + log.read_bytes()[-2:])
    with pytest.raises(AssertionError, match="checksum at offset 1"):
        read_disk(path)


@pytest.mark.parametrize(
    ("answered", "gap"),
    [
        ([1.0, 2.0, 6.0, 6.5], 4.0),
        ([4.5, 4.75], 3.25),
        ([1.0, 2.0, 4.0, 4.5, 9.0, 10.0], 4.5),
        ([0.0, 3.0, 3.5, 20.0], 16.5),
    ],
)
def test_the_gap_is_the_longest_between_two_answers_that_overlaps_the_fault(
    answered: list[float], gap: float
) -> None:
    assert longest_gap(answered, 3.0, 8.0) == gap
