"""What to do about a log directory that is not formatted.

The command depends on the quorum. It never gives a voter another identity without saying so: a voter with
another directory id is another voter, and one with an empty log has forgotten its votes (KIP-853).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.log.directories import meta_properties
from quorate.log.directories.meta_properties import MetaProperties, MetaPropertiesError
from quorate.node.storage.old_metadata import old_metadata_files
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.raft.storage import voter_marker

if TYPE_CHECKING:
    from quorate.config.kafka_config import KafkaConfig


def format_remedy(config: KafkaConfig, directory: Path, file: Path | None = None) -> str:
    """The advice for a directory without meta.properties, as sentences without the last full stop. `file` is
    the properties file."""
    others = [path for path in config.all_dirs if path != directory]
    formatted = _formatted(others)
    if (old := restore_remedy(directory, formatted, config)) is not None:
        return old
    is_metadata = directory == config.metadata_log_dir
    holder = next((path for path in others if _files(path)), None)
    if is_metadata and holder is not None:
        return (
            f"Do not format it: {holder} has the metadata log of this node. Set "
            f"metadata.log.dir={holder}, or correct the order of log.dirs"
        )
    cluster_ids = {meta.cluster_id for meta in formatted}
    cluster_id = cluster_ids.pop() if len(cluster_ids) == 1 else "ID"
    command = f"kafka-storage format --cluster-id {cluster_id} --config {file or 'FILE'}"
    if formatted:
        command += " --ignore-formatted"
    if config.is_controller and not config.quorum_voters:
        text = _dynamic(config, command, is_metadata=is_metadata, is_known=bool(formatted))
    elif config.is_controller and is_metadata:
        text = _static(config, command, directory)
    else:
        text = f"Run: {command}"
    return text if cluster_id != "ID" else f"{text}. {_where_the_id_is(config)}"


def restore_remedy(
    directory: Path, formatted: list[MetaProperties] | None = None, config: KafkaConfig | None = None
) -> str | None:
    """The advice for a directory of a node that ran and lost meta.properties, None for any other
    directory."""
    if not (files := _files(directory)):
        return None
    marked, found = _marked(directory), ", ".join(files[:2])
    cluster_ids = {meta.cluster_id for meta in formatted or ()}
    cluster_id = marked.get("clusterId") or (cluster_ids.pop() if len(cluster_ids) == 1 else "ID")
    directory_id = marked.get("directoryId") or "DIRECTORY-ID"
    node_id = "ID-OF-THIS-NODE" if config is None else config.node_id
    text = (
        f"Do not format it: a node ran in it ({found}), and a voter with another directory id is "
        f"another voter. Restore {directory / meta_properties.FILE_NAME} with the lines version=1, "
        f"cluster.id={cluster_id}, node.id={node_id}, directory.id={directory_id}"
    )
    if not marked:
        text += " (as kafka-metadata-quorum describe --replication, or kafka-cluster cluster-id, shows them)"
    return text


def _dynamic(config: KafkaConfig, command: str, *, is_metadata: bool, is_known: bool) -> str:
    """The advice for a controller without static voters: the tool requires one of three more options."""
    joining = f"{command} --no-initial-controllers"
    if not is_metadata:
        return f"Run: {joining}"
    replaced = (
        f"If this controller was a voter, its old directory id must leave the quorum: quorate replace-disk "
        f"{config.node_id} does all steps"
    )
    if is_known:
        return f"Run: {joining}. {replaced}"
    return (
        f"In a cluster that exists, run: {joining}. {replaced}. In a new cluster, run: {command} "
        "--standalone for the first controller, and --no-initial-controllers for the others; or "
        "--initial-controllers with the same list for each of them"
    )


def _static(config: KafkaConfig, command: str, directory: Path) -> str:
    others = ", ".join(str(voter) for voter in sorted(config.quorum_voters) if voter != config.node_id)
    if not others:
        return (
            f"In a new cluster, run: {command}. If this controller ran before, restore {directory} from a "
            "backup"
        )
    return (
        f"Run: {command}. If this controller ran before, only while every other voter ({others}) "
        "runs and has caught up (kafka-metadata-quorum describe --replication): a static quorum "
        "cannot tell the empty disk from the old one"
    )


def _where_the_id_is(config: KafkaConfig) -> str:
    servers = config.quorum_bootstrap_servers or tuple(config.quorum_voters.values())
    where = ",".join(f"{host}:{port}" for host, port in servers) or "HOST:PORT"
    return (
        f"ID is what kafka-cluster cluster-id --bootstrap-controller {where} prints, for a new cluster what "
        "kafka-storage random-uuid prints"
    )


def _formatted(directories: list[Path]) -> list[MetaProperties]:
    found = []
    for directory in directories:
        try:
            meta = meta_properties.read(directory)
        except (MetaPropertiesError, OSError):
            continue
        if meta is not None:
            found.append(meta)
    return found


def _files(directory: Path) -> list[str]:
    """The files that show that a node ran with this metadata directory."""
    try:
        return [f"{METADATA_DIRECTORY}/{name}" for name in old_metadata_files(directory)]
    except OSError:
        return []


def _marked(directory: Path) -> dict[str, str]:
    """The cluster id and the directory id in the file that marks a voter's directory."""
    try:
        with (directory / voter_marker.FILE_NAME).open("rb") as file:
            found = json.loads(file.read(voter_marker.MAX_FILE_BYTES))
        return {key: str(found[key]) for key in ("clusterId", "directoryId")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
