"""A lake: a directory with Delta tables of one or several clusters, partitioned by cluster.

Each commit of a table carries the progress of its cluster, as the version of Delta's transaction with the
cluster's application id. Data and progress are therefore one atomic step, a commit that would go back is
skipped, and of two writers at the same time one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from pyspark import sql
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from quorate.pipeline.directories.files import is_remote
from quorate.pipeline.spark.delta import require_delta
from quorate.pipeline.storage.commit_lock import commit_lock
from quorate.pipeline.storage.commits import Transaction, commit_of, files_of, versions_of
from quorate.pipeline.storage.data_files import DataFile, Place
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.declaration import CLUSTER, VALIDITY, Column, Entity
from quorate.pipeline.tables.events import EVENT_DDL, EVENTS, QUORUM

SCHEMA: Final = 2
"""The version of the tables' schema, which is a part of the application ids. `schema` has the steps to it."""

_APPLICATION: Final = "quorate-tables"
_EXPIRY: Final = "quorate-expired"
_HADOOP: Final = "spark.hadoop."
_OFFSET_BITS: Final = 46
"""The bits of an offset in a version of 63 bits. A log of 10**13 records has fewer."""

_CONFLICT: Final = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_PATH_EXISTS",
)


Report = Callable[[str], None]
"""Says what was done."""


class LakeError(Exception):
    """The lake cannot do what is asked for. The message says why."""


class LakeConflictError(LakeError):
    """Another run has committed meanwhile."""


class Progress(NamedTuple):
    """What a table has applied of a cluster's log. Progress only grows."""

    generation: int
    """How often records were taken back, because they were never committed."""
    end: int
    """The offset after the last record."""

    @property
    def version(self) -> int:
        """The number that a commit carries."""
        return self.generation << _OFFSET_BITS | self.end

    @classmethod
    def of(cls, version: int) -> Progress:
        """The progress of such a number."""
        return cls(version >> _OFFSET_BITS, version & (1 << _OFFSET_BITS) - 1)


class _State(NamedTuple):
    """A version of a table."""

    commit: tuple[int, int]
    """Its number, -1 before the first one, and the time of its file."""
    versions: Mapping[str, int]
    """For each application, the version of its last transaction."""

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        return self.commit[0] >= 0


