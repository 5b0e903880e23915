"""kafka-features: describes and changes the finalized feature levels of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.types import FeatureUpgrade
from quorate.metadata import features as levels
from quorate.tools import storage
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import Parser, ToolError, run

Updates = dict[str, tuple[int, FeatureUpgrade]]


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-features", "This tool manages feature flags in Kafka.")
    add_connection(parser, controllers=True)
    commands = parser.add_subparsers(
        dest="command", metavar="{describe,upgrade,downgrade,disable,version-mapping,feature-dependencies}"
    )
    describe = commands.add_parser("describe", help="Describes the current active feature flags.")
    describe.add_argument("--node-id", type=int, help="The id of the node to ask. Default: any node.")
    upgrade = commands.add_parser("upgrade", help="Upgrade one or more feature flags.")
    downgrade = commands.add_parser("downgrade", help="Downgrade one or more feature flags.")
    disable = commands.add_parser(
        "disable", help="Disable one or more feature flags: the same as downgrading to zero."
    )
    for command in (upgrade, downgrade):
        command.add_argument(
            "--metadata", help="DEPRECATED: the level of metadata.version, for example 3.3-IV3."
        )
        command.add_argument(
            "--release-version",
            "--release-software",
            help="The release whose feature levels are to be set, for example 4.1-IV1.",
        )
    for command in (upgrade, downgrade, disable):
        command.add_argument(
            "--feature",
            action="append",
            help="feature=level, or only the feature for disable (may be repeated).",
        )
        command.add_argument(
            "--dry-run", action="store_true", help="Validate the change, but do not perform it."
        )
    for command in (downgrade, disable):
        command.add_argument(
            "--unsafe", action="store_true", help="Downgrade even if metadata is lost irreversibly."
        )
    mapping = commands.add_parser("version-mapping", help="The feature levels that belong to a release.")
    mapping.add_argument(
        "--release-version",
        "-r",
        help="The release, for example 4.1-IV1. Default: the latest stable release.",
    )
    dependencies = commands.add_parser(
        "feature-dependencies", help="The levels of other features that the given levels require."
    )
    dependencies.add_argument(
        "--feature", "-f", action="append", required=True, help="feature=level (may be repeated)."
    )
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.error("too few arguments")
    if args.command in ("version-mapping", "feature-dependencies"):
        # Both commands print what this release supports and contact no cluster.
        return storage.main([args.command, *_storage_arguments(args)])
    try:
        if args.command == "describe":
            return with_admin(args, lambda admin: _describe(admin, args))
        updates = _updates(args)
        return with_admin(args, lambda admin: _update(admin, args, updates))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error


def _storage_arguments(args: argparse.Namespace) -> list[str]:
    if args.command == "feature-dependencies":
        return [part for feature in args.feature for part in ("--feature", feature)]
    return ["--release-version", args.release_version] if args.release_version else []


def level_text(feature: str, level: int) -> str:
    """Returns the text of a level. For metadata.version it is the name of the version."""
    if feature != levels.METADATA_VERSION:
        return str(level)
    known = levels.LEVELS.get(level)
    return f"UNKNOWN {level}" if known is None else known.name


async def _describe(admin: AdminClient, args: argparse.Namespace) -> int:
    node = None
    if args.node_id is not None:
        if args.node_id < 0:
            raise ToolError(f"Invalid node id {args.node_id}: must be non-negative.")
        nodes = (await admin.describe_cluster()).nodes
        node = next((n for n in nodes if n.id == args.node_id), None)
        if node is None:
            ids = ", ".join(str(n.id) for n in nodes)
            raise ToolError(f"No node has the id {args.node_id}; there are {ids}.")
    found = await admin.describe_features(node)
    epoch = str(found.epoch) if found.epoch >= 0 else "-"
    for feature, (low, high) in sorted(found.supported.items()):
        level = found.finalized.get(feature, 0)
        least, most = level_text(feature, low), level_text(feature, high)
        print(
            f"Feature: {feature:<40}  SupportedMinVersion: {least:<15}  SupportedMaxVersion: {most:<15}  "
            f"FinalizedVersionLevel: {level_text(feature, level):<15}  Epoch: {epoch}"
        )
    return 0


def _updates(args: argparse.Namespace) -> Updates:
    """Returns the levels and upgrade types that the options specify. Raises ToolError."""
    kind = FeatureUpgrade.UPGRADE
    if args.command != "upgrade":
        kind = FeatureUpgrade.UNSAFE_DOWNGRADE if args.unsafe else FeatureUpgrade.SAFE_DOWNGRADE
    given = args.feature or []
    updates: Updates = {}
    if args.command == "disable":
        pairs = [(levels.canonical_name(feature), 0) for feature in given]
    else:
        if args.release_version is not None:
            if args.metadata is not None or given:
                raise ToolError("Can not specify `release-version` with other feature flags.")
            return _release(args.release_version, kind)
        if args.metadata is not None:
            print(" `metadata` flag is deprecated and may be removed in a future release.")
            updates[levels.METADATA_VERSION] = (_metadata_level(args.metadata), kind)
        pairs = [_name_and_level(text) for text in given]
    for feature, level in pairs:
        if feature in updates:
            raise ToolError(f"Feature {feature} was specified more than once.")
        updates[feature] = (level, kind)
    if not updates:
        raise ToolError(f"You must specify at least one feature to {args.command}")
    return updates


def _metadata_level(text: str) -> int:
    try:
        return levels.parse_version(text).level
    except ValueError:
        stable = [str(v) for level, v in sorted(levels.LEVELS.items()) if level <= levels.LATEST_STABLE_LEVEL]
        raise ToolError(
            f"Unknown metadata.version {text}. Supported metadata.version are {', '.join(stable)}"
        ) from None


def _release(text: str, kind: FeatureUpgrade) -> Updates:
    metadata = _metadata_level(text)
    updates: Updates = {levels.METADATA_VERSION: (metadata, kind)}
    for feature in levels.FEATURES.values():
        level = feature.default_level(metadata)
        if level > 0 or kind is not FeatureUpgrade.UPGRADE:  # level 0 is not an upgrade
            updates[feature.name] = (level, kind)
    return updates


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    feature = levels.canonical_name(name.strip())
    try:
        return feature, int(level)
    except ValueError:
        if feature == levels.METADATA_VERSION:
            return feature, _metadata_level(level.strip())
        raise ToolError(
            f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        ) from None


async def _update(admin: AdminClient, args: argparse.Namespace, updates: Updates) -> int:
    results = await admin.update_features(updates, validate_only=args.dry_run)
    failed = 0
    for feature, error in sorted(results.items()):
        level = updates[feature][0] if feature in updates else 0
        if error is not None:
            failed += 1
            what = (
                f"disable {feature}" if args.command == "disable" else f"{args.command} {feature} to {level}"
            )
            print(f"{'Can not' if args.dry_run else 'Could not'} {what}. {error_text(error)}")
        else:
            done = "disabled." if args.command == "disable" else f"{args.command}d to {level}."
            print(f"{feature} {'can be' if args.dry_run else 'was'} {done}")
    if failed and args.command == "upgrade":
        named = " ".join(error_text(error) for error in results.values() if error is not None)
        for line in await unnamed_blockers(admin, args.bootstrap_controller is not None, updates, named):
            print(line)
    if failed:
        raise ToolError(f"{failed} out of {len(updates)} operation(s) failed.")
    return 0


async def unnamed_blockers(admin: AdminClient, controllers: bool, updates: Updates, named: str) -> list[str]:
    """Returns a line for each node that blocks an upgrade and that the errors do not name.

    Apache Kafka's controller names only the first node. The nodes that the bootstrap servers list are asked:
    brokers, or with --bootstrap-controller controllers.
    """
    kind = "Controller" if controllers else "Broker"
    found = []
    for node in (await admin.describe_cluster()).nodes:
        if f"{kind} {node.id} " in named or (controllers and f"Local controller {node.id} " in named):
            continue
        try:
            supported = (await admin.describe_features(node)).supported
        except (KafkaError, NetError) as error:
            found.append(f"{kind} {node.id} cannot be asked: {error_text(error)}")
            continue
        for feature, (level, _) in updates.items():
            low, high = supported.get(feature, (0, 0))
            if not low <= level <= high:
                found.append(f"{kind} {node.id} supports {feature} {low} to {high}, not {level}.")
    return found
