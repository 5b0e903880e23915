"""Kafka's uuids: 16 raw bytes in memory and on the wire, 22 characters of URL-safe base64 in text."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

ZERO_UUID: Final = bytes(16)


def is_reserved(uuid: bytes) -> bool:
    """Whether a uuid never stands for a real directory (KIP-858): as two signed numbers of 64 bits,
    the first is 0 and the second below 100 (Kafka's DirectoryId)."""
    return uuid[:8] == bytes(8) and int.from_bytes(uuid[8:], "big", signed=True) < 100


def uuid_text(raw: bytes) -> str:
    """Returns the text of a uuid, of 22 characters. Raises ValueError unless `raw` has 16 bytes."""
    if len(raw) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Parses the text of a uuid. Raises ValueError if it is too long or does not have 16 bytes."""
    if len(text) > 24:
        raise ValueError(f"{text[:32]!r}... is too long for a uuid: 24 characters at most")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"{text!r} is not a uuid: {e}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid: it holds {len(raw)} bytes, not 16")
    return raw


def random_uuid(rng_bytes: bytes | None = None) -> bytes:
    """Returns a version 4 uuid of 16 random bytes, by default those of the system.

    As in Kafka, its text does not start with `-`, which would look like an option on a command line. A uuid
    that does is drawn again. If the caller gave the bytes, their first bit is cleared instead.
    """
    while True:
        b = bytearray(os.urandom(16) if rng_bytes is None else rng_bytes)
        if len(b) != 16:
            raise ValueError(f"16 random bytes are needed, not {len(b)}")
        b[6] = b[6] & 0x0F | 0x40
        b[8] = b[8] & 0x3F | 0x80
        if b[0] >> 2 == 62:  # 62 is written `-`
            if rng_bytes is None:
                continue
            b[0] &= 0x7F
        return bytes(b)
