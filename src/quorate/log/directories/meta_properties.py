"""`meta.properties`: the cluster id, node id and directory id of a log directory (KIP-631, KIP-858).

Version 1 is KRaft's. Version 0, or a file without a version, is ZooKeeper's and is refused. A file is
replaced atomically and durably, because a node that has lost its identity must not vote.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.log import properties_text
from quorate.log.files import write_atomically
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import is_reserved, parse_uuid, random_uuid, uuid_text

FILE_NAME = "meta.properties"
_KEYS = {"version", "cluster.id", "node.id", "directory.id"}


class MetaPropertiesError(Exception):
    """A directory cannot be used. The message names the file, the key, the value and a remedy."""


class NodeIdMismatchError(MetaPropertiesError):
    """A directory has the node.id of another node."""


class ClusterIdMismatchError(MetaPropertiesError):
    """A directory has the cluster.id of another cluster."""


class DuplicateDirectoryIdError(MetaPropertiesError):
    """Two directories have the same directory.id."""


class NotFormattedError(MetaPropertiesError):
    """A directory has no file of its identity."""

    def __init__(self, directory: Path, reason: str, remedy: str) -> None:
        self.directory = directory
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of a file of version 1. directory_id: 16 bytes, None if the file has none yet."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None


def read(directory: Path) -> MetaProperties | None:
    """Reads the file of a directory; None if there is none. Raises MetaPropertiesError, OSError."""
    path = directory / FILE_NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        values = properties_text.parse(raw.decode("latin-1"))
    except ValueError as e:
        raise MetaPropertiesError(f"{path}: {e}") from None
    version = values.get("version", "0")
    if version == "0":
        raise MetaPropertiesError(
            f"{path}: version=0 is ZooKeeper's format, and this node knows KRaft's version 1 only: "
            "migrate the cluster to KRaft with Apache Kafka 3.9, or format a new directory with kafka-storage"
        )
    if version != "1":
        raise MetaPropertiesError(
            f"{path}: version={version} is not known (allowed: 1); the file may be damaged"
        )
    for key in ("cluster.id", "node.id"):
        if not values.get(key):
            raise MetaPropertiesError(
                f"{path}: {key} is missing; restore the file or format the directory with kafka-storage"
            )
    try:
        node_id = int(values["node.id"])
    except ValueError:
        raise MetaPropertiesError(f"{path}: node.id={values['node.id']} is not a number") from None
    directory_id: bytes | None = None
    strange = values.keys() - _KEYS
    # With a new id, the cluster would take the directory for another one.
    if "directory.id" not in values and strange:
        raise MetaPropertiesError(
            f"{path}: directory.id is missing, and {min(strange)!r} is not known; the file may be damaged"
        )
    if text := values.get("directory.id"):
        try:
            directory_id = parse_uuid(text)
        except ValueError as e:
            raise MetaPropertiesError(f"{path}: directory.id={text}: {e}") from None
        if is_reserved(directory_id):
            raise MetaPropertiesError(
                f"{path}: directory.id={text} is reserved; remove the line to get a new one"
            )
    return MetaProperties(values["cluster.id"], node_id, directory_id)


def write(directory: Path, meta: MetaProperties) -> None:
    """Replaces the file of a directory, atomically and durably. Raises OSError."""
    values = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_text(meta.directory_id)
    values |= {"node.id": str(meta.node_id), "version": "1"}
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    write_atomically(
        str(directory / FILE_NAME), properties_text.render(values, ("", stamp)).encode("latin-1")
    )


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The identity in the files of all log directories of a node (Kafka's MetaPropertiesEnsemble)."""

    cluster_id: str
    node_id: int
    directory_ids: dict[Path, bytes]


def refuse_same_directory(directories: Sequence[Path]) -> None:
    """Raises MetaPropertiesError if two paths are the same directory, for instance by a link, `..` or a
    mount. The directories need not exist."""
    seen: dict[object, Path] = {}
    for directory in directories:
        try:
            status = os.stat(directory)
            what: object = (status.st_dev, status.st_ino)
        except OSError:
            what = os.path.realpath(directory)
        other = seen.setdefault(what, directory)
        if other != directory:
            raise MetaPropertiesError(
                f"{other} and {directory} are the same directory: name it once in log.dirs "
                "(and, if metadata.log.dir names it too, there with the same spelling)"
            )


