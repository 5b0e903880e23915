"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.records.errors import InvalidRecordError
from quorate.records.varint import decode, decode_long, encode, encode_unsigned


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_forms(value: int, wire: str) -> None:
    assert encode(value).hex() == wire
    assert decode(bytes.fromhex(wire), 0, len(wire) // 2) == (value, len(wire) // 2)


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.binary(max_size=4))
def test_longs_are_decoded_up_to_their_end(value: int, rest: bytes) -> None:
    data = encode(value) + rest
    assert decode_long(data, 0, len(data)) == (value, len(data) - len(rest))


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_unsigned_is_little_endian_base_128(value: int) -> None:
    data = encode_unsigned(value)
    assert sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(data)) == value
    assert all(byte & 0x80 for byte in data[:-1]) and data[-1] < 0x80


@pytest.mark.parametrize("wire", ["", "80", "ffffffff", "8080808080"])
def test_a_number_that_does_not_end_is_refused(wire: str) -> None:
    with pytest.raises(InvalidRecordError):
        decode(bytes.fromhex(wire), 0, len(wire) // 2)


@pytest.mark.parametrize("wire", ["808080808001", "ffffffff1f", "ffffffff7f"])
def test_a_number_beyond_32_bits_is_refused(wire: str) -> None:
    with pytest.raises(InvalidRecordError):
        decode(bytes.fromhex(wire), 0, len(wire) // 2)
