"""Checks the log directories of one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module, lazy_modules
from quorate.log.directories import clean_shutdown, meta_properties
from quorate.log.directories.lock import DirLock
from quorate.log.directories.meta_properties import MetaProperties, MetaPropertiesError
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import uuid_text
from quorate.raft.types import NO_DIRECTORY
from quorate.tools.command_line import ToolError
from quorate.tools.doctor.disks import check_disk
from quorate.tools.doctor.findings import Finding, RemoveFile, Severity
from quorate.tools.doctor.metadata_log import check_metadata_log, metadata_log_of
from quorate.tools.doctor.partitions import (
    Assignment,
    LogDirState,
    check_partitions,
    read_offset_checkpoints,
)

if TYPE_CHECKING:
    from quorate.config.kafka_config import KafkaConfig
    from quorate.metadata.image import MetadataImage
    from quorate.node import format_remedy, raft_config
    from quorate.tools.shell import source
else:
    format_remedy, raft_config = lazy_modules("quorate.node", "format_remedy", "raft_config")
    source = lazy_module("quorate.tools.shell.source")

_RUNTIME = "java.lang.RuntimeException"


@dataclass(frozen=True, slots=True)
class NodeDirectories:
    """The log directories of a node, and its configuration if there is a properties file."""

    directories: Sequence[Path]
    metadata_directory: Path
    config: KafkaConfig | None = None
    file: Path | None = None
    """The properties file."""


@dataclass(slots=True)
class DirectoriesReport:
    """The findings, and what Apache Kafka says before it ends because of the identity of the directories."""

    findings: list[Finding]
    kafka: str | None


def of_path(path: Path) -> NodeDirectories:
    """The directories for a path without a properties file: a log directory, or the metadata log in it."""
    directory = path.absolute()
    if directory.name == METADATA_DIRECTORY:
        directory = directory.parent
    return NodeDirectories([directory], directory)


def of_config(config: KafkaConfig, file: Path | None = None) -> NodeDirectories:
    """The directories of a configuration, which is in this file."""
    return NodeDirectories(config.all_dirs, config.metadata_log_dir, config, file)


def check_directories(node: NodeDirectories, *, deep: bool) -> DirectoriesReport:
    """Checks all directories of a node. With `deep`, also the checksums of all batches of all partitions."""
    findings: list[Finding] = []
    readable: dict[Path, MetaProperties | None] = {}
    broken: list[Path] = []
    for directory in node.directories:
        try:
            readable[directory] = meta_properties.read(directory) if _exists(directory) else None
        except (MetaPropertiesError, OSError) as error:
            broken.append(directory)
            findings.append(_broken_meta(directory, error))
            continue
        if readable[directory] is None:
            findings.append(_unformatted(node, directory))
    known = {directory: meta for directory, meta in readable.items() if meta is not None}
    node_id = None if node.config is None else node.config.node_id
    findings += _identity_findings(node, known, node_id)
    in_use = {directory: _holder(directory) for directory in node.directories}
    for directory, pid in in_use.items():
        if pid is not None:
            findings.append(
                Finding(
                    Severity.NOTE,
                    "in-use",
                    directory,
                    f"{directory} is in use by process {pid or '?'}: its files change while they are checked",
                    "stop the node for a complete check",
                )
            )
    image = _metadata(
        node, known, findings, in_use=in_use.get(node.metadata_directory) is not None, deep=deep
    )
    for directory in node.directories:
        if directory.is_dir():
            findings += _guarded(
                directory,
                _log_dir_findings(
                    node, directory, known.get(directory), image, in_use[directory] is not None, deep=deep
                ),
            )
    findings += _duplicates(node.directories)
    return DirectoriesReport(findings, _kafka_refusal(node, known, broken, node_id))


def _exists(directory: Path) -> bool:
    """Whether the directory exists. Raises NotADirectoryError for a file."""
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(directory))
    return directory.exists()


def _holder(directory: Path) -> int | None:
    try:
        return DirLock(directory).holder()
    except OSError:
        return None


def _guarded(directory: Path, checks: Iterator[Finding]) -> Iterator[Finding]:
    """Turns an error of the disk into a finding, so that the other directories are checked too."""
    try:
        yield from checks
    except OSError as error:
        yield Finding(
            Severity.ERROR,
            "unreadable",
            directory,
            f"{error.filename or directory}: {error.strerror}",
            "run quorate doctor as the user of the node. If it is that user, correct the permissions; if "
            "the disk fails, replace it",
        )


# --- identity -------------------------------------------------------------------------------------

_CODES: Mapping[type[MetaPropertiesError], str] = {
    meta_properties.NodeIdMismatchError: "node-id-mismatch",
    meta_properties.ClusterIdMismatchError: "cluster-id-mismatch",
    meta_properties.DuplicateDirectoryIdError: "duplicate-directory-id",
}


def _broken_meta(directory: Path, error: Exception) -> Finding:
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename or directory}: {error.strerror}"
    return Finding(
        Severity.ERROR,
        "malformed-meta-properties",
        directory / meta_properties.FILE_NAME,
        text,
        "restore the file; kafka-metadata-quorum describe --replication and kafka-log-dirs show the "
        "directory ids that the cluster knows",
    )


def _unformatted(node: NodeDirectories, directory: Path) -> Finding:
    if node.config is not None:
        remedy = format_remedy.format_remedy(node.config, directory, node.file)
    else:
        remedy = format_remedy.restore_remedy(directory) or (
            "the command to format it depends on the quorum: quorate doctor with the properties file names it"
        )
    if not directory.exists():
        text = f"the log directory {directory} does not exist"
        remedy = f"correct log.dirs, or mount the disk. If the directory is new: {remedy}"
        return Finding(Severity.ERROR, "missing-directory", directory, text, remedy)
    error = meta_properties.not_formatted(directory, remedy)
    return Finding(Severity.ERROR, "not-formatted", directory, error.reason, error.remedy)


def _identity_findings(
    node: NodeDirectories, known: Mapping[Path, MetaProperties], node_id: int | None
) -> Iterator[Finding]:
    path = node.metadata_directory / meta_properties.FILE_NAME
    try:
        meta_properties.refuse_same_directory(node.directories)
    except MetaPropertiesError as error:
        yield Finding(Severity.ERROR, "same-directory", path, str(error))
    for problem in meta_properties.problems(
        known, node_id=node_id, metadata_directory=node.metadata_directory
    ):
        yield Finding(Severity.ERROR, _CODES[type(problem)], path, str(problem))
    for directory, meta in known.items():
        if meta.directory_id is None:
            yield Finding(
                Severity.NOTE,
                "no-directory-id",
                directory / meta_properties.FILE_NAME,
                f"{directory / meta_properties.FILE_NAME} has no directory.id; the next start adds one",
                kafka="also adds one",
            )
        if directory != node.metadata_directory and (directory / METADATA_DIRECTORY).exists():
            yield Finding(
                Severity.ERROR,
                "misplaced-metadata-log",
                directory / METADATA_DIRECTORY,
                f"{directory} holds a metadata log ({METADATA_DIRECTORY}), but the metadata directory is "
                f"{node.metadata_directory}",
                "correct metadata.log.dir or the order of log.dirs, or remove the stale one",
            )


def _kafka_refusal(
    node: NodeDirectories, known: Mapping[Path, MetaProperties], broken: Sequence[Path], node_id: int | None
) -> str | None:
    """What KafkaRaftServer.initializeLogDirs throws: the first error, in the order of its checks."""
    if not known:
        return f"{_RUNTIME}: No readable meta.properties files found."
    cluster_id: str | None = None
    seen: dict[bytes, Path] = {}
    for directory, meta in sorted(known.items()):
        path = directory / meta_properties.FILE_NAME
        if cluster_id is not None and meta.cluster_id != cluster_id:
            return (
                f"{_RUNTIME}: Invalid cluster.id in: {path}. Expected {cluster_id}, but read "
                f"{meta.cluster_id}"
            )
        cluster_id = meta.cluster_id
        if node_id is not None and meta.node_id != node_id:
            return (
                f"{_RUNTIME}: Stored node id {meta.node_id} doesn't match previous node id {node_id} in "
                f"{path}. If you moved your data, make sure your configured node id matches. If you intend "
                "to create a new node, you should remove all data in your data directories."
            )
        node_id = meta.node_id
        if meta.directory_id is not None:
            other = seen.setdefault(meta.directory_id, directory)
            if other != directory:
                return (
                    f"{_RUNTIME}: Duplicate directory ID Optional[{uuid_text(meta.directory_id)}] found. It "
                    f"was the ID of {other}, but also of {directory}"
                )
    if node.metadata_directory in broken:
        return (
            f"{_RUNTIME}: Encountered I/O error in metadata log directory {node.metadata_directory}. Cannot "
            "continue."
        )
    for directory in sorted(known):
        if directory != node.metadata_directory and (directory / METADATA_DIRECTORY).exists():
            return (
                "org.apache.kafka.common.KafkaException: Found unexpected metadata location in data "
                f"directory `{directory / METADATA_DIRECTORY}` (the configured metadata directory is "
                f"{node.metadata_directory})."
            )
    empty = sorted(path for path in node.directories if path not in known and path not in broken)
    if empty:
        return (
            f"{_RUNTIME}: No `meta.properties` found in {empty[0]} (have you run `kafka-storage.sh` to "
            "format the directory?)"
        )
    return None


# --- contents -------------------------------------------------------------------------------------


def _metadata(
    node: NodeDirectories,
    known: Mapping[Path, MetaProperties],
    findings: list[Finding],
    *,
    in_use: bool,
    deep: bool,
) -> MetadataImage | None:
    """Checks the metadata log, adds its findings, and returns the metadata, None if it cannot be read."""
    meta = known.get(node.metadata_directory)
    if meta is None:
        return None
    config = None
    if node.config is not None:
        config = raft_config.raft_config(
            node.config,
            cluster_id=meta.cluster_id,
            directory_id=meta.directory_id or NO_DIRECTORY,
            endpoints=node.config.controller_listeners,
            on_fatal=_no_fault,
        )
    log = metadata_log_of(node.metadata_directory, meta, config, in_use=in_use)
    found = list(_guarded(log.directory, check_metadata_log(log, deep=deep)))
    findings += found
    if any(finding.severity is Severity.ERROR for finding in found) or not log.directory.is_dir():
        return None
    try:
        return source.from_directory(node.metadata_directory)[0]
    except source.NoMetadataError:
        return None
    except ToolError as error:
        findings.append(
            Finding(
                Severity.ERROR,
                "unreadable-metadata",
                log.directory,
                str(error),
                "use a release that knows all records, or restore a backup",
            )
        )
        return None


def _no_fault(error: BaseException) -> None:
    """Nothing runs that could fail."""


def _log_dir_findings(
    node: NodeDirectories,
    directory: Path,
    meta: MetaProperties | None,
    image: MetadataImage | None,
    in_use: bool,
    *,
    deep: bool,
) -> Iterator[Finding]:
    yield from check_disk(directory)
    offsets, malformed = read_offset_checkpoints(directory)
    yield from malformed
    epoch = clean_shutdown.read(str(directory))
    state = LogDirState(epoch is not None, in_use, offsets)
    partitions = [
        path
        for path in directory.iterdir()
        if path.is_dir() and path.name != METADATA_DIRECTORY and "-" in path.name
    ]
    if epoch is None and partitions and not in_use:
        yield Finding(
            Severity.NOTE,
            "unclean-shutdown",
            directory,
            f"{directory} has no {clean_shutdown.FILE_NAME}: the last node did not stop cleanly, so the "
            f"next start recovers its {len(partitions)} partition(s) from the recovery points on",
        )
    elif epoch == -1 and partitions and not in_use:
        yield Finding(
            Severity.NOTE,
            "no-broker-epoch",
            directory / clean_shutdown.FILE_NAME,
            f"{directory / clean_shutdown.FILE_NAME} has no broker epoch: the controller takes the last "
            "stop for an unclean one (KIP-966)",
        )
    for name in sorted(
        path.name for path in directory.iterdir() if path.name.endswith(".tmp") and not in_use
    ):
        yield Finding(
            Severity.NOTE,
            "leftover",
            directory / name,
            f"{directory / name} is left of an interrupted write",
            fix=RemoveFile(directory / name, directory),
        )
    assignment = None
    if image is not None and meta is not None:
        assignment = Assignment(image, meta.node_id, meta.directory_id)
    yield from check_partitions(directory, state, assignment, deep=deep)


def _duplicates(directories: Sequence[Path]) -> Iterator[Finding]:
    """Partitions that are in two directories."""
    seen: dict[str, Path] = {}
    for directory in directories:
        try:
            names = sorted(
                path.name for path in directory.iterdir() if path.is_dir() and path.name != METADATA_DIRECTORY
            )
        except OSError:
            continue
        for name in names:
            other = seen.setdefault(name, directory)
            if other != directory and name.rpartition("-")[2].isdigit():
                yield Finding(
                    Severity.ERROR,
                    "partition-twice",
                    directory / name,
                    f"{name} is in {other} and in {directory}. If the metadata does not say which of them "
                    "is stray, the second directory goes offline",
                    "move the older one out of the way",
                )
