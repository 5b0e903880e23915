"""The state of every entity at any offset, from the tables, equals the controller's image replayed to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

import pyarrow as pa
import pyarrow.compute as pc

from quorate.controller.changes.record_versions import version_of
from quorate.metadata import records as r
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import generate
from quorate.pipeline.history.names import TopicNames
from quorate.pipeline.history.parts import parts
from quorate.pipeline.history.replay import history_rows, history_schema
from quorate.pipeline.history.steps import Records, prior_steps, steps
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import MARKERS, SOURCE_COLUMNS, Transactions, to_events
from quorate.pipeline.tables.update import update
from quorate.protocol.schema import Data
from quorate.records.batch import build_control_batch, build_metadata_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage
from tests.controller.support import LATEST, Cluster
from tests.controller.test_invariants import World
from tests.metadata.streams import stream

from .conftest import LOG, change, config, partition, topic, write_log
from .oracle import Rows, images, log_records, rows_of

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(400)]


class Tables:
    """The rows that the log in a folder gives for each table, in two steps if `cut` is given."""

    def __init__(self, folder: Path, cut: int | None = None) -> None:
        source = open_source(str(folder))
        extent = source.extent(0)
        reader = source.reader(extent, SOURCE_COLUMNS)
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        rows = pa.Table.from_batches(batches)
        markers = rows.filter(pc.is_in(rows["type"], value_set=pa.array(MARKERS)))
        transactions = Transactions.of(markers["offset"].to_numpy(), markers["type"].to_pylist())
        events = pa.Table.from_batches([to_events(batch, None, transactions) for batch in batches])
        self.events = str(events.to_pylist())
        self.entities = ENTITIES
        self.rows: dict[str, list[dict[str, Any]]] = {}
        steps_to = [extent.end] if cut is None else [cut, extent.end]
        names = None
        for name, entity in ENTITIES.items():
            table = history_schema(entity).empty_table()
            start = 0
            for end in steps_to:
                at = events["offset"]
                part = events.filter(pc.and_(pc.greater_equal(at, start), pc.less(at, end)))
                ended = table.filter(pc.is_valid(table["valid_to_offset"]))
                before = prior_steps(entity, table.filter(pc.is_null(table["valid_to_offset"])))
                found = pa.concat_tables([before, steps(entity, Records(part), names=names)])
                table = pa.concat_tables([ended, joined(entity, found)])
                start = end
            if name == "topics":
                names = TopicNames(table)
            self.rows[name] = table.to_pylist()

    def at(self, offset: int) -> Rows:
        """The rows that are valid at an offset."""
        found: Rows = {}
        for name, entity in self.entities.items():
            table: dict[Any, dict[str, Any]] = {}
            found[name] = table
            for row in self.rows[name]:
                end = row["valid_to_offset"]
                if row["valid_from_offset"] <= offset and (end is None or end > offset):
                    key = tuple([_plain(row[column]) for column in entity.key_names])
                    assert key not in table, f"{name} {key} has two states at offset {offset}"
                    table[key] = {column: _plain(row[column]) for column in entity.state_names}
        return found


def joined(entity: Entity, found: pa.Table) -> pa.Table:
    """The states of an entity, computed in three parts, and in one: they are the same."""
    divided = [history_rows(entity, part) for _, part in parts(entity, found, 3)]
    whole = history_rows(entity, found)
    assert sorted(map(str, pa.concat_tables([whole.slice(0, 0), *divided]).to_pylist())) == sorted(
        map(str, whole.to_pylist())
    )
    return whole


class InLake(Tables):
    """The rows of a lake."""

    def __init__(self, lake: Lake) -> None:
        self.entities = ENTITIES
        self.rows = {
            name: [row.asDict(recursive=True) for row in lake.read(name).collect()]
            if lake.exists(name)
            else []
            for name in ENTITIES
        }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list) and value and isinstance(value[0], dict) and "entity_type" in value[0]:
        return tuple([(each["entity_type"], each["entity_name"]) for each in value])
    return value


def check(tables: Tables, expected: Iterable[tuple[int, MetadataImage]]) -> None:
    checked = 0
    for offset, image in expected:
        found = tables.at(offset)
        for name, wanted in rows_of(image).items():
            rows = found[name]
            if name == "features":
                rows.pop(("kraft.version",), None)
            if name == "producer_ids":
                rows = {key: {"next_producer_id": row["next_producer_id"]} for key, row in rows.items()}
            if name == "configs":  # a configuration may be older than the topic of its name
                for key, row in rows.items():
                    if row["topic_id"] is None and key in wanted:
                        wanted[key]["topic_id"] = None
            assert rows == wanted, f"{name} at offset {offset}"
        checked += 1
    assert checked > 20


def test_random_records_and_transactions_in_two_steps(tmp_path: Path) -> None:
    rng = Random(11)
    records = stream(11, 420)
    expected = list(images(iter([(at, [record]) for at, record in enumerate(records)])))
    cut = next(at for at, image in expected[200:] if image.transaction is None) + 1
    batches: list[list[Data]] = []
    at = 0
    while at < len(records):
        size = rng.randint(1, 9)
        batches.append(records[at : at + size])
        at += size
    write_log(tmp_path, 0, batches)
    check(Tables(tmp_path, cut), expected)


def has_elr(image: MetadataImage) -> bool:
    return any(partition.elr for topic in image.topics.by_id.values() for partition in topic.partitions)


def test_what_the_controller_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[bytes]] = []
    original = Cluster.apply

    def apply_and_keep(cluster: Cluster, records: list[Data]) -> None:
        if records:
            level = cluster.image.features.metadata_version or LATEST
            batches.append([encode_record(record, version_of(record, level)) for record in records])
        original(cluster, records)
        latest[0] = cluster.image

    latest = [EMPTY]
    monkeypatch.setattr(Cluster, "apply", apply_and_keep)
    world = next(world for world in map(World, itertools.count()) if world.level == LATEST)
    while len(batches) < 400 or not has_elr(latest[0]):
        world.step()
    offset = 0
    with (tmp_path / f"{0:020d}.log").open("wb") as out:
        for number, values in enumerate(batches):
            place = {"base_offset": offset, "leader_epoch": number // 50, "timestamp": offset * 1000}
            if number % 50 == 0:
                leader = (ControlRecordType.LEADER_CHANGE, LeaderChangeMessage(leader_id=1).encode(0))
                out.write(build_control_batch([leader], **place))
                place["base_offset"] = offset = offset + 1
            out.write(build_metadata_batch(values, **place))
            offset += len(values)
    every = list(images(log_records(tmp_path)))
    assert has_elr(every[-1][1])
    check(Tables(tmp_path), Random(5).sample(every, 40))


def test_the_generated_years_of_a_cluster_in_a_lake(lake: Lake, tmp_path: Path) -> None:
    size = Size(brokers=6, racks=3, topics=8, partitions=4)
    generate(tmp_path / "node", seed=7, records=6000, size=size, segment_bytes=1 << 18, snapshot_every=2000)
    ends = []
    source = open_source(str(tmp_path / "node"))
    update(lake, source, "c", report=ends.append, chunk=2500)
    assert len(ends) > 2  # in several commits
    every = list(images(log_records(tmp_path / "node" / LOG)))
    check(InLake(lake), [*Random(5).sample(every, 40), every[-1]])


def test_what_apache_kafka_wrote(kafka: Path) -> None:
    tables = Tables(kafka / "data")
    check(tables, images(log_records(kafka / "data" / "__cluster_metadata-0")))
    assert [row["from_record"] for row in tables.rows["voters"]] == ["KRAFT_VOTERS"]
    assert ("kraft.version",) in tables.at(59)["features"]


def test_a_topic_created_anew_has_two_histories(tmp_path: Path) -> None:
    first, second = bytes([1] * 16), bytes([2] * 16)
    write_log(
        tmp_path, 0,
        [
            [topic("orders", first), config("orders", "k", "1"), partition(first)],  # 0 1 2
            [change(first, leader=2)],  # 3
            [r.RemoveTopicRecord(topic_id=first)],  # 4
            [topic("orders", second), config("orders", "k", "2"), partition(second)],  # 5 6 7
        ],
    )  # fmt: skip
    rows = Tables(tmp_path).rows
    spans = {
        name: sorted(
            [(row["topic_id"][:3], row["valid_from_offset"], row["valid_to_offset"]) for row in rows[name]]
        )
        for name in ("topics", "configs", "partitions")
    }
    assert spans == {
        "topics": [("AQE", 0, 4), ("AgI", 5, None)],
        "configs": [("AQE", 1, 4), ("AgI", 6, None)],
        "partitions": [("AQE", 2, 3), ("AQE", 3, 4), ("AgI", 7, None)],
    }


def test_secrets_are_in_no_table(tmp_path: Path) -> None:
    password = r.ConfigRecord(
        resource_type=4, resource_name="1", name="listener.name.a.ssl.key.password", value="hunter2"
    )
    secret = b"hunter2"
    user = r.UserScramCredentialRecord(
        name="ann", mechanism=1, salt=secret, stored_key=secret, server_key=secret, iterations=4096
    )
    write_log(tmp_path, 0, [[password, user]])
    tables = Tables(tmp_path)
    assert "hunter2" not in str(tables.rows) + tables.events
    assert tables.rows["configs"][0]["value"] == "[hidden]"
    assert tables.rows["scram_users"][0]["user"] == "ann"
