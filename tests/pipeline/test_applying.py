"""The files of entities' tables, after any sequence of runs: few records in this process, more in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

import pyarrow as pa
import pyarrow.compute as pc

from quorate.pipeline.applying import histories
from quorate.pipeline.applying.arrivals import Arrival
from quorate.pipeline.applying.histories import (
    Events,
    Table,
    changes_by_tasks,
    changes_here,
    changing_and_small,
)
from quorate.pipeline.applying.news import News, _Seen
from quorate.pipeline.applying.summary import Summary
from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS
from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import generate
from quorate.pipeline.history.names import TopicNames
from quorate.pipeline.history.replay import history_rows, history_schema
from quorate.pipeline.history.steps import Records, steps
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.storage.data_files import DataFile, Place, join_files, read_file, write_file
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import (
    ABORT,
    END,
    MARKERS,
    SOURCE_COLUMNS,
    Transactions,
    to_events,
)
from quorate.pipeline.tables.lake import statistics

SIZE = Size(brokers=6, racks=3, topics=8, partitions=4)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The events of a small cluster."""
    folder = tmp_path_factory.mktemp("log") / "node"
    generate(folder, seed=7, records=5000, size=SIZE)
    source = open_source(str(folder))
    reader = source.reader(source.extent(0), SOURCE_COLUMNS)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    rows = pa.Table.from_batches(batches)
    markers = rows.filter(pc.is_in(rows["type"], value_set=pa.array(MARKERS)))
    transactions = Transactions.of(markers["offset"].to_numpy(), markers["type"].to_pylist())
    return pa.Table.from_batches([to_events(batch, "id", transactions) for batch in batches])


def between(events: pa.Table, start: int, end: int) -> pa.Table:
    return events.filter(pc.and_(pc.greater_equal(events["offset"], start), pc.less(events["offset"], end)))


