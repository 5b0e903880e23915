"""The advice for a log directory that is not formatted: it is the command of the quorum at hand,
and never one that gives a voter another identity."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from quorate.config.kafka_config import KafkaConfig
from quorate.log.directories.meta_properties import MetaProperties, read, write
from quorate.node.format_remedy import format_remedy
from quorate.protocol.uuids import uuid_text
from quorate.tools import storage

CLUSTER, DIRECTORY = "4L6g3nShT-eMCtK--X86sw", bytes(15) + bytes([200])
DYNAMIC = {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}
STATIC = {"controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094,3@127.0.0.1:9095"}
ALONE = {"controller.quorum.voters": "1@127.0.0.1:9093"}
JOIN, IGNORE = "--no-initial-controllers", "--ignore-formatted"


def node_of(
    folder: Path, quorum: dict[str, str], roles: str = "broker,controller"
) -> tuple[KafkaConfig, Path]:
    """A node with the log directories a, of the metadata log, and b."""
    listeners = {"broker": "PLAINTEXT://127.0.0.1:9092", "controller": "CONTROLLER://127.0.0.1:9093"}
    values = {
        "node.id": "1" if "controller" in roles else "4",
        "process.roles": roles,
        "listeners": ",".join(listeners[role] for role in roles.split(",")),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{folder / 'a'},{folder / 'b'}",
        **quorum,
    }
    for name in "ab":
        (folder / name).mkdir()
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return KafkaConfig(values), file


@pytest.mark.parametrize(
    ("quorum", "roles", "missing", "options", "says"),
    [
        (DYNAMIC, "broker,controller", "a", [IGNORE, JOIN], "quorate replace-disk 1"),
        (DYNAMIC, "broker,controller", "b", [IGNORE, JOIN], ""),
        (STATIC, "broker,controller", "a", [IGNORE], "only while every other voter (2, 3) runs"),
        (STATIC, "broker,controller", "b", [IGNORE], ""),
        (ALONE, "controller", "a", [IGNORE], "from a backup"),
        (DYNAMIC, "broker", "a", [IGNORE], ""),
        (STATIC, "broker", "b", [IGNORE], ""),
    ],
)
def test_the_command_has_the_cluster_id_and_formats_the_directory(
    tmp_path: Path, quorum: dict[str, str], roles: str, missing: str, options: list[str], says: str
) -> None:
    config, file = node_of(tmp_path, quorum, roles)
    other = tmp_path / ("b" if missing == "a" else "a")
    write(other, MetaProperties(CLUSTER, config.node_id, DIRECTORY))
    text = format_remedy(config, tmp_path / missing, file)
    command = text.partition("un: ")[2].partition(". ")[0]
    assert shlex.split(command) == [
        *("kafka-storage", "format", "--cluster-id", CLUSTER, "--config", str(file)),
        *options,
    ]
    assert says in text
    assert storage.main(shlex.split(command)[1:]) == 0
    formatted = read(tmp_path / missing)
    assert formatted is not None
    assert (formatted.cluster_id, formatted.node_id) == (CLUSTER, config.node_id)
    assert read(other) == MetaProperties(CLUSTER, config.node_id, DIRECTORY)


@pytest.mark.parametrize(
    ("quorum", "says"),
    [
        (DYNAMIC, [f"--config FILE {JOIN}", "--config FILE --standalone for the first controller"]),
        (STATIC, ["--config FILE. If this controller ran before"]),
    ],
)
def test_a_node_without_any_directory_is_told_both_ways(
    tmp_path: Path, quorum: dict[str, str], says: list[str]
) -> None:
    config, _ = node_of(tmp_path, quorum)
    text = format_remedy(config, tmp_path / "a")
    for part in [*says, "kafka-cluster cluster-id --bootstrap-controller 127.0.0.1:9093", "random-uuid"]:
        assert part in text


@pytest.mark.parametrize("quorum", [DYNAMIC, STATIC])
def test_a_directory_whose_node_ran_is_not_formatted(tmp_path: Path, quorum: dict[str, str]) -> None:
    config, _ = node_of(tmp_path, quorum)
    directory = tmp_path / "a"
    log = directory / "__cluster_metadata-0"
    log.mkdir()
    (log / "quorum-state").write_text("{}")
    write(tmp_path / "b", MetaProperties(CLUSTER, 1, bytes(15) + bytes([201])))
    text = format_remedy(config, directory)
    assert text.startswith("Do not format it: a node ran in it")
    assert f"cluster.id={CLUSTER}, node.id=1, directory.id=DIRECTORY-ID" in text
    marker = {"version": 0, "clusterId": "x", "directoryId": uuid_text(DIRECTORY), "kraftVersion": 1}
    (directory / "quorum-voter").write_text(json.dumps(marker))
    assert f"cluster.id=x, node.id=1, directory.id={uuid_text(DIRECTORY)}" in format_remedy(config, directory)


def test_a_metadata_directory_that_has_moved_is_not_formatted(tmp_path: Path) -> None:
    """A directory that is put before the others in log.dirs becomes the metadata directory.

    Formatted, it would be a voter with another directory id and an empty log.
    """
    config, _ = node_of(tmp_path, DYNAMIC)
    log = tmp_path / "b" / "__cluster_metadata-0"
    log.mkdir()
    (log / "00000000000000000000.log").touch()
    write(tmp_path / "b", MetaProperties(CLUSTER, 1, DIRECTORY))
    text = format_remedy(config, tmp_path / "a")
    assert text.startswith("Do not format it")
    assert f"metadata.log.dir={tmp_path / 'b'}" in text
    assert "kafka-storage" not in text


def test_the_files_of_an_interrupted_format_do_not_count(tmp_path: Path) -> None:
    config, _ = node_of(tmp_path, STATIC)
    log = tmp_path / "a" / "__cluster_metadata-0"
    log.mkdir()
    (log / "00000000000000000000-0000000000.checkpoint").touch()
    assert format_remedy(config, tmp_path / "a").startswith("Run: kafka-storage format")
