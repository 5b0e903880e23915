"""kafka-storage: what it writes, says and refuses."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from quorate.log.directories import meta_properties
from quorate.metadata.bootstrap import FIRST_SNAPSHOT_NAME, read_bootstrap
from quorate.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from quorate.metadata.snapshot import read_snapshot
from quorate.node.storage.dynamic_voters import parse_dynamic_voters
from quorate.node.storage.scram_parser import parse_scram
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text
from quorate.tools import standalone_check
from quorate.tools.storage import main

DIRECTORY_ID = "JEXY6aqzQY-32P5TStzaFg"


class Box:
    """A node's properties file in a temporary folder, and the tool run on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.file = folder / "server.properties"
        self.dirs = [folder / "a", folder / "b"]
        self.write()

    def write(self, **changes: str | None) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": ",".join(map(str, self.dirs)),
        } | {k.replace("_", "."): v for k, v in changes.items()}
        self.file.write_text("".join(f"{k}={v}\n" for k, v in properties.items() if v is not None))

    def run(self, *words: str) -> tuple[int, str, str]:
        try:
            status = main([*words])
        except SystemExit as e:
            status = int(e.code or 0)
        out = self.capsys.readouterr()
        return status, out.out, out.err

    def format(self, *words: str, cluster: str = "abc") -> tuple[int, str, str]:
        return self.run("format", "-t", cluster, "-c", str(self.file), *words)

    def info(self) -> tuple[int, str, str]:
        return self.run("info", "-c", str(self.file))

    def levels(self) -> dict[str, int]:
        records = read_bootstrap(self.dirs[0])
        return {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}


@pytest.fixture
def box(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Box:
    return Box(tmp_path, capsys)


def test_standalone_writes_every_file_of_a_new_quorum_of_one(box: Box) -> None:
    status, out, err = box.format("--standalone")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].startswith(
        "Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord("
        "name='metadata.version', featureLevel=33) at version 0), "
    )
    assert out.splitlines()[1:] == [
        f"Formatting dynamic metadata voter directory {box.dirs[0]} with metadata.version 4.4-IV2.",
        f"Formatting data directory {box.dirs[1]} with metadata.version 4.4-IV2.",
    ]
    assert [p.name for p in box.dirs[1].iterdir()] == ["meta.properties"]
    first, second = (meta_properties.read(d) for d in box.dirs)
    assert first is not None and second is not None
    assert (first.cluster_id, first.node_id) == (second.cluster_id, second.node_id) == ("abc", 1)
    assert first.directory_id != second.directory_id
    snapshot = read_snapshot((box.dirs[0] / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).read_bytes())
    assert snapshot.kraft_version == 1
    (voter,) = snapshot.voters.voters
    assert (voter.voter_id, voter.voter_directory_id) == (1, first.directory_id)
    assert [(e.name, e.host, e.port) for e in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 9093)]
    assert not (box.dirs[1] / METADATA_DIRECTORY).exists()
    assert box.levels() == {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }


@pytest.mark.parametrize(
    ("words", "changes", "kraft"),
    [((), {"controller.quorum.voters": "1@127.0.0.1:9093"}, 0), (("-N",), {}, 1)],
    ids=["static", "no initial controllers"],
)
def test_the_first_snapshot_of_a_controller_without_initial_voters_has_only_records(
    box: Box, words: tuple[str, ...], changes: dict[str, str | None], kraft: int
) -> None:
    box.write(**changes)
    status, out, _ = box.format(*words)
    assert status == 0
    assert out.splitlines()[1].startswith(f"Formatting metadata directory {box.dirs[0]}")
    snapshot = read_snapshot((box.dirs[0] / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).read_bytes())
    assert (snapshot.kraft_version, snapshot.voters) == (kraft, None)
    assert box.levels()["metadata.version"] == 33
    assert not (box.dirs[0] / "bootstrap.checkpoint").exists()


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.3", {"metadata.version": 7}),
        ("3.9", {"metadata.version": 21}),
        ("4.0", {"metadata.version": 25, "group.version": 1, "transaction.version": 2}),
    ],
)
def test_an_older_release_has_its_levels(box: Box, release: str, levels: dict[str, int]) -> None:
    assert box.format("-s", "-r", release)[0] == 0
    assert box.levels() == levels


