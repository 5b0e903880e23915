from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quorate.metadata import features
from quorate.metadata.errors import MetadataError
from tests.support import java


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
        ("4.3.1", 30),
        ("4.4", 33),
        ("4.4-IV0", 31),
        (" 4.0 ", 25),
    ],
)
def test_a_release_means_its_last_level(text: str, level: int) -> None:
    assert features.parse_version(text).level == level


@pytest.mark.parametrize("text", ["", "3.2", "4.9", "4.1-IV7", "6", "33", "x.y", "4.5", "4.5-IV0"])
def test_an_unknown_or_unstable_release_names_all_levels(text: str) -> None:
    with pytest.raises(ValueError, match=r"Supported metadata\.version are: 3\.3-IV3, .*, 4\.4-IV2$"):
        features.parse_version(text)


def test_an_unstable_level_is_named_in_full_and_only_where_unstable_ones_are_allowed() -> None:
    assert features.parse_version("4.5-IV0", unstable=True).level == 34
    with pytest.raises(ValueError, match=r"'4\.5'.*, 4\.5-IV0$"):
        features.parse_version("4.5", unstable=True)


def test_supported_ranges_are_those_of_kafka_4_4() -> None:
    assert features.supported_features() == {
        "metadata.version": (7, 33),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 2),
        "streams.version": (0, 1),
    }
    assert features.supported_features(unstable=True)["metadata.version"] == (7, 34)


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


@pytest.mark.parametrize(
    ("level", "share", "streams"), [(28, 1, 0), (29, 1, 1), (30, 1, 1), (31, 2, 1), (33, 2, 1)]
)
def test_share_and_streams_groups_come_with_4_2_and_4_4(level: int, share: int, streams: int) -> None:
    levels = features.default_levels(level)
    assert (levels["share.version"], levels["streams.version"]) == (share, streams)


@pytest.mark.parametrize(("level", "hint"), [(6, "kafka-features"), (0, "kafka-features"), (35, "7 to 34")])
def test_a_level_outside_of_the_table_is_refused(level: int, hint: str) -> None:
    with pytest.raises(MetadataError, match=hint):
        features.metadata_version(level)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"metadata.version": 22, "eligible.leader.replicas.version": 1}, "metadata.version level 23"),
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
    ("high", "low", "changed"),
    [(33, 32, True), (33, 31, True), (32, 31, True), (31, 30, False), (31, 29, True), (29, 27, False)],
)
def test_a_downgrade_is_safe_where_no_level_between_changed_records(
    high: int, low: int, changed: bool
) -> None:
    assert features.format_changed_between(high, low) == changed


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
        (17, 29, 2),
        (17, 30, 3),
        (0, 29, 3),
        (0, 30, 4),
        (29, 33, 0),
        (12, 27, 0),
        (2, 27, 0),
    ],
)
def test_record_versions_follow_the_metadata_version(kind: int, level: int, version: int) -> None:
    assert features.record_version(kind, level) == version


@pytest.mark.java
def test_the_tables_are_those_of_apache_kafka_4_4() -> None:
    folder = java.require_java("4.4.0")
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", str(Path(__file__).parent / "Levels.java")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours = [
        f"{v.level} {v.name} {str(v.format_changed).lower()} "
        f"{str(v.level <= features.LATEST_STABLE_LEVEL).lower()} "
        f"{features.record_version(0, v.level)} {features.record_version(3, v.level)}"
        for v in features.LEVELS.values()
    ]
    for feature in features.FEATURES.values():
        ours.append(f"{feature.name} 0 {feature.latest} {feature.latest_stable}")
        ours += [f"{feature.name} {level} {feature.default_level(level)}" for level in features.LEVELS]
        ours += [
            f"{feature.name} {level} needs {dict(sorted(feature.dependencies.get(level, {}).items()))}"
            for level in range(1, feature.latest + 1)
        ]
    assert done.stdout.splitlines() == [line.replace("': ", "=").replace("'", "") for line in ours]
