"""kafka-configs: describes and alters configurations, client quotas and SCRAM credentials."""

from __future__ import annotations

import argparse
import hashlib
import re
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.types import ConfigEntry, ConfigOp, ConfigSource
from quorate.java_numbers import parse_double
from quorate.protocol.config_resource import ConfigResourceType
from quorate.security.client_quota import CLIENT_ID, CONNECTION_CREATION_RATE, IP, USER
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import read_properties, tool_parser
from quorate.tools.command_line import Parser, ToolError, run

TOPICS, CLIENTS, USERS, BROKERS, LOGGERS, IPS, METRICS, GROUPS = (
    "topics", "clients", "users", "brokers", "broker-loggers", "ips", "client-metrics", "groups",
)  # fmt: skip
TYPES = (TOPICS, BROKERS, USERS, CLIENTS, IPS, METRICS, GROUPS, LOGGERS)

RESOURCES: Mapping[str, tuple[ConfigResourceType, ConfigSource | None]] = {
    TOPICS: (ConfigResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    BROKERS: (ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    LOGGERS: (ConfigResourceType.BROKER_LOGGER, None),
    METRICS: (ConfigResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
    GROUPS: (ConfigResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
}
"""The resource type of each entity type, and the source of its dynamic configurations."""

QUOTA_TYPES = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
QUOTAS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)  # fmt: skip
IP_QUOTAS = frozenset({CONNECTION_CREATION_RATE})
SCRAM_MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
MIN_ITERATIONS = 4096

_FLAGS = (
    ("topic", TOPICS), ("client", CLIENTS), ("user", USERS), ("broker", BROKERS), ("broker_logger",
    LOGGERS), ("ip", IPS),
    ("client_metrics", METRICS), ("group", GROUPS),
)  # fmt: skip
_DEFAULT_FLAGS = (
    ("client_defaults", CLIENTS),
    ("user_defaults", USERS),
    ("broker_defaults", BROKERS),
    ("ip_defaults", IPS),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


class _Ordered(argparse.Action):
    """Collects --entity-name and --entity-default in the order of the command line."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        names = list(getattr(namespace, "entity_names", None) or [])
        names.append("" if self.nargs == 0 else str(values))
        namespace.entity_names = names


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-configs",
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
        "client-metrics or group",
    )
    add_connection(parser, controllers=True)
    add = parser.add_argument
    add("--alter", action="store_true", help="Alter the configuration for the entity.")
    add("--describe", action="store_true", help="List configs for the given entity.")
    add("--all", action="store_true", help="List all configs, static ones and defaults too.")
    add(
        "--entity-type",
        action="append",
        default=[],
        metavar="<String>",
        help=f"Type of entity ({'/'.join(TYPES)}).",
    )
    add("--entity-name", action=_Ordered, metavar="<String>", help="Name of the entity.")
    add(
        "--entity-default",
        action=_Ordered,
        nargs=0,
        help="The default entity of the type (clients, users, brokers, ips).",
    )
    add(
        "--add-config", metavar="<String>",
        help="Configs to set: 'k1=v1,k2=[v1,v2,v2],k3=v3', with brackets around values that contain commas. "
        "For users also SCRAM-SHA-256=[iterations=8192,password=secret].",
    )  # fmt: skip
    add("--add-config-file", metavar="<String>", help="Properties file with configs to set.")
    add(
        "--delete-config", action="append", default=[], metavar="<String>", help="Configs to remove: 'k1,k2'."
    )
    for name, kind in _FLAGS:
        add(f"--{name.replace('_', '-')}", metavar="<String>", help=f"The entity of type {kind}.")
    for name, kind in _DEFAULT_FLAGS:
        add(f"--{name.replace('_', '-')}", action="store_true", help=f"The default entity of type {kind}.")
    parser.set_defaults(entity_names=[])
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.alter == args.describe:
        parser.error("Command must include exactly one action: --describe, --alter")
    if not args.bootstrap_server and not args.bootstrap_controller:
        raise ToolError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    kinds, names = _entities(args)
    _check(args, kinds, names)
    try:
        if args.alter:
            return with_admin(args, lambda admin: _alter(admin, args, kinds, names))
        return with_admin(args, lambda admin: _describe(admin, args, kinds, names))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error while executing config command: {error_text(error)}") from error


def _entities(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Returns entity types and names in the order of the options. "" is the default entity."""
    kinds = list(args.entity_type)
    names = list(args.entity_names)
    flagged = [(kind, getattr(args, name)) for name, kind in _FLAGS if getattr(args, name) is not None]
    defaults = [kind for name, kind in _DEFAULT_FLAGS if getattr(args, name)]
    if (kinds or names) and (flagged or defaults):
        raise ToolError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    kinds += [kind for kind, _ in flagged] + defaults
    names += [name for _, name in flagged] + [""] * len(defaults)
    return kinds, names


def _check(args: argparse.Namespace, kinds: Sequence[str], names: Sequence[str]) -> None:
    for kind in kinds:
        if kind not in TYPES:
            raise ToolError(f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)}")
    if not kinds:
        raise ToolError("At least one entity type must be specified")
    if len(set(kinds)) != len(kinds):
        raise ToolError(f"Duplicate entity type(s) specified: {','.join(kinds)}")
    if len(kinds) > 1 and set(kinds) != {USERS, CLIENTS}:
        raise ToolError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    if len(names) > len(kinds):
        raise ToolError("More entity names specified than entity types")
    if kinds[0] in (BROKERS, LOGGERS) and any(name and not name.lstrip("-").isdigit() for name in names):
        raise ToolError(
            f"The entity name for {kinds[0]} must be a valid integer broker id, but it is: {names[0]}"
        )
    if kinds[0] == IPS and (unknown := [name for name in names if name and not _is_address(name)]):
        raise ToolError(
            f"The entity name for {IPS} must be a valid IP or resolvable host, but it is: {unknown[0]}"
        )
    with_default = kinds[0] in (USERS, CLIENTS, BROKERS, IPS)
    if args.describe:
        if args.add_config or args.delete_config:
            raise ToolError("--add-config and --delete-config go with --alter")
        if "" in names and not with_default:
            raise ToolError(f"--entity-default must not be specified with --describe of {','.join(kinds)}")
        if kinds[0] == LOGGERS and not names:
            raise ToolError(f"An entity name must be specified with --describe of {kinds[0]}")
        return
    if not names and with_default:
        raise ToolError(
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or "
            "ips"
        )
    if not any(names) and not with_default:
        raise ToolError(f"An entity name must be specified with --alter of {','.join(kinds)}")
    if len(names) != len(kinds):
        raise ToolError("An entity name must be specified for every entity type")
    if args.add_config and args.add_config_file:
        raise ToolError("Only one of --add-config or --add-config-file must be specified")
    if not (args.add_config or args.add_config_file or args.delete_config):
        raise ToolError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with "
            "--alter"
        )


def _is_address(host: str) -> bool:
    """Whether a text is an IP address or the name of a host that has one."""
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


def parse_added(text: str) -> dict[str, str]:
    """Parses configurations like "k1=v1,k2=[a,b]". Raises ToolError."""
    found = {}
    for part in re.split(r",(?=[^\]]*(?:\[|$))", text):
        pair = re.split(r"\s*=\s*(?=[^\]]*(?:\[|$))", part)
        if len(pair) != 2:
            raise ToolError(
                'Invalid entity config: all configs to be added must be in the format "key=val" or '
                '"key=[val1,val2]" to group values which contain commas.'
            )
        found[pair[0].strip()] = pair[1].replace("[", "").replace("]", "").strip()
    return found


def _changes(args: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    added = read_properties(args.add_config_file)
    if args.add_config:
        added |= parse_added(args.add_config)
    for name in added:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", name):
            raise ToolError(f"Invalid character found for config key: {name}")
    return added, [name.strip() for text in args.delete_config for name in text.split(",")]


# -- alter
# --------------------------------------------------------------------------------------------------


async def _alter(
    admin: AdminClient, args: argparse.Namespace, kinds: Sequence[str], names: Sequence[str]
) -> int:
    added, deleted = _changes(args)
    kind, name = kinds[0], names[0]
    if kind in RESOURCES:
        await _alter_resource(admin, kind, name, added, deleted)
    else:
        await _alter_entity(admin, kinds, names, added, deleted)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")
    return 0


async def _alter_resource(
    admin: AdminClient, kind: str, name: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    resource = (RESOURCES[kind][0], name)
    if kind == LOGGERS:
        known = {entry.name for entry in await _entries(admin, kind, name, everything=True)}
        wrong = [n for n in (*deleted, *added) if n not in known]
        if wrong:
            raise ToolError(f"Invalid broker logger(s): {','.join(wrong)}")
    elif deleted:
        own = {entry.name for entry in await _entries(admin, kind, name, everything=False)}
        wrong = [n for n in deleted if n not in own]
        if wrong:
            raise ToolError(f"Invalid config(s): {','.join(wrong)}")
    ops: list[tuple[ConfigOp, str, str | None]] = [(ConfigOp.DELETE, n, "") for n in deleted]
    ops += [(ConfigOp.SET, n, value) for n, value in added.items()]
    error = (await admin.incremental_alter_configs({resource: ops}))[resource]
    if error is not None:
        raise error


async def _alter_entity(
    admin: AdminClient,
    kinds: Sequence[str],
    names: Sequence[str],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    quotas = IP_QUOTAS if kinds[0] == IPS else QUOTAS
    both = [*added, *deleted]
    scram = [n for n in both if n in SCRAM_MECHANISMS]
    unknown = [n for n in both if n not in quotas and (n not in SCRAM_MECHANISMS or kinds != [USERS])]
    if unknown:
        what = {IPS: "connection quota configs", USERS: "quota and SCRAM credential configs"}.get(
            kinds[0], "quota configs"
        )
        raise ToolError(
            f"Only {what} can be altered for '{kinds[0]}'. Unexpected config names: {','.join(unknown)}"
        )
    if not scram:
        await _alter_quotas(admin, kinds, names, added, deleted)
        return
    if names == [""]:
        raise ToolError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials."
        )
    if len(scram) != len(both):
        raise ToolError(f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}'.")
    await admin.alter_scram(
        upserts=[_credential(names[0], mechanism, text) for mechanism, text in added.items()],
        deletions=[(names[0], SCRAM_MECHANISMS[mechanism][0]) for mechanism in deleted],
    )


def _credential(user: str, mechanism: str, text: str) -> tuple[str, int, int, bytes, bytes]:
    """Derives the credential of "iterations=N,password=P", which has the salted password only (RFC 5802).

    Raises ToolError.
    """
    match = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text)
    if match is None:
        raise ToolError(f"Invalid credential property {mechanism}={text}")
    iterations = int(match[1]) if match[1] not in (None, "-1") else MIN_ITERATIONS
    if iterations < MIN_ITERATIONS:
        raise ToolError(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}"
        )
    code, digest = SCRAM_MECHANISMS[mechanism]
    salt = secrets.token_bytes(32)
    return user, code, iterations, salt, hashlib.pbkdf2_hmac(digest, match[2].encode(), salt, iterations)


async def _alter_quotas(
    admin: AdminClient,
    kinds: Sequence[str],
    names: Sequence[str],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    ops: dict[str, float | None] = {}
    for name, text in added.items():
        try:
            ops[name] = parse_double(text)
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {name}: {text}") from None
    if deleted:
        found = await admin.describe_client_quotas(_components(kinds, names), strict=True)
        own = next(iter(found.values()), {})
        wrong = [n for n in deleted if n not in own]
        if wrong:
            raise ToolError(f"Invalid config(s): {','.join(wrong)}")
        ops |= dict.fromkeys(deleted)
    entity = tuple((QUOTA_TYPES[kind], name or None) for kind, name in zip(kinds, names, strict=True))
    await admin.alter_client_quotas(entity, ops)


def _components(kinds: Sequence[str], names: Sequence[str]) -> list[tuple[str, int, str | None]]:
    components: list[tuple[str, int, str | None]] = []
    for index, kind in enumerate(kinds):
        if index >= len(names):
            components.append((QUOTA_TYPES[kind], 2, None))
        elif names[index] == "":
            components.append((QUOTA_TYPES[kind], 1, None))
        else:
            components.append((QUOTA_TYPES[kind], 0, names[index]))
    return components


# -- describe
# --------------------------------------------------------------------------------------------------


async def _describe(
    admin: AdminClient, args: argparse.Namespace, kinds: Sequence[str], names: Sequence[str]
) -> int:
    if kinds[0] not in RESOURCES:
        await _describe_quotas(admin, kinds, names)
        if USERS in kinds and CLIENTS not in kinds and "" not in names:
            for user, credentials in sorted((await admin.describe_scram(list(names) or None)).items()):
                by_code = {code: name for name, (code, _) in SCRAM_MECHANISMS.items()}
                shown = ", ".join(
                    f"{by_code.get(code, code)}=iterations={count}" for code, count in credentials
                )
                print(f"SCRAM credential configs for user-principal '{user}' are {shown}")
        return 0
    kind = kinds[0]
    existing = await _existing(admin, kind) if not names or not args.all else []
    if names and not args.all and names[0] not in existing:
        print(f"The {kind[:-1]} '{names[0]}' doesn't exist and doesn't have dynamic config.")
        return 0
    for name in names or existing:
        if name == "":
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if args.all else 'Dynamic'} configs for {kind[:-1]} {name} are:")
        for entry in await _entries(admin, kind, name, everything=args.all):
            print(f"  {entry_line(entry)}")
    return 0


def entry_line(entry: ConfigEntry) -> str:
    """Returns the line of a configuration in --describe."""
    synonyms = ", ".join(f"{s.source.name}:{s.name}={_shown(s.value)}" for s in entry.synonyms)
    return (
        f"{entry.name}={_shown(entry.value)} sensitive={str(entry.sensitive).lower()} synonyms={{{synonyms}}}"
    )


def _shown(value: str | None) -> str:
    return "null" if value is None else value


async def _existing(admin: AdminClient, kind: str) -> list[str]:
    """Returns the entities of a type. The default entity, if there is one, is the last."""
    if kind == TOPICS:
        return [topic.name for topic in await admin.list_topics()]
    if kind in (BROKERS, LOGGERS):
        return [*(str(node.id) for node in (await admin.describe_cluster()).nodes), ""]
    configured = [name for _, name in await admin.list_config_resources([RESOURCES[kind][0]])]
    if kind == GROUPS:
        configured += [group.group_id for group in await admin.list_groups()]
    return sorted(set(configured))


async def _entries(admin: AdminClient, kind: str, name: str, *, everything: bool) -> Iterable[ConfigEntry]:
    resource_type, own = RESOURCES[kind]
    if kind == BROKERS and name == "":
        own = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = (await admin.describe_configs([(resource_type, name)], synonyms=True))[resource_type, name]
    if isinstance(found, KafkaError):
        raise found
    return sorted((e for e in found if everything or own is None or e.source is own), key=lambda e: e.name)


async def _describe_quotas(admin: AdminClient, kinds: Sequence[str], names: Sequence[str]) -> None:
    found = await admin.describe_client_quotas(_components(kinds, names), strict=True)
    labels = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
    for entity, values in found.items():
        parts = dict(entity)
        shown = ", ".join(
            f"the default {word}" if parts[kind] is None else f"{word} '{parts[kind]}'"
            for kind, word in labels.items()
            if kind in parts
        )
        print(
            f"Quota configs for {shown} are "
            f"{', '.join(f'{name}={java_double(v)}' for name, v in values.items())}"
        )


def java_double(value: float) -> str:
    """Returns a double as Java prints it: in scientific notation from 10^7."""
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value)}.0"
    if abs(value) >= 1e7:
        mantissa, exponent = f"{value:.15e}".split("e")
        digits = mantissa.rstrip("0")
        return f"{digits}0E{int(exponent)}" if digits.endswith(".") else f"{digits}E{int(exponent)}"
    return repr(value)
