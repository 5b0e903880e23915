"""The page of `quorate-pipeline report`: its pictures and its parts, without Spark, and from a lake."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="Matplotlib is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.tables.declaration import Column
from quorate.tools.lake import progress
from quorate.tools.lake.report import page, plots
from quorate.tools.lake.report.contents import Contents, Figure, Section, Table, duration

from .test_questions import HISTORY, write_steps

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = [BEGIN + timedelta(days=number) for number in range(4)]
WHEN = (DAYS[0], DAYS[-1])
PERIOD = Period(-1, 46, BEGIN, DAYS[-1])


class Page(HTMLParser):
    """The tags of a page, and the text of each kind of tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "use", "rect", "line"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.texts.setdefault(self._open[-1], []).append(data.strip())


def refers_to_nothing_else(text: str) -> bool:
    found = Page(text)
    targets = [
        value
        for _, attributes in found.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    return (
        "@import" not in text
        and "url(http" not in text
        and all((target or "").startswith("#") for target in targets)
    )


def drawn() -> dict[str, str]:
    span = plots.Span
    return {
        "lines": plots.lines("lines", "topics", DAYS, {"topics": [1, 2, 3, 3], "partitions": [1, 4, 9, 9]}),
        "range": plots.lines("range", "replicas", DAYS, {f"broker {n}": [n, n, n + 1, n] for n in range(9)}),
        "one": plots.lines("one", "topics", DAYS[:1], {"topics": [5]}),
        "bars": plots.bars(
            "bars",
            "changes",
            WHEN,
            (DAYS, timedelta(days=1)),
            {"joined": [0, 2, 1, 3], "left": [1, 2, 0, 0]},
            "left",
        ),
        "states": plots.states(
            "states",
            [span("broker 1", "active", DAYS[0], DAYS[2]), span("broker 2", "fenced", DAYS[1], DAYS[3])],
            {"active": 0.2, "fenced": 0.8},
        ),
        "points": plots.points(
            "points", "minutes", WHEN, {"fenced": [(DAYS[1], 3.0)], "restarted": [(DAYS[2], 1.0)]}
        ),
    }


def test_pictures_take_their_colours_from_the_page_and_keep_text_as_text() -> None:
    style = (Path(page.__file__).parent / "page.css").read_text()
    for name, svg in drawn().items():
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img" and root.get("aria-label") == name
        assert not re.findall(r"#[0-9a-f]{6}\b", svg), name
        for variable in set(re.findall(r"var\((--[\w-]+)\)", svg)):
            assert style.count(f"{variable}:") == 2, f"{variable} has no light and dark value"
        assert root.findall(".//{*}text"), name
        assert "width=" not in svg[: svg.index(">")]


def test_pictures_of_one_page_have_different_ids_and_are_the_same_each_time() -> None:
    every = drawn()
    ids = [found for svg in every.values() for found in set(re.findall(r'\bid="([^"]*)"', svg))]
    assert len(ids) == len(set(ids))
    assert drawn() == every


def test_steps_without_a_row_have_no_bar() -> None:
    """Bars are drawn as one path: two bars with a gap, from left to right and back."""
    svg = plots.bars("gap", "changes", WHEN, ([DAYS[0], DAYS[2]], timedelta(days=1)), {"joined": [2, 1]})
    (path,) = re.findall(r'<path d="([^"]*)" clip-path[^>]*style="fill: var\(--series-1\)', svg)
    heights = re.findall(r"[ML] \S+ (\S+)", path)
    zero, gap = heights[0], heights[3]
    assert gap == zero and len({*heights}) == 3


def a_page(**changes: Any) -> str:
    table = Table(
        "Slowest", [Column("topic", "string", "its name"), Column("offline_s", "double", "how long")],
        [{"topic": "<b>&", "offline_s": 309.0}], "degraded", complete=False,
    )  # fmt: skip
    sections = [
        Section("Replication", "One partition was offline.", [("Lines", drawn()["lines"])], [table]),
        Section("Failures and recovery", "No failure in this period."),
    ]
    parts = {
        "figures": [Figure("Topics", "12", "3 created"), Figure("Failures", "1", "", True)],
        "sections": sections,
    }
    return page.html("A <title>", Contents("c", PERIOD, **{**parts, **changes}), DAYS[-1])


def test_a_page_has_title_period_figures_tables_and_empty_states() -> None:
    text = a_page()
    found = Page(text)
    assert found.texts["h1"] == ["A <title>"] and found.texts["title"] == ["A <title>"]
    assert "c, 2026-03-01 00:00:00 to 2026-03-04 00:00:00 UTC (3 d), offsets 0 to 46" in found.texts["p"]
    assert found.texts["dd"] == ["12", "3 created", "1"]
    assert found.texts["td"] == ["<b>&", "5 min 9 s"]
    assert '<p class="empty">No failure in this period.</p>' in text
    assert found.texts["code"] == ["quorate-pipeline degraded"]
    assert refers_to_nothing_else(text) and not any(tag == "script" for tag, _ in found.tags)


def test_numbers_and_days_of_a_table_are_aligned_and_short() -> None:
    columns = [
        Column("time", "timestamp", "the day"),
        Column("availability", "double", "in percent"),
        Column("unchanged_days", "double", "how long"),
    ]
    rows = [
        {"time": DAYS[0], "availability": 99.98, "unchanged_days": 58.306},
        {"time": DAYS[1], "availability": 100.0, "unchanged_days": 1234.0},
    ]
    found = Page(a_page(sections=[Section("s", "s", [], [Table("t", columns, rows, "c")])]))
    assert found.texts["td"] == ["2026-03-01", "99.980", "58.3", "2026-03-02", "100.000", "1,234.0"]
    rows[1]["time"] = DAYS[1] + timedelta(seconds=1)
    found = Page(a_page(sections=[Section("s", "s", [], [Table("t", columns, rows, "c")])]))
    assert found.texts["td"][::3] == ["2026-03-01 00:00:00", "2026-03-02 00:00:01"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "0.25 s"), (59.5, "59.5 s"), (60, "1 min"), (3600 + 5, "1 h"), (90_100, "1 d 1 h")],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def spark_at_work() -> Any:
    """A session with two stages, one of which has ended meanwhile."""
    stages = {1: SimpleNamespace(numTasks=8, numCompletedTasks=3), 2: None}
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_progress_is_shown_on_a_terminal_only() -> None:
    found = progress.Progress(spark_at_work(), io.StringIO())
    found.step("asking: growth")
    assert found.line() == "0 s  asking: growth  3 of 8 tasks"
    terminal, file = Terminal(), io.StringIO()
    with progress.shown(spark_at_work(), terminal), progress.shown(spark_at_work(), file):
        pass
    assert terminal.getvalue() == "\r\x1b[K"
    assert file.getvalue() == ""


