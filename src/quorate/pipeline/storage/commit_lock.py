"""A lock around each commit to a table in a local directory.

Delta checks that the commit's file does not exist, then renames its own file to that name. On a
local file system and NFS these are two steps: of two processes that commit in the same moment, one
could overwrite the commit of the other. HDFS and object stores need no lock.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from quorate.pipeline.directories.files import is_remote, local_path

logger = logging.getLogger(__name__)

_thread_locks: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
"""For each lock file, a lock among the threads of this process: that of the file holds off other
processes only."""


@contextmanager
def commit_lock(spark: SparkSession, table: str) -> Iterator[None]:
    """Holds the commit lock of a table in a local directory, and waits while another process holds it.

    The JVM holds it, since the JVM may still write after Python was killed. A command of Spark
    writes its rows and commits them in one step: around it, the lock is held while Spark writes,
    which may take minutes. A warning is logged before a wait for another process. The lock of a
    process that has ended is free.
    """
    if is_remote(table):
        yield
        return
    path = Path(local_path(table))
    path.parent.mkdir(parents=True, exist_ok=True)
    file = str(path.with_name(f".{path.name}.lock"))
    jvm: Any = spark._jvm
    with _thread_locks[file]:
        opened = jvm.java.io.RandomAccessFile(file, "rw")
        try:
            channel = opened.getChannel()
            if channel.tryLock() is None:
                logger.warning("Waiting for another command that writes to %s", path)
                channel.lock()
            yield
        finally:
            opened.close()