@pytest.mark.parametrize(
    "text",
    [
        f"1@host1:9093:{DIRECTORY_ID},2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A",
        f"1-{DIRECTORY_ID}@host1:9093,2-MvDxzVmcRsaTz33bUuRU6A@[::1]:9094",
    ],
)
@pytest.mark.parametrize("option", ["--initial-controllers", "--controller-quorum-voters", "-I"])
def test_initial_controllers_in_both_spellings(box: Box, option: str, text: str) -> None:
    assert box.format(option, text)[0] == 0
    meta = meta_properties.read(box.dirs[0])
    assert meta is not None and meta.directory_id is not None and uuid_text(meta.directory_id) == DIRECTORY_ID
    snapshot = read_snapshot((box.dirs[0] / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).read_bytes())
    assert [(v.voter_id, v.endpoints[0].host) for v in snapshot.voters.voters] == [(1, "host1"), (2, "::1")]


def test_a_voter_without_directory_id_is_left_empty(box: Box) -> None:
    assert box.format("-I", f"1@h:1:{DIRECTORY_ID},2@h:2")[0] == 0
    snapshot = read_snapshot((box.dirs[0] / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).read_bytes())
    assert [v.voter_directory_id for v in snapshot.voters.voters] == [parse_uuid(DIRECTORY_ID), ZERO_UUID]


