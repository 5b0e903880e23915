"""The jars of a Spark session: from a directory, or from Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.pipeline.spark.jars import Jars, jar_settings


def test_jars_come_from_a_directory_or_from_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> dict[str, str]:
        found = dict(jar_settings([one, two]))
        assert "org.slf4j:*" in found.pop("spark.jars.excludes"), "Spark has it"
        return found

    one, two = Jars("ONE", ("g:one:1",), ("one-1",)), Jars("TWO", ("g:two:2",), ("two-2", "base-2"))
    assert chosen() == {"spark.jars.packages": "g:one:1,g:two:2"}
    monkeypatch.setenv("TWO", str(tmp_path))
    (tmp_path / "two-2.jar").touch()
    with pytest.raises(FileNotFoundError, match=r"TWO: .* has no base-2\.jar"):
        jar_settings([one, two])
    (tmp_path / "base-2.jar").touch()
    found = {"spark.jars": f"{tmp_path}/base-2.jar,{tmp_path}/two-2.jar", "spark.jars.packages": "g:one:1"}
    assert chosen() == found
