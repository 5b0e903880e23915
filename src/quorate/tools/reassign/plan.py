"""The JSON files of kafka-reassign-partitions: reassignments, and topics to move.

A reassignment is `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],
"log_dirs": ["any", "/data/2"]}]}`. `log_dirs` may be left out; "any" leaves the choice to the broker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TypeVar

from quorate.admin.types import TopicPartition, TopicPartitionReplica
from quorate.dataclass import dataclass
from quorate.tools.command_line import ToolError

ANY_LOG_DIR = "any"
VERSION = 1

T = TypeVar("T")


@dataclass(slots=True)
class ProposedReassignment:
    """The brokers of partitions, and the directories of replicas for which one is given."""

    partitions: list[tuple[TopicPartition, list[int]]] = field(default_factory=list)
    """In the order of the file. A partition may occur twice until `check_executable`."""
    log_dirs: dict[TopicPartitionReplica, str] = field(default_factory=dict)

    @property
    def assignment(self) -> dict[TopicPartition, list[int]]:
        return dict(self.partitions)

    def check_executable(self) -> None:
        """Raises ToolError if the plan is empty, or contradicts itself."""
        if not self.partitions:
            raise ToolError("Partition reassignment list cannot be empty")
        for tp, replicas in self.partitions:
            if not replicas:
                raise ToolError(f"Partition replica list cannot be empty: that of {tp} is")
        twice = _duplicates(tp for tp, _ in self.partitions)
        if twice:
            raise ToolError(
                f"Partition reassignment contains duplicate topic partitions: {','.join(map(str, twice))}"
            )
        found = [
            f"{tp} contains multiple entries for {','.join(map(str, _duplicates(replicas)))}"
            for tp, replicas in self.partitions
            if _duplicates(replicas)
        ]
        if found:
            raise ToolError(f"Partition replica lists may not contain duplicate entries: {'. '.join(found)}")


def read_plan(path: str) -> ProposedReassignment:
    """Reads a reassignment. Raises ToolError with the name of the file and the entry that is wrong."""
    plan = ProposedReassignment()
    for number, entry in enumerate(_entries(path, "partitions")):
        where = f'{path}: entry {number} of "partitions"'
        tp = TopicPartition(_text(entry, "topic", where), _number(entry.get("partition"), "partition", where))
        given = entry.get("replicas")
        if not isinstance(given, list):
            raise ToolError(f'{where} needs "replicas", a list of broker ids')
        replicas = [_number(replica, "replicas", where) for replica in given]
        dirs = entry.get("log_dirs")
        if dirs is None:
            dirs = [ANY_LOG_DIR] * len(replicas)
        if not isinstance(dirs, list) or not all(isinstance(directory, str) for directory in dirs):
            raise ToolError(f'{where}: "log_dirs" must be a list of paths, or of "{ANY_LOG_DIR}"')
        if len(dirs) != len(replicas):
            raise ToolError(
                f"Size of replicas list {replicas} is different from size of log dirs list "
                f"[{', '.join(dirs)}] for partition {tp}"
            )
        plan.partitions.append((tp, replicas))
        for replica, directory in zip(replicas, dirs, strict=True):
            if directory != ANY_LOG_DIR:
                plan.log_dirs[TopicPartitionReplica(*tp, replica)] = directory
    return plan


def read_topics(path: str) -> list[str]:
    """Reads the topics to move: `{"version": 1, "topics": [{"topic": "t"}]}`. Raises ToolError."""
    topics = [
        _text(entry, "topic", f'{path}: entry {number} of "topics"')
        for number, entry in enumerate(_entries(path, "topics"))
    ]
    twice = _duplicates(topics)
    if twice:
        raise ToolError(f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]")
    return topics


def read_brokers(text: str) -> list[int]:
    """Parses the broker ids of --broker-list. Raises ToolError."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ToolError(f"--broker-list expects broker ids separated by commas, not {text}") from None
    twice = _duplicates(brokers)
    if twice:
        raise ToolError(f"Broker list contains duplicate entries: [{', '.join(map(str, twice))}]")
    return brokers


def plan_json(
    assignment: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[TopicPartitionReplica, str]
) -> str:
    """Returns a reassignment as JSON, as Kafka's tool prints it."""
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(assignment[tp]),
            "log_dirs": [
                log_dirs.get(TopicPartitionReplica(*tp, replica), ANY_LOG_DIR) for replica in assignment[tp]
            ],
        }
        for tp in sorted(assignment)
    ]
    return json.dumps(
        {"version": VERSION, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False
    )


def _entries(path: str, name: str) -> list[dict[str, object]]:
    """Reads the list of objects that a file has under a name; an absent one is empty."""
    try:
        document = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ToolError(f'{path} must contain an object with "version" and "{name}"')
    version = document.get("version", VERSION)
    if version != VERSION:
        raise ToolError(f"{path}: Not supported version field value {version}; the only version is {VERSION}")
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ToolError(f'{path}: "{name}" must be a list of objects')
    return entries


def _text(entry: Mapping[str, object], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise ToolError(f'{where} needs "{name}", a text')
    return value


def _number(value: object, name: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ToolError(f'{where}: {json.dumps(value)} is not a number for "{name}"')
    return value


def _duplicates(values: Iterable[T]) -> list[T]:
    return [value for value, count in Counter(values).items() if count > 1]
