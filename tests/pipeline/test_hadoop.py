"""Reading metadata logs through Hadoop's file systems: here WebHDFS, from a small server in this process."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from quorate.metadata import records as r
from quorate.pipeline.directories.committed import committed_end
from quorate.pipeline.directories.copies import find_copies, find_logs
from quorate.pipeline.directories.files import Files, is_remote

from .conftest import LOG, ORDERS, all_rows, topic, voter, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class WebHdfs(ThreadingHTTPServer):
    """Serves a folder by the REST API of HDFS: LISTSTATUS, GETFILESTATUS, and OPEN with an offset."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.root = root
        self.opened: list[tuple[str, int, int]] = []
        """The name of each file that was read, the first byte, and the number of bytes."""

    @property
    def uri(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    server: WebHdfs

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        place = self.server.root / unquote(url.path).removeprefix("/webhdfs/v1").lstrip("/")
        if not place.exists():
            error = {"exception": "FileNotFoundException", "javaClassName": "java.io.FileNotFoundException"}
            self._json(404, {"RemoteException": error | {"message": f"File does not exist: {place.name}"}})
        elif query["op"].upper() == "GETFILESTATUS":
            self._json(200, {"FileStatus": _status(place, "")})
        elif query["op"].upper() == "LISTSTATUS":
            found = [_status(inner, inner.name) for inner in sorted(place.iterdir())]
            self._json(200, {"FileStatuses": {"FileStatus": found}})
        elif "redirected" not in query:  # from the namenode to a datanode
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}{self.path}&redirected=true")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            start = int(query.get("offset", "0"))
            data = place.read_bytes()[start:]
            data = data[: int(query.get("length", len(data)))]
            self.server.opened.append((place.name, start, len(data)))
            self._send(200, "application/octet-stream", data)

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _status(place: Path, name: str) -> dict[str, Any]:
    found = place.stat()
    return {
        "pathSuffix": name, "type": "DIRECTORY" if place.is_dir() else "FILE", "length": 0 if place.is_dir() else
        found.st_size, "owner": "o", "group": "g", "permission": "644", "accessTime": 0, "modificationTime": 0,
        "blockSize": 1 << 20, "replication": 1, "childrenNum": 0, "fileId": found.st_ino, "storagePolicy": 0,
    }  # fmt: skip


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[WebHdfs]:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
    if shutil.which("java") is None:
        pytest.skip("Hadoop's file systems need Java 17: java is not on the PATH")
    with WebHdfs(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "remote"),
    [("/data", False), ("file:/data", False), ("file:///data", False), ("hdfs://host/data", True), ("s3a://b", True)],
)  # fmt: skip
def test_only_paths_without_a_scheme_or_with_file_are_local(path: str, remote: bool) -> None:
    assert is_remote(path) is remote


def test_a_remote_cluster_is_found_like_a_local_one(hdfs: WebHdfs, tmp_path: Path) -> None:
    for node, end in ((1, 9), (2, 7), (3, 5)):
        voter(tmp_path / "cluster", node, end)
    remote, files = f"{hdfs.uri}/cluster", Files()
    assert find_logs(remote, files) == [f"{remote}/node-{node}/{LOG}" for node in (1, 2, 3)]
    assert [copy.end_offset for copy in find_copies([remote], files)] == [9, 7, 5]
    assert committed_end(find_copies([remote], files), files) == 7
    with pytest.raises(FileNotFoundError, match=r"webhdfs://.*/missing is not a directory"):
        find_copies([f"{hdfs.uri}/missing"], files)
    with pytest.raises(FileNotFoundError, match=r"java.io.FileNotFoundException"):
        files.read(f"{remote}/missing")


def test_a_task_reads_only_its_part_of_a_remote_file(hdfs: WebHdfs, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    (tmp_path / "file").write_bytes(data)
    view = Files().view(f"{hdfs.uri}/file", 4_000, 9_000)
    assert (len(view), bytes(view[4_000:])) == (9_000, data[4_000:9_000])
    assert bytes(Files().view(f"{hdfs.uri}/file", 0, -1)) == data
    with Files().open(f"{hdfs.uri}/file") as read:
        assert [read(at, 61) for at in (0, 5_000, 10_230, 20_000)] == [
            data[:61], data[5_000:5_061], data[10_230:], b""
        ]  # fmt: skip
    (tmp_path / "file").rename(tmp_path / "file.deleted")
    assert bytes(Files().view(f"{hdfs.uri}/file", 0, -1)) == data


def test_the_data_source_reads_a_remote_log(spark: SparkSession, hdfs: WebHdfs, tmp_path: Path) -> None:
    log = tmp_path / "data" / LOG
    log.mkdir(parents=True)
    write_log(log, 0, [[topic("orders", ORDERS), r.NoOpRecord()] for _ in range(30)])
    frame = spark.read.format("quorate_metadata").option("sliceBytes", "1000").load(f"{hdfs.uri}/data")
    expected = [(row["offset"], row["type"], row["json"]) for row in all_rows(log)]
    rows = frame.select("offset", "type", "json").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == expected