class Tables:
    """The files of each table, without Delta's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, list[DataFile]] = {name: [] for name in (*ENTITIES, "events")}

    def place(self, table: str) -> Place:
        return Place(str(self.folder / table), "c", statistics(table))

    def rows(self, name: str) -> pa.Table:
        schema = history_schema(ENTITIES[name])
        found = [read_file(self.place(name), file.path, schema) for file in self.files[name]]
        return pa.concat_tables([schema.empty_table(), *found])

    def opened(self, entity: Entity, start: int) -> Table:
        files = changing_and_small(self.files[entity.name], start)
        transaction: Any = None
        return Table(entity, transaction, self.place(entity.name), start, False, *files)

    def apply(self, events: pa.Table, start: int, end: int, *, by_tasks: bool) -> None:
        part = between(events, start, end)
        new = write_file(self.place("events"), part)
        assert new is not None
        self.files["events"].append(new)
        for names in (["topics"], [name for name in ENTITIES if name != "topics"]):
            tables = {name: self.opened(ENTITIES[name], start) for name in names}
            if by_tasks:
                topics = self.place("topics"), tuple([file.path for file in self.files["topics"]])
                kinds = set(part["type"].to_pylist())
                lake: Any = type("", (), {"spark": None})
                every = dict.fromkeys(names, start), dict.fromkeys(names, part.num_rows)
                changes = changes_by_tasks(
                    lake, tables, *every, Events([new], self.place("events"), end, kinds, topics)
                )
            else:
                known = TopicNames(self.rows("topics"))
                changes = {name: changes_here(tables[name], Records(part), known) for name in names}
            for name, change in changes.items():
                removed = {file.path for file in change.removed}
                kept = [file for file in self.files[name] if file.path not in removed]
                assert len(kept) + len(removed) == len(self.files[name])
                self.files[name] = [*kept, *change.added]

    def mix(self) -> None:
        """Joins current and ended states in one file, as a former release wrote them."""
        for name, files in self.files.items():
            if name != "events" and files:
                paths = [file.path for file in files]
                joined = join_files(self.place(name), paths, history_schema(ENTITIES[name]))
                assert joined is not None
                self.files[name] = [joined]


def in_this_process(
    spark: Any,
    tasks: Sequence[Any],
    send: Callable[[Any], Iterable[tuple[int, pa.Table]]],
    count: int,
    receive: Callable[[int, Iterator[pa.Table]], Any],
) -> list[Any]:
    sent: list[list[pa.Table]] = [[] for _ in range(count)]
    for task in tasks:
        for number, table in send(task):
            sent[number].append(table)
    return [receive(number, iter(tables)) for number, tables in enumerate(sent)]


def plain(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("seed", [1, 2])
def test_any_runs_give_the_same_rows_as_one(
    events: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(histories, "shuffled", in_this_process)
    monkeypatch.setattr(histories, "ROWS_PER_PART", 300)
    rng = Random(seed)
    alone = pc.equal(events["offset"], events["effective_offset"])
    ends_one = pc.is_in(events["type"], value_set=pa.array([END, ABORT]))
    outside = events.filter(pc.and_(alone, pc.invert(ends_one)))["offset"].to_pylist()
    last = max(events["offset"].to_pylist()) + 1
    ends = sorted({*rng.sample([at for at in outside if at > 10], 12), last})
    tables = Tables(tmp_path)
    start = 0
    for end in ends:
        tables.apply(events, start, end, by_tasks=rng.random() < 0.5)
        if rng.random() < 0.2:
            tables.mix()
        start = end
    names = None
    for name, entity in ENTITIES.items():
        wanted = history_rows(entity, steps(entity, Records(events), names=names))
        if name == "topics":
            names = TopicNames(wanted)
        assert plain(tables.rows(name)) == plain(wanted), name


def of_an_older_release(events: pa.Table) -> pa.Table:
    """The events without the columns and fields of who caused a change and when a process started."""
    place = events.schema.get_field_index("register_broker_record")
    record = events.column(place).combine_chunks()
    fields = [field for field in record.type if field.name != "start_time_ms"]
    values = [pc.struct_field(record, field.name) for field in fields]
    reduced = pa.StructArray.from_arrays(values, fields=fields, mask=pc.is_null(record))
    return events.set_column(place, "register_broker_record", reduced).drop_columns(list(ATTRIBUTION_COLUMNS))


@pytest.mark.parametrize("by_tasks", [False, True])
def test_events_of_an_older_release_are_read(
    events: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    monkeypatch.setattr(histories, "shuffled", in_this_process)
    brokers, last = ENTITIES["brokers"], max(events["offset"].to_pylist()) + 1
    tables = Tables(tmp_path)
    file = write_file(tables.place("events"), of_an_older_release(events))
    assert file is not None
    if by_tasks:
        kinds = set(events["type"].to_pylist())
        source = Events([file], tables.place("events"), last, kinds, (tables.place("topics"), ()))
        lake: Any = type("", (), {"spark": None})
        opened = {"brokers": tables.opened(brokers, 0)}
        [changes] = changes_by_tasks(lake, opened, {"brokers": 0}, {"brokers": 10}, source).values()
    else:
        lake = type("", (), {"place": lambda _, table, cluster: tables.place(table)})()
        arrival = Arrival(0, last, Summary.of(events), (file,), None)
        news = News(lake, "c", 0, last, _Seen(0, 0, 0, Summary()), arrival, arrival.summary)
        changes = changes_here(tables.opened(brokers, 0), Records(news.rows(0)), None)
    tables.files["brokers"] = list(changes.added)
    found = tables.rows("brokers")
    assert found.num_rows
    assert found["start_time"].null_count == found["changed_by"].null_count == found.num_rows
    other = [name for name in found.column_names if name not in ("start_time", "changed_by")]
    wanted = history_rows(brokers, steps(brokers, Records(events)))
    assert plain(found.select(other)) == plain(wanted.select(other))


def test_files_of_ended_states_and_of_tables_without_changes_stay(events: pa.Table, tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    last = max(events["offset"].to_pylist()) + 1
    tables.apply(events, 0, last, by_tasks=False)
    before = {name: {file.path for file in files} for name, files in tables.files.items()}
    change = events.filter(pc.equal(events["type"], "PARTITION_CHANGE_RECORD")).slice(0, 1)
    place = events.schema.get_field_index("offset")
    more = change.set_column(place, "offset", pa.array([last]))
    place = events.schema.get_field_index("effective_offset")
    more = more.set_column(place, "effective_offset", pa.array([last]))
    tables.apply(more, last, last + 1, by_tasks=False)
    after = {name: {file.path for file in files} for name, files in tables.files.items()}
    assert all(after[name] == before[name] for name in ENTITIES if name != "partitions")
