"""What may happen to a file while no node has it open."""

from __future__ import annotations

import os
from pathlib import Path


def damage_remove(path: Path) -> None:
    path.unlink()


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def damage_preallocated(path: Path) -> None:
    with path.open("r+b") as out:
        out.truncate(10 << 20)


def damage_first_entry(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 0x10
    path.write_bytes(data)


def damage_position(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[15] ^= 0x08
    path.write_bytes(data)


def damage_random(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))
