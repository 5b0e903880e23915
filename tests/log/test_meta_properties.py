"""meta.properties, Java's properties text, and the lock of a directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.log import properties_text
from quorate.log.directories import meta_properties
from quorate.log.directories.lock import DirLock, DirLockedError
from quorate.log.directories.meta_properties import MetaProperties, MetaPropertiesError
from quorate.protocol.uuids import random_uuid


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d", {"a": "b", "c": "d"}),
        ("  a = b  ", {"a": "b  "}),
        ("# no\n! no\n\na=1", {"a": "1"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("a", {"a": ""}),
        ("a=1\r\na=2", {"a": "2"}),
        ("a==b", {"a": "=b"}),
        ("dir=C:\\\\kafka", {"dir": "C:\\kafka"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, want: dict[str, str]) -> None:
    assert properties_text.parse(text) == want


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_written_properties_are_read_back(values: dict[str, str]) -> None:
    values = {k: v for k, v in values.items() if not any("\ud800" <= c <= "\udfff" for c in k + v)}
    assert properties_text.parse(properties_text.render(values)) == values


def test_a_file_is_read_back(tmp_path: Path) -> None:
    meta = MetaProperties("my cluster: 1", 7, random_uuid())
    meta_properties.write(tmp_path, meta)
    assert meta_properties.read(tmp_path) == meta
    assert [p.name for p in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("version=0\nbroker.id=1", "version=0"),
        ("broker.id=1", "version=0"),
        ("version=2\nnode.id=1\ncluster.id=x", "version=2"),
        ("version=1\ncluster.id=x", "node.id"),
        ("version=1\nnode.id=1", "cluster.id"),
        ("version=1\nnode.id=one\ncluster.id=x", "node.id=one"),
        ("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=oops", "directory.id=oops"),
        ("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ", "reserved"),
        ("version=1\nnode.id=\\u00zz", "line 2"),
        ("version=1\nnode.id=1\ncluster.id=x\ndjrectory.id=mwBBvG3oSIWDRk7crIrIug", "djrectory.id"),
    ],
)
def test_the_error_for_an_invalid_file_names_key_and_value(tmp_path: Path, text: str, names: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(MetaPropertiesError, match=r"meta\.properties") as e:
        meta_properties.read(tmp_path)
    assert names in str(e.value)


def test_directories_of_one_node_must_agree(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    meta_properties.write(a, MetaProperties("x", 1, random_uuid()))
    with pytest.raises(MetaPropertiesError, match="not formatted"):
        meta_properties.load([a, b], node_id=1)
    meta_properties.write(b, MetaProperties("y", 1, random_uuid()))
    with pytest.raises(MetaPropertiesError, match=r"cluster\.id=y"):
        meta_properties.load([a, b], node_id=1)
    with pytest.raises(MetaPropertiesError, match=r"node\.id=2"):
        meta_properties.load([a], node_id=2)
    same = meta_properties.read(a)
    assert same is not None
    meta_properties.write(b, same)
    with pytest.raises(MetaPropertiesError, match=r"directory\.id"):
        meta_properties.load([a, b], node_id=1)


@pytest.mark.parametrize("spelling", ["link", "a/../a", "link/../a"])
def test_one_directory_under_two_names_is_refused_and_keeps_its_id(tmp_path: Path, spelling: str) -> None:
    """If the id were removed, as from a copied directory, the quorum would no longer know this voter."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    meta_properties.write(tmp_path / "a", MetaProperties("x", 1, random_uuid()))
    with pytest.raises(MetaPropertiesError) as e:
        meta_properties.load([tmp_path / "a", tmp_path / spelling], node_id=1)
    assert str(e.value).startswith(
        f"{tmp_path / 'a'} and {tmp_path / spelling} are the same directory: name it once"
    )
    assert "directory.id" not in str(e.value)


def test_one_directory_under_two_names_is_detected_before_it_exists(tmp_path: Path) -> None:
    with pytest.raises(MetaPropertiesError, match="are the same directory"):
        meta_properties.refuse_same_directory([tmp_path / "a", tmp_path / "b" / ".." / "a"])


@pytest.mark.parametrize(
    ("with_log", "metadata", "remedy"),
    [
        (
            "",
            "",
            "take the copy out of log.dirs, or, to use both, remove the line directory.id from its "
            "meta.properties",
        ),
        ("b", "", "remove the line directory.id from {a}'s meta.properties (never from {b},"),
        ("", "a", "remove the line directory.id from {b}'s meta.properties (never from {a},"),
        ("ab", "a", "one is a copy; take the copy out of log.dirs (never from {a} or {b},"),
    ],
)
def test_the_id_of_a_copy_is_never_taken_from_where_the_metadata_log_is(
    tmp_path: Path, with_log: str, metadata: str, remedy: str
) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    meta = MetaProperties("x", 1, random_uuid())
    for directory in (a, b, c):
        directory.mkdir()
        meta_properties.write(directory, meta if directory != c else MetaProperties("x", 1))
    for name in with_log:
        (tmp_path / name / "__cluster_metadata-0").mkdir()
    with pytest.raises(MetaPropertiesError) as e:
        meta_properties.load(
            [c, a, b], node_id=1, metadata_directory=tmp_path / metadata if metadata else None
        )
    assert remedy.format(a=a, b=b) in str(e.value)
    assert meta_properties.read(c) == MetaProperties("x", 1), "nothing is written before all is checked"


def test_a_missing_directory_id_is_created_and_kept(tmp_path: Path) -> None:
    meta_properties.write(tmp_path, MetaProperties("x", 1))
    made = meta_properties.load([tmp_path], node_id=1).directory_ids[tmp_path]
    assert meta_properties.load([tmp_path], node_id=1).directory_ids[tmp_path] == made


def test_a_locked_directory_refuses_another_process(tmp_path: Path) -> None:
    lock = DirLock(tmp_path)
    lock.acquire()
    code = (
        "import sys; from pathlib import Path; from quorate.log.directories.lock import DirLock; "
        "DirLock(Path(sys.argv[1])).acquire()"
    )
    taken = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert taken.returncode and "in use by another process" in taken.stderr
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_lock_that_cannot_be_opened_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DirLockedError, match=r"nowhere/\.lock"):
        DirLock(tmp_path / "nowhere").acquire()
