"""kafka-acls: adds, removes and lists access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.types import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.confirmation import typed_line

Op = AclOperation
SUPPORTED: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        Op.ALL, Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Op.ALL, Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        Op.ALL, Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
        Op.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Op.ALL, Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Op.ALL, Op.DESCRIBE),
    ResourceType.USER: (Op.ALL, Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that an ACL of a resource type may have (Kafka's AclEntry)."""

OPERATIONS = {
    operation.name.replace("_", ""): operation for operation in Op if operation not in (Op.UNKNOWN, Op.ANY)
}
"""The operations by their names in `--operation`, in which case does not matter."""

PRODUCER = {
    ResourceType.TOPIC: (Op.WRITE, Op.DESCRIBE, Op.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Op.WRITE, Op.DESCRIBE),
}
CONSUMER = {ResourceType.TOPIC: (Op.READ, Op.DESCRIBE), ResourceType.GROUP: (Op.READ,)}
"""What `--producer` and `--consumer` allow to each resource."""

PATTERNS = (PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
EVERY_HOST = "*"
NOBODY_ANSWERS = (
    "These ACLs were not removed, because nobody answered. With --force, kafka-acls asks no questions."
)


class Resource(NamedTuple):
    """Resources of a type, by their name or a prefix of it. In a filter the pattern type may be ANY or
    MATCH."""

    type: ResourceType
    name: str
    pattern: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.type.name}, name={self.name}, "
            f"patternType={self.pattern.name})"
        )

    @property
    def filter(self) -> AclBindingFilter:
        """Selects all ACLs of these resources."""
        return AclBindingFilter(self.type, self.name, pattern_type=self.pattern)

    def filter_of(self, entry: Entry) -> AclBindingFilter:
        """Selects the ACLs with this entry."""
        principal, host, operation, permission = entry
        return replace(
            self.filter, principal=principal, host=host, operation=operation, permission_type=permission
        )


