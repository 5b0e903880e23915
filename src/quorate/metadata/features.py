"""Feature levels: the table of metadata.version, the other features, releases and dependencies. KIP-584,
KIP-778, KIP-1022.

This module has only data and look-ups. The finalized levels of a cluster are in the image, and the
controller checks changes of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorate.dataclass import dataclass
from quorate.metadata.errors import MetadataError

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELR_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

ALIASES = {"metadata.format": METADATA_VERSION}
"""KIP-746's former name of the feature. Tools accept it as a synonym."""


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """One level of metadata.version. `format_changed` means that this level changed the content of
    records, so that a downgrade below it loses data."""

    level: int
    release: str
    iv: int
    format_changed: bool

    @property
    def name(self) -> str:
        """The name as tools print it, such as `4.1-IV1`."""
        return f"{self.release}-IV{self.iv}"

    def __str__(self) -> str:
        return self.name


_TABLE = (
    # level, release, IV, changed the format of records
    (7, "3.3", 3, True),  # controlled shutdown in registrations; the lowest level of Kafka 4.x
    (8, "3.4", 0, True),  # ZooKeeper migration
    (9, "3.5", 0, False),  # tiered storage
    (10, "3.5", 1, False),  # Fetch 15
    (11, "3.5", 2, True),  # SCRAM
    (12, "3.6", 0, False),  # an ISR shrink no longer raises the leader epoch
    (13, "3.6", 1, True),  # metadata transactions
    (14, "3.6", 2, True),  # delegation tokens
    (15, "3.7", 0, True),  # controller registration
    (16, "3.7", 1, False),
    (17, "3.7", 2, True),  # replica directories
    (18, "3.7", 3, False),
    (19, "3.7", 4, False),  # Fetch 16
    (20, "3.8", 0, False),
    (21, "3.9", 0, False),  # Fetch 17; kraft.version 1
    (22, "4.0", 0, False),  # group.version 1
    (23, "4.0", 1, True),  # eligible leader replicas in records
    (24, "4.0", 2, False),  # transaction.version 1 and 2
    (25, "4.0", 3, False),
    (26, "4.1", 0, False),  # ELR enabled by default
    (27, "4.1", 1, False),  # Fetch 18
    (28, "4.2", 0, False),  # share.version 1
    (29, "4.2", 1, False),  # streams.version 1; ListOffsets 11
    (30, "4.3", 0, True),  # cordoned log directories
    (31, "4.4", 0, False),  # share.version 2
    (32, "4.4", 1, True),  # hosts of ACLs as CIDR ranges
    (33, "4.4", 2, True),  # controllers can be unregistered
    (34, "4.5", 0, False),  # unstable in 4.4
)

LEVELS: Mapping[int, MetadataVersion] = {row[0]: MetadataVersion(*row) for row in _TABLE}
MINIMUM_LEVEL = 7
LATEST_STABLE_LEVEL = 33
LATEST_LEVEL = 34

FIRST_TRANSACTIONS = 13
FIRST_CONTROLLER_REGISTRATION = 15
FIRST_DIRECTORIES = 17
FIRST_ELR_RECORDS = 23
FIRST_CORDONED_DIRECTORIES = 30
FIRST_CIDR_ACLS = 32
FIRST_CONTROLLER_UNREGISTRATION = 33
FIRST_SCRAM = 11
FIRST_TOKENS = 14
FIRST_MIGRATION = 8


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature other than metadata.version. `bootstrap[level]` is the metadata.version from which a new
    cluster gets that level."""

    name: str
    latest: int
    latest_stable: int
    bootstrap: tuple[int, ...]
    dependencies: Mapping[int, Mapping[str, int]]

    def default_level(self, metadata_version: int) -> int:
        """The level that a new cluster of that metadata.version gets. It is never an unstable one."""
        stable = self.bootstrap[: self.latest_stable + 1]
        return max(level for level, needed in enumerate(stable) if needed <= metadata_version or level == 0)


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, 1, 1, (7, 21), {}),
        Feature(TRANSACTION_VERSION, 2, 2, (7, 24, 24), {}),
        Feature(GROUP_VERSION, 1, 1, (7, 22), {}),
        Feature(ELR_VERSION, 1, 1, (7, 26), {1: {METADATA_VERSION: 23}}),
        Feature(SHARE_VERSION, 2, 2, (7, 28, 31), {}),
        Feature(STREAMS_VERSION, 1, 1, (7, 29), {}),
    )
}
"""The features in Kafka's order."""


def metadata_version(level: int) -> MetadataVersion:
    """The metadata.version of a level. Raises MetadataError if this node does not know the level (below
    7 or above 34)."""
    version = LEVELS.get(level)
    if version is None:
        hint = ""
        if level < MINIMUM_LEVEL:
            hint = "; raise it with kafka-features of the older release before running this one"
        raise MetadataError(
            f"metadata.version {level} is not among the levels {MINIMUM_LEVEL} to {LATEST_LEVEL} known "
            f"here{hint}"
        )
    return version


