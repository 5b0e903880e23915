"""Formats log directories for `kafka-storage format` and `quorate up` (KIP-631, KIP-853; Kafka's
Formatter).

The metadata directory of a controller gets the snapshot 0-0 with the bootstrap records (KIP-1170), and
each directory meta.properties last. A crash before that leaves a directory that counts as not formatted.
Nothing is written before all directories exist, are writable and have no metadata log of another node.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path

from quorate.config.kafka_config import KafkaConfig
from quorate.dataclass import dataclass
from quorate.log.directories import meta_properties
from quorate.log.directories.meta_properties import MetaProperties, MetaPropertiesError
from quorate.log.files import fsync_directory
from quorate.metadata import bootstrap, features
from quorate.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from quorate.node.storage.dynamic_voters import DynamicVoter
from quorate.node.storage.old_metadata import old_metadata_files
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.schema import Data
from quorate.protocol.uuids import random_uuid
from quorate.records.control import VotersRecord


class FormatError(Exception):
    """The directories cannot be formatted. The message has the wording of Kafka's FormatterException
    where there is one.
    """


@dataclass(slots=True)
class FormatPlan:
    """What to format. `voters` is None for a static quorum, and for a node that will join a dynamic
    quorum later.
    """

    config: KafkaConfig
    cluster_id: str
    voters: dict[int, DynamicVoter] | None = None
    ignore_formatted: bool = False
    release_version: str | None = None
    feature_levels: dict[str, int] = field(default_factory=dict)
    scram: Sequence[UserScramCredentialRecord] = ()


def feature_levels(plan: FormatPlan) -> dict[str, int]:
    """Returns the levels of all features of the new cluster, kraft.version included. Raises FormatError."""
    unstable = plan.config.get("unstable.feature.versions.enable")
    given = {features.canonical_name(name): level for name, level in plan.feature_levels.items()}
    try:
        if features.METADATA_VERSION in given:
            if plan.release_version is not None:
                raise FormatError(
                    "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
                )
            version = features.metadata_version(given[features.METADATA_VERSION])
        elif plan.release_version is not None:
            version = features.parse_version(plan.release_version, unstable=bool(unstable))
        else:
            version = features.metadata_version(
                features.LATEST_LEVEL if unstable else features.LATEST_STABLE_LEVEL
            )
    except Exception as e:
        raise e if isinstance(e, FormatError) else FormatError(str(e)) from e
    if version.level > features.LATEST_STABLE_LEVEL and not unstable:
        raise FormatError(f"metadata.version {version} is not yet stable.")
    for name in given:
        if name != features.METADATA_VERSION and name not in features.FEATURES:
            known = ", ".join(sorted(features.FEATURES))
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {known}")
    levels = features.default_levels(version.level) | given | {features.METADATA_VERSION: version.level}
    levels[features.KRAFT_VERSION] = _kraft_level(plan, given.get(features.KRAFT_VERSION))
    for name, level in levels.items():
        feature = features.FEATURES.get(name)
        if feature is not None and not 0 <= level <= (feature.latest if unstable else feature.latest_stable):
            raise FormatError(f"No feature:{name} with feature level {level}")
    try:
        features.check_dependencies(levels)
    except ValueError as e:
        raise FormatError(str(e)) from e
    return levels


def _kraft_level(plan: FormatPlan, given: int | None) -> int:
    dynamic = not plan.config.quorum_voters
    if given is None:
        return int(dynamic)
    flags = "one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used"
    if given == 0 and dynamic:
        raise FormatError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and {flags}. For dynamic "
            "controllers support, try removing the --feature flag for kraft.version."
        )
    if given > 0 and not dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {given} unless controller.quorum.voters is empty and {flags}. "
            "For dynamic controllers support, try using one of --standalone, --initial-controllers, or "
            "--no-initial-controllers and removing controller.quorum.voters."
        )
    return given


def format_directories(
    plan: FormatPlan,
    say: Callable[[str], None],
    *,
    new_id: Callable[[], bytes] = random_uuid,
    now_ms: int | None = None,
) -> None:
    """Formats the directories that are not formatted yet. Raises FormatError.

    `say` prints a line. `new_id` returns a directory id.
    """
    config = plan.config
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    levels = feature_levels(plan)
    try:
        records = bootstrap.bootstrap_records(levels, plan.scram)
    except ValueError as e:
        raise FormatError(str(e)) from e
    formatted, empty, unreadable = _find_formatted(plan)
    if formatted and not plan.ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    for directory in unreadable:
        say(f"I/O error trying to read log directory {directory}. Ignoring...")
    if unreadable and not empty and not formatted:
        raise FormatError("No available log directories to format.")
    if not empty:
        say("All of the log directories are already formatted.")
        return
    version = features.metadata_version(levels[features.METADATA_VERSION])
    for directory in empty:
        _create_directory(directory)
    _check_distinct(config.all_dirs)  # again, because links may only now have a target
    say(f"Bootstrap metadata: {_bootstrap_text(records, version.level)}")
    for directory in empty:
        metadata = directory == config.metadata_log_dir
        own = plan.voters.get(config.node_id) if plan.voters and metadata else None
        kind = "data directory"
        if metadata:
            kind = "metadata directory" if plan.voters is None else "dynamic metadata directory"
            if own is not None:
                kind = "dynamic metadata voter directory"
        say(f"Formatting {kind} {directory} with metadata.version {version}.")
        directory_id = own.directory_id if own is not None and any(own.directory_id) else new_id()
        try:
            if metadata and config.is_controller:
                voters = None
                if plan.voters is not None:
                    voters = voters_record(plan.voters, config.controller_listener_names[0])
                bootstrap.write_first_snapshot(
                    directory,
                    records,
                    kraft_version=levels[features.KRAFT_VERSION],
                    voters=voters,
                    now_ms=now_ms,
                )
            elif metadata:
                _delete_first_snapshot(directory)
            meta_properties.write(directory, MetaProperties(plan.cluster_id, config.node_id, directory_id))
        except OSError as e:
            raise FormatError(
                f"Error while writing to {directory}: {_error_text(e)}. It is not formatted"
            ) from e


def _bootstrap_text(records: Sequence[Data], level: int) -> str:
    """The bootstrap records as Kafka's tool prints them, without the keys of SCRAM credentials."""
    shown = []
    for record in records:
        text = ""
        if isinstance(record, FeatureLevelRecord):
            text = f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
        elif isinstance(record, UserScramCredentialRecord):
            text = (
                f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, "
                f"salt=(redacted), storedKey=(redacted), serverKey=(redacted), "
                f"iterations={record.iterations})"
            )
        shown.append(f"ApiMessageAndVersion({text} at version 0)")
    return (
        f"BootstrapMetadata(records=[{', '.join(shown)}], metadataVersionLevel={level}, "
        "source=format command)"
    )


