"""Bad requests of every admin API get the codes and the messages of Apache Kafka 4.4.0.

`tests/golden/bad_requests.txt` is the table: what Kafka answered to each request of the cases
below. Java's node is compared with it, and QUORATE_REWRITE_GOLDEN=1 writes it again. Ours is
compared with it always, without Java: the codes are equal, and each message begins with Kafka's.
What is different on purpose is in `KEPT`, which docs/interop.md prints.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Struct
from tests.interop.differential.script import CASES, Script
from tests.support import java
from tests.support.cluster import BIN, Node, running
from tests.support.differential import Answer, Peer

pytestmark = pytest.mark.timeout(240)

for area in ("topics", "cluster", "data", "groups", "admin"):
    import_module(f"tests.interop.differential.cases_{area}")

TABLE = Path(__file__).parents[1] / "golden" / "bad_requests.txt"
NAMES = (
    "create_topics", "create_partitions", "delete_topics", "metadata", "delete_records", "describe_configs",
    "alter_configs", "features", "the_quorum", "partitions_moved", "quotas_and_credentials", "acls_and_tokens",
    "voters", "registrations_and_levels", "moves_producers_and_groups", "list_groups", "offsets",
)  # fmt: skip
DOCUMENT = Path(__file__).parents[2] / "docs" / "interop.md"

Refusal = tuple[str, str]
"""The name of a code, and the message or ""."""


@dataclass(frozen=True)
class Kept:
    """A difference on purpose: regular expressions for case, label and Kafka's message, and what is ours."""

    case: str
    label: str
    kafka: str
    ours: str
    why: str

    def covers(self, case: str, label: str, kafka: Refusal, ours: Refusal) -> bool:
        return (
            re.fullmatch(self.case, case) is not None
            and re.fullmatch(self.label, label) is not None
            and re.search(self.kafka, ": ".join(kafka)) is not None
            and re.search(self.ours, ": ".join(ours)) is not None
        )


KEPT = (
    Kept(
        "describe_configs", r"-?\d+ 'x'", "malformed by the client", "Unsupported resource type",
        "ours names the type of resource",
    ),
    Kept(
        "alter_configs", "broker .*", "NONE", "Cannot change what has no effect on this broker",
        "keys that have no effect here are refused (configuration.md)",
    ),
    Kept(
        "quotas_and_credentials", "set", "NONE", "Client quotas of users and client ids are not",
        "quotas of users are not enforced, so they are refused (features.md)",
    ),
    Kept(
        "quotas_and_credentials", ".*: ip and user", "shouldnot be", "should not be",
        "ours is without the typing error",
    ),
    Kept(
        "quotas_and_credentials", "remove: key twice", r"ClientQuotaEntity\(", "Duplicate quota key",
        "ours names the key instead of Java's print of the entity",
    ),
    Kept(
        "features|registrations_and_levels", "good and bad .*|levels: two unknown", "update failed for all",
        "update failed for all .* Another error: ",
        "of several wrong features Kafka names the first in the order of a hash table, ours all in "
        "their own order",
    ),
    Kept(
        "voters", "(add|remove): .*", r"ReplicaKey\(|Endpoints\(", "voter",
        "ours has the voters as id and directory id instead of Java's print, and the command that helps",
    ),
    Kept(
        "voters", "add: nobody there", "API_VERSIONS returned an error", "timed out waiting for voter",
        "ours names what it has waited for",
    ),
)  # fmt: skip
"""The text of docs/interop.md has each of these reasons."""


def refusals(item: Any) -> list[Refusal]:
    """The errors in a response with their messages, sorted: nodes answer in their own order."""
    if isinstance(item, (list, tuple)):
        return sorted(found for part in item for found in refusals(part))
    if not isinstance(item, Struct):
        return []
    found = refusals([getattr(item, f.name) for f in type(item).fields()])
    code = next((c for n in ("error_code", "partition_error_code") if (c := getattr(item, n, 0))), 0)
    if code:
        found.append((ErrorCode.of(code).name, getattr(item, "error_message", None) or ""))
    return sorted(found)


def answered(peer: Peer, name: str) -> dict[str, list[Refusal]]:
    """The errors that a node answers to each request of a case, without what differs from run to run."""
    script = Script(peer, name.replace("_", "-"))
    CASES[name](script)
    return {label: [_masked(peer, r) for r in _of(answer)] for label, answer in script.steps}


def _of(answer: Answer) -> list[Refusal]:
    return refusals(answer.response) if answer.response is not None else [(str(answer.shown).upper(), "")]


