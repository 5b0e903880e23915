"""Lists and reads files through Hadoop's file systems, in a Java process beside this one.

A Python worker of Spark cannot call the worker's own Java process. So the first call starts a small
one, from the jars of Spark, which ends with this process. Its configuration is that of
`HADOOP_CONF_DIR` and of the given properties, its class path Spark's jars, those that Spark has
distributed, and `HADOOP_CLASSPATH`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, SparkFiles
from pyspark import __file__ as pyspark_file

from quorate.pipeline.directories.temporary import delete_left_over, temporary_prefix

_JAVA_OPTIONS: Final = [
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",  # the class of file channels
]

_BLOCK_BYTES: Final = 256 << 10
"""A header is read together with those that follow: each read may be a request to an object store."""


def entries(directory: str, properties: Mapping[str, str]) -> list[tuple[str, bool, int]]:
    """The path of each entry of a directory, whether it is a directory, and its size. Raises OSError."""
    with _errors(directory):
        path, system = _find(directory, properties)
        if not system.getFileStatus(path).isDirectory():
            raise NotADirectoryError(f"{directory} is not a directory")
        base = directory.rstrip("/")
        return [
            (f"{base}/{status.getPath().getName()}", status.isDirectory(), status.getLen())
            for status in system.listStatus(path)
        ]


def is_directory(path: str, properties: Mapping[str, str]) -> bool:
    """Whether there is a directory of this name. Raises OSError if the file system does not answer."""
    try:
        with _errors(path):
            place, system = _find(path, properties)
            return bool(system.getFileStatus(place).isDirectory())
    except FileNotFoundError:
        return False


@contextmanager
def open_file(path: str, properties: Mapping[str, str]) -> Iterator[Callable[[int, int], bytes]]:
    """Opens a file for small reads. Raises OSError."""
    with _errors(path):
        place, system = _find(path, properties)
        length = system.getFileStatus(place).getLen()
        stream = system.open(place)

    block, first = b"", 0

    def read(position: int, size: int) -> bytes:
        nonlocal block, first
        wanted = min(size, length - position)
        if wanted <= 0:
            return b""
        if not first <= position <= position + wanted <= first + len(block):
            with _errors(path):
                stream.seek(position)
                block = bytes(stream.readNBytes(max(wanted, _BLOCK_BYTES)))
            first = position
        return block[position - first : position - first + wanted]

    try:
        yield read
    finally:
        stream.close()


@contextmanager
def fetched(path: str, start: int, end: int, properties: Mapping[str, str]) -> Iterator[IO[bytes]]:
    """A temporary file with the bytes from `start` to `end` (or the end of the file, if that is -1)
    at the same positions. It takes no space for those before `start`. Raises OSError."""
    delete_left_over()
    with tempfile.NamedTemporaryFile(prefix=temporary_prefix()) as file, _errors(path):
        place, system = _find(path, properties)
        length = system.getFileStatus(place).getLen()
        stop = length if end < 0 else min(end, length)
        jvm = _jvm()
        target = jvm.java.io.RandomAccessFile(file.name, "rw")
        stream = system.open(place)
        try:
            target.setLength(stop)
            stream.seek(start)
            source = jvm.java.nio.channels.Channels.newChannel(stream)
            copied = target.getChannel().transferFrom(source, start, stop - start)
        finally:
            stream.close()
            target.close()
        if copied != stop - start:
            raise OSError(f"{path} ends at byte {start + copied}, not at {stop}")
        yield file.file


def store(local: str, path: str, properties: Mapping[str, str]) -> None:
    """Copies a local file to a path that does not exist. Raises OSError."""
    with _errors(path):
        place, system = _find(path, properties)
        jvm = _jvm()
        source = jvm.java.io.FileInputStream(local)
        try:
            target = system.create(place, False)
            try:
                source.transferTo(target)
            finally:
                target.close()
        finally:
            source.close()


def _find(path: str, properties: Mapping[str, str]) -> tuple[Any, Any]:
    """The path as Hadoop has it, and its file system. Hadoop keeps file systems open by their URI."""
    jvm = _jvm()
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in properties.items():
        configuration.set(name, value)
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(configuration)


def _jvm() -> Any:
    """The classes of the Java process that reads.

    It is the session's where this process has one, since PySpark resolves the exceptions of every
    Java process in that of the session.
    """
    context = SparkContext._active_spark_context
    if context is not None and context._jvm is not None:
        return context._jvm
    return _gateway(_class_path()).jvm


def _class_path() -> str:
    """Class path of the Java process. HADOOP_CONF_DIR is first, so that its files are found."""
    parts = [
        os.environ.get("HADOOP_CONF_DIR"),
        f"{_spark_jars()}/*",
        f"{SparkFiles.getRootDirectory()}/*" if SparkFiles._is_running_on_worker else None,
        os.environ.get("HADOOP_CLASSPATH"),
    ]
    return os.pathsep.join([part for part in parts if part])


def _spark_jars() -> Path:
    """The jars of the installed Spark, or of the package pyspark."""
    home = os.environ.get("SPARK_HOME")
    installed = Path(home, "jars") if home else None
    return installed if installed is not None and installed.is_dir() else Path(pyspark_file).parent / "jars"


@cache
def _gateway(class_path: str) -> JavaGateway:
    """The Java process. Only who knows its token can use it, and it ends when its input is closed."""
    jar = next(_spark_jars().glob("py4j-*.jar"))
    return JavaGateway.launch_gateway(
        jarpath=str(jar),
        classpath=class_path,
        javaopts=_JAVA_OPTIONS,
        java_path=None,
        die_on_exit=True,
        enable_auth=True,
    )


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raises Java's exceptions as OSError."""
    try:
        yield
    except Py4JJavaError as error:
        exception = error.java_exception
        name, text = exception.getClass().getName(), exception.getMessage()
        kind = FileNotFoundError if name == "java.io.FileNotFoundException" else OSError
        raise kind(f"{path}: {name}: {text}") from error
    except Py4JError as error:
        raise OSError(f"{path}: {error}") from error
