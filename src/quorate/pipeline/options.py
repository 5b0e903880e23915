"""The options of the data source. An option that is not listed here is refused.

| option | meaning |
|---|---|
| `path` | the directories, with commas: metadata logs, log directories, folders of nodes or clusters |
| `columns` | the columns; `partition_record.leader` is one field of a struct column |
| `types` | the record types of which rows are read |
| `startOffset`, `endOffset` | the range of the log's records; the end is exclusive |
| `snapshots` | `all` (default), `base`, `resets`, `latest` or `none` |
| `mode` | `FAILFAST` (default), `PERMISSIVE` or `DROPMALFORMED`: what happens where a file is damaged |
| `filterPushdown` | true to read less by the filters of the query; false by default (see `FilteringReader`) |
| `sliceBytes` | the bytes that one task reads |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from quorate.pipeline.bounds import EVERYTHING, Bounds, Mode
from quorate.pipeline.columns import Selection, select
from quorate.pipeline.layout import SLICE_BYTES

SNAPSHOTS: Final = ("all", "base", "resets", "latest", "none")
"""`base` is the snapshot that replaces the deleted start of the log, `resets` that one and those before it."""

NAMES: Final = (
    "path",
    "columns",
    "types",
    "startOffset",
    "endOffset",
    "snapshots",
    "mode",
    "filterPushdown",
    "sliceBytes",
)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options."""

    paths: tuple[str, ...]
    types: str | None = None
    selection: Selection = field(default_factory=Selection)
    snapshots: str = "all"
    bounds: Bounds = EVERYTHING
    mode: Mode = Mode.FAILFAST
    filter_pushdown: bool = False
    slice_bytes: int = SLICE_BYTES

    def with_columns(self, columns: str) -> Options:
        """The options with the columns of a schema."""
        return replace(self, selection=select(columns, self.types))


def parse_options(given: Mapping[str, str]) -> Options:
    """Parses the options, whose names are not case-sensitive. Raises ValueError with the option's name and
    its possible values."""
    known = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise ValueError(f"quorate_metadata has no option {name}, only {', '.join(NAMES)}")
        values[known[name.lower()]] = value
    paths = tuple(path.strip() for path in values.get("path", "").split(",") if path.strip())
    if not paths:
        raise ValueError("quorate_metadata needs a directory: load(PATH)")
    return Options(
        paths,
        values.get("types"),
        select(values.get("columns"), values.get("types")),
        _choice("snapshots", values.get("snapshots", "all"), SNAPSHOTS),
        Bounds(_number(values, "startOffset") or 0, _number(values, "endOffset")),
        Mode(_choice("mode", values.get("mode", Mode.FAILFAST).upper(), tuple(Mode))),
        _choice("filterPushdown", values.get("filterPushdown", "false").lower(), ("true", "false")) == "true",
        _number(values, "sliceBytes", least=1) or SLICE_BYTES,
    )


def _choice(name: str, value: str, possible: tuple[str, ...]) -> str:
    if value not in possible:
        raise ValueError(f"option {name} is {value!r}: {', '.join(possible[:-1])} or {possible[-1]}")
    return value


def _number(values: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"option {name} is {text!r}, but must be a number from {least} on")
    return int(text)
