"""`quorate doctor PATH`: checks a properties file with its log directories, or a log directory, offline."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_modules
from quorate.log import properties_text
from quorate.log.directories.lock import DirLock
from quorate.tools.command_line import ToolError
from quorate.tools.doctor import directories
from quorate.tools.doctor.findings import exit_status
from quorate.tools.doctor.fixes import apply_fixes, plan_fixes

if TYPE_CHECKING:
    from quorate.tools.doctor import properties, report, rules
else:
    properties, report, rules = lazy_modules("quorate.tools.doctor", "properties", "report", "rules")


def doctor(args: argparse.Namespace) -> int:
    """Runs the command. Returns 0 if nothing is wrong, 1 if there are warnings, 2 if there are errors. Raises
    ToolError, OSError."""
    path: Path = args.path
    if not path.exists():
        raise ToolError(f"{path} does not exist; name a properties file or a log directory", 2)
    found = (
        _directory(path, deep=args.deep)
        if path.is_dir()
        else _file(path, deep=args.deep, only=args.only_file)
    )
    if args.json:
        print(report.document(found))
    else:
        print(report.text(found, colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    if args.fix:
        _fix(found, to_stderr=args.json)
    return exit_status(found.findings)


def _directory(path: Path, *, deep: bool) -> report.Report:
    found = directories.check_directories(directories.of_path(path), deep=deep)
    return report.Report(path, found.findings, found.kafka)


def _file(path: Path, *, deep: bool, only: bool) -> report.Report:
    try:
        content = properties_text.read(path)
    except ValueError as error:
        raise ToolError(f"{path} cannot be checked: {error}", 2) from error
    of_file = properties.check_properties(path, content)
    findings, kafka = list(of_file.findings), of_file.kafka
    checked: tuple[Path, ...] = ()
    if of_file.config is not None and not only:
        node = directories.of_config(of_file.config, path)
        of_directories = directories.check_directories(node, deep=deep)
        findings += of_directories.findings
        if not any(finding.code == "in-use" for finding in of_directories.findings):
            lines = {finding.key: finding.line for finding in findings if finding.key}
            findings += rules.used_ports(path, of_file.config, lines, _sockets())
        kafka = kafka or of_directories.kafka
        checked = tuple(node.directories)
    try:
        values = properties_text.load(content)
    except ValueError:
        values = {}
    corrections = properties.corrected_lines(findings, values)
    return report.Report(path, findings, kafka, checked, corrections, of_file.config is not None)


def _sockets() -> str:
    """The sockets of this machine, nothing where the kernel does not list them."""
    texts = []
    for name in ("tcp", "tcp6"):
        try:
            texts.append(Path("/proc/net", name).read_text())
        except OSError:
            continue
    return "".join(texts)


def _fix(found: report.Report, *, to_stderr: bool) -> None:
    """Shows and makes the changes that are safe. Raises ToolError, OSError."""
    out = sys.stderr if to_stderr else sys.stdout
    plan = plan_fixes(found.findings)
    if not plan:
        print("\nThere is nothing that --fix may change.", file=out)
        return
    for directory in found.checked or directories.of_path(found.path).directories:
        if directory.is_dir() and (pid := DirLock(directory).holder()) is not None:
            raise ToolError(f"process {pid} uses {directory}: stop the node first, nothing was changed", 2)
    print("\n--fix changes:", file=out)
    for fix in plan:
        print(f"{fix.shown}", file=out)
    for backup in apply_fixes(plan, time.strftime("%Y%m%d-%H%M%S")):
        print(f"The old content is in {backup}", file=out)