class Entry(NamedTuple):
    """What an ACL says about its resource: who may, or may not, do what from which host."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)

Acls = dict[Resource, list[Entry]]


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-acls", "This tool helps to manage acls on kafka.")
    add_connection(parser, controllers=True)
    add = parser.add_argument
    add("--add", action="store_true", help="Add ACLs.")
    add("--remove", action="store_true", help="Remove ACLs.")
    add("--list", action="store_true", help="List ACLs of the given resources, or all.")

    def several(option: str, what: str) -> None:
        add(option, action="append", default=[], metavar=f"<String: {option[2:]}>", help=what)

    several("--topic", "The topic of the ACLs; '*' stands for all topics.")
    several("--group", "The consumer group of the ACLs; '*' stands for all groups.")
    several("--transactional-id", "The transactional id of the ACLs; '*' stands for all of them.")
    several("--delegation-token", "The delegation token of the ACLs; '*' stands for all tokens.")
    several("--user-principal", "The user of the ACLs, as the resource of CreateTokens and DescribeTokens.")
    add("--cluster", action="store_true", help="The ACLs of the cluster itself.")
    add(
        "--resource-pattern-type",
        type=str.upper,
        choices=[pattern.name for pattern in PATTERNS],
        default=PatternType.LITERAL.name,
        help="How names of resources are meant (default: LITERAL). PREFIXED: as prefixes. For --list and "
        "--remove also ANY: ACLs with this name, literal or as a prefix; MATCH: all ACLs that apply to the "
        "resource, also those of prefixes and '*'.",
    )
    several("--allow-principal", "A principal that is allowed the operations, such as User:ann or User:'*'.")
    several("--deny-principal", "A principal that is denied the operations, whatever else allows them.")
    several("--allow-host", "The host of --allow-principal. Every host if the option is missing.")
    several("--deny-host", "The host of --deny-principal. Every host if the option is missing.")
    add(
        "--principal",
        action="append",
        nargs="?",
        metavar="String: principal",
        help="With --list: only the ACLs of this principal. The option may be repeated.",
    )
    add(
        "--operation", action="append", metavar="<String>",
        help="An operation that is allowed or denied (default: All). One of "
        f"{', '.join(o.name.title().replace('_', '') for o in OPERATIONS.values())}.",
    )  # fmt: skip
    add("--producer", action="store_true", help="The ACLs that a producer needs for its topics.")
    add("--consumer", action="store_true", help="The ACLs that a consumer needs for its topics and groups.")
    add("--idempotent", action="store_true", help="With --producer: also IdempotentWrite on the cluster.")
    add("--force", action="store_true", help="Remove without a question.")
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    try:
        if args.list:
            principals = _principals([text for text in args.principal or () if text is not None])
            wanted = _resources(args)
            return with_admin(args, lambda admin: _list(admin, wanted, principals))
        acls = _acls(parser, args)
        if args.add:
            return with_admin(args, lambda admin: _add(admin, acls))
        return with_admin(args, lambda admin: _remove(admin, acls, force=args.force))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error while executing ACL command: {error_text(error)}") from error


def _check(parser: Parser, args: argparse.Namespace) -> None:
    """Ends the tool with its usage if options are missing or exclude each other."""
    if args.bootstrap_server and args.bootstrap_controller:
        parser.error("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not args.bootstrap_server and not args.bootstrap_controller:
        parser.error("One of --bootstrap-server or --bootstrap-controller must be specified")
    if args.add + args.remove + args.list != 1:
        parser.error("Command must include exactly one action: --list, --add, --remove.")
    hosts_and_principals = ("allow_host", "allow_principal", "deny_host", "deny_principal")
    inferred = ("operation", "deny_principal", "deny_host")
    for option, excluded in (
        ("list", ("producer", "consumer", *hosts_and_principals)),
        ("producer", inferred),
        ("consumer", inferred),
    ):
        for other in excluded if getattr(args, option) else ():
            if getattr(args, other):
                name = other.replace("_", "-")
                parser.error(f'Option "[{option}]" can\'t be used with option "[{name}]"')
    if args.principal and not args.list:
        parser.error("The --principal option is only available if --list is set")
    if args.producer and not args.topic:
        parser.error("With --producer you must specify a --topic")
    if args.idempotent and not args.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    foreign = not args.producer and (args.cluster or args.transactional_id)
    if args.consumer and (not args.topic or not args.group or foreign):
        parser.error(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id "
            "option should be specified."
        )


def _resources(args: argparse.Namespace) -> list[Resource]:
    """Returns the resources that the options name, each once."""
    pattern = PatternType[args.resource_pattern_type]
    literal = pattern is PatternType.LITERAL
    found = [Resource(ResourceType.TOPIC, name.strip(), pattern) for name in args.topic]
    found += [CLUSTER] if literal and (args.cluster or args.idempotent) else []
    found += [Resource(ResourceType.GROUP, name.strip(), pattern) for name in args.group]
    found += [Resource(ResourceType.TRANSACTIONAL_ID, name, pattern) for name in args.transactional_id]
    found += [
        Resource(ResourceType.DELEGATION_TOKEN, name.strip(), pattern) for name in args.delegation_token
    ]
    found += [Resource(ResourceType.USER, name.strip(), pattern) for name in args.user_principal]
    return list(dict.fromkeys(found))


def _principals(texts: Iterable[str]) -> list[str]:
    """Returns principals, each once. Raises ToolError for a text that is none."""
    found = [text.strip() for text in texts]
    for text in found:
        if ":" not in text:
            raise ToolError(
                "Error while executing ACL command: expected a string in format "
                f"principalType:principalName but got {text}"
            )
    return list(dict.fromkeys(found))


def _entries(args: argparse.Namespace, operations: Iterable[AclOperation]) -> list[Entry]:
    """Returns the entries for all principals, hosts and operations: none without a principal."""
    return [
        Entry(principal, host, operation, permission)
        for permission, principals, hosts in (
            (AclPermissionType.ALLOW, args.allow_principal, args.allow_host),
            (AclPermissionType.DENY, args.deny_principal, args.deny_host),
        )
        for principal in _principals(principals)
        for operation in dict.fromkeys(operations)
        for host in dict.fromkeys(host.strip() for host in hosts or [EVERY_HOST])
    ]


def _acls(parser: Parser, args: argparse.Namespace) -> Acls:
    """Returns what is to be added or removed: the entries of each resource. For `--remove`, no entries are
    all of its entries.

    Ends the tool with its usage if the options name no resources, or operations that do not fit.
    """
    pattern = PatternType[args.resource_pattern_type]
    if args.add and pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        parser.error(f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls.")
    resources = _resources(args)
    if not resources:
        parser.error(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    acls: Acls = {}
    if args.producer or args.consumer:
        for role in (PRODUCER if args.producer else {}, CONSUMER if args.consumer else {}):
            for resource in resources:
                if resource.type in role:
                    entries = acls.get(resource, []) + _entries(args, role[resource.type])
                    acls[resource] = list(dict.fromkeys(entries))
        if args.idempotent:
            acls[CLUSTER] = _entries(args, (Op.IDEMPOTENT_WRITE,))
    else:
        names = [name.strip().upper() for name in args.operation or (Op.ALL.name,)]
        entries = _entries(args, [OPERATIONS.get(name, Op.UNKNOWN) for name in names])
        acls = dict.fromkeys(resources, entries)
    for resource, entries in acls.items():
        supported = SUPPORTED[resource.type]
        if any(entry.operation not in supported for entry in entries):
            names = [operation.name for operation in supported]
            parser.error(f"ResourceType {resource.type.name} only supports operations [{', '.join(names)}]")
    if args.add and not all(acls.values()):
        parser.error("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    return {resource: sorted(entries) for resource, entries in sorted(acls.items())}


# -- add, remove, list
# --------------------------------------------------------------------------------------------------


async def _add(admin: AdminClient, acls: Acls) -> int:
    for resource, entries in acls.items():
        existing = set(await admin.describe_acls(resource.filter))
        new = {}
        for entry in entries:
            acl = _acl(resource, entry)
            if acl in existing:
                print(f"Acl (pattern={resource}, entry={entry}) already exists.")
            else:
                new[entry] = acl
        if new:
            print(f"Adding ACLs for resource `{resource}`: \n {_lines(new)}\n")
            for error in (await admin.create_acls(list(new.values()))).values():
                if error is not None:
                    raise error
    return 0


async def _remove(admin: AdminClient, acls: Acls, *, force: bool) -> int:
    for resource, entries in acls.items():
        if entries:
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(entries)}\n"
                f" from resource filter `{resource}`? (y/n)"
            )
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        if not force and not _agreed(question):
            continue
        filters = [resource.filter_of(entry) for entry in entries] or [resource.filter]
        for deleted in (await admin.delete_acls(filters)).values():
            if isinstance(deleted, KafkaError):
                raise deleted
    return 0


async def _list(admin: AdminClient, wanted: Sequence[Resource], principals: Sequence[str]) -> int:
    acls: dict[Resource, set[Entry]] = {}
    for match in [resource.filter for resource in wanted] or [AclBindingFilter()]:
        for acl in await admin.describe_acls(match):
            resource = Resource(acl.resource_type, acl.resource_name, acl.pattern_type)
            entry = Entry(acl.principal, acl.host, acl.operation, acl.permission_type)
            acls.setdefault(resource, set()).add(entry)
    any_principal: Sequence[str | None] = (None,)
    for principal in principals or any_principal:
        if principal is not None:
            print(f"ACLs for principal `{principal}`")
        for resource, entries in sorted(acls.items()):
            shown = sorted(entry for entry in entries if principal in (None, entry.principal))
            if shown:
                print(f"Current ACLs for resource `{resource}`:\n{_lines(shown)}\n")
    return 0


def _agreed(question: str) -> bool:
    """Whether the question is answered with y. Raises ToolError if nobody answers."""
    print(question)
    answer = typed_line("")
    if answer is None:
        raise ToolError(NOBODY_ANSWERS)
    return answer.lower() == "y"


def _acl(resource: Resource, entry: Entry) -> AclBinding:
    return AclBinding(
        resource.type,
        resource.name,
        entry.principal,
        entry.operation,
        entry.permission,
        entry.host,
        resource.pattern,
    )


def _lines(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)
