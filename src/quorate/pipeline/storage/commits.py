"""The files of a Delta table, and transactions that add and remove some, by Delta's own classes in
the JVM."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from quorate.pipeline.storage.commit_lock import commit_lock
from quorate.pipeline.storage.data_files import DataFile

_FILES: Final = (
    "path",
    "size",
    "stats",
    "partitionValues.cluster AS cluster",
    "deletionVector IS NOT NULL AS vector",
)


class UnreadableFilesError(ValueError):
    """The table has files that cannot be read one by one. The message says what helps."""


class Transaction:
    """A transaction of a table, on the state that the table has when it begins.

    What others commit meanwhile is noticed at the commit, if it is of the same application or
    removes the same files.
    """

    def __init__(self, spark: SparkSession, path: str, application: str | None = None) -> None:
        """`path` is the directory of the table.

        With an application, the commit sets its progress, and its rows count as new. Without one,
        the commit changes no progress, and readers of the table's changes see no change.
        """
        self._spark = spark
        self._path = path
        jvm: Any = spark._jvm
        self._jvm = jvm
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(spark._jsparkSession, path)
        log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
        self._transaction = log.startTransaction()
        self.snapshot = self._transaction.snapshot()
        self.application = application or ""
        self.begun_at = commit_of(self.snapshot)
        """The last commit before."""
        if application is not None:
            self._transaction.readTxn().addOne(application)  # one of its commits meanwhile is a conflict

    @property
    def version(self) -> int:
        """The version of the table, or -1 if it does not exist."""
        return self.begun_at[0]

    def files(self, cluster: str, where: str = "true") -> list[DataFile]:
        """The files of a cluster for whose column `stats` a condition holds. Raises UnreadableFilesError."""
        return files_of(self._spark, self.snapshot, cluster, where)

    def set_schema(self, schema: StructType, configuration: Mapping[str, str]) -> None:
        """Creates the table with columns, partitioned by `cluster`, or adds those to it that it lacks."""
        if self.version >= 0:
            known = StructType.fromJson(json.loads(self.snapshot.schema().json()))
            merged = merged_schema(known, schema)
            if merged != known:
                metadata = json.loads(self.snapshot.metadata().json())
                metadata["metaData"]["schemaString"] = merged.json()
                self._transaction.updateMetadata(self._action(metadata), False)
            return
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.json(),
            "partitionColumns": ["cluster"],
            "configuration": dict(configuration),
            "createdTime": time.time_ns() // 1_000_000,
        }
        self._transaction.updateMetadata(self._action({"metaData": metadata}), False)

    def commit(
        self, added: Iterable[DataFile], removed: Iterable[DataFile], text: str, version: int = 0
    ) -> int:
        """Adds and removes files, and sets the version of the application, in one step.

        Returns the version of the table.
        """
        actions = self._jvm.java.util.ArrayList()
        new_rows = bool(self.application)
        if new_rows:
            now = time.time_ns() // 1_000_000
            txn = {"appId": self.application, "version": version, "lastUpdated": now}
            actions.add(self._action({"txn": txn}))
        for file in removed:
            actions.add(self._action(file.removed(data_change=new_rows)))
        for file in added:
            actions.add(self._action(file.added(data_change=new_rows)))
        scala = self._jvm.scala
        none = scala.Option.empty()
        operation = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")(
            self._jvm.org.apache.spark.sql.SaveMode.Append,
            none, none, scala.Option.apply(text), none, none, none, none, none,
        )  # fmt: skip
        done = scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        with commit_lock(self._spark, self._path):
            return int(self._transaction.commit(done, operation))

    def _action(self, action: str | Mapping[str, Any]) -> Any:
        text = action if isinstance(action, str) else json.dumps(action)
        return self._jvm.org.apache.spark.sql.delta.actions.Action.fromJson(text)


def versions_of(snapshot: Any) -> dict[str, int]:
    """For each application, the version that its last commit carries. Delta takes long to find it."""
    lines = snapshot.transactions().mkString("\n").splitlines()
    return {name: int(version) for name, _, version in [line.rpartition(" -> ") for line in lines]}


def files_of(spark: SparkSession, snapshot: Any, cluster: str, where: str = "true") -> list[DataFile]:
    """The files of a cluster in a state of a table for whose column `stats` a condition holds. Raises
    UnreadableFilesError."""
    if int(snapshot.version()) < 0:
        return []
    found = DataFrame(snapshot.allFiles().toDF(), spark).selectExpr(*_FILES)
    rows = found.where(found["cluster"] == cluster).where(where).collect()
    if any(row["vector"] for row in rows):
        path = snapshot.path().getParent().toString()
        raise UnreadableFilesError(
            f"{path} has deletion vectors: REORG TABLE delta.`{path}` APPLY (PURGE) removes them"
        )
    return [DataFile(row["path"], cluster, row["size"], json.loads(row["stats"] or "{}")) for row in rows]


def commit_of(snapshot: Any) -> tuple[int, int]:
    """The number of the last commit of a state, -1 if there is none, and the time of its file.

    A commit that was lost and made again has another time.
    """
    version = int(snapshot.version())
    return version, int(snapshot.logSegment().lastCommitFileModificationTimestamp()) if version >= 0 else 0


def merged_schema(known: StructType, wanted: StructType) -> StructType:
    """The columns of a table, and after them those that it lacks, also inside of structs."""
    fields = list(known.fields)
    place = {field.name.lower(): number for number, field in enumerate(fields)}
    for field in wanted.fields:
        number = place.get(field.name.lower())
        if number is None:
            fields.append(field)
            continue
        inner, wanted_inner = fields[number].dataType, field.dataType
        if isinstance(inner, StructType) and isinstance(wanted_inner, StructType):
            old = fields[number]
            merged = merged_schema(inner, wanted_inner)
            fields[number] = StructField(old.name, merged, old.nullable, old.metadata)
    return StructType(fields)
