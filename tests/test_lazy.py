"""Modules that are imported on first use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from quorate.lazy import lazy_module, lazy_modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "quorate_lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("value = 1\ndef double():\n    return 2 * value\n")
    (folder / "two.py").write_text("import quorate_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder.name


def test_a_module_is_imported_when_an_attribute_is_read(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lazy_module(f"{package}.one")
    assert package not in sys.modules
    assert one.double() == 2
    monkeypatch.setattr(sys.modules[f"{package}.one"], "value", 5)
    assert one.double() == 10
    with pytest.raises(AttributeError):
        _ = one.nothing


def test_an_error_of_the_import_is_raised_by_the_access(package: str) -> None:
    _, two = lazy_modules(package, "one", "two")
    with pytest.raises(ModuleNotFoundError, match="quorate_no_such_module"):
        _ = two.anything
