"""kafka-storage: formats log directories and shows their state."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import Parser, ToolError, run

if TYPE_CHECKING:
    from quorate.log.directories import meta_properties
    from quorate.metadata import features
    from quorate.node import properties
    from quorate.node.storage import dynamic_voters, formatter, scram_parser
    from quorate.protocol import uuids
    from quorate.tools import standalone_check
else:
    meta_properties = lazy_module("quorate.log.directories.meta_properties")
    features = lazy_module("quorate.metadata.features")
    properties = lazy_module("quorate.node.properties")
    dynamic_voters, formatter, scram_parser = lazy_modules(
        "quorate.node.storage", "dynamic_voters", "formatter", "scram_parser"
    )
    uuids = lazy_module("quorate.protocol.uuids")
    standalone_check = lazy_module("quorate.tools.standalone_check")


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.error("too few arguments")
    status: int = args.run(args)
    return status


def _parser() -> Parser:
    parser = Parser("kafka-storage", "The Kafka storage tool.")
    parser.add_version()
    commands = parser.add_subparsers(
        dest="command", metavar="{info,format,version-mapping,feature-dependencies,random-uuid}"
    )

    info = commands.add_parser("info", help="Get information about the Kafka log directories on this node.")
    _config_argument(info)
    info.set_defaults(run=_info)

    form = commands.add_parser("format", help="Format the Kafka log directories on this node.")
    _config_argument(form)
    form.add_argument("--cluster-id", "-t", required=True, help="The cluster ID to use.")
    form.add_argument(
        "--add-scram", "-S", action="append", default=[], metavar="ADD_SCRAM",
        help="A SCRAM credential to put into the metadata log at once, for example "
        "'SCRAM-SHA-256=[name=alice,password=alice-secret]' or "
        "'SCRAM-SHA-512=[name=alice,iterations=8192,salt=\"N3E=\",saltedpassword=\"YCE=\"]'",
    )  # fmt: skip
    form.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="Skip directories that are formatted already."
    )
    form.add_argument(
        "--release-version", "-r",
        help="The release whose features the new cluster starts with, 3.3 or later; the newest by default. "
        "Whatever it is, no software older than this tool may be started on the directories.",
    )  # fmt: skip
    form.add_argument(
        "--feature", "-f", action="append", default=[], help="A feature's level, as in kraft.version=1."
    )
    quorum = form.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone", "-s", action="store_true",
        help="This controller is the only voter of a new dynamic quorum (controller.quorum.voters must not "
        "be set).",
    )  # fmt: skip
    quorum.add_argument(
        "--no-initial-controllers", "-N", action="store_true",
        help="This node will be added to a dynamic quorum, or only observes one.",
    )  # fmt: skip
    quorum.add_argument(
        "--initial-controllers", "-I", "--controller-quorum-voters", dest="initial_controllers",
        help="The voters of a new dynamic quorum, the same text on every node: id@host:port:directoryId,... "
        "(id-directoryId@host:port is taken too). A directory id may be omitted.",
    )  # fmt: skip
    form.set_defaults(run=_format)

    mapping = commands.add_parser(
        "version-mapping", help="Show the features' levels that a release starts with."
    )
    mapping.add_argument("--release-version", "-r", help="The release, 3.3 or later; the newest by default.")
    mapping.set_defaults(run=_version_mapping)

    needs = commands.add_parser("feature-dependencies", help="Show what a feature's level needs.")
    needs.add_argument(
        "--feature", "-f", action="append", required=True, help="As in metadata.version=21; repeatable."
    )
    needs.set_defaults(run=_feature_dependencies)

    uuid = commands.add_parser("random-uuid", help="Print a random UUID.")
    uuid.set_defaults(run=_random_uuid)
    return parser


def _config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", "-c", required=True, type=Path, help="The node's properties file.")


def _info(args: argparse.Namespace) -> int:
    config = properties.load_config(args.config)
    problems: list[str] = []
    found: list[Path] = []
    first: meta_properties.MetaProperties | None = None
    for directory in sorted(config.all_dirs):
        if not directory.is_dir():
            problems.append(
                f"{directory} is not a directory" if directory.exists() else f"{directory} does not exist"
            )
            continue
        found.append(directory)
        try:
            meta = meta_properties.read(directory)
        except (meta_properties.MetaPropertiesError, OSError) as e:
            problems.append(f"Error loading {directory / meta_properties.FILE_NAME}: {e}")
            continue
        if meta is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = meta
        elif first.cluster_id != meta.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != meta.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if found:
        print("Found log directory:" if len(found) == 1 else "Found log directories:")
        for directory in found:
            print(f"  {directory}")
        print()
    if first is not None:
        shown = {"cluster.id": first.cluster_id, "node.id": str(first.node_id), "version": "1"}
        if first.directory_id is not None:
            shown["directory.id"] = uuids.uuid_text(first.directory_id)
        print(f"Found metadata: {{{', '.join(f'{k}={v}' for k, v in sorted(shown.items()))}}}")
        print()
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            print(f"  {problem}")
        print()
        return 1
    return 0


def _format(args: argparse.Namespace) -> int:
    config = properties.load_config(args.config)
    for warning in config.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if config.quorum_voters and (args.initial_controllers or args.standalone):
        raise ToolError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers "
            "or --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters "
            "and specify controller.quorum.bootstrap.servers instead."
        )
    warnings: list[str] = []
    voters = None
    if args.initial_controllers:
        voters = dynamic_voters.parse_dynamic_voters(args.initial_controllers)
        warnings += dynamic_voters.voter_warnings(voters, config.node_id, controller=config.is_controller)
    elif args.standalone:
        if not config.is_controller:
            raise ToolError("You can only use --standalone on a controller.")
        voters = formatter.standalone_voters(config)
        warnings += standalone_check.check_no_existing_quorum(
            config.quorum_bootstrap_servers, args.cluster_id.strip()
        )
    elif config.is_controller and not config.quorum_voters and not args.no_initial_controllers:
        raise ToolError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the "
            "following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    if not args.cluster_id.strip():
        raise ToolError("--cluster-id must not be empty; kafka-storage random-uuid makes one")
    plan = formatter.FormatPlan(
        config=config,
        cluster_id=args.cluster_id.strip(),
        voters=voters,
        ignore_formatted=args.ignore_formatted,
        release_version=args.release_version,
        feature_levels=_levels(args.feature, warnings),
        scram=[scram_parser.parse_scram(text) for text in args.add_scram],
    )
    for warning in warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    try:
        formatter.format_directories(plan, print)
    except formatter.FormatError as e:
        raise ToolError(str(e)) from e
    return 0


def _levels(items: Sequence[str], warnings: list[str]) -> dict[str, int]:
    """Returns the level of each feature that the options name. Raises ToolError.

    Of several levels for one feature the last one counts, as in Kafka. A warning is added for it.
    """
    given: dict[str, list[int]] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ToolError(f"Can't parse feature=level string {item}: equals sign not found.")
        level = text.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,5}", level) or not -(1 << 15) <= int(level) < 1 << 15:
            raise ToolError(f"Can't parse feature=level string {item}: unable to parse {level} as a short.")
        given.setdefault(features.canonical_name(name.strip()), []).append(int(level))
    for name, levels in given.items():
        if len(levels) > 1:
            shown = ", ".join(map(str, levels))
            warnings.append(
                f"--feature {name} is given {len(levels)} times ({shown}); the last, {levels[-1]}, counts"
            )
    return {name: levels[-1] for name, levels in given.items()}


def _version_mapping(args: argparse.Namespace) -> int:
    wanted = args.release_version or features.LEVELS[features.LATEST_STABLE_LEVEL].name
    try:
        version = features.parse_version(wanted, unstable=True)
    except ValueError as e:
        raise ToolError(str(e)) from None
    print(f"metadata.version={version.level} ({wanted})")
    for feature in features.FEATURES.values():
        print(f"{feature.name}={feature.default_level(version.level)}")
    return 0


def _feature_dependencies(args: argparse.Namespace) -> int:
    for item in args.feature:
        given, equals, text = item.partition("=")
        name, text = features.canonical_name(given.strip()), text.strip()
        if not equals:
            raise ToolError(
                f"Invalid feature format: {item}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            )
        try:
            level = int(text)
        except ValueError:
            raise ToolError(f"Invalid version format: {text} for feature {name}") from None
        if name == features.METADATA_VERSION:
            if level not in features.LEVELS:
                raise ToolError(f"Unknown metadata.version {level}")
            print(f"{name}={level} ({features.LEVELS[level]}) has no dependencies.")
            continue
        if name not in features.FEATURES:
            raise ToolError(f"Unknown feature: {name}")
        try:
            needed = features.dependencies(name, level)
        except ValueError:
            raise ToolError(f"Feature level {level} is not supported for feature {name}") from None
        if not needed:
            print(f"{name}={level} has no dependencies.")
            continue
        print(f"{name}={level} requires:")
        for other, lowest in needed.items():
            suffix = f" ({features.LEVELS[lowest]})" if other == features.METADATA_VERSION else ""
            print(f"    {other}={lowest}{suffix}")
    return 0


def _random_uuid(args: argparse.Namespace) -> int:
    print(uuids.uuid_text(uuids.random_uuid()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
