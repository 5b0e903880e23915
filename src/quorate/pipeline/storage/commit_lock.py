"""A lock around each commit to a table in a local directory.

Delta looks that the file of a commit does not exist, and then renames its own to that name. On a local file system and
NFS these are two steps: of two processes that commit in the same moment, one could overwrite the commit of the other.
HDFS and object stores need no lock.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from quorate.pipeline.directories.files import is_remote, local_path

_threads: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
"""For each lock file, the lock of this process: the file holds off other processes only."""


@contextmanager
def commit_lock(spark: SparkSession, table: str) -> Iterator[None]:
    """Meanwhile, no other process commits to the table in a directory. Waits for one that does.

    The JVM holds the lock, because it writes the commit: it goes on for a moment when the process of Python has been
    killed. A lock of a process that has ended is free.
    """
    if is_remote(table):
        yield
        return
    path = Path(local_path(table))
    path.parent.mkdir(parents=True, exist_ok=True)
    file = str(path.with_name(f".{path.name}.lock"))
    jvm: Any = spark._jvm
    with _threads[file]:
        opened = jvm.java.io.RandomAccessFile(file, "rw")
        try:
            opened.getChannel().lock()
            yield
        finally:
            opened.close()
