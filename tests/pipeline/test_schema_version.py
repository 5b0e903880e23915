"""The columns of the tables belong to the version of their schema, and commits to the release of Delta."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.spark.delta import VERSION, DeltaVersionError, require_delta
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import EVENT_DDL, EVENTS
from quorate.pipeline.tables.lake import SCHEMA, Lake, entity_columns

COLUMNS_OF_SCHEMA = {2: "74f6dcf0a20fdfd5a043df36d6d69d7e23e6846a01e3114e40048873789d36bb"}
"""For each version of the schema, a digest of the columns of all tables."""


def test_columns_change_only_with_the_version_of_the_schema() -> None:
    """A column that is added without a new version would be in the files of a lake, and not in its
    tables: their columns are looked at only if the version of a table is another one."""
    columns = {EVENTS: EVENT_DDL}
    for name, entity in ENTITIES.items():
        columns[name] = ", ".join([f"{column.name} {column.kind}" for column in entity_columns(entity)])
    found = hashlib.sha256(str(columns).encode()).hexdigest()
    assert COLUMNS_OF_SCHEMA.get(SCHEMA) == found, (
        "the columns of the tables have changed: raise SCHEMA in tables/lake.py, declare the step "
        f"in tables/schema.py, and add {{SCHEMA: {found!r}}} here"
    )


def session(version: str | None) -> Any:
    """A Spark session with a release of Delta."""
    # py4j takes the name of a class that is not there for a package, which cannot be called.
    package = SimpleNamespace(VERSION=None if version is None else lambda: version)
    return SimpleNamespace(_jvm=SimpleNamespace(io=SimpleNamespace(delta=SimpleNamespace(package=package))))


@pytest.mark.parametrize("version", ["4.3.0", "4.5.0", "40.4.0", None])
def test_a_lake_is_not_opened_with_another_release_of_delta(version: str | None) -> None:
    found = "no Delta" if version is None else f"Delta {version}"
    expected = f"session has {found}, but tables are written with Delta {VERSION}: use the jars of io.delta:"
    with pytest.raises(DeltaVersionError, match=expected):
        Lake(session(version), "/lake")


def test_another_patch_of_the_release_is_accepted() -> None:
    require_delta(session(VERSION))
    require_delta(session(f"{VERSION.rpartition('.')[0]}.7"))