@pytest.fixture(scope="module")
def report(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The text of the page of the log of `test_questions`, or of one that Apache Kafka wrote."""
    from quorate.tools.lake.pipeline import main

    folder = tmp_path_factory.mktemp("report")

    def write(source: Path, *words: str) -> str:
        lake = lakes()
        assert main(["run", "--source", str(source), "--lake", lake.folder, "--cluster", "c"]) == 0
        assert main(["report", "--lake", lake.folder, "--out", str(folder / "page.html"), *words]) == 0
        return (folder / "page.html").read_text()

    return write


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_report_of_a_day_with_failures(report: Callable[..., str], tmp_path: Path) -> None:
    write_steps(tmp_path, HISTORY)
    text = report(tmp_path, "--title", "Production")
    found = Page(text)
    figures = dict(zip(found.texts["dt"], re.findall(r"</dt><dd>(.*?)</dd>", text), strict=True))
    assert figures == {
        "Topics": "1",
        "Partitions": "2",
        "Active brokers": "3 of 3",
        "Availability of brokers": "99.748 %",
        "Failures of brokers": "2",
        "Longest recovery": "8 min 20 s",
        "Partitions that were offline": "1",
        "Partitions that lacked replicas": "3",
        "Changes of leaders": "6",
        "Failovers of the controller": "1",
    }
    assert len([tag for tag, _ in found.tags if tag == "svg"]) == 10
    assert 'class="empty"' not in text
    assert refers_to_nothing_else(text)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_report_of_what_apache_kafka_wrote(report: Callable[..., str], kafka: Path) -> None:
    text = report(kafka / "data")
    assert "<h1>Cluster c</h1>" in text
    assert "1:hDrwtll6QEmDCz2Ns2O7vA" in text  # the voter
    assert "and 9 times a partition was left without a leader." in text  # the only broker was shut down
    assert refers_to_nothing_else(text)
