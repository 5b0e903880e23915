"""kafka-acls, ours and Apache Kafka's of 4.1.1 and of the newest in Maven, on a node of Apache Kafka with an
authorizer: the same arguments have the same status, text and effect.

Each tool performs all cases in their order on a cluster without ACLs, so a case sees what those
before it did.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import AclBinding, AclBindingFilter, AclOperation, ResourceType
from tests.interop.test_admin_security import AUTHORIZED
from tests.support import java
from tests.support.cluster import BIN, Node, running, wait_for
from tests.support.java_tools import JavaTools, Said
from tests.tools.test_confirmation import shown_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

MAIN = "org.apache.kafka.tools.AclCommand"
ANN = "--allow-principal User:ann"
TYPE = "--resource-pattern-type"

CASES = [
    "--list",
    f"--add {ANN} --topic orders",
    "--list --topic orders",
    f"--add {ANN} --allow-principal User:bob --deny-principal User:eve --operation Read --operation describe "
    "--allow-host 10.0.0.1 --allow-host 10.0.0.2 --topic orders --topic payments --group app",
    "--list --topic orders --group app",
    f"--add {ANN} --cluster --operation ClusterAction --operation IdempotentWrite",
    f"--add {ANN} --transactional-id x --operation TwoPhaseCommit",
    f"--add {ANN} --delegation-token d --operation Describe",
    f"--add {ANN} --user-principal User:bob --operation CreateTokens",
    "--add --allow-principal User:* --topic * --operation DESCRIBECONFIGS",
    f"--add {ANN} {TYPE} prefixed --topic or --group ap --transactional-id x --cluster",
    "--add --allow-principal User:cn=a,o=b --deny-principal User:x:y --deny-host h --group g-1",
    "--add --allow-principal User:producer --producer --topic orders",
    "--add --allow-principal User:producer --producer --idempotent --topic orders2 --transactional-id x",
    "--add --allow-principal User:consumer --consumer --topic orders --group app --allow-host 10.0.0.3",
    "--add --allow-principal User:both --producer --consumer --topic orders --group app --transactional-id y",
    f"--add {ANN} --producer --topic orders --cluster --group unused",
    f"--add {ANN} --producer --topic pre {TYPE} PREFIXED",
    f"--add {ANN} --topic 10 --allow-host 10.0.0.0/8",
    f"--add {ANN} --topic 10 --allow-host 10.0.0.0/99",
    f"--add {ANN} --topic=",
    "--add --allow-principal ann --topic t",
    "--add --allow-principal User: --topic t",
    "--list",
    "--list --cluster",
    "--list --principal User:ann",
    "--list --principal User:nobody --topic orders",
    "--list --principal",
    "--list --principal ann",
    "--list --topic none",
    f"--list --topic orders {TYPE} match",
    f"--list --topic or {TYPE} any",
    f"--list --topic or {TYPE} prefixed --group app",
    f"--list --cluster {TYPE} any",
    "--list --operation Nonsense --force --transactional-id x",
    f"--remove {ANN} --topic none --force",
    f"--remove {ANN} --topic orders --force",
    "--remove --deny-principal User:eve --operation Read --topic orders --topic payments --force",
    "--remove --topic payments --operation Read --force",
    "--remove --allow-principal User:both --producer --topic orders --transactional-id y --force",
    "--remove --consumer --topic orders --group app --force",
    f"--remove --topic order1 {TYPE} match --force",
    f"--remove --topic or {TYPE} any --force",
    "--remove --cluster --force",
    "--remove --allow-principal nobody --topic t --force",
    "--list",
]
CONTROLLER_CASES = [
    f"--add {ANN} --topic c",
    "--list --topic c",
    "--remove --topic c --force",
    "--list --topic c",
]
AGAIN = f"--add {ANN} --topic again --operation Read"
"""Kafka's tools say from 4.3 on that an ACL exists already; those of 4.1.1 send it again."""
USAGE = [
    "", "--add --list --topic t", "--list --producer", f"--list {ANN}", f"--add {ANN}", "--add --topic t",
    f"--add {ANN} --topic t {TYPE} match", f"--add {ANN} --topic t {TYPE} unknown", "--remove --force",
    f"--add {ANN} --topic t --operation Nonsense", f"--add {ANN} --topic t --operation describe_configs",
    f"--add {ANN} --group g --operation Write", f"--add {ANN} --cluster --operation Read",
    f"--add {ANN} --transactional-id x --operation Read", f"--add {ANN} --delegation-token d --operation Write",
    f"--add {ANN} --user-principal User:bob --operation Read", f"--add {ANN} --cluster {TYPE} prefixed",
    f"--add {ANN} --producer", f"--add {ANN} --producer --topic t --operation Read",
    "--add --deny-principal User:a --producer --topic t", f"--add {ANN} --consumer --topic t",
    f"--add {ANN} --consumer --topic t --group g --cluster", f"--add {ANN} --idempotent --topic t",
    "--remove --principal User:ann --topic t", "--list --no-such-option", "--remove --topic orders",
]  # fmt: skip
"""Usages that are refused. Such a text is followed by the usage or in it, so the status and effect are
compared."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    java.require_tools(java.LATEST_VERSION)
    base = tmp_path_factory.mktemp("acls") / "node"
    with running(Node(base, impl="java", kafka=java.LATEST_VERSION, extra=dict(AUTHORIZED))) as found:
        yield found


class Acls:
    """The ACLs of the cluster."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._markers = (
            AclBinding(ResourceType.TOPIC, f"marker-{i}", "User:m", AclOperation.READ) for i in count()
        )

    def now(self) -> set[AclBinding]:
        """The ACLs after all changes up to now. The broker applies changes in order, so it has applied them
        if it knows an ACL that is added last."""
        marker = next(self._markers)
        assert self._admin.create_acls([marker]) == {marker: None}
        wait_for("the marker", lambda: marker in self._admin.describe_acls())
        this = AclBindingFilter(resource_name=marker.resource_name)
        assert self._admin.delete_acls([this]) == {this: [marker]}
        wait_for("its removal", lambda: marker not in self._admin.describe_acls())
        return set(self._admin.describe_acls())

    def clear(self) -> None:
        self._admin.delete_acls([AclBindingFilter()])
        assert not self.now()


