from __future__ import annotations

import pytest

from quorate.metadata import features
from quorate.metadata.errors import MetadataError


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("4.1", 27),
        ("4.1-IV1", 27),
        ("4.1-IV0", 26),
        ("4.1.1", 27),
        ("3.9", 21),
        ("3.9-IV0", 21),
        ("3.3", 7),
        ("4.2", 29),
        ("25", 25),
        (" 4.0 ", 25),
    ],
)
def test_a_release_means_its_last_level(text: str, level: int) -> None:
    assert features.parse_version(text).level == level


@pytest.mark.parametrize("text", ["", "3.2", "4.9", "4.1-IV7", "6", "x.y"])
def test_an_unknown_release_names_the_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"minimum version is 3\.3-IV3 and the maximum version is 4\.2-IV1"):
        features.parse_version(text)


def test_supported_ranges_are_those_of_kafka_4_1() -> None:
    assert features.supported_features() == {
        "metadata.version": (7, 27),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 1),
    }
    assert features.supported_features(unstable=True)["streams.version"] == (0, 1)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (
            7,
            {
                "kraft.version": 0,
                "transaction.version": 0,
                "group.version": 0,
                "eligible.leader.replicas.version": 0,
            },
        ),
        (
            21,
            {
                "kraft.version": 1,
                "transaction.version": 0,
                "group.version": 0,
                "eligible.leader.replicas.version": 0,
            },
        ),
        (
            25,
            {
                "kraft.version": 1,
                "transaction.version": 2,
                "group.version": 1,
                "eligible.leader.replicas.version": 0,
            },
        ),
        (
            27,
            {
                "kraft.version": 1,
                "transaction.version": 2,
                "group.version": 1,
                "eligible.leader.replicas.version": 1,
            },
        ),
    ],
)
def test_defaults_of_a_new_cluster_follow_its_metadata_version(level: int, expected: dict[str, int]) -> None:
    assert features.default_levels(level) == {**expected, "share.version": 0, "streams.version": 0}


@pytest.mark.parametrize(("level", "hint"), [(6, "kafka-features"), (0, "kafka-features"), (30, "7 to 29")])
def test_a_level_outside_of_the_table_is_refused(level: int, hint: str) -> None:
    with pytest.raises(MetadataError, match=hint):
        features.metadata_version(level)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"metadata.version": 22, "eligible.leader.replicas.version": 1}, "metadata.version level 23"),
        ({"metadata.version": 20, "kraft.version": 1}, "metadata.version level 21"),
        ({"group.version": 1}, r"metadata.version=7 \(3.3-IV3\)"),
    ],
)
def test_a_dependency_that_is_not_met_is_named(levels: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features.check_dependencies(levels)


def test_met_dependencies_pass() -> None:
    features.check_dependencies({"metadata.version": 27, **features.default_levels(27)})


def test_going_down_across_a_changed_format_is_seen() -> None:
    assert features.format_changed_between(27, 22)
    assert not features.format_changed_between(27, 23)
    assert not features.format_changed_between(23, 27)


@pytest.mark.parametrize(
    ("kind", "level", "version"),
    [
        (0, 27, 3),
        (0, 16, 2),
        (0, 7, 1),
        (3, 27, 2),
        (3, 22, 1),
        (3, 16, 0),
        (5, 23, 2),
        (17, 17, 2),
        (17, 16, 1),
        (12, 27, 0),
        (2, 27, 0),
    ],
)
def test_record_versions_follow_the_metadata_version(kind: int, level: int, version: int) -> None:
    assert features.record_version(kind, level) == version
