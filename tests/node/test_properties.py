"""A node's configuration from a file: encoding, and what it is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.config.definitions import ConfigError
from quorate.node.properties import load_config, read_properties
from quorate.tools.client import options
from quorate.tools.command_line import ToolError

NODE = """\
process.roles=controller
node.id=1
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""


def config_file(folder: Path, content: bytes) -> Path:
    path = folder / "server.properties"
    path.write_bytes(NODE.encode() + content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "log.dirs=/data/é".encode("latin-1"),
        b"log.dirs=/data/\\u00e9",
        "# Prüfung\nlog.dirs=/data/\\u00E9".encode(),
    ],
)
def test_a_file_is_iso_8859_1_with_escapes(tmp_path: Path, content: bytes) -> None:
    config = load_config(config_file(tmp_path, content))
    assert config.get("log.dirs") == ["/data/é"]
    assert config.warnings == []


def test_text_in_utf_8_is_read_as_java_reads_it_and_warned_of(tmp_path: Path) -> None:
    path = config_file(tmp_path, "log.dirs=/data/é".encode())
    config = load_config(path)
    assert config.get("log.dirs") == ["/data/Ã©"]
    [warning] = config.warnings
    assert str(path) in warning
    assert "ISO-8859-1" in warning


def test_a_repeated_key_is_warned_of(tmp_path: Path) -> None:
    config = load_config(config_file(tmp_path, b"log.dirs=/a\nlog.dirs=/b"))
    assert config.get("log.dirs") == ["/b"]
    assert config.warnings == ["log.dirs is set 2 times; the last value, /b, counts"]


def test_a_malformed_escape_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = config_file(tmp_path, b"log.dirs=/data/\\u00+9")
    with pytest.raises(ConfigError, match=r"server\.properties.*line 6"):
        read_properties(path)


def test_the_tools_read_the_same_and_refuse_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=é".encode("latin-1"))
    assert options.read_properties(str(path)) == {"client.id": "é"}
    path.write_bytes(b"client.id=\\u00zz")
    with pytest.raises(ToolError, match=r"Cannot read .*client\.properties: line 1"):
        options.read_properties(str(path))


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 16 MB, and is no properties file"):
        load_config(Path("/dev/zero"))