@pytest.fixture
def acls(node: Node) -> Iterator[Acls]:
    with AdminClient(node.bootstrap) as admin:
        yield Acls(admin)


def ours(*words: str) -> Said:
    command = [str(BIN / "kafka-acls"), *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    return Said(done.returncode, done.stdout, done.stderr)


class Ended(NamedTuple):
    words: str
    said: Said
    acls: set[AclBinding]


def performed(run: Callable[..., Said], acls: Acls, where: tuple[str, str], cases: list[str]) -> list[Ended]:
    """What each case of one tool said, and the ACLs afterwards."""
    acls.clear()
    return [Ended(words, run(*where, *words.split()), acls.now()) for words in cases]


def settled(said: Said) -> tuple[int, list[tuple[str, str, list[str]]]]:
    """The status and the blocks of the text: their other lines, how the first entry is indented, and the
    entries. Resources and entries are sorted, because Java prints them in the order of a hash table. Traces
    and the names of exceptions are left out."""
    text = said.out + said.err
    text = re.sub(r"(?s)(Error while executing ACL command: )(?:[\w.]+: )?(.*?\n).*", r"\1\2", text)
    text = re.sub(r"(?m)^(ACLs for principal .*|Acl .* already exists\.)$", r"\1\n", text)
    blocks = []
    for block in filter(None, text.split("\n\n")):
        lines = block.rstrip("\n").split("\n")
        entries = [line for line in lines if line.lstrip().startswith("(principal")]
        others = "\n".join(line for line in lines if line not in entries)
        indent = entries[0][: entries[0].index("(")] if entries else ""
        blocks.append((others, indent, sorted(entry.lstrip() for entry in entries)))
    return said.status, sorted(blocks)


def differing(mine: list[Ended], theirs: list[Ended]) -> list[str]:
    found = []
    for my, their in zip(mine, theirs, strict=True):
        if settled(my.said) != settled(their.said):
            found.append(f"{my.words}\n  ours:  {settled(my.said)}\n  Kafka: {settled(their.said)}")
        if my.acls != their.acls:
            found.append(
                f"{my.words}\n  only ours: {my.acls - their.acls}\n  only Kafka: {their.acls - my.acls}"
            )
    return found


def test_the_same_arguments_have_the_same_status_text_and_effect(node: Node, acls: Acls) -> None:
    servers = ("--bootstrap-server", node.bootstrap)
    controllers = ("--bootstrap-controller", f"127.0.0.1:{node.controller_port}")
    cases = {servers: CASES, controllers: CONTROLLER_CASES}
    mine = {where: performed(ours, acls, where, words) for where, words in cases.items()}
    assert any(ended.acls for ended in mine[controllers])
    for version in java.VERSIONS:
        with JavaTools(version) as tools:

            def theirs(*words: str, tools: JavaTools = tools) -> Said:
                return tools.run(MAIN, *words)

            for where, words in cases.items():
                found = differing(mine[where], performed(theirs, acls, where, words))
                assert not found, f"{version}\n" + "\n".join(found)


def test_an_acl_that_exists_is_told_as_by_the_newest_tool(node: Node, acls: Acls) -> None:
    where = ("--bootstrap-server", node.bootstrap)
    twice = [AGAIN, f"{AGAIN} --operation Write", AGAIN]
    mine = performed(ours, acls, where, twice)
    assert "already exists" in mine[1].said.out and "already exists" in mine[2].said.out
    with JavaTools(java.LATEST_VERSION) as tools:
        found = differing(mine, performed(lambda *words: tools.run(MAIN, *words), acls, where, twice))
    assert not found, "\n".join(found)


def test_the_same_usages_are_refused(node: Node, acls: Acls) -> None:
    where = ("--bootstrap-server", node.bootstrap)
    cases = [f"--add {ANN} --topic orders", *USAGE]
    mine = performed(ours, acls, where, cases)
    with JavaTools(java.KAFKA_VERSION) as tools:
        theirs = performed(lambda *words: tools.run(MAIN, *words), acls, where, cases)
    for my, their in zip(mine[1:], theirs[1:], strict=True):
        assert my.said.status == their.said.status == 1, (my, their)
        assert my.said.err and "Traceback" not in my.said.err, my
        assert my.acls == their.acls == mine[0].acls and len(my.acls) == 1, (my, their)


# -- the question
# --------------------------------------------------------------------------------------------------


def on_a_terminal(command: list[str], typed: str) -> tuple[int, str]:
    """The status of a command on a terminal of its own, and what that shows. The text is typed after the
    question."""
    terminal, other = pty.openpty()
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=subprocess.DEVNULL)
    os.close(other)
    try:
        shown = shown_until(terminal, b"(y/n)\r\n")
        os.write(terminal, typed.encode())
        shown += shown_until(terminal, b"")
        return process.wait(60), shown.decode().replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize("typed", ["Y\n", "no\n"])
def test_the_question_before_a_removal_is_the_same(node: Node, acls: Acls, typed: str) -> None:
    where = ("--bootstrap-server", node.bootstrap)
    words = [*where, "--remove", *ANN.split(), "--topic", "asked"]
    ended = []
    for command in ([str(BIN / "kafka-acls"), *words], java.command(MAIN, *words)):
        acls.clear()
        assert ours(*where, "--add", *ANN.split(), "--topic", "asked").status == 0
        acls.now()
        ended.append((on_a_terminal(command, typed), acls.now()))
    assert ended[0] == ended[1]
    (status, shown), left = ended[0]
    assert status == 0 and "Are you sure you want to remove ACLs: \n \t(principal=User:ann," in shown
    assert len(left) == (0 if typed == "Y\n" else 1)
