"""Checks what lies below a log directory: file system, free space, owners and permissions."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.tools.doctor.findings import Finding, Severity

NETWORK_FILE_SYSTEMS = {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
MEMORY_FILE_SYSTEMS = {"ramfs", "tmpfs"}
_SHOWN = 3


def check_disk(directory: Path) -> Iterator[Finding]:
    """Checks the file system of a log directory and the access to its files. Raises OSError."""
    yield from check_mount(directory, Path("/proc/self/mounts").read_text())
    yield from check_free_space(directory, os.statvfs(directory))
    yield from check_owners(directory, _important_files(directory))


# --- file system ----------------------------------------------------------------------------------


def check_mount(directory: Path, mounts: str) -> Iterator[Finding]:
    """Checks the type and the options of the file system. `mounts` is the content of /proc/self/mounts."""
    found = _mount_of(directory.resolve(), mounts)
    if found is None:
        return
    place, kind, options = found
    if "ro" in options.split(","):
        yield Finding(
            Severity.ERROR,
            "read-only-file-system",
            directory,
            f"{directory} is on {place}, which is mounted read-only: the kernel does so after an error of "
            "the disk",
            f"look into the kernel's log, repair the file system, then mount -o remount,rw {place}",
        )
    if kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse."):
        yield Finding(
            Severity.WARNING,
            "network-file-system",
            directory,
            f"{directory} is on {place}, a {kind} file system: fsync, locks and renames may not be durable "
            "there",
            "use a local disk, or make sure that the server keeps these promises",
        )
    if kind in MEMORY_FILE_SYSTEMS:
        yield Finding(
            Severity.WARNING,
            "memory-file-system",
            directory,
            f"{directory} is on {place}, a {kind} file system: a reboot loses everything in it",
            "use a disk",
        )


def _mount_of(path: Path, mounts: str) -> tuple[Path, str, str] | None:
    """The mount point of a path, its type and its options. Of several at the same place, the last one
    counts."""
    best: tuple[Path, str, str] | None = None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        place = Path(fields[1].replace("\\040", " "))
        if path.is_relative_to(place) and (best is None or len(place.parts) >= len(best[0].parts)):
            best = place, fields[2], fields[3]
    return best


def check_free_space(directory: Path, disk: os.statvfs_result) -> Iterator[Finding]:
    """Checks the free space and the free inodes."""
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if size and free < max(64 << 20, size // 100):
        yield Finding(
            Severity.ERROR,
            "disk-full",
            directory,
            f"{_mib(free)} of {_mib(size)} are free for {directory}: a node whose metadata directory is "
            "full stops",
            "free some space, or move the directory to a larger disk",
        )
    elif size and free < size // 10:
        yield Finding(
            Severity.WARNING,
            "disk-nearly-full",
            directory,
            f"{_mib(free)} of {_mib(size)} are free for {directory}",
            "lower the retention of the largest topics, or add a disk",
        )
    if disk.f_files and disk.f_favail < 1000:
        yield Finding(
            Severity.ERROR if disk.f_favail < 16 else Severity.WARNING,
            "no-free-inodes",
            directory,
            f"{disk.f_favail} more files fit on the file system of {directory}; a segment takes four",
            "make a file system with more inodes",
        )


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


# --- owners and permissions -----------------------------------------------------------------------


def _important_files(directory: Path) -> Iterator[Path]:
    """The entries of a log directory and of its metadata log."""
    yield from sorted(directory.iterdir())
    metadata_log = directory / METADATA_DIRECTORY
    if metadata_log.is_dir() and os.access(metadata_log, os.R_OK | os.X_OK):
        yield from sorted(metadata_log.iterdir())


def check_owners(directory: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Checks that all files belong to the owner of the directory, and that this user may read them."""
    owner = directory.stat().st_uid
    strangers: dict[int, list[Path]] = {}
    unreadable = []
    for path in files:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid != owner:
            strangers.setdefault(status.st_uid, []).append(path)
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            unreadable.append(path)
    for uid, paths in strangers.items():
        yield Finding(
            Severity.WARNING,
            "other-owner",
            directory,
            f"{_shown(paths)} belong{'s' if len(paths) == 1 else ''} to {_user(uid)}, but {directory} to "
            f"{_user(owner)}: a tool or a node was run as another user",
            f"chown -R {_user(owner)} {directory}, if that is the user of the node",
        )
    if unreadable:
        yield Finding(
            Severity.ERROR,
            "no-permission",
            directory,
            f"{_shown(unreadable)} cannot be read by {_user(os.geteuid())}",
            "run quorate doctor as the user of the node; if it is that user, correct the permissions",
        )


def _shown(paths: list[Path]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(map(str, paths[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
