"""The partition of an internal topic for a group or a transactional id, as Java computes it."""

from __future__ import annotations

from functools import lru_cache


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in signed 32 bit arithmetic."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, count: int) -> int:
    """The absolute hash of the key modulo `count`. The smallest int, which has no absolute value, counts as
    0, as in Kafka's `Utils.abs`."""
    value = java_string_hash(key)
    return (0 if value == -(2**31) else abs(value)) % count