def test_a_broker_needs_none_of_the_flags_and_gets_only_meta_properties(box: Box) -> None:
    box.write(**{"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert box.format()[0] == 0
    assert {p.name for d in box.dirs for p in d.iterdir()} == {"meta.properties"}


REFUSED = [
    (
        (),
        {},
        "you must specify one of the following: --standalone, --initial-controllers, or "
        "--no-initial-controllers",
    ),
    (("-s",), {"controller.quorum.voters": "1@h:1"}, "You cannot specify controller.quorum.voters"),
    (
        ("-s",),
        {"process.roles": "broker", "listeners": "PLAINTEXT://h:1"},
        "You can only use --standalone on a controller",
    ),
    (
        ("-s", "-r", "3.8", "-f", "eligible.leader.replicas.version=1"),
        {},
        "eligible.leader.replicas.version could not be set to 1 because it depends on "
        "metadata.version level 23",
    ),
    (("-s", "-r", "2.8"), {}, "Unknown metadata.version '2.8'. Supported metadata.version are: 3.3-IV3, "),
    (("-s", "-r", "4.5-IV0"), {}, "Unknown metadata.version '4.5-IV0'."),
    (("-s", "-f", "metadata.version=34"), {}, "metadata.version 4.5-IV0 is not yet stable."),
    (("-s", "-r", "4.1", "-f", "metadata.version=27"), {}, "Use --release-version instead"),
    (("-s", "-f", "no.such=1"), {}, "Unsupported feature: no.such. Supported features are:"),
    (("-s", "-f", "group.version=9"), {}, "No feature:group.version with feature level 9"),
    (("-s", "-f", "group.version=-1"), {}, "No feature:group.version with feature level -1"),
    (("-s", "-f", "group.version"), {}, "equals sign not found"),
    (("-s", "-f", "group.version=99999"), {}, "unable to parse 99999 as a short"),
    (("-s", "-f", "group.version=0_1"), {}, "unable to parse 0_1 as a short"),
    (("-s", "-f", "kraft.version=0"), {}, "Cannot set kraft.version to 0"),
    (
        ("-f", "kraft.version=1"),
        {"controller.quorum.voters": "1@h:1"},
        "Cannot set kraft.version to 1 unless",
    ),
    (("-s", "-N"), {}, "not allowed with argument"),
    (("-I", "1@h"), {}, "is not a controller"),
    (("-I", f"1@h :1:{DIRECTORY_ID}"), {}, "is not a controller"),
    (("-I", f"2147483648@h:1:{DIRECTORY_ID}"), {}, "Node id 2147483648 in '2147483648@h:1"),
    (("-I", "1@h:1:AAAAAAAAAAAAAAAAAAAAAQ"), {}, "is reserved"),
    (("-I", "1@h:1,1@h:2"), {}, "Node id 1 was specified more than once"),
    (("-s", "-S", "PLAIN=[name=a,password=b]"), {}, "The add-scram mechanism PLAIN is not supported"),
    (("-s",), {"process.roles": None}, "ZooKeeper"),
]


@pytest.mark.parametrize(("words", "changes", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refuses_in_one_line_and_writes_nothing(
    box: Box, words: tuple[str, ...], changes: dict[str, str | None], message: str
) -> None:
    box.write(**changes)
    status, _, err = box.format(*words)
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert not any(d.exists() for d in box.dirs)


OTHER_ID = "MvDxzVmcRsaTz33bUuRU6A"
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
DOUBTFUL = [
    (
        ("-I", f"2@h:2:{OTHER_ID},3@h:3"),
        {},
        "does not name this controller, node.id 1 (it names 2, 3): formatted as an observer",
    ),
    (("-I", f"1@h:1:{DIRECTORY_ID}"), BROKER, "names this node, node.id 1, which has no controller role"),
    (
        ("-I", f"1@h:1:{DIRECTORY_ID},2@H:1:{OTHER_ID}"),
        {},
        "gives controllers 1 and 2 the same endpoint h:1,",
    ),
    (
        ("-I", f"1@[::1]:1:{DIRECTORY_ID},2@[::1]:1"),
        {},
        "gives controllers 1 and 2 the same endpoint [::1]:1,",
    ),
    (
        ("-I", f"1@a:1:{DIRECTORY_ID},3@c:1:{DIRECTORY_ID},2@b:1:{DIRECTORY_ID}"),
        {},
        f"gives controllers 1, 2 and 3 the same directory id {DIRECTORY_ID}: give each its own "
        "(kafka-storage random-uuid",
    ),
    (
        ("-s", "-f", "group.version=1", "-f", "group.version=0"),
        {},
        "--feature group.version is given 2 times (1, 0); the last, 0,",
    ),
    (
        ("-s", "-f", "metadata.version=27", "-f", "metadata.format=26"),
        {},
        "--feature metadata.version is given 2 times (27, 26); the last, 26,",
    ),
]


@pytest.mark.parametrize(
    ("words", "changes", "message"), DOUBTFUL, ids=[str(i) for i in range(len(DOUBTFUL))]
)
def test_warns_of_what_kafka_accepts_and_nobody_means(
    box: Box, words: tuple[str, ...], changes: dict[str, str | None], message: str
) -> None:
    box.write(**changes)
    status, out, err = box.format(*words)
    assert (status, err.count("\n")) == (0, 1), err
    assert err.startswith("Warning: ") and message in err
    assert "Formatting" in out


@pytest.mark.parametrize(
    ("changes", "text"), [({}, f"1@h:1:{DIRECTORY_ID}==,2@h:2,3@h:3"), (BROKER, f"7@h:1:{OTHER_ID}")]
)
def test_warns_of_nothing_where_all_is_well(box: Box, changes: dict[str, str | None], text: str) -> None:
    """Directory ids that are left out are no duplicates; a broker is formatted with the same list and
    is not in it."""
    box.write(**changes)
    assert box.format("-I", text)[::2] == (0, "")


def test_the_last_level_of_a_feature_counts(box: Box) -> None:
    box.format("-s", "-f", "transaction.version=0", "-f", "transaction.version=2")
    assert box.levels()["transaction.version"] == 2


def test_formats_only_once(box: Box) -> None:
    box.format("-s")
    before = {p: p.read_bytes() for p in box.folder.rglob("*") if p.is_file()}
    status, _, err = box.format("-s")
    assert status == 1
    assert f"Log directory {box.dirs[0]} is already formatted. Use --ignore-formatted" in err
    assert box.format("-s", "-g")[:2] == (0, "All of the log directories are already formatted.\n")
    assert {p: p.read_bytes() for p in box.folder.rglob("*") if p.is_file()} == before


def test_ignore_formatted_adds_a_new_directory(box: Box) -> None:
    box.format("-s")
    box.dirs.append(box.folder / "c")
    box.write()
    status, out, _ = box.format("-N", "-g")
    assert (status, out.splitlines()[1:]) == (
        0,
        [f"Formatting data directory {box.dirs[2]} with metadata.version 4.4-IV2."],
    )


def test_standalone_beside_a_controller_that_says_nothing_warns_that_it_may_be_a_second_quorum(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who refuses connections is not there, and no reason to warn. A script that formats goes on either
    way."""
    monkeypatch.setattr(standalone_check, "RESPONSE_TIMEOUT_S", 0.3)
    with socket.socket() as hangs, socket.socket() as gone:
        for s in (hangs, gone):
            s.bind(("127.0.0.1", 0))
        hangs.listen()
        places = [f"127.0.0.1:{s.getsockname()[1]}" for s in (hangs, gone)]
        box.write(**{"controller.quorum.bootstrap.servers": ",".join(places)})
        status, out, err = box.format("-s")
    assert (status, err.count("\n")) == (0, 1), err
    assert err.startswith(
        f"Warning: {places[0]} accepts connections but did not answer within 0.3 s: if that is a controller "
        "of"
    )
    assert "remove its directories and format with --no-initial-controllers" in err
    assert "Formatting" in out


OLD_LOGS = [
    (["00000000000000000000.log"], "00000000000000000000.log"),
    (["00000000000000000000-0000000000.checkpoint", "00000000000000000000.log"], "00000000000000000000.log"),
    (["00000000000000000042-0000000003.checkpoint"], "00000000000000000042-0000000003.checkpoint"),
    (["quorum-state"], "quorum-state"),
]


@pytest.mark.parametrize("words", [("-s",), ("-N",), ("-I", f"1@h:1:{DIRECTORY_ID}")])
@pytest.mark.parametrize(
    ("files", "named"), OLD_LOGS, ids=["log", "log-and-first-snapshot", "snapshot", "vote"]
)
def test_the_metadata_log_of_a_node_that_ran_before_is_refused_and_kept(
    box: Box, words: tuple[str, ...], files: list[str], named: str
) -> None:
    """The new node would join its cluster with the old one's records."""
    for directory in box.dirs:  # the second is no metadata directory; a node would refuse to start on it
        (directory / METADATA_DIRECTORY).mkdir(parents=True)
        for name in files:
            (directory / METADATA_DIRECTORY / name).write_bytes(b"old")
        status, out, err = box.format(*words)
        assert (status, out, err.count("\n")) == (1, "", 1), err
        assert (
            f"Log directory {directory} has no meta.properties, but the metadata log of a node that ran"
            in err
        )
        assert named in err and f"move {directory / METADATA_DIRECTORY} away and format again" in err
        left = [p for d in box.dirs for p in d.rglob("*") if p.is_file()]
        assert {p.read_bytes() for p in left} == {b"old"} and len(left) == len(files)
        for path in left:
            path.unlink()


@pytest.mark.parametrize("words", [("-s",), ("-N",)])
def test_what_an_interrupted_format_leaves_is_formatted_over(box: Box, words: tuple[str, ...]) -> None:
    (box.dirs[0] / METADATA_DIRECTORY).mkdir(parents=True)
    first = box.dirs[0] / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME
    for path in (first, first.with_name(first.name + ".tmp"), box.dirs[0] / "bootstrap.checkpoint"):
        path.write_bytes(b"half")
    assert box.format(*words)[0] == 0
    assert box.levels()
    voters = read_snapshot(first.read_bytes()).voters
    assert (voters is not None) == (words == ("-s",)), "only voters that were named this time"


@pytest.mark.parametrize("spelling", ["link", "b/../a"])
@pytest.mark.parametrize("there", [True, False])
def test_one_directory_named_twice_is_refused_before_anything_is_written(
    box: Box, spelling: str, there: bool
) -> None:
    """Formatted twice, its second id would not be the voter's any more."""
    if there:
        box.dirs[0].mkdir()
    (box.folder / "link").symlink_to(box.dirs[0])
    box.write(log_dirs=f"{box.dirs[0]},{box.folder / spelling}")
    status, out, err = box.format("-s")
    assert (status, out) == (1, "")
    assert f"{box.dirs[0]} and {box.folder / spelling} are the same directory" in err
    assert box.dirs[0].exists() is there and not any(p for p in box.folder.rglob("*/*") if p.is_file())


def test_a_directory_that_cannot_be_made_is_named_before_any_is_formatted(box: Box) -> None:
    (box.folder / "z").symlink_to("/proc")
    nowhere = box.folder / "z" / "quorate"
    box.write(log_dirs=f"{box.dirs[0]},{nowhere}")
    status, out, err = box.format("-s")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert (
        f"The log directory {nowhere} cannot be created or written to ({nowhere}: No such file or "
        "directory): correct" in err
    )
    assert list(box.dirs[0].iterdir()) == []


def test_another_cluster_or_node_is_refused(box: Box) -> None:
    box.format("-s")
    assert "Invalid cluster.id" in box.format("-s", "-g", cluster="other")[2]
    box.write(**{"node.id": "2"})
    assert "node id" in box.format("-N", "-g")[2]


def test_info_tells_what_is_there_and_what_is_wrong(box: Box) -> None:
    status, out, _ = box.info()
    assert (status, out) == (
        1,
        f"Found problems:\n  {box.dirs[0]} does not exist\n  {box.dirs[1]} does not exist\n\n",
    )
    box.format("-s")
    status, out, _ = box.info()
    assert status == 0
    assert out.startswith(
        f"Found log directories:\n  {box.dirs[0]}\n  {box.dirs[1]}\n\nFound metadata: {{cluster.id=abc, "
    )
    (box.dirs[1] / "meta.properties").unlink()
    status, out, _ = box.info()
    assert status == 1
    assert f"Found problem:\n  {box.dirs[1]} is not formatted.\n" in out


def test_version_mapping_and_dependencies(box: Box) -> None:
    assert box.run("version-mapping", "-r", "3.9")[1].splitlines()[:2] == [
        "metadata.version=21 (3.9)",
        "kraft.version=1",
    ]
    assert box.run("version-mapping")[1].splitlines()[0] == "metadata.version=33 (4.4-IV2)"
    assert "Unknown metadata.version '9'" in box.run("version-mapping", "-r", "9")[2]
    elr = "eligible.leader.replicas.version=1"
    out = box.run("feature-dependencies", "-f", elr, "-f", "share.version=2", "-f", "metadata.version=20")[1]
    assert out.splitlines() == [
        f"{elr} requires:",
        "    metadata.version=23 (4.0-IV1)",
        "share.version=2 has no dependencies.",
        "metadata.version=20 (3.8-IV0) has no dependencies.",
    ]


def test_random_uuid(box: Box) -> None:
    one, other = (box.run("random-uuid")[1].strip() for _ in range(2))
    assert one != other
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", one)


def test_help_and_version_everywhere(box: Box) -> None:
    for words in (["-h"], ["format", "-h"], ["info", "--help"], ["--version"]):
        status, out, _ = box.run(*words)
        assert status == 0
        assert out


def test_scram_credentials_go_into_the_bootstrap(box: Box) -> None:
    argument = 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    assert box.format("-s", "-S", argument, "-S", "SCRAM-SHA-512=[name=bob,password=b]")[0] == 0
    scram = [r for r in read_bootstrap(box.dirs[0]) if isinstance(r, UserScramCredentialRecord)]
    assert [(r.name, r.mechanism, r.iterations) for r in scram] == [("alice", 1, 8192), ("bob", 2, 4096)]
    assert scram[0].salt == b"7q"


def test_credentials_are_not_printed_with_the_bootstrap_records(box: Box) -> None:
    argument = 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    out = box.format("-s", "-S", argument)[1]
    assert (
        "UserScramCredentialRecord(name='alice', mechanism=1, salt=(redacted), storedKey=(redacted)," in out
    )


def test_scram_keys_are_those_of_rfc_7677() -> None:
    record = parse_scram(
        'SCRAM-SHA-256=[name=user,password=pencil,iterations=4096,salt="W22ZaJ0SNY7soEsUEjb6gQ=="]'
    )
    # From the RFC's exchange: the proof and the server signature verify against these keys.
    import base64
    import hashlib
    import hmac

    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(record.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key
    server = hmac.digest(record.server_key, message, "sha256")
    assert base64.b64encode(server) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256",
        "SCRAM-SHA-256=name=a",
        "SCRAM-SHA-256=[name=a",
        "SCRAM-SHA-256=[password=a]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,saltedpassword=YCE=]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=99999]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=x]",
        "SCRAM-SHA-256=[name=a,password=b,colour=red]",
        "SCRAM-SHA-256=[name=a,password=b,salt=!]",
    ],
)
def test_wrong_scram_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_scram(text)


def test_initial_voters_are_ordered_by_id() -> None:
    assert list(parse_dynamic_voters("3@c:1,1@a:1, 2@b:1")) == [3, 1, 2]
