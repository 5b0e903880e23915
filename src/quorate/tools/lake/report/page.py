"""The HTML page. It refers to no other file and runs no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from quorate import __version__
from quorate.pipeline.questions.moments import Period
from quorate.tools.lake.report.contents import Contents, Figure, Section, Table, duration, text_of

_STYLE: Final = Path(__file__).with_name("page.css")
_NUMBERS: Final = frozenset({"int", "bigint", "double", "smallint"})


def html(title: str, contents: Contents, now: datetime) -> str:
    """The page as text."""
    return "\n".join(_lines(title, contents, now)) + "\n"


def period_text(period: Period) -> str:
    """Begin, end and length of a period."""
    length = duration((period.end - period.begin).total_seconds())
    return f"{_time(period.begin)} to {_time(period.end)} UTC ({length})"


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _lines(title: str, contents: Contents, now: datetime) -> Iterator[str]:
    period = contents.period
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<header>"
    yield f"<h1>{escape(title)}</h1>"
    offsets = f"offsets {period.first + 1} to {period.last}"
    yield f"<p>{escape(contents.cluster)}, {period_text(period)}, {offsets}</p>"
    yield "</header>\n<main>"
    yield '<section aria-label="Figures">\n<dl class="figures">'
    yield from map(_figure, contents.figures)
    yield "</dl>\n</section>"
    links = [f'<a href="#{_anchor(part)}">{escape(part.title)}</a>' for part in contents.sections]
    yield f'<nav aria-label="Sections">{" ".join(links)}</nav>'
    for part in contents.sections:
        yield from _section(part)
    yield "</main>"
    written = f"Written {_time(now)} UTC by quorate-pipeline {__version__}. All times are UTC."
    yield f"<footer><p>{written}</p></footer>"
    yield "</body>\n</html>"


def _anchor(section: Section) -> str:
    return re.sub(r"\W+", "-", section.title.lower())


def _figure(figure: Figure) -> str:
    mark = ' class="alarming"' if figure.alarming else ""
    note = f"<dd>{escape(figure.note)}</dd>" if figure.note else ""
    return f"<div{mark}><dt>{escape(figure.name)}</dt><dd>{escape(figure.value)}</dd>{note}</div>"


def _section(section: Section) -> Iterator[str]:
    empty = "" if section.pictures or section.tables else ' class="empty"'
    yield f'<section id="{_anchor(section)}">\n<h2>{escape(section.title)}</h2>'
    yield f"<p{empty}>{escape(section.summary)}</p>"
    for caption, svg in section.pictures:
        yield f"<figure>\n<figcaption>{escape(caption)}</figcaption>\n{svg}</figure>"
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="table" role="region" aria-label="{escape(table.caption)}" tabindex="0"><table>'
    yield f"<caption>{escape(table.caption)}</caption>\n<thead><tr>"
    columns = [column for column in table.columns if not column.detail]
    for column in columns:
        name = column.name.removesuffix("_s").replace("_", " ")
        yield f'<th scope="col"{_kind(column.kind)} title="{escape(column.meaning)}">{escape(name)}</th>'
    yield "</tr></thead>\n<tbody>"
    days = {column.name: _are_days([row[column.name] for row in table.rows]) for column in columns}
    for row in table.rows:
        cells = [
            f"<td{_kind(column.kind)}>"
            f"{escape(text_of(column, row[column.name], days=days[column.name]))}</td>"
            for column in columns
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
    if not table.complete:
        command = f"<code>quorate-pipeline {escape(table.command)}</code>"
        yield f"<p>There are more: {command} prints all of them.</p>"
    yield "</div>"


def _are_days(values: Sequence[object]) -> bool:
    """Whether all of these are times, each the begin of a day."""
    times = [value.astimezone(UTC) for value in values if isinstance(value, datetime)]
    return len(times) == len(values) and all((at.hour, at.minute, at.second) == (0, 0, 0) for at in times)


def _kind(kind: str) -> str:
    return ' class="number"' if kind in _NUMBERS else ""