def parse_version(text: str, *, unstable: bool = False) -> MetadataVersion:
    """The level of a `--release-version` argument: `4.1-IV1`, `4.1` or `4.1.1`. A release stands for its
    last stable level.

    `unstable` admits the names of levels that are not stable yet. Raises ValueError with the text and all
    names.
    """
    text = text.strip()
    wanted = ".".join(text.split(".")[:2])
    latest = LATEST_LEVEL if unstable else LATEST_STABLE_LEVEL
    best: MetadataVersion | None = None
    for version in LEVELS.values():
        stable = version.level <= LATEST_STABLE_LEVEL
        if version.level <= latest and (version.name == wanted or (stable and version.release == wanted)):
            best = version
    if best is None:
        names = ", ".join(version.name for version in LEVELS.values() if version.level <= latest)
        raise ValueError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}")
    return best


def canonical_name(feature: str) -> str:
    """The name of a feature after resolution of synonyms (`metadata.format`)."""
    return ALIASES.get(feature, feature)


def supported_features(*, unstable: bool = False) -> dict[str, tuple[int, int]]:
    """The ranges (min, max) that this node offers in ApiVersions and registrations. Features without a
    stable level are absent."""
    ranges = {METADATA_VERSION: (MINIMUM_LEVEL, LATEST_LEVEL if unstable else LATEST_STABLE_LEVEL)}
    for feature in FEATURES.values():
        top = feature.latest if unstable else feature.latest_stable
        if top > 0:
            ranges[feature.name] = (0, top)
    return ranges


def default_levels(metadata_version_level: int) -> dict[str, int]:
    """The levels of the other features in a new cluster of that metadata.version, including
    kraft.version and features at level 0."""
    return {feature.name: feature.default_level(metadata_version_level) for feature in FEATURES.values()}


def dependencies(feature: str, level: int) -> Mapping[str, int]:
    """The levels of other features that a level requires, as name -> lowest level. Raises ValueError for
    an unknown feature or level."""
    feature = canonical_name(feature)
    if feature == METADATA_VERSION:
        if level not in LEVELS:
            raise ValueError(
                f"No MetadataVersion with feature level {level}. Valid feature levels are from "
                f"{MINIMUM_LEVEL} to {LATEST_LEVEL}."
            )
        return {}
    known = FEATURES.get(feature)
    if known is None:
        raise ValueError(f"Unknown feature: {feature}")
    if not 0 <= level <= known.latest:
        raise ValueError(f"No feature:{feature} with feature level {level}")
    return known.dependencies.get(level, {})


def check_dependencies(levels: Mapping[str, int]) -> None:
    """Checks that `levels` satisfy the dependencies of each level. Raises ValueError in Kafka's words."""
    metadata_level = levels.get(METADATA_VERSION, 0)
    for feature, level in levels.items():
        if feature == METADATA_VERSION or level < 1:
            continue
        if metadata_level < MINIMUM_LEVEL:
            raise ValueError(
                f"{feature} could not be set to {level} because it depends on "
                f"metadata.version={MINIMUM_LEVEL} ({LEVELS[MINIMUM_LEVEL]})"
            )
        for needed, lowest in dependencies(feature, level).items():
            if levels.get(needed, 0) < lowest:
                raise ValueError(
                    f"{feature} could not be set to {level} because it depends on {needed} level {lowest}"
                )


def format_changed_between(one: int, other: int) -> bool:
    """Whether records changed between two levels of metadata.version, so that a downgrade loses
    metadata."""
    low, high = sorted((one, other))
    return any(LEVELS[level].format_changed for level in range(low + 1, high + 1) if level in LEVELS)


def last_format_change(level: int) -> int:
    """The lowest level of metadata.version to which a downgrade from `level` loses no metadata."""
    return max((known for known, version in LEVELS.items() if version.format_changed and known <= level))


def upgrade_remedy(level: int, needed: int) -> str:
    """The remedy for a metadata.version that is too low."""
    name = LEVELS[needed]
    return (
        f"metadata.version is {level}, this takes {needed}: kafka-features upgrade --release-version {name}."
    )


_RECORD_VERSIONS: Mapping[int, tuple[tuple[int, int], ...]] = {
    # record type -> (from metadata.version, record version), the newest first
    0: ((30, 4), (17, 3), (8, 2), (7, 1)),  # RegisterBroker
    3: ((23, 2), (17, 1)),  # Partition
    5: ((23, 2), (17, 1)),  # PartitionChange
    17: ((30, 3), (17, 2), (7, 1)),  # BrokerRegistrationChange
}


def record_version(record_type: int, metadata_version_level: int) -> int:
    """The version in which a record type is written at a metadata.version. It is 0 for types that never
    changed."""
    for since, version in _RECORD_VERSIONS.get(record_type, ()):
        if metadata_version_level >= since:
            return version
    return 0
