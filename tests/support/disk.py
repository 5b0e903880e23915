"""A small file system of its own, which can be filled, made read-only, failed, or lose what was not
synced. Needs root."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import wait_for

_EXT4_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32): every later access fails with EIO
_WITHOUT_JOURNAL = 2  # what is not on the platter is lost, as when the power goes


class Disk:
    """ext4 on a loop device, mounted at `path` until `close`."""

    def __init__(self, path: Path, megabytes: int = 24) -> None:
        self.path = path
        self._image = path.with_name(path.name + ".img")
        path.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True, capture_output=True)
            self._mount()
        except (OSError, subprocess.CalledProcessError) as e:
            pytest.skip(f"a file system of its own needs root, mkfs.ext4 and loop devices: {e}")

    def _mount(self) -> None:
        """Each time on a loop device of its own: another mount namespace may still hold the one that
        was failed."""
        found = subprocess.run(
            ["losetup", "-f", "--show", str(self._image)], check=True, capture_output=True, text=True
        )
        device = found.stdout.strip()
        try:
            subprocess.run(
                ["mount", "-o", "errors=remount-ro", device, str(self.path)], check=True, capture_output=True
            )
        finally:
            subprocess.run(["losetup", "-d", device], check=False, capture_output=True)  # goes with the mount

    def fill(self) -> None:
        """Not a byte is left."""
        fd = os.open(self.path / "ballast", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            for size in (1 << 20, 4096):
                try:
                    while os.write(fd, bytes(size)):
                        pass
                except OSError:
                    continue
            os.fsync(fd)
        finally:
            os.close(fd)

    def free(self) -> None:
        (self.path / "ballast").unlink()

    def fail(self) -> None:
        """Every access fails from now on; what was not synced is gone for good."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(fd)

    def make_read_only(self) -> None:
        """As the kernel does it after an error."""
        device = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(self.path)], capture_output=True, text=True, check=True
        )
        (Path("/sys/fs/ext4") / device.stdout.strip().rsplit("/", 1)[-1] / "trigger_fs_error").write_text(
            "by a test"
        )

    def replug(self) -> None:
        """The disk answers again, with what had been synced. Nothing may be open on it: the broken one
        would be mounted again."""
        command = ["umount", str(self.path)]
        wait_for(
            "the disk to be unmounted",
            lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0,
        )
        self._mount()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)