def _create_directory(directory: Path) -> None:
    """Creates a directory, unless it exists, and checks that it is writable. Raises FormatError."""
    remedy = "correct log.dirs or metadata.log.dir, or make the directory so that this user may write to it"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
    except OSError as e:
        raise FormatError(
            f"The log directory {directory} cannot be created or written to ({_error_text(e)}): {remedy}"
        ) from e


def _error_text(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _delete_first_snapshot(directory: Path) -> None:
    """Deletes the snapshot 0-0 of an interrupted format, whose voters would otherwise become those of
    this node.
    """
    folder = directory / METADATA_DIRECTORY
    if (folder / bootstrap.FIRST_SNAPSHOT_NAME).exists():
        (folder / bootstrap.FIRST_SNAPSHOT_NAME).unlink()
        fsync_directory(str(folder))


def _check_distinct(directories: Sequence[Path]) -> None:
    """Raises FormatError if two of the paths are the same directory."""
    try:
        meta_properties.refuse_same_directory(directories)
    except MetaPropertiesError as e:
        raise FormatError(str(e)) from e


def _check_no_old_log(directory: Path) -> None:
    """Raises FormatError if a directory without meta.properties has the metadata log of a node that ran
    before.

    The new node would take it for its own, although it may be another cluster's. The files of an
    interrupted format are no such log.
    """
    try:
        old = old_metadata_files(directory)
    except OSError as e:
        raise FormatError(f"Log directory {directory} cannot be looked into ({_error_text(e)})") from e
    if not old:
        return
    shown = ", ".join(old[:3]) + (f" and {len(old) - 3} more" if len(old) > 3 else "")
    raise FormatError(
        f"Log directory {directory} has no {meta_properties.FILE_NAME}, but the metadata log of a "
        f"node that ran before ({METADATA_DIRECTORY}: {shown}), which the new node would take for "
        "its own. If that is another cluster's, or nobody needs it, move "
        f"{directory / METADATA_DIRECTORY} away and format again; if it is this node's, restore "
        f"{meta_properties.FILE_NAME} instead"
    )


def _find_formatted(plan: FormatPlan) -> tuple[list[Path], list[Path], list[Path]]:
    """Returns the formatted, the unformatted and the unreadable directories.

    Raises FormatError if a formatted directory belongs to another cluster or node, if an unformatted
    one has a metadata log, or if two are the same.
    """
    _check_distinct(plan.config.all_dirs)
    formatted: list[Path] = []
    empty: list[Path] = []
    unreadable: list[Path] = []
    for directory in sorted(plan.config.all_dirs):
        try:
            found = meta_properties.read(directory)
        except NotADirectoryError:
            unreadable.append(directory)
            continue
        except OSError:
            unreadable.append(directory)
            continue
        except MetaPropertiesError as e:
            raise FormatError(str(e)) from e
        if found is None:
            _check_no_old_log(directory)
            empty.append(directory)
            continue
        formatted.append(directory)
        if found.cluster_id != plan.cluster_id:
            raise FormatError(
                f"Invalid cluster.id in: {directory / meta_properties.FILE_NAME}. "
                f"Expected {plan.cluster_id}, but read {found.cluster_id}"
            )
        if found.node_id != plan.config.node_id:
            raise FormatError(
                f"Stored node id {found.node_id} doesn't match previous node id {plan.config.node_id} in "
                f"{directory / meta_properties.FILE_NAME}. If you moved your data, make sure your "
                "configured node id matches. If you intend to create a new node, you should remove all "
                "data in your data directories."
            )
    return formatted, empty, unreadable


def voters_record(voters: dict[int, DynamicVoter], listener_name: str) -> VotersRecord:
    """Returns the control record with these voters, which are reached at the controller listener
    `listener_name`.
    """
    return VotersRecord(
        voters=[
            VotersRecord.Voter(
                voter_id=v.node_id,
                voter_directory_id=v.directory_id,
                endpoints=[VotersRecord.Endpoint(name=listener_name, host=v.host, port=v.port)],
                kraft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
            for _, v in sorted(voters.items())
        ]
    )


def standalone_voters(
    config: KafkaConfig, new_id: Callable[[], bytes] = random_uuid
) -> dict[int, DynamicVoter]:
    """Returns this node as the only voter of its quorum. Raises FormatError."""
    if not config.is_controller:
        raise FormatError("You can only use --standalone on a controller.")
    endpoint = config.advertised_controller_listeners[0]
    host = endpoint.host
    own = {e.name: e for e in config.controller_listeners}[endpoint.name]
    if not config.explicit("advertised.listeners") and own.wildcard:
        host = "localhost"
    return {config.node_id: DynamicVoter(config.node_id, new_id(), host, endpoint.port)}
