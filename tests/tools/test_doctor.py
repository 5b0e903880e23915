"""`quorate doctor`: what it finds in log directories, ours and Apache Kafka's.

The directories are those of a node of ours that ran, and those that Apache Kafka 4.4 wrote
(tests/golden). Each row of a table damages a copy in one way, and names the findings.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.config.kafka_config import KafkaConfig
from quorate.log.directories.lock import DirLock
from quorate.log.directories.meta_properties import MetaProperties, read, write
from quorate.tools.doctor import directories, disks, rules
from quorate.tools.doctor.findings import Finding, Severity
from quorate.tools.quorate import main
from tests.support.cluster import BIN, Node, running
from tests.support.golden import ALL_KINDS, unpack_golden
from tests.tools.test_doctor_properties import BASE, Changes, text_of

# --- directories ----------------------------------------------------------------------------------


SIDES = pytest.mark.parametrize("side", [pytest.param("ours", marks=pytest.mark.process), "java"])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node of ours that ran and stopped, with a topic of two partitions."""
    with running(Node(tmp_path_factory.mktemp("ours"))) as node:
        tool(
            "kafka-topics",
            "--bootstrap-server",
            node.bootstrap,
            "--create",
            "--topic",
            "orders",
            "--partitions",
            "2",
        )
        tool(
            "kafka-console-producer",
            "--bootstrap-server",
            node.bootstrap,
            "--topic",
            "orders",
            given="one\ntwo\n",
        )
        assert node.stop() == 0
    return node.data


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of Apache Kafka 4.4 after it stopped, with the topics `plain` and `compact`."""
    data = unpack_golden("4.4 dynamic", tmp_path_factory.mktemp("java"), "data/") / "data"
    for path in data.glob("*-delete"):
        shutil.rmtree(path)
    return data


def tool(*words: str, given: str = "") -> None:
    subprocess.run([str(BIN / words[0]), *words[1:]], input=given, text=True, capture_output=True, check=True)


def damaged(source: Path, target: Path, damage: Callable[[Path], None]) -> list[Finding]:
    """The findings in a copy of a directory after damage."""
    shutil.copytree(source, target)
    damage(target)
    return directories.check_directories(directories.of_path(target), deep=True).findings


def of_the_disk(finding: Finding) -> bool:
    """Whether a finding is about the disk of this machine, which the tests do not choose."""
    return finding.code.startswith(("disk-", "memory-", "network-", "no-free"))


@SIDES
def test_an_undamaged_directory_has_no_findings(
    side: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    findings = damaged(request.getfixturevalue(side), tmp_path / "d", lambda path: None)
    assert [f for f in findings if not of_the_disk(f)] == []


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_directory_that_kafka_has_just_formatted_has_no_findings(kind: str, tmp_path: Path) -> None:
    formatted = unpack_golden(kind, tmp_path, "formatted/") / "formatted"
    findings = directories.check_directories(directories.of_path(formatted), deep=True).findings
    # Kafka 4.1 has no metadata log before the first start, if the voters are in the properties.
    assert {f.code for f in findings if not of_the_disk(f)} <= {"no-metadata-log"}


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Replaces the content of the last file that matches."""

    def damage(directory: Path) -> None:
        path = sorted(directory.glob(name))[-1]
        path.chmod(0o644)
        path.write_bytes(change(path.read_bytes()))

    return damage


def create(name: str, content: bytes = b"x") -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)

    return damage