class Changes(NamedTuple):
    """What a commit changes of the files of a table."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()


class Lake:
    """The tables in a directory."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """Raises DeltaVersionError if the session has another Delta."""
        require_delta(spark)
        self.spark = spark
        self.folder = _absolute(spark, folder.rstrip("/"))
        self._pinned: dict[str, _State] | None = None
        self._known: dict[str, _State] = {}
        """The states that were read last. Delta takes long to read one."""
        self.open_files: dict[str, tuple[tuple[int, int], list[DataFile]]] = {}
        """What `histories` knows of the files of a table after a commit."""
        self.last_records: dict[str, tuple[Progress, Any]] = {}
        """The last record of each cluster that this object has written, and the progress with it."""
        self.seen: dict[str, Any] = {}
        """What `news` knows of the events of each cluster that most tables need not look at again."""

    def path(self, table: str) -> str:
        """The directory of a table."""
        return f"{self.folder}/{table}"

    def exists(self, table: str = EVENTS) -> bool:
        """Whether a table exists. The first commit creates it."""
        return self._state(table).exists

    def check_exists(self) -> None:
        """Raises LakeError if the directory has no events."""
        if not self.exists():
            raise LakeError(
                f"{self.folder} is not a lake: quorate-pipeline run --lake {self.folder} creates one"
            )

    def clusters(self) -> list[str]:
        """The names of the clusters in the lake.

        Raises LakeError if the events of one have another schema.
        """
        found = self.schemas(EVENTS)
        for cluster, schema in sorted(found.items()):
            if schema != SCHEMA:
                remedy = (
                    f"quorate-pipeline migrate --lake {self.folder}" if schema < SCHEMA else "upgrade quorate"
                )
                raise LakeError(
                    f"cluster {cluster} in {self.folder} has schema {schema}, but this release has {SCHEMA}: "
                    f"{remedy}"
                )
        return sorted(found)

    def schemas(self, table: str) -> dict[str, int]:
        """For each cluster in a table, the newest schema in which its rows were written."""
        found: dict[str, int] = {}
        for name in self._state(table).versions:
            program, _, rest = name.partition("/")
            schema, _, cluster = rest.partition("/")
            if program == _APPLICATION:
                found[cluster] = max(found.get(cluster, 0), int(schema))
        return found

    def snapshot(self, table: str) -> Any:
        """The newest state of a table in the JVM. Delta's API for Python does not give the transactions."""
        jvm = self.spark._jvm
        assert jvm is not None
        log = jvm.org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(self.spark._jsparkSession, self.path(table))._2()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Meanwhile, the state of a table is looked up once, and after each commit of this object to it. What
        another run commits is noticed by Delta at the commit."""
        self._pinned = {}
        try:
            yield
        finally:
            self._pinned = None

    def _state(self, table: str) -> _State:
        pinned = self._pinned
        found = None if pinned is None else pinned.get(table)
        if found is None:
            snapshot = self.snapshot(table)
            commit = commit_of(snapshot)
            found = self._known.get(table)
            if found is None or found.commit != commit:
                found = _read_state(snapshot, commit)
            self._known[table] = found
            if pinned is not None:
                pinned[table] = found
        return found

    def progress(self, table: str, cluster: str, schema: int = SCHEMA) -> Progress:
        """What a table has applied, in the given schema."""
        return Progress.of(self.version(table, application(cluster, schema)))

    def expired(self, cluster: str) -> int:
        """The offset before which the events have expired, or 0."""
        return self.version(EVENTS, f"{_EXPIRY}/{cluster}")

    def version(self, table: str, application_id: str) -> int:
        """The version of the last transaction of an application, or 0."""
        return self._state(table).versions.get(application_id, 0)

    def applied(self, table: str, cluster: str) -> int:
        """The end offset of the records that a table has applied."""
        return self.progress(table, cluster).end

    def read(self, table: str, cluster: str | None = None) -> DataFrame:
        """The rows of a table, or those of one cluster."""
        if not self.exists(table):
            columns = [commented(f.lit(None).cast(c.kind), c) for c in entity_columns(ENTITIES[table])]
            return self.spark.range(0).select(*columns)
        found = self.spark.read.format("delta").load(self.path(table))
        return found if cluster is None else found.where(f.col("cluster") == cluster)

    def place(self, table: str, cluster: str) -> Place:
        """Where the files of a cluster in a table are."""
        properties: dict[str, str] = {}
        if is_remote(self.folder):
            given = self.spark.sparkContext.getConf().getAll()
            properties = {n.removeprefix(_HADOOP): v for n, v in given if n.startswith(_HADOOP)}
        return Place(self.path(table), cluster, statistics(table), properties)

    def begin(self, table: str, cluster: str, expected: Progress, schema: int = SCHEMA) -> Transaction:
        """Begins a transaction of a table.

        Raises LakeConflictError if its progress is not the expected one.
        """
        name = application(cluster, schema)
        found = Transaction(self.spark, self.path(table), name)
        known = self._known.get(table)
        if known is None or known.commit != found.begun_at:
            known = self._known[table] = _read_state(found.snapshot, found.begun_at)
        if known.versions.get(name, 0) != expected.version:
            self._forget(table)
            raise LakeConflictError(f"another run has written to {self.path(table)} meanwhile")
        return found

    def files(self, table: str, cluster: str, where: str = "true") -> list[DataFile]:
        """The files of a cluster in a table."""
        return files_of(self.spark, self.snapshot(table), cluster, where)

    def commit(
        self,
        table: str,
        cluster: str,
        transaction: Transaction,
        changes: Changes,
        progress: Progress,
    ) -> tuple[int, int] | None:
        """Adds and removes files of a cluster, and sets the progress, in one commit.

        Returns its number and the time of its file; None if others have committed to the table
        since the transaction began, such as `compact` or a run of another cluster: what was known
        of the files is old then. Raises LakeConflictError if another run has written to the same
        cluster.
        """
        try:
            with conflicts():
                if transaction.version < 0 or self.schemas(table).get(cluster) != SCHEMA:
                    transaction.set_schema(
                        table_schema(table),
                        {"delta.dataSkippingStatsColumns": ",".join(statistics(table))},
                    )
                text = f"{cluster}: applied up to offset {progress.end - 1}"
                before = self._known.get(table)
                version = transaction.commit(changes.added, changes.removed, text, progress.version)
        finally:
            self._forget(table)
        commit = commit_of(self.snapshot(table))
        if commit[0] != version or version != transaction.version + 1:
            return None
        if before is not None and before.commit == transaction.begun_at:
            versions = {**before.versions, transaction.application: progress.version}
            self._known[table] = _State(commit, versions)
        return commit

    def replace(
        self,
        table: str,
        cluster: str,
        rows: DataFrame,
        condition: str,
        progress: Progress,
        schema: int = SCHEMA,
    ) -> None:
        """Replaces the rows of a cluster for which a condition holds, and sets the progress, in one commit.
        Does nothing if the table is as far already. Raises LakeConflictError if another run changes the same
        rows."""
        writer = rows.write.format("delta")
        if self.exists(table):
            condition = f"cluster = '{literal(cluster)}' AND {condition}"
            writer = writer.mode("overwrite").option("replaceWhere", condition)
            if self.schemas(table).get(cluster) != schema:
                writer = writer.option("mergeSchema", "true")
        else:
            # If another run has created the table meanwhile, these rows would double its own.
            writer = writer.mode("errorifexists").partitionBy("cluster")
            writer = writer.option("delta.dataSkippingStatsColumns", ",".join(statistics(table)))
        writer = writer.option("userMetadata", f"{cluster}: applied up to offset {progress.end - 1}")
        self._commit(writer, table, application(cluster, schema), progress.version)

    def advance(self, table: str, cluster: str, progress: Progress, schema: int = SCHEMA) -> None:
        """Sets the progress of a table of which no row changes."""
        expected = self.progress(table, cluster, schema)
        self.commit(table, cluster, self.begin(table, cluster, expected, schema), Changes(), progress)

    def expire(self, cluster: str, offset: int) -> None:
        """Removes the events before an offset, except those of the quorum."""
        writer = self.read(EVENTS).limit(0).write.format("delta").mode("overwrite")
        kept = ", ".join([f"'{name}'" for name in QUORUM])
        condition = f"cluster = '{literal(cluster)}' AND offset < {offset} AND type NOT IN ({kept})"
        writer = writer.option("replaceWhere", condition)
        writer = writer.option("userMetadata", f"{cluster}: expired before offset {offset}")
        self._commit(writer, EVENTS, f"{_EXPIRY}/{cluster}", offset)

    @contextmanager
    def committing(self, table: str) -> Iterator[None]:
        """Meanwhile, a command of Spark commits to a table, and no other process does.

        Raises LakeConflictError where Delta raises one of its errors about concurrent commits.
        """
        with conflicts(), commit_lock(self.spark, self.path(table)):
            yield

    def _commit(self, writer: DataFrameWriter, table: str, name: str, version: int) -> None:
        writer = writer.option("txnAppId", name).option("txnVersion", version)
        try:
            with self.committing(table):
                writer.save(self.path(table))
        finally:
            self._forget(table)

    def _forget(self, table: str) -> None:
        if self._pinned is not None:
            self._pinned.pop(table, None)


def _read_state(snapshot: Any, commit: tuple[int, int]) -> _State:
    return _State(commit, versions_of(snapshot) if commit[0] >= 0 else {})


def _absolute(spark: SparkSession, folder: str) -> str:
    """A directory with its whole path: Spark's SQL takes a relative one for the name of a table."""
    if ":" in folder or folder.startswith("/"):
        return folder
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return str(system.makeQualified(path).toString()).removeprefix("file:")