def load(
    directories: Sequence[Path],
    *,
    node_id: int,
    metadata_directory: Path | None = None,
    cluster_id: str | None = None,
    new_id: Callable[[], bytes] = random_uuid,
) -> Ensemble:
    """Reads and checks the files of all directories, then assigns ids to directories without one, as
    after an upgrade.

    metadata_directory: the directory whose id may be that of a voter. No message suggests to remove it.

    Raises MetaPropertiesError if a directory is not formatted, if node.id or cluster.id differ from the
    configuration or between directories, if two directories have the same id, or if two paths are the
    same directory.
    """
    refuse_same_directory(directories)
    found: dict[Path, MetaProperties] = {}
    for directory in directories:
        meta = read(directory)
        if meta is None:
            raise not_formatted(directory)
        found[directory] = meta
    for problem in problems(
        found, node_id=node_id, metadata_directory=metadata_directory, cluster_id=cluster_id
    ):
        raise problem
    one = next(iter(found.values()))
    ids: dict[Path, bytes] = {}
    for directory, meta in found.items():
        if meta.directory_id is None:
            meta = replace(meta, directory_id=new_id())
            write(directory, meta)
        assert meta.directory_id is not None
        ids[directory] = meta.directory_id
    return Ensemble(one.cluster_id, one.node_id, ids)


def not_formatted(directory: Path, remedy: str | None = None) -> NotFormattedError:
    """The error for a directory without the file. The remedy of the caller says more than the general one."""
    if directory.exists():
        reason = f"the log directory {directory} is not formatted: {directory / FILE_NAME} is missing"
    else:
        reason = f"the log directory {directory} does not exist"
    return NotFormattedError(directory, reason, remedy or "Format it with kafka-storage format")


def problems(
    found: Mapping[Path, MetaProperties],
    *,
    node_id: int | None,
    metadata_directory: Path | None = None,
    cluster_id: str | None = None,
) -> Iterator[MetaPropertiesError]:
    """Yields what is wrong with the files of a node's directories.

    `node_id` and `cluster_id` are None if they are not known otherwise.
    """
    first, one = next(iter(found.items()), (Path(), None))
    for directory, meta in found.items():
        assert one is not None
        if node_id is not None and meta.node_id != node_id:
            yield NodeIdMismatchError(
                f"{directory / FILE_NAME}: node.id={meta.node_id}, but the configuration says "
                f"node.id={node_id}: is this the directory of another node?"
            )
        elif node_id is None and meta.node_id != one.node_id:
            yield NodeIdMismatchError(
                f"{directory / FILE_NAME}: node.id={meta.node_id}, but {first / FILE_NAME} says "
                f"{one.node_id}: all log directories of a node have its id"
            )
        if cluster_id is not None and meta.cluster_id != cluster_id:
            yield ClusterIdMismatchError(
                f"{directory / FILE_NAME}: cluster.id={meta.cluster_id}, expected {cluster_id}"
            )
        elif meta.cluster_id != one.cluster_id:
            yield ClusterIdMismatchError(
                f"{directory / FILE_NAME}: cluster.id={meta.cluster_id}, but {first / FILE_NAME} says "
                f"{one.cluster_id}: all log directories of a node belong to one cluster"
            )
    owners: dict[bytes, Path] = {}
    for directory, meta in found.items():
        if meta.directory_id is not None and owners.setdefault(meta.directory_id, directory) != directory:
            yield DuplicateDirectoryIdError(
                _duplicate_id_message(
                    directory, owners[meta.directory_id], meta.directory_id, metadata_directory
                )
            )


def _duplicate_id_message(
    directory: Path, other: Path, directory_id: bytes, metadata_directory: Path | None
) -> str:
    """The message for two directories with the same id. Its remedy keeps the id that the voters may
    know, because a voter that loses its id is no longer a voter."""
    needed = [d for d in (other, directory) if d == metadata_directory or (d / METADATA_DIRECTORY).exists()]
    free = [d for d in (other, directory) if d not in needed]
    remedy = "take the copy out of log.dirs"
    if free:
        which = "its" if len(free) == 2 else f"{free[0]}'s"
        remedy += f", or, to use both, remove the line directory.id from {which} {FILE_NAME}"
    if needed:
        remedy += (
            f" (never from {' or '.join(f'{d}' for d in needed)}, by whose id the voters may know this node)"
        )
    return (
        f"{directory / FILE_NAME}: directory.id={uuid_text(directory_id)} is that of {other} too: one is a "
        f"copy; {remedy}"
    )
