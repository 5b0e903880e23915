"""Pictures as SVG for the inside of an HTML page, drawn with Matplotlib.

Matplotlib writes colours as fixed values. They are replaced by the names of variables of the page's style, so
that the pictures follow its light and dark colours. Text is written as text. Lines differ by their dashes,
states by their height, and markers by their form, so that no reader depends on the colours.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from quorate.dataclass import dataclass

_INK, _GRID, _PAPER = "#101112", "#c0c1c2", "#fafbfc"
_SERIES: Final = ("#a00001", "#a00002", "#a00003", "#a00004", "#a00005", "#a00006")
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _GRID: "var(--grid)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, 1)},
}
_DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS: Final = ("o", "s", "^", "D")
_HATCHES: Final = ("", "////", "....", "xxxx")
_STATES: Final = (_SERIES[0], _SERIES[4], _SERIES[1])
_WIDTH = 9.0
_SETTINGS: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "quorate",
    "font.size": 8.5,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.5,
    "hatch.color": _PAPER,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
}


When: TypeAlias = tuple[datetime, datetime]
"""The begin and the end of the time axis."""


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of a picture of states."""

    row: str
    state: str
    begin: datetime
    end: datetime


def lines(label: str, unit: str, times: Sequence[datetime], series: Mapping[str, Sequence[float]]) -> str:
    """Values over time. More series than there are colours are drawn as their range and mean."""
    with _picture(2.5) as (figure, axes):
        at = _numbers(times)
        if len(series) > len(_SERIES):
            columns = list(zip(*series.values(), strict=True))
            lowest, highest = [min(found) for found in columns], [max(found) for found in columns]
            axes.fill_between(at, lowest, highest, color=_SERIES[0], alpha=0.3, linewidth=0, label="range")
            mean = [sum(found) / len(found) for found in columns]
            axes.plot(at, mean, color=_SERIES[0], label="mean")
        else:
            for number, (name, values) in enumerate(series.items()):
                axes.plot(at, values, color=_SERIES[number], linestyle=_DASHES[number], label=name)
                if len(at) == 1:
                    axes.plot(at, values, color=_SERIES[number], marker=_MARKERS[number % len(_MARKERS)])
        highest_value = max([max(values, default=0) for values in series.values()], default=0)
        axes.set_ylim(0, max(highest_value * 1.08, 1))
        axes.set_ylabel(unit)
        counted = all(float(value).is_integer() for values in series.values() for value in values)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=counted or highest_value >= 5))
        _finish(axes, legend=len(series) > 1)
        return _svg(figure, label)


def bars(
    label: str, unit: str, when: When, steps: tuple[Sequence[datetime], timedelta],
    series: Mapping[str, Sequence[float]], below: str | None = None,
) -> str:  # fmt: skip
    """Counts in steps, of which the begins and the length are given, one upon the other. The series `below`
    is drawn below the axis. Steps that are not given have no bar."""
    edges, places = _edges(*steps)
    with _picture(2.3) as (figure, axes):
        bottom = [0.0] * len(places)
        for number, (name, values) in enumerate(series.items()):
            counts = [0.0 if place is None else float(values[place]) for place in places]
            start = [0.0] * len(places) if name == below else bottom
            end = [
                one - count if name == below else one + count
                for one, count in zip(start, counts, strict=True)
            ]
            axes.stairs(
                end, edges, baseline=start, fill=True, label=name, hatch=_HATCHES[number % len(_HATCHES)],
                facecolor=_SERIES[number], edgecolor=_PAPER, linewidth=0.4,
            )  # fmt: skip
            if name != below:
                bottom = end
        axes.axhline(0, color=_GRID, linewidth=0.8)
        axes.set_ylabel(unit)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        _finish(axes, legend=len(series) > 1)
        axes.set_xlim(min(_numbers(when)[0], edges[0]), max(_numbers(when)[1], edges[-1]))
        return _svg(figure, label)


def states(label: str, spans: Sequence[Span], heights: Mapping[str, float]) -> str:
    """States over time, one row for each node. `heights` has the height of each state's bar."""
    rows = list(dict.fromkeys([span.row for span in spans]))
    with _picture(0.7 + 0.26 * len(rows)) as (figure, axes):
        for number, (state, height) in enumerate(heights.items()):
            for place, row in enumerate(rows):
                found = [
                    (date2num(span.begin), date2num(span.end) - date2num(span.begin))
                    for span in spans
                    if span.row == row and span.state == state
                ]
                axes.broken_barh(
                    found, (place - height / 2, height), facecolor=_STATES[number], edgecolor=_STATES[number],
                    linewidth=0.6,
                )  # fmt: skip
            axes.bar(0, 0, 0, color=_STATES[number], label=state)  # the entry of the legend
        axes.set_xlim(
            date2num(min([span.begin for span in spans])), date2num(max([span.end for span in spans])) + 1e-9
        )
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _finish(axes, legend=len(heights) > 1)
        axes.grid(visible=False, axis="y")
        return _svg(figure, label)


def points(label: str, unit: str, when: When, found: Mapping[str, Sequence[tuple[datetime, float]]]) -> str:
    """Single values over time, by kind."""
    with _picture(2.3) as (figure, axes):
        for number, (name, values) in enumerate(found.items()):
            axes.scatter(
                _numbers([time for time, _ in values]), [value for _, value in values], color=_SERIES[number],
                label=name, marker=_MARKERS[number % len(_MARKERS)], s=26, clip_on=False,
            )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_ylabel(unit)
        _finish(axes, legend=True)
        axes.set_xlim(*_numbers(when))
        return _svg(figure, label)


# --- parts ----------------------------------------------------------------------------------------


@contextmanager
def _picture(height: float) -> Iterator[tuple[Figure, Axes]]:
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots()
        axes.patch.set_visible(False)
        yield figure, axes


def _numbers(times: Sequence[datetime]) -> list[float]:
    return [float(date2num(time)) for time in times]


def _edges(begins: Sequence[datetime], length: timedelta) -> tuple[list[float], list[int | None]]:
    """The edges of all bars and of the gaps between them, and the number of the step of each, or None."""
    width = length / timedelta(days=1)
    edges: list[float] = []
    places: list[int | None] = []
    for number, begin in enumerate(_numbers(begins)):
        if not edges:
            edges.append(begin)
        elif begin > edges[-1] + width / 2:
            edges.append(begin)
            places.append(None)
        edges.append(begin + width)
        places.append(number)
    return edges, places


def _finish(axes: Axes, *, legend: bool) -> None:
    """The time axis, the grid and the legend."""
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.01)
    axes.grid(visible=True, axis="y")
    if legend:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderaxespad=0.2, borderpad=0)


def _svg(figure: Figure, label: str) -> str:
    """The picture as an element of a page. Its ids begin with its label, so that they are unique there."""
    out = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style).*?</\1>", "", text, flags=re.DOTALL)
    prefix = re.sub(r"\W+", "-", label.lower())
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>", _opening(label), text, count=1)
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # a hundredth of a point cannot be seen
    text = re.sub(r"'?DejaVu Sans'?[^;\"]*", "system-ui, 'DejaVu Sans', sans-serif", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text


def _opening(label: str) -> str:
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return rf'<svg \1 {namespaces} stroke-linejoin="round" role="img" aria-label="{html.escape(label)}">'