def remove(*names: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for name in names:
            for path in directory.glob(name):
                path.unlink()

    return damage


def without_the_first_batch(directory: Path) -> None:
    """The metadata log begins above 0, and no snapshot has the records before it."""
    [path] = (directory / META).glob("*.log")
    content = path.read_bytes()
    rest = content[12 + int.from_bytes(content[8:12], "big") :]
    path.unlink()
    (directory / META / f"{int.from_bytes(rest[:8], 'big'):020d}.log").write_bytes(rest)
    for snapshot in (directory / META).glob("*.checkpoint"):
        snapshot.unlink()


def flip(at: int) -> Callable[[bytes], bytes]:
    """Changes a byte at a position, from the end if it is negative."""

    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[at] ^= 0xFF
        return bytes(changed)

    return change


META = "__cluster_metadata-0"
OLD_STATE = (
    b'{"leaderId":1,"leaderEpoch":0,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","data_version":1}'
)
FORMATTED = b"version=1\ncluster.id=x\nnode.id=1\n"
OTHER_TOPIC = b"version: 0\ntopic_id: JEXY6aqzQY-32P5TStzaFg"
BOTH: list[tuple[str, Callable[[Path], None], str, Severity]] = [
    ("meta.properties is missing", remove("meta.properties"), "not-formatted", Severity.ERROR),
    ("meta.properties is ZooKeeper's", create("meta.properties", b"version=0\nbroker.id=1\n"),
     "malformed-meta-properties", Severity.ERROR),
    ("no node.id", create("meta.properties", b"version=1\ncluster.id=x\n"),
     "malformed-meta-properties", Severity.ERROR),
    ("no directory.id", create("meta.properties", FORMATTED),
     "no-directory-id", Severity.NOTE),
    ("another directory.id", create("meta.properties", FORMATTED + b"directory.id=JEXY6aqzQY-32P5TStzaFg\n"),
     "other-voter-directory", Severity.WARNING),
    ("quorum-state is empty", create(f"{META}/quorum-state", b""), "malformed-quorum-state", Severity.ERROR),
    ("quorum-state is cut", edit(f"{META}/quorum-state", lambda c: c[:20]), "malformed-quorum-state", Severity.ERROR),
    ("quorum-state of a later release", edit(f"{META}/quorum-state", lambda c: c.replace(b'n":1', b'n":2')),
     "malformed-quorum-state", Severity.ERROR),
    ("quorum-state is old", create(f"{META}/quorum-state", OLD_STATE),
     "quorum-state-behind", Severity.ERROR),
    ("quorum-state is missing", remove(f"{META}/quorum-state"), "quorum-state-missing", Severity.WARNING),
    ("a metadata batch in the middle", edit(f"{META}/*.log", flip(200)), "damaged-metadata", Severity.ERROR),
    ("the metadata log is cut", edit(f"{META}/*.log", lambda c: c.rstrip(b"\0")[:-5]), "torn-metadata", Severity.NOTE),
    ("the metadata log is gone", remove(f"{META}/*.log", f"{META}/*.checkpoint"),
     "metadata-log-missing", Severity.ERROR),
    ("the first segment and all snapshots", without_the_first_batch,
     "records-missing", Severity.ERROR),
    ("a damaged snapshot", edit(f"{META}/*.checkpoint", flip(-20)), "damaged-snapshot", Severity.ERROR),
    ("a cut snapshot", edit(f"{META}/*.checkpoint", lambda c: c[:-30]), "damaged-snapshot", Severity.ERROR),
    ("a leader epoch checkpoint", create(f"{META}/leader-epoch-checkpoint", b"0\n1\nx y\n"),
     "malformed-checkpoint", Severity.WARNING),
    ("a snapshot that was being written", create(f"{META}/00000000000000000099-0000000001-123.checkpoint.part"),
     "leftover", Severity.NOTE),
    ("a deleted snapshot", create(f"{META}/00000000000000000001-0000000001.checkpoint.deleted"),
     "leftover", Severity.NOTE),
    ("an interrupted write", create("meta.properties.tmp"), "leftover", Severity.NOTE),
    ("a recovery checkpoint", create("recovery-point-offset-checkpoint", b"0\n5\n"),
     "malformed-checkpoint", Severity.WARNING),
    ("no clean shutdown", remove(".kafka_cleanshutdown"), "unclean-shutdown", Severity.NOTE),
    ("an empty clean-shutdown marker", create(".kafka_cleanshutdown", b""), "no-broker-epoch", Severity.NOTE),
    ("lost+found", create("lost+found/x"), "unknown-directory", Severity.WARNING),
    ("a user's directory", create("my-5/notes.txt"), "not-a-log", Severity.WARNING),
    ("a topic that is not known", create("nobody-0/partition.metadata", OTHER_TOPIC),
     "stray-partition", Severity.WARNING),
    ("a deleted partition", create("x-0.0123456789abcdef0123456789abcdef-delete/y"),
     "deleted-partition", Severity.NOTE),
    ("a stray partition", create("x-0.0123456789abcdef0123456789abcdef-stray/y"), "stray-partition", Severity.NOTE),
    ("a topic id", create("TOPIC-0/partition.metadata", OTHER_TOPIC),
     "topic-id-mismatch", Severity.WARNING),
    ("partition.metadata", create("TOPIC-0/partition.metadata", b"nothing"), "malformed-topic-id", Severity.ERROR),
    ("a batch of a topic", edit("TOPIC-0/*.log", flip(70)), "damaged-segment", Severity.ERROR),
    ("an index without a segment", create("TOPIC-0/00000000000000000999.index"), "orphaned-index", Severity.NOTE),
    ("an interrupted compaction", create("TOPIC-0/00000000000000000000.log.cleaned"), "leftover", Severity.NOTE),
    ("the end of a topic", edit("TOPIC-0/*.log", lambda c: b""), "lost-records", Severity.ERROR),
]  # fmt: skip
"""Name, damage, the finding and its severity. TOPIC is a topic of the directory."""


def in_topic(damage: Callable[[Path], None], source: Path) -> Callable[[Path], None]:
    """The damage in a directory where TOPIC is a link to the partition with records."""
    topic = "orders" if any(source.glob("orders-*")) else "plain"
    partition = max(
        source.glob(f"{topic}-*"),
        key=lambda p: sum(len(f.read_bytes().rstrip(b"\0")) for f in p.glob("*.log")),
    )

    def with_link(directory: Path) -> None:
        link = directory / "TOPIC-0"
        link.symlink_to(directory / partition.name)
        damage(directory)
        link.unlink()

    return with_link


@SIDES
@pytest.mark.parametrize(("name", "damage", "code", "severity"), BOTH, ids=[row[0] for row in BOTH])
def test_damage_is_found(
    side: str,
    name: str,
    damage: Callable[[Path], None],
    code: str,
    severity: Severity,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    source = request.getfixturevalue(side)
    findings = damaged(source, tmp_path / "d", in_topic(damage, source))
    assert (code, severity) in {(f.code, f.severity) for f in findings}


def test_a_directory_without_a_marker_of_its_voter_starts_anew(tmp_path: Path) -> None:
    """A node that was only formatted has no log, and nothing is wrong with it."""
    (tmp_path / "d").mkdir()
    write(tmp_path / "d", MetaProperties("abc", 1, b"d" * 16))
    findings = directories.check_directories(directories.of_path(tmp_path / "d"), deep=False).findings
    assert [f.code for f in findings if not of_the_disk(f)] == ["no-metadata-log"]


# --- several directories --------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Path, list[Path]]]:
    """A properties file with two formatted directories."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    for number, directory in enumerate(dirs):
        directory.mkdir()
        write(directory, MetaProperties("abc", 1, bytes(15) + bytes([200 + number])))
    file = tmp_path / "server.properties"
    ports = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    file.write_bytes(text_of({"log.dirs": ",".join(map(str, dirs))} | ports))
    yield file, dirs


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    status = main(["doctor", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def found_codes(document: dict[str, object]) -> set[str]:
    findings = document["findings"]
    assert isinstance(findings, list)
    return {finding["code"] for finding in findings}


IDENTITIES: list[tuple[Callable[[list[Path]], object], str, str]] = [
    (lambda dirs: write(dirs[1], MetaProperties("abc", 2, b"x" * 16)),
     "node-id-mismatch", "Stored node id 2 doesn't match previous node id 1"),
    (lambda dirs: write(dirs[1], MetaProperties("xyz", 1, b"x" * 16)), "cluster-id-mismatch", "Invalid cluster.id in"),
    (lambda dirs: shutil.copy(dirs[0] / "meta.properties", dirs[1]),
     "duplicate-directory-id", "Duplicate directory ID Optional["),
    (lambda dirs: (dirs[1] / "meta.properties").unlink(), "not-formatted", "No `meta.properties` found in"),
    (lambda dirs: shutil.rmtree(dirs[1]), "missing-directory", "No `meta.properties` found in"),
    (lambda dirs: [(d / "meta.properties").unlink() for d in dirs],
     "not-formatted", "No readable meta.properties files found."),
    (lambda dirs: (dirs[1] / META).mkdir(), "misplaced-metadata-log", "Found unexpected metadata location"),
    (lambda dirs: (dirs[0] / "meta.properties").write_text("version=7"),
     "malformed-meta-properties", "Encountered I/O error in metadata log directory"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "kafka"), IDENTITIES, ids=[str(i) for i in range(len(IDENTITIES))]
)
def test_the_directories_of_a_node_fit_together(
    change: Callable[[list[Path]], object],
    code: str,
    kafka: str,
    node: tuple[Path, list[Path]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(node[1])
    status, document = run(capsys, str(node[0]))
    assert status == 2
    assert code in found_codes(document)
    assert kafka in str(document["kafkaRefusal"])


def test_the_names_of_directories_do_not_decide_what_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are in the texts of the findings, and have words of other findings."""
    file, dirs = (
        tmp_path / "server.properties",
        [tmp_path / name for name in ("a", "directory.id=x", "node.id=1. b")],
    )
    for directory, cluster in zip(dirs[:2], ("abc", "xyz"), strict=True):
        directory.mkdir()
        write(directory, MetaProperties(cluster, 1, directory.name[:1].encode() * 16))
    dirs[2].mkdir()
    file.write_bytes(text_of({"log.dirs": ",".join(map(str, dirs))}))
    _, document = run(capsys, str(file))
    assert found_codes(document) & {"cluster-id-mismatch", "node-id-mismatch", "duplicate-directory-id"} == {
        "cluster-id-mismatch"
    }
    findings = document["findings"]
    assert isinstance(findings, list)
    [unformatted] = [finding for finding in findings if finding["code"] == "not-formatted"]
    assert unformatted["text"].endswith("meta.properties is missing")
    assert unformatted["remedy"].startswith("Run: kafka-storage format")


def test_a_partition_in_two_directories_is_found(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in node[1]:
        create("t-0/partition.metadata", OTHER_TOPIC)(directory)
    assert "partition-twice" in found_codes(run(capsys, str(node[0]))[1])


def test_a_directory_that_a_node_uses_is_named_and_not_changed(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create("meta.properties.tmp")(node[1][0])
    create(f"{META}/partition.metadata.tmp")(node[1][0])
    program = "import sys, fcntl; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True); input()"
    lock = str(node[1][0] / ".lock")
    with subprocess.Popen(
        ["python3", "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        assert DirLock(node[1][0]).holder() == other.pid
        assert "in-use" in found_codes(run(capsys, str(node[0]))[1])
        node[0].write_bytes(node[0].read_bytes() + b"zookeeper.connect=z\n")
        assert main(["doctor", "--fix", str(node[0])]) == 2
        assert "stop the node first" in capsys.readouterr().err
        monkeypatch.setattr(directories, "_holder", lambda _: None)  # the node starts after the check
        for path in (node[0], node[1][0], node[1][0] / META):
            assert main(["doctor", "--fix", str(path)]) == 2
            assert "stop the node first" in capsys.readouterr().err
        other.communicate(b"\n")
    assert DirLock(node[1][0]).holder() is None
    assert b"zookeeper" in node[0].read_bytes()


# --- the disk -------------------------------------------------------------------------------------

MOUNTS = """/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw 0 0
server:/x /srv/nfs nfs4 rw 0 0
/dev/sdb1 /srv/broken xfs ro,noatime 0 0
"""


@pytest.mark.parametrize(
    ("directory", "found"),
    [
        ("/data", []),
        ("/run/kafka", ["memory-file-system"]),
        ("/srv/nfs/kafka", ["network-file-system"]),
        ("/srv/broken/a", ["read-only-file-system"]),
        ("/srv/nfsx", []),
    ],
)
def test_the_file_system_is_judged(directory: str, found: list[str]) -> None:
    assert [finding.code for finding in disks.check_mount(Path(directory), MOUNTS)] == found


@pytest.mark.parametrize(
    ("free_mib", "inodes", "found"),
    [
        (50_000, 10_000, []),
        (5_000, 10_000, ["disk-nearly-full"]),
        (10, 10_000, ["disk-full"]),
        (50_000, 3, ["no-free-inodes"]),
    ],
)
def test_free_space_is_judged(free_mib: int, inodes: int, found: list[str]) -> None:
    size = 100_000 << 8  # blocks of 4 KiB
    disk = os.statvfs_result(
        (4096, 4096, size, free_mib << 8, free_mib << 8, 100_000, inodes, inodes, 0, 255)
    )
    assert [finding.code for finding in disks.check_free_space(Path("/data"), disk)] == found


SOCKETS = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:2385 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 12 1
"""


def test_a_port_on_which_another_process_listens_is_found() -> None:
    found = rules.used_ports(
        Path("f"), KafkaConfig(BASE), {"listeners": 3}, SOCKETS
    )  # 9092 listens, 9093 is connected
    assert [(f.code, f.key, f.line) for f in found] == [("port-in-use", "listeners", 3)]
    assert "port 9092" in found[0].text


# --- fixes and output -----------------------------------------------------------------------------


def test_nothing_is_changed_without_fix(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, dirs = node
    file.write_bytes(file.read_bytes() + b"zookeeper.connect=z\n")
    create("meta.properties.tmp")(dirs[0])
    before = {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()}
    run(capsys, str(file))
    assert {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()} == before


def test_fix_changes_what_is_safe_and_keeps_a_backup(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, dirs = node
    text = (
        file.read_text()
        + "# mine\nzookeeper.connect=z\nbroker.id=1\nbroker.rack=a\nbroker.rack=b\nnum.partition=3\n"
    )
    file.write_text(text)
    create("meta.properties.tmp")(dirs[0])
    file.chmod(0o640)
    assert main(["doctor", "--fix", str(file)]) == 1
    out = capsys.readouterr().out
    assert "zookeeper.connect=z" in out
    assert file.read_text() == text.replace("zookeeper.connect=z\nbroker.id=1\nbroker.rack=a\n", "")
    assert file.stat().st_mode & 0o777 == 0o640
    [backup] = file.parent.glob("server.properties.before-doctor-*")
    assert backup.read_text() == text
    assert not (dirs[0] / "meta.properties.tmp").exists()
    [kept] = file.parent.glob("a.before-doctor-*/meta.properties.tmp")
    assert kept.read_bytes() == b"x"
    assert read(dirs[0]) == MetaProperties("abc", 1, bytes(15) + bytes([200]))


@pytest.mark.parametrize("comment", ["# Å\n", "# хост\n", "# a\fb\vc\n", "# \x1c\x1d\x1e\r"])
def test_fix_counts_lines_as_the_node_does(
    comment: str, node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only CR and LF end a line. A line less would remove the line before the obsolete key."""
    file, _ = node
    kept = comment.encode() + file.read_bytes()
    file.write_bytes(b"\xef\xbb\xbf" + kept + b"zookeeper.connect=z\nbroker.rack=r")
    main(["doctor", "--fix", "--only-file", str(file)])
    assert file.read_bytes() == kept + b"broker.rack=r"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_fix_keeps_the_owner_of_a_file(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """root corrects the file, and the node of another user has to read it."""
    file, _ = node
    file.write_bytes(file.read_bytes() + b"zookeeper.connect=z\n")
    os.chown(file, 12345, 12346)
    file.chmod(0o640)
    main(["doctor", "--fix", "--only-file", str(file)])
    assert b"zookeeper" not in file.read_bytes()
    new = file.stat()
    assert (new.st_uid, new.st_gid, new.st_mode & 0o777) == (12345, 12346, 0o640)


def test_fix_changes_the_file_behind_a_link(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, _ = node
    link = file.with_name("link.properties")
    link.symlink_to(file.name)
    text = file.read_bytes()
    file.write_bytes(text + b"zookeeper.connect=z\n")
    main(["doctor", "--fix", "--only-file", str(link)])
    assert link.is_symlink()
    assert file.read_bytes() == text


def test_the_backup_of_a_directory_without_identity_is_beside_it(
    node: tuple[Path, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka would take a backup in the log directory for a partition."""
    file, [directory, _] = node
    (directory / "meta.properties").unlink()
    create("t-0/partition.metadata", OTHER_TOPIC)(directory)
    create("t-0/leader-epoch-checkpoint.tmp")(directory)
    main(["doctor", "--fix", str(file)])
    assert [path.name for path in directory.iterdir()] == ["t-0"]
    assert len([*file.parent.glob("a.before-doctor-*/t-0/leader-epoch-checkpoint.tmp")]) == 1


@pytest.mark.parametrize(
    ("changes", "status"), [({}, 0), ({"num.partition": "3"}, 1), ({"num.partitions": "x"}, 2)]
)
def test_the_exit_status_is_the_worst_finding(
    changes: Changes, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.properties"
    file.write_bytes(text_of(changes))
    assert main(["doctor", "--only-file", str(file)]) == status
    out = capsys.readouterr().out
    assert "\033" not in out
    assert out.startswith(f"{file}: ")


def test_a_path_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "/no/such/path"]) == 2
    assert "/no/such/path does not exist" in capsys.readouterr().err
