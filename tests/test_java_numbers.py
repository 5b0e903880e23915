"""Numbers as Java reads them from text. The expected values are those of Java 17."""

from __future__ import annotations

import math

import pytest

from quorate.java_numbers import parse_double


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        (" 0.5\t", 0.5),
        ("0.5d", 0.5),
        ("5f", 5.0),
        (".5D", 0.5),
        ("5.", 5.0),
        ("+1e3F", 1000.0),
        ("-1E-3", -0.001),
        ("0x1p-1", 0.5),
        ("-0X.8p0d", -0.5),
        ("1e999", math.inf),
        ("-0x1p99999", -math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_what_java_reads_is_read(text: str, value: float) -> None:
    assert parse_double(text) == value


def test_nan_is_read_with_either_sign() -> None:
    assert all(math.isnan(parse_double(text)) for text in ("NaN", "+NaN", "-NaN"))


@pytest.mark.parametrize(
    "text",
    ["", ".", "d", "1_0", "inf", "nan", "infinity", "0x1", "1.0l", "٣", "\u00a01", "--1", "+-NaN", "-"],
)
def test_what_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_double(text)
