"""Properties files are read as java.util.Properties reads them: the same bytes are given to both."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from quorate.log import properties_text
from tests.support.java import require_java

pytestmark = pytest.mark.java

Loader = Callable[[bytes], dict[str, str] | None]

_PIECES = [
    *(bytes([c]) for c in b"ab=: \t\f\n\r\\#!\0\x0b\x1c\x85\xa0\xe9\xff"),
    *(
        b"\r\n",
        b"\\\\",
        b"\\\n",
        b"\\\r\n",
        b"\\\r",
        b"\\ ",
        b"\\=",
        b"\\:",
        b"\\#",
        b"\\n",
        b"\\t",
        b"\\r",
        b"\\f",
        b"\\x",
    ),
    *(
        b"\\u0041",
        b"\\u00e9",
        b"\\u20AC",
        b"\\uD83D",
        b"\\uDE00",
        b"\\u00",
        b"\\u+041",
        b"\\u 041",
        b"\\u0_41",
        b"\\u00g1",
    ),
    *(b"key=value", b"# comment\n", "schlüssel".encode()),
]


@pytest.fixture(scope="module")
def java() -> Iterator[Loader]:
    """Loads a file in a Java process; None where Java refuses it."""
    require_java()
    program = Path(__file__).with_name("LoadProperties.java")
    with subprocess.Popen(
        ["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def load(content: bytes) -> dict[str, str] | None:
            stdin.write(content.hex() + "\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer.endswith("\n")
            if answer == "ERROR\n":
                return None
            pairs = [pair.split(",") for pair in answer.split()]
            found = {_text(key): _text(value) for key, value in pairs}
            # Keys that differ only in halves of surrogate pairs: encoded, they are equal.
            assume(len(found) == len(pairs))
            return found

        yield load
        stdin.close()


def _text(utf16_hex: str) -> str:
    return bytes.fromhex(utf16_hex).decode("utf-16-be")


def load(content: bytes) -> dict[str, str] | None:
    try:
        return properties_text.load(content)
    except ValueError:
        return None


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(_PIECES), max_size=14).map(b"".join))
@example(b"")
@example(b"\\")
@example(b"\\\n")
@example(b"\\\r")
@example(b"\\\r\n")
@example(b"\\\n  ")
@example(b"\\\n#a=1")
@example(b"\\\n\n#a=1")
@example(b"a\\\n#b=1")
@example(b"a=1\\\n\nb=2")
@example(b"a=1\\\\\nb=2")
@example(b"# a\\\nb=1")
@example(b"a=\0")
@example(b"a=\\u00+1")
@example(b"a\\ b = c d \\ ")
@example("a=\u00e9".encode())
def test_any_file_is_read_as_java_reads_it(java: Loader, content: bytes) -> None:
    assert load(content) == java(content)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_java_reads_what_is_written(java: Loader, values: dict[str, str]) -> None:
    assert java(properties_text.render(values, ("", " a comment")).encode("latin-1")) == values


def test_a_byte_order_mark_is_ignored() -> None:
    assert properties_text.load(b"\xef\xbb\xbfprocess.roles=broker") == {"process.roles": "broker"}