def _masked(peer: Peer, refusal: Refusal) -> Refusal:
    code, message = refusal
    if peer.data:
        message = message.replace(peer.data, "DATA")
    for to, port in peer.ports.items():
        message = message.replace(f":{port}", f":{to.upper()}")
    message = re.sub(r"(?<![\w-])[\w-]{22}(?![\w-])", "ID", message)
    message = re.sub(r"\d+\.\d s|offset=\d+|epoch=\d+|HWM \d+", "N", message)
    return code, re.sub(r"[\x00-\x1f]", lambda found: f"\\x{ord(found[0]):02x}", message)


def table() -> dict[str, dict[str, list[Refusal]]]:
    """The table in the golden file: case -> label -> errors."""
    found: dict[str, dict[str, list[Refusal]]] = {}
    case = label = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") or not line:
            continue
        if line.startswith("    "):
            code, _, message = line[4:].partition(": ")
            found[case][label].append((code, message))
        elif line.startswith("  "):
            label = line[2:]
            found[case][label] = []
        else:
            case = line
            found[case] = {}
    return found


def written(cases: dict[str, dict[str, list[Refusal]]]) -> str:
    lines = [
        "# What Apache Kafka 4.4.0 answers to bad requests; written by tests/interop/test_bad_requests.py."
    ]
    for case, labels in cases.items():
        lines += ["", case]
        for label, errors in labels.items():
            if errors:
                lines.append(f"  {label}")
                lines += [f"    {code}: {message}" if message else f"    {code}" for code, message in errors]
    return "\n".join(lines) + "\n"


def peer_of(node: Node) -> Peer:
    peer = Peer(node.impl, {"broker": node.broker_port, "controller": node.controller_port}, str(node.data))
    Script(peer, "warm").group("up")
    return peer


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running(Node(tmp_path_factory.mktemp("ours"))) as node:
        peer = peer_of(node)
        yield peer
        peer.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    java.require_java(java.LATEST_VERSION)
    base = tmp_path_factory.mktemp("kafka")
    with running(Node(base, impl="java", kafka=java.LATEST_VERSION)) as node:
        yield node


@pytest.mark.java
def test_the_table_is_what_apache_kafka_answers(kafka: Node) -> None:
    peer = peer_of(kafka)
    found = {name: answered(peer, name) for name in NAMES}
    peer.close()
    if os.environ.get("QUORATE_REWRITE_GOLDEN"):
        TABLE.write_text(written(found), encoding="utf-8")
    assert {n: {label: e for label, e in labels.items() if e} for n, labels in found.items()} == table()


@pytest.mark.java
def test_our_tool_names_the_nodes_that_kafkas_controller_does_not(kafka: Node) -> None:
    words = ["upgrade", "--feature", "metadata.version=40", "--dry-run"]
    command = [str(BIN / "kafka-features"), "--bootstrap-server", kafka.bootstrap, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Local controller 1 only supports versions 7-33" in done.stdout
    assert "Broker 1 only supports" not in done.stdout
    assert "Broker 1 supports metadata.version 7 to 33, not 40.\n" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_our_code_is_kafkas_and_our_message_begins_with_kafkas(ours: Peer, name: str) -> None:
    kafkas, met = table()[name], set[Kept]()
    wrong = []
    for label, mine in answered(ours, name).items():
        wanted = kafkas.get(label, [])
        if len(mine) != len(wanted):
            pairs = [*[(("NONE", ""), m) for m in mine], *[(w, ("NONE", "")) for w in wanted]]
        else:
            pairs = list(zip(wanted, mine, strict=True))
        for kafka, own in pairs:
            if own[0] == kafka[0] and own[1].startswith(kafka[1]):
                continue
            covering = [kept for kept in KEPT if kept.covers(name, label, kafka, own)]
            met.update(covering)
            if not covering:
                wrong.append(f"{label}\n    Kafka {': '.join(kafka)}\n    ours  {': '.join(own)}")
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)
    assert {k.why for k in KEPT if k.case == name} <= {k.why for k in met}, "a difference is gone"


def test_the_differences_that_are_kept_are_in_the_document() -> None:
    section = (
        DOCUMENT.read_text(encoding="utf-8").partition("\n## Messages of refusals\n")[2].partition("\n## ")[0]
    )
    rows = {line for line in section.splitlines() if line.startswith("| ")}
    assert [k.why for k in KEPT if not any(k.why in row for row in rows)] == []
