"""Metadata log directories made for the pipeline's tests, and the one Spark session that they share."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.metadata import records as r
from quorate.metadata.features import record_version
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.image.builder import apply_records
from quorate.metadata.snapshot import snapshot_name, write_snapshot
from quorate.pipeline.decoder.read import Reading, read_slice
from quorate.pipeline.directories.layout import Slice, scan, slices
from quorate.protocol.schema import Data
from quorate.records.batch import build_metadata_batch
from quorate.testing import KafkaCluster
from tests.support.golden import unpack_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.pipeline.tables.lake import Lake

DELTA_JARS = Path(__file__).parents[2] / ".cache" / "delta-4.4.0"
KAFKA_JARS = Path(__file__).parents[2] / ".cache" / "spark-kafka-4.1.1"

LOG = "__cluster_metadata-0"
LEVEL = r.FeatureLevelRecord(name="metadata.version", feature_level=27)
ORDERS, GONE, LATE = (bytes([n] * 16) for n in (1, 2, 3))


def topic(name: str, topic_id: bytes) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id)


def partition(topic_id: bytes, number: int = 0, **changes: object) -> r.PartitionRecord:
    fields: dict[str, object] = {
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return r.PartitionRecord(partition_id=number, topic_id=topic_id, **{**fields, **changes})  # type: ignore[arg-type]


def change(topic_id: bytes, **changes: object) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=0, topic_id=topic_id, **changes)  # type: ignore[arg-type]


def config(name: str, key: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=2, resource_name=name, name=key, value=value)


def write_log(folder: Path, base_offset: int, batches: Sequence[Sequence[Data]], *, epoch: int = 1) -> Path:
    """A segment; the batch that starts at offset N has the time N seconds."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    offset = base_offset
    with path.open("wb") as out:
        for records in batches:
            values = [encode_record(record, record_version(record.KEY, 27)) for record in records]
            out.write(
                build_metadata_batch(values, base_offset=offset, leader_epoch=epoch, timestamp=offset * 1000)
            )
            offset += len(records)
    return path


def write_state(folder: Path, end_offset: int, records: Sequence[Data]) -> Path:
    """A snapshot that ends at an offset and holds what these records make."""
    folder.mkdir(exist_ok=True)
    image = apply_records(EMPTY, [LEVEL, *records], offset=end_offset - 1, epoch=1, timestamp_ms=0)
    path = folder / snapshot_name(end_offset, 1)
    now = end_offset * 1000
    write_snapshot(path, image, kraft_version=0, voters=None, last_contained_timestamp_ms=now, now_ms=now)
    return path


def voter(
    folder: Path, node: int, end: int, *, epoch: int = 2, state: int | None = None, voters: int = 3
) -> None:
    """A voter's log directory: two batches of epoch 1, then batches of `epoch` up to `end`."""
    log = folder / f"node-{node}" / LOG
    log.mkdir(parents=True)
    (log.parent / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=c\n")
    first = write_log(log, 0, [[r.NoOpRecord()] for _ in range(min(2, end))])
    if end > 2:
        later = write_log(log, 2, [[r.NoOpRecord()] for _ in range(end - 2)], epoch=epoch)
        first.write_bytes(first.read_bytes() + later.read_bytes())
        later.unlink()
    fixed = [{"voterId": number} for number in range(1, voters + 1)]
    fields = {"leaderId": 1, "leaderEpoch": epoch if state is None else state, "currentVoters": fixed}
    (log / "quorum-state").write_text(json.dumps(fields | {"data_version": 0}))


def rows_of(part: Slice, **reading: Any) -> list[dict[str, Any]]:
    """The rows of a slice as dictionaries."""
    return [row for batch in read_slice(part, Reading(**reading)) for row in batch.to_pylist()]


def all_rows(folder: Path, **reading: Any) -> list[dict[str, Any]]:
    """The rows of all snapshots and segments of a metadata log."""
    layout = scan(folder)
    parts = slices(layout, snapshots=layout.snapshots)
    return [row for part in parts for row in rows_of(part, **reading)]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories that Apache Kafka wrote: running/ and data/."""
    return unpack_golden("dynamic", tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
    pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: java is not on the PATH")
    from quorate.pipeline.spark import connector, delta
    from quorate.pipeline.spark.session import local_session

    os.environ.setdefault(delta.JARS_VARIABLE, str(DELTA_JARS))
    os.environ.setdefault(connector.JARS_VARIABLE, str(KAFKA_JARS))
    session = local_session("tests", cores=2, lake=DELTA_JARS.is_dir(), topics=KAFKA_JARS.is_dir())
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # compiling costs more than these few rows
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.constraintPropagation.enabled", "false")
    session.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Lake]:
    """Makes empty lakes."""
    from quorate.pipeline.tables.lake import Lake

    if not DELTA_JARS.is_dir():
        pytest.skip("the jars of Delta are missing (run: make setup)")
    return lambda: Lake(spark, str(tmp_path_factory.mktemp("lake")))


@pytest.fixture(scope="session")
def copied(lakes: Callable[[], Lake]) -> Callable[[Lake], Lake]:
    """Makes copies of lakes. That takes less than to fill one."""

    def copy(lake: Lake) -> Lake:
        other = lakes()
        shutil.copytree(lake.folder, other.folder, dirs_exist_ok=True)
        return other

    return copy


@pytest.fixture(scope="session")
def brokers() -> Iterator[KafkaCluster]:
    """A cluster whose topics Spark reads and writes. The controller is node 1."""
    if not KAFKA_JARS.is_dir():
        pytest.skip("the jars of Spark's Kafka connector are missing (run: make setup)")
    with KafkaCluster(controllers=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture
def lake(lakes: Callable[[], Lake]) -> Lake:
    """An empty lake."""
    return lakes()