def application(cluster: str, schema: int = SCHEMA) -> str:
    """Delta's application id of a cluster."""
    return f"{_APPLICATION}/{schema}/{cluster}"


def literal(text: str) -> str:
    """A text inside of a string of Spark SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def entity_columns(entity: Entity) -> tuple[Column, ...]:
    """The columns of an entity's table."""
    return (CLUSTER, *entity.key, *entity.columns, *VALIDITY)


def statistics(table: str) -> tuple[str, ...]:
    """The columns of a table by which files are skipped."""
    return ("offset", "timestamp", "type") if table == EVENTS else ("valid_from_offset", "valid_to_offset")


def table_schema(table: str) -> StructType:
    """The columns of a table."""
    if table == EVENTS:
        return _parsed(f"`{CLUSTER.name}` {CLUSTER.kind}, {EVENT_DDL}")
    columns = entity_columns(ENTITIES[table])
    found = _parsed(", ".join([f"`{column.name}` {column.kind}" for column in columns]))
    for field, column in zip(found.fields, columns, strict=True):
        field.metadata = {"comment": column.meaning}
    return found


def _parsed(ddl: str) -> StructType:
    found: Any = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def overlapping(start: int, end: int) -> str:
    """The condition of files of events that may have records of a range of offsets."""
    least, greatest = (f"bigint(get_json_object(stats, '$.{kind}Values.offset'))" for kind in ("min", "max"))
    return f"coalesce({greatest} >= {start} AND {least} < {end}, true)"


def commented(value: sql.Column, column: Column) -> sql.Column:
    """A value as a column of a table, with its meaning as the comment."""
    return value.alias(column.name, metadata={"comment": column.meaning})


@contextmanager
def conflicts() -> Iterator[None]:
    """Raises LakeConflictError where Delta raises one of its errors about concurrent commits."""
    try:
        yield
    except Exception as error:
        if not any(name in str(error) for name in _CONFLICT):
            raise
        reason = str(error).splitlines()[0]
        raise LakeConflictError(f"another run has written to the lake meanwhile: {reason}") from error
