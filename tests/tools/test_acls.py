"""kafka-acls: which options go together, what is added, removed and listed, the output, and the
question before a removal. The ACLs are those of a cluster in memory, whose filters are those of the
controller."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.types import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from quorate.controller.handlers.acls import OPERATIONS, AclFilter
from quorate.metadata.records import AccessControlEntryRecord
from quorate.tools.cluster import acls as tool
from tests.tools.shell import Done, Shell, sh

__all__ = ["sh"]  # a fixture


def matches(wanted: AclBindingFilter, acl: AclBinding) -> bool:
    match = AclFilter(
        wanted.resource_type, wanted.resource_name, wanted.pattern_type, wanted.principal, wanted.host,
        wanted.operation, wanted.permission_type,
    )  # fmt: skip
    record = AccessControlEntryRecord(
        resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type,
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type,
    )  # fmt: skip
    return match.matches(record)


class Cluster:
    """The calls of the admin client that the tool makes. `refused` is the error of the ACLs of a host."""

    def __init__(self) -> None:
        self.acls: set[AclBinding] = set()
        self.created: list[list[AclBinding]] = []
        self.refused: dict[str, KafkaError] = {}

    async def describe_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        return [acl for acl in self.acls if matches(wanted, acl)]

    async def create_acls(self, acls: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        self.created.append(list(acls))
        self.acls |= {acl for acl in acls if acl.host not in self.refused}
        return {acl: self.refused.get(acl.host) for acl in acls}

    async def delete_acls(
        self, filters: Sequence[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        found: dict[AclBindingFilter, list[AclBinding] | KafkaError] = {}
        for wanted in filters:
            if wanted.host in self.refused:
                found[wanted] = self.refused[wanted.host]
            else:
                found[wanted] = [acl for acl in self.acls if matches(wanted, acl)]
                self.acls -= set(found[wanted])
        return found


class Tool:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = Cluster()
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self._where = ["--bootstrap-server", "127.0.0.1:1"]

        def with_admin(args: object, work: object) -> int:
            try:
                work(self.cluster).send(None)  # type: ignore[operator]
            except StopIteration as end:
                return int(end.value)
            raise AssertionError("the cluster in memory awaits nothing")

        monkeypatch.setattr(tool, "with_admin", with_admin)

    def run(self, words: str, *more: str, typed: str | None = None) -> Done:
        """Runs a command. `typed` is what is typed on a terminal; without it the input is none."""
        stdin = io.StringIO(typed or "")
        if typed is not None:
            stdin.isatty = lambda: True  # type: ignore[method-assign]
        self._monkeypatch.setattr(sys, "stdin", stdin)
        try:
            status = tool.main([*self._where, *words.split(), *more])
        except SystemExit as end:
            status = end.code  # type: ignore[assignment]
        return Done(status, *self._capsys.readouterr())

    def done(self, words: str, *more: str) -> str:
        """The output of a command that succeeds."""
        status, out, err = self.run(words, *more)
        assert (status, err) == (0, "")
        return out


@pytest.fixture
def acls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(monkeypatch, capsys)


def topic(name: str, operation: str, principal: str = "User:ann", host: str = "*") -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, principal, AclOperation[operation], host=host)


# -- options
# --------------------------------------------------------------------------------------------------

ANN = "--allow-principal User:ann"
PAIRS = "can't be used with option"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--list --bootstrap-controller 127.0.0.1:2", "Only one of --bootstrap-server or --bootstrap-contr"),
        ("", "Command must include exactly one action: --list, --add, --remove."),
        ("--add --list", "Command must include exactly one action"),
        ("--add --remove --topic t", "Command must include exactly one action"),
        ("--list --producer", f'Option "[list]" {PAIRS} "[producer]"'),
        ("--list --consumer", f'Option "[list]" {PAIRS} "[consumer]"'),
        (f"--list {ANN}", f'Option "[list]" {PAIRS} "[allow-principal]"'),
        ("--list --deny-principal User:a", f'Option "[list]" {PAIRS} "[deny-principal]"'),
        ("--list --allow-host h", f'Option "[list]" {PAIRS} "[allow-host]"'),
        ("--list --deny-host h", f'Option "[list]" {PAIRS} "[deny-host]"'),
        (f"--add {ANN} --topic t --producer --operation Read", f'Option "[producer]" {PAIRS} "[operation]"'),
        ("--add --topic t --producer --deny-principal User:a", f'"[producer]" {PAIRS} "[deny-principal]"'),
        (f"--add {ANN} --topic t --producer --deny-host h", f'Option "[producer]" {PAIRS} "[deny-host]"'),
        (f"--add {ANN} --topic t --group g --consumer --operation Read", f'"[consumer]" {PAIRS} "[operation]'),
        ("--remove --topic t --principal User:a", "The --principal option is only available if --list is set"),
        (f"--add {ANN} --principal", "The --principal option is only available if --list is set"),
        (f"--add {ANN} --producer", "With --producer you must specify a --topic"),
        (f"--add {ANN} --topic t --idempotent", "--idempotent option is only available if --producer is set"),
        (f"--add {ANN} --consumer --topic t", "With --consumer you must specify a --topic and a --group and no"),
        (f"--add {ANN} --consumer --group g", "With --consumer you must specify a --topic and a --group and no"),
        (f"--add {ANN} --consumer --topic t --group g --cluster", "and no --cluster or --transactional-id"),
        (f"--add {ANN} --consumer --topic t --group g --transactional-id x", "and no --cluster or --transac"),
        (f"--add {ANN}", "You must provide at least one resource: --topic <topic> or --cluster or"),
        ("--remove", "You must provide at least one resource"),
        (f"--add {ANN} --cluster --resource-pattern-type prefixed", "You must provide at least one resource"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal when trying to add"),
        ("--add --topic t --allow-host h", "You must specify one of: --allow-principal, --deny-principal"),
        (f"--add {ANN} --topic t --resource-pattern-type any", "value of 'ANY' is not valid when adding acls."),
        (f"--add {ANN} --topic t --resource-pattern-type Match", "of 'MATCH' is not valid when adding acls."),
        (f"--add {ANN} --topic t --resource-pattern-type unknown", "invalid choice: 'UNKNOWN'"),
        (f"--add {ANN} --topic t --operation ClusterAction", "ResourceType TOPIC only supports operations [ALL"),
        (f"--add {ANN} --topic t --operation describe_configs", "ResourceType TOPIC only supports operations"),
        (f"--remove {ANN} --topic t --operation Any", "ResourceType TOPIC only supports operations"),
        (f"--add {ANN} --topic t --group g --operation Write", "ResourceType GROUP only supports operations"),
        (f"--add {ANN} --topic t --operation Read Write", "unrecognized arguments: Write"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_end_with_the_usage(acls: Tool, words: str, why: str) -> None:
    status, out, err = acls.run(words)
    assert (status, out) == (1, "")
    assert err.startswith("usage: kafka-acls ") and why in err.splitlines()[-1]
    assert not acls.cluster.created


def test_a_bootstrap_server_is_required(acls: Tool) -> None:
    acls._where = []
    status, _, err = acls.run("--list")
    assert status == 1 and "One of --bootstrap-server or --bootstrap-controller must be specified" in err


@pytest.mark.parametrize("words", ["--add --topic t --allow-principal ann", "--list --principal ann"])
def test_a_principal_without_a_type_is_refused(acls: Tool, words: str) -> None:
    why = "expected a string in format principalType:principalName but got ann\n"
    assert acls.run(words) == (1, "", f"Error while executing ACL command: {why}")


def test_the_operations_of_a_resource_type_are_those_of_kafka() -> None:
    assert set(tool.SUPPORTED) == {
        t for t in ResourceType if t not in (ResourceType.UNKNOWN, ResourceType.ANY)
    }
    assert {o for supported in tool.SUPPORTED.values() for o in supported} == set(tool.OPERATIONS.values())
    assert {int(o) for o in tool.OPERATIONS.values()} == set(OPERATIONS)


@pytest.mark.parametrize("name", ["DescribeConfigs", "describeconfigs", "DESCRIBECONFIGS"])
def test_the_case_of_an_operation_does_not_matter(acls: Tool, name: str) -> None:
    acls.done(f"--add {ANN} --topic t --operation {name}")
    assert acls.cluster.acls == {topic("t", "DESCRIBE_CONFIGS")}


# -- add
# --------------------------------------------------------------------------------------------------


def test_an_acl_is_added_and_told(acls: Tool) -> None:
    assert acls.done(f"--add {ANN} --topic t") == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`: \n"
        " \t(principal=User:ann, host=*, operation=ALL, permissionType=ALLOW)\n\n"
    )
    assert acls.cluster.acls == {topic("t", "ALL")}


def test_principals_operations_and_hosts_are_combined(acls: Tool) -> None:
    out = acls.done(
        f"--add {ANN} --allow-principal User:bob --operation Read --operation Describe --allow-host 1.2.3.4 "
        "--allow-host 1.2.3.5 --deny-principal User:eve --topic t"
    )
    allowed = {
        topic("t", operation, f"User:{who}", host)
        for who in ("ann", "bob")
        for operation in ("READ", "DESCRIBE")
        for host in ("1.2.3.4", "1.2.3.5")
    }
    denied = {
        AclBinding(ResourceType.TOPIC, "t", "User:eve", operation, AclPermissionType.DENY)
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    }
    assert acls.cluster.acls == allowed | denied
    assert out.count("\t(principal=User:") == 10
    assert "\t(principal=User:eve, host=*, operation=READ, permissionType=DENY)\n" in out


def test_names_are_stripped_but_for_transactional_ids(acls: Tool) -> None:
    words = (
        "--topic",
        " t ",
        "--transactional-id",
        " x ",
        "--allow-host",
        " h ",
        "--allow-principal",
        " User:a ",
    )
    acls.done("--add --resource-pattern-type prefixed", *words)
    found = {(acl.resource_name, acl.principal, acl.host, acl.pattern_type) for acl in acls.cluster.acls}
    assert found == {(name, "User:a", "h", PatternType.PREFIXED) for name in ("t", " x ")}


def test_every_kind_of_resource_gets_its_acl(acls: Tool) -> None:
    acls.done(
        f"--add {ANN} --topic t --topic t --group g --cluster --transactional-id x --delegation-token d "
        "--user-principal User:bob"
    )
    assert {(acl.resource_type.name, acl.resource_name) for acl in acls.cluster.acls} == {
        ("TOPIC", "t"), ("GROUP", "g"), ("CLUSTER", "kafka-cluster"), ("TRANSACTIONAL_ID", "x"),
        ("DELEGATION_TOKEN", "d"), ("USER", "User:bob"),
    }  # fmt: skip
    assert len(acls.cluster.acls) == 6


def test_a_producer_and_a_consumer_get_what_they_need(acls: Tool) -> None:
    acls.done(
        f"--add {ANN} --producer --idempotent --consumer --topic t --group g --transactional-id x --cluster"
    )
    assert {(acl.resource_name, acl.operation.name) for acl in acls.cluster.acls} == {
        ("t", "WRITE"), ("t", "CREATE"), ("t", "DESCRIBE"), ("t", "READ"), ("g", "READ"),
        ("x", "WRITE"), ("x", "DESCRIBE"), ("kafka-cluster", "IDEMPOTENT_WRITE"),
    }  # fmt: skip


def test_an_acl_that_exists_is_told_and_not_sent(acls: Tool) -> None:
    pattern = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
    entry = "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)"
    acls.cluster.acls = {topic("t", "READ")}
    exists = f"Acl (pattern={pattern}, entry={entry}) already exists.\n"
    assert acls.done(f"--add {ANN} --topic t --operation Read") == exists
    assert acls.cluster.created == []
    out = acls.done(f"--add {ANN} --topic t --operation Read --operation Write")
    written = entry.replace("READ", "WRITE")
    assert out == f"{exists}Adding ACLs for resource `{pattern}`: \n \t{written}\n\n"
    assert acls.cluster.created == [[topic("t", "WRITE")]]


def test_a_refused_acl_is_an_error(acls: Tool) -> None:
    acls.cluster.refused = {"h": KafkaError(ErrorCode.INVALID_REQUEST, "no such host")}
    status, out, err = acls.run(f"--add {ANN} --topic t --allow-host h --allow-host i")
    assert (status, err) == (1, "Error while executing ACL command: no such host\n")
    assert out.startswith("Adding ACLs for resource ")
    assert acls.cluster.acls == {topic("t", "ALL", host="i")}


# -- remove
# --------------------------------------------------------------------------------------------------


def existing() -> set[AclBinding]:
    return {topic("t", "READ"), topic("t", "WRITE"), topic("u", "READ"), topic("t", "READ", "User:bob")}


def test_all_acls_of_a_resource_are_removed_without_a_word(acls: Tool) -> None:
    acls.cluster.acls = existing()
    assert acls.done("--remove --topic t --force") == ""
    assert acls.cluster.acls == {topic("u", "READ")}


def test_only_the_named_entries_are_removed(acls: Tool) -> None:
    acls.cluster.acls = existing()
    acls.done(f"--remove --topic t --topic u {ANN} --operation Read --force")
    assert acls.cluster.acls == {topic("t", "WRITE"), topic("t", "READ", "User:bob")}


def test_match_removes_what_applies_to_a_resource(acls: Tool) -> None:
    prefixed = AclBinding(
        ResourceType.TOPIC, "or", "User:a", AclOperation.READ, pattern_type=PatternType.PREFIXED
    )
    acls.cluster.acls = {topic("orders", "READ"), topic("*", "READ"), topic("other", "READ"), prefixed}
    acls.done("--remove --topic orders --resource-pattern-type match --force")
    assert acls.cluster.acls == {topic("other", "READ")}


def test_a_refused_removal_is_an_error(acls: Tool) -> None:
    acls.cluster.refused = {"h": KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")}
    done = acls.run(f"--remove --topic t {ANN} --allow-host h --force")
    assert done == (1, "", "Error while executing ACL command: No Authorizer is configured.\n")


ALL_OF_T = (
    "Are you sure you want to delete all ACLs for resource filter "
    "`ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`? (y/n)\n"
)


@pytest.mark.parametrize(
    ("typed", "removed"), [("y\n", True), ("Y\n", True), ("n\n", False), ("yes\n", False)]
)
def test_a_removal_waits_for_the_answer(acls: Tool, typed: str, removed: bool) -> None:
    acls.cluster.acls = existing()
    assert acls.run("--remove --topic t", typed=typed) == (0, ALL_OF_T, "")
    assert acls.cluster.acls == ({topic("u", "READ")} if removed else existing())


def test_the_question_shows_the_entries(acls: Tool) -> None:
    acls.cluster.acls = existing()
    done = acls.run(f"--remove {ANN} --topic t --operation Read --operation Write", typed="y\n")
    assert done.out == (
        "Are you sure you want to remove ACLs: \n"
        " \t(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:ann, host=*, operation=WRITE, permissionType=ALLOW)\n"
        " from resource filter `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`? (y/n)\n"
    )
    assert acls.cluster.acls == {topic("u", "READ"), topic("t", "READ", "User:bob")}


def test_each_resource_has_its_question(acls: Tool) -> None:
    acls.cluster.acls = existing()
    done = acls.run("--remove --topic t --topic u", typed="n\ny\n")
    assert (done.status, done.out) == (0, ALL_OF_T + ALL_OF_T.replace("name=t", "name=u"))
    assert acls.cluster.acls == existing() - {topic("u", "READ")}


@pytest.mark.parametrize("typed", [None, ""], ids=["no terminal", "Ctrl-D"])
def test_without_an_answer_nothing_is_removed(acls: Tool, typed: str | None) -> None:
    acls.cluster.acls = existing()
    assert acls.run("--remove --topic t", typed=typed) == (1, ALL_OF_T, f"{tool.NOBODY_ANSWERS}\n")
    assert acls.cluster.acls == existing()


# -- list
# --------------------------------------------------------------------------------------------------


def test_the_acls_of_each_resource_are_listed_in_order(acls: Tool) -> None:
    acls.cluster.acls = existing()
    current = (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:\n"
        "\t(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:ann, host=*, operation=WRITE, permissionType=ALLOW)\n"
        "\t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)\n\n"
    )
    assert acls.done("--list --topic t") == current
    both = acls.done("--list")
    assert both.startswith(current) and both.count("Current ACLs for resource") == 2
    assert acls.done("--list --topic u --topic t --topic t") == both
    assert acls.done("--list --topic none") == ""
    assert acls.done("--list --principal") == both


def test_the_acls_of_principals_are_listed(acls: Tool) -> None:
    acls.cluster.acls = existing()
    assert acls.done("--list --principal User:bob --principal User:eve") == (
        "ACLs for principal `User:bob`\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:\n"
        "\t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)\n\n"
        "ACLs for principal `User:eve`\n"
    )


# -- a cluster without an authorizer
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--list", f"--add {ANN} --topic t", "--remove --topic t --force"])
def test_a_cluster_without_an_authorizer_refuses(sh: Shell, words: str) -> None:
    for where in (("--bootstrap-server", sh.servers), ("--bootstrap-controller", sh.controllers)):
        done = sh.plain("acls", *where, *words.split())
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith("Error while executing ACL command: No Authorizer is configured")
