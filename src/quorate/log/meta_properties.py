"""`meta.properties`: which cluster, node and directory a log directory belongs to. KIP-631, KIP-858.

Version 1 is KRaft's; version 0 (or none) is ZooKeeper's and is refused. Files are replaced atomically: written beside, synced,
renamed, and the directory synced, because a node that forgets who it was must not vote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quorate.log import properties_text
from quorate.log.files import write_atomically
from quorate.protocol.uuids import parse_uuid, random_uuid, uuid_text

FILE_NAME = "meta.properties"
_KEYS = {"version", "cluster.id", "node.id", "directory.id"}
RESERVED_IDS = 100
"""Directory ids below this number, high half zero, are Kafka's own (KIP-858)."""


class MetaPropertiesError(Exception):
    """A directory cannot be used as it is; the message names the file, the key, the value and the remedy."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of one version 1 file. directory_id: 16 bytes, None where the file has none yet."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None


def _reserved(directory_id: bytes) -> bool:
    return int.from_bytes(directory_id, "big") < RESERVED_IDS


def read(directory: Path) -> MetaProperties | None:
    """The file of a directory, None where there is none. Raises MetaPropertiesError, OSError."""
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
        raise MetaPropertiesError(f"{path}: version={version} is not known (allowed: 1); the file may be damaged")
    for key in ("cluster.id", "node.id"):
        if not values.get(key):
            raise MetaPropertiesError(f"{path}: {key} is missing; restore the file or format the directory with kafka-storage")
    try:
        node_id = int(values["node.id"])
    except ValueError:
        raise MetaPropertiesError(f"{path}: node.id={values['node.id']} is not a number") from None
    directory_id: bytes | None = None
    strange = values.keys() - _KEYS
    if "directory.id" not in values and strange:  # a new id would make this another disk than the one that the cluster knows
        raise MetaPropertiesError(f"{path}: directory.id is missing, and {min(strange)!r} is not known; the file may be damaged")
    if text := values.get("directory.id"):
        try:
            directory_id = parse_uuid(text)
        except ValueError as e:
            raise MetaPropertiesError(f"{path}: directory.id={text}: {e}") from None
        if _reserved(directory_id):
            raise MetaPropertiesError(f"{path}: directory.id={text} is reserved; remove the line to have a new one made")
    return MetaProperties(values["cluster.id"], node_id, directory_id)


def write(directory: Path, meta: MetaProperties) -> None:
    """Replaces the file of a directory, atomically and durably. Raises OSError."""
    values = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_text(meta.directory_id)
    values |= {"node.id": str(meta.node_id), "version": "1"}
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    write_atomically(str(directory / FILE_NAME), properties_text.render(values, ("", stamp)).encode("latin-1"))


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The files of all log directories of one node, checked against one another."""

    cluster_id: str
    node_id: int
    directory_ids: dict[Path, bytes]


def load(
    directories: Sequence[Path], *, node_id: int, cluster_id: str | None = None, new_id: Callable[[], bytes] = random_uuid
) -> Ensemble:
    """Reads every directory's file and gives an id to a directory that has none yet (an upgraded node).

    Raises MetaPropertiesError when a directory is not formatted, when node.id or cluster.id differ from the configuration or
    between directories, or when two directories claim one id.
    """
    found: dict[Path, MetaProperties] = {}
    for directory in directories:
        meta = read(directory)
        if meta is None:
            raise MetaPropertiesError(
                f"the log directory {directory} is not formatted: {directory / FILE_NAME} is missing. "
                "Run: kafka-storage format --cluster-id ID --config FILE (with --ignore-formatted if other directories are)"
            )
        if meta.node_id != node_id:
            raise MetaPropertiesError(
                f"{directory / FILE_NAME}: node.id={meta.node_id}, but the configuration says node.id={node_id}: "
                "is this the directory of another node?"
            )
        if cluster_id is not None and meta.cluster_id != cluster_id:
            raise MetaPropertiesError(f"{directory / FILE_NAME}: cluster.id={meta.cluster_id}, expected {cluster_id}")
        found[directory] = meta
    first, one = next(iter(found.items()))
    for directory, meta in found.items():
        if meta.cluster_id != one.cluster_id:
            raise MetaPropertiesError(
                f"{directory / FILE_NAME}: cluster.id={meta.cluster_id}, but {first / FILE_NAME} says {one.cluster_id}: "
                "all log directories of a node belong to one cluster"
            )
    ids: dict[Path, bytes] = {}
    for directory, meta in found.items():
        if meta.directory_id is None:
            meta = replace(meta, directory_id=new_id())
            write(directory, meta)
        assert meta.directory_id is not None
        for other, taken in ids.items():
            if taken == meta.directory_id:
                raise MetaPropertiesError(
                    f"{directory / FILE_NAME}: directory.id={uuid_text(taken)} is that of {other} too: "
                    "one of them is a copy; remove the line directory.id from it"
                )
        ids[directory] = meta.directory_id
    return Ensemble(one.cluster_id, one.node_id, ids)
