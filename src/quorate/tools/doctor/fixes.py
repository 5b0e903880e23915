"""What `quorate doctor --fix` does: it only does what the next start would do, or what changes no setting.

Everything that is replaced or removed goes to a backup beside the file, or beside the log directory. Nothing
is done in a directory that a node uses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.log.files import fsync_directory, write_atomically
from quorate.log.properties_text import physical_lines
from quorate.tools.doctor.findings import Finding, RemoveFile, ReplaceLines

_ACROSS_MOUNTS = (errno.EXDEV, errno.EBUSY)
"""Errors of a rename to another file system, and onto a mount point."""


@dataclass(frozen=True, slots=True)
class PlannedFix:
    """One change, as it is shown and made."""

    path: Path
    shown: str
    new_text: str | None
    """The new content of a properties file; None for a file that is moved to the backup."""
    directory: Path = Path()
    """The log directory of a file that is moved. The backup is beside it."""


def plan_fixes(findings: Iterable[Finding]) -> list[PlannedFix]:
    """The changes of all findings. Those of one properties file become one. Raises OSError."""
    lines: dict[Path, dict[int, str | None]] = {}
    removed: dict[Path, Path] = {}
    for finding in findings:
        if isinstance(finding.fix, ReplaceLines):
            lines.setdefault(finding.fix.path, {}).update(finding.fix.lines)
        elif isinstance(finding.fix, RemoveFile):
            removed[finding.fix.path] = finding.fix.directory
    plan = []
    for path, changes in lines.items():
        old = path.read_bytes().decode("latin-1")
        new, shown = _edited(old, changes)
        if new != old:
            plan.append(PlannedFix(path, f"{path}:\n{shown}", new))
    plan += [PlannedFix(path, f"remove {path}", None, directory) for path, directory in removed.items()]
    return plan


def _edited(text: str, changes: dict[int, str | None]) -> tuple[str, str]:
    """The text with the changes, and the changed lines as a difference. A line that continues in the next one
    is left as it is."""
    kept: list[str] = []
    shown: list[str] = []
    for number, line in enumerate(physical_lines(text), 1):
        content = line.rstrip("\r\n")
        continues = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        if number not in changes or continues:
            kept.append(line)
            continue
        shown.append(f"  -{number}: {content.encode('latin-1').decode(errors='replace')}")
        if (new := changes[number]) is not None:
            shown.append(f"  +{number}: {new}")
            kept.append(new + line[len(content) :])
    return "".join(kept), "\n".join(shown)


def apply_fixes(plan: Sequence[PlannedFix], stamp: str) -> list[Path]:
    """Makes the changes and returns the backups. `stamp` makes their names unique. Raises OSError."""
    backups: dict[Path, None] = {}
    for fix in plan:
        if fix.new_text is not None:
            backup = fix.path.with_name(f"{fix.path.name}.before-doctor-{stamp}")
            shutil.copy2(fix.path, backup)
            _sync(backup)
            _replace(fix.path.resolve(), fix.new_text.encode("latin-1"))
            backups[backup] = None
            continue
        folder = fix.directory.with_name(f"{fix.directory.name}.before-doctor-{stamp}")
        target = folder / fix.path.relative_to(fix.directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(fix.path, target)
        backups[folder] = None
    return list(backups)


def _move(source: Path, target: Path) -> None:
    """Moves a file or a directory, by a copy if the log directory is a mount point, beside which is another
    file system. Raises OSError."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in _ACROSS_MOUNTS:
            raise
        _copy(source, target)
        if source.is_dir() and not source.is_symlink():
            shutil.rmtree(source)
        else:
            source.unlink()
    fsync_directory(str(source.parent))


def _copy(source: Path, target: Path) -> None:
    """Copies a file or a directory durably. Raises OSError, before it writes anything if the room is
    missing."""
    files = [path for path in (source, *source.rglob("*")) if path.is_file() and not path.is_symlink()]
    size_bytes, free_bytes = sum(path.stat().st_size for path in files), shutil.disk_usage(target.parent).free
    if size_bytes > free_bytes:
        text = f"No room for the backup of {source}, {size_bytes} bytes ({free_bytes} are free)"
        raise OSError(errno.ENOSPC, text, str(target))
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
    for path in files:
        _sync(target / path.relative_to(source))
    fsync_directory(str(target.parent))


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _replace(path: Path, content: bytes) -> None:
    """Replaces a file, and keeps its owner and its mode: the node of another user has to read it. Raises
    OSError.

    A file that is a mount point of its own, as in a container, cannot be replaced and is written anew. Its
    backup is on the disk before.
    """
    old = path.stat()
    try:
        write_atomically(str(path), content)
    except OSError as error:
        if error.errno not in _ACROSS_MOUNTS:
            raise
        Path(f"{path}.tmp").unlink(missing_ok=True)
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
            os.fsync(file.fileno())
    new = path.stat()
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(path, old.st_uid, old.st_gid)
    path.chmod(old.st_mode & 0o7777)
