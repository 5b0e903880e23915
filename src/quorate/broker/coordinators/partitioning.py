"""Which partition of an internal topic a group or a transactional id lives in, exactly as Java computes
it."""

from __future__ import annotations

from functools import lru_cache

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"


def java_string_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, in 32 bit arithmetic, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, count: int) -> int:
    """The partition of a key among `count`: the absolute hash, where the one int without an absolute
    value counts as 0."""
    value = java_string_hash(key)
    return (0 if value == -(2**31) else abs(value)) % count
