"""kafka-metadata-shell, from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import ImageBuilder
from quorate.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from quorate.metadata.snapshot import snapshot_name, write_snapshot
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import build_metadata_batch
from quorate.records.control import VotersRecord
from quorate.tools.shell import interactive, nodes
from quorate.tools.shell.columns import in_columns
from quorate.tools.shell.commands import State, execute
from quorate.tools.shell.metadata_shell import main
from quorate.tools.shell.paths import compiled
from quorate.tools.shell.texts import double_text, zoned_time

TOPIC_ID, DIRECTORY, ACL_ID = b"t" * 16, b"d" * 16, b"a" * 16

RECORDS: list[Data] = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="group.version", feature_level=1),
    RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=b"i" * 16,
        broker_epoch=7,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name="group.version", min_supported_version=0, max_supported_version=1
            )
        ],
        rack="r1",
        fenced=False,
        log_dirs=[DIRECTORY],
    ),
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=3,
        partition_epoch=5,
        directories=[DIRECTORY, bytes(16)],
    ),
    ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="77"),
    ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="9"),
    ClientQuotaRecord(
        entity=[
            ClientQuotaRecord.EntityData(entity_type="user", entity_name="a(b)"),
            ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="app"),
        ],
        key="producer_byte_rate",
        value=1e7,
    ),
    ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
        key="request_percentage",
        value=12.5,
    ),
    AccessControlEntryRecord(
        id=ACL_ID,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    ),
    UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"\x01", stored_key=b"\x02", server_key=b"\xff", iterations=4096
    ),
    DelegationTokenRecord(
        owner="User:ann",
        requester="User:bob",
        renewers=["User:c", "User:d"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="tok",
    ),
    ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
]
VOTERS = VotersRecord(
    version=0,
    voters=[
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=DIRECTORY,
            endpoints=[VotersRecord.Endpoint(name="CONTROLLER", host="h", port=9093)],
        )
    ],
)


def image_of(records: list[Data]) -> MetadataImage:
    builder = ImageBuilder(EMPTY)
    for offset, record in enumerate(records):
        builder.replay(record, offset)
    return builder.finish(offset=len(records) - 1, epoch=4, timestamp_ms=1_700_000_000_120)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    path = folder / snapshot_name(len(RECORDS), 4)
    write_snapshot(
        path,
        image_of(RECORDS),
        kraft_version=1,
        voters=VOTERS,
        last_contained_timestamp_ms=1_700_000_000_120,
        now_ms=1_700_000_009_000,
    )
    return path


Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def shell(snapshot: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Status, lines and errors of one command on the snapshot."""

    def run(*words: str, source: tuple[str, object] = ("--snapshot", snapshot)) -> tuple[int, list[str], str]:
        status = main([source[0], str(source[1]), *words])
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return run


BY_NAME = "/image/topics/byName/orders"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/image/provenance", "offset 12, epoch 4, time 2023-11-14T22:13:20.12Z[UTC]"),
        ("/image/features/metadataVersion", "Optional[4.3-IV0]"),
        ("/image/features/finalized_group.version", "1"),
        (f"{BY_NAME}/id", uuid_text(TOPIC_ID)),
        (f"/image/topics/byId/{uuid_text(TOPIC_ID)}/name", "orders"),
        (
            f"{BY_NAME}/0",
            f"PartitionRegistration(replicas=[1, 2], directories=[{uuid_text(DIRECTORY)}, "
            f"{uuid_text(bytes(16))}], isr=[1], removingReplicas=[], addingReplicas=[], elr=[], "
            "lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=3, partitionEpoch=5)",
        ),
        ("/image/configs/TOPIC:orders/retention.ms", "77"),
        ("/image/configs/BROKER/log.retention.ms", "9"),
        ("/image/clientQuotas/clientId(app)_user*/producer_byte_rate", "1.0E7"),
        ("/image/clientQuotas/user(<default>)/request_percentage", "12.5"),
        (
            f"/image/acls/byId/{uuid_text(ACL_ID)}",
            "StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=LITERAL, principal=User:ann, "
            "host=*, operation=READ, permissionType=ALLOW]",
        ),
        (
            "/image/scram/SCRAM-SHA-256/ann",
            "ScramCredentialData(salt=01, storedKey=02, serverKey=ff, iterations=4096)",
        ),
        (
            "/image/delegationToken/tok",
            "DelegationTokenDatatokenId=tok(owner=User:ann(tokenRequester=User:bob(renewers=User:c User:d, "
            "issueTimestamp=1, maxTimestamp=3), expiryTimestamp=2",
        ),
        ("/image/producerIds/nextProducerId", "1000"),
        ("/raft/kraftVersion", "1"),
    ],
)
def test_a_file_has_the_text_of_kafkas(shell: Run, path: str, text: str) -> None:
    assert shell("cat", path) == (0, [text], "")


def test_a_broker_has_the_text_of_kafkas_registration(shell: Run) -> None:
    _, (text,), _ = shell("cat", "/image/cluster/brokers/1")
    assert text == (
        f"BrokerRegistration(id=1, epoch=7, incarnationId={uuid_text(b'i' * 16)}, "
        "listeners=[Endpoint(listenerName='PLAINTEXT', securityProtocol=PLAINTEXT, host='h', port=9092)], "
        "supportedFeatures={group.version: 0-1}, rack=Optional[r1], fenced=false, "
        "inControlledShutdown=false, isMigratingZkBroker=false, "
        f"directories=[{uuid_text(DIRECTORY)}], cordonedDirectories=null)"
    )


def test_the_voters_of_the_control_records_are_shown(shell: Run) -> None:
    _, (text,), _ = shell("cat", "/raft/voters/1")
    assert text.startswith(f"Voter(id=1, directoryId={uuid_text(DIRECTORY)}, endpoints=[CONTROLLER://h:9093]")


def test_directories_are_listed(shell: Run) -> None:
    assert shell("ls", "/") == (0, ["image", "local", "raft"], "")
    assert shell("ls", f"{BY_NAME}/id", "/raft", "/image/acls") == (
        0,
        ["id", "", "raft:", "kraftVersion", "voters", "", "acls:", "byId"],
        "",
    )
    assert shell("ls", "/image/configs/{TOPIC:*,BROKER}") == (
        0,
        ["BROKER:", "log.retention.ms", "", "TOPIC:orders:", "retention.ms"],
        "",
    )


def test_find_and_tree_descend(shell: Run) -> None:
    below = [f"{BY_NAME}/{name}" for name in ("0", "id", "name")]
    assert shell("find", BY_NAME) == (0, [BY_NAME, *below], "")
    assert shell("tree", "/image/scram")[1] == [
        "SCRAM-SHA-256:",
        "  ann:",
        "    ScramCredentialData(salt=01, storedKey=02, serverKey=ff, iterations=4096)",
        "SCRAM-SHA-512:",
    ]
    assert {"/image/provenance", "/raft/voters/1", BY_NAME} <= set(shell("find", "/")[1])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["cat", "/image/x"], "cat: /image/x: No such file or directory."),
        (["cat", "/image"], "cat: /image: Is a directory"),
        (["ls", f"{BY_NAME}/9"], f"ls: {BY_NAME}/9: no such file or directory."),
        (["cat"], "cat: the following arguments are required: targets"),
        (["cd", "/"], "Unknown command: cd (one of cat, find, ls, tree)"),
    ],
)
def test_a_command_that_fails(shell: Run, words: list[str], error: str) -> None:
    assert shell(*words) == (1, [], f"{error}\n")


def test_a_directory_is_its_last_snapshot_and_the_log_after_it(shell: Run, snapshot: Path) -> None:
    start = len(RECORDS)
    batch = build_metadata_batch(
        [encode_record(TopicRecord(name="later", topic_id=b"l" * 16), 0)],
        base_offset=start,
        leader_epoch=5,
        timestamp=1_700_000_010_000,
    )
    half = batch[: len(batch) // 2]  # a node writes the next batch
    (snapshot.parent / f"{start:020d}.log").write_bytes(batch + half)
    for directory in (snapshot.parent, snapshot.parent.parent):
        source = ("--directory", directory)
        assert shell("ls", "/image/topics/byName", source=source) == (0, ["later", "orders"], "")
        assert shell("cat", "/image/provenance", source=source)[1] == [
            f"offset {start}, epoch 5, time 2023-11-14T22:13:30Z[UTC]"
        ]
        assert shell("cat", "/raft/kraftVersion", source=source)[1] == ["1"]


def test_a_segment_is_read_like_a_snapshot(shell: Run, tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(
        build_metadata_batch(
            [encode_record(TopicRecord(name="only", topic_id=b"o" * 16), 0)],
            base_offset=0,
            leader_epoch=1,
            timestamp=1,
        )
    )
    assert shell("ls", "/image/topics/byName", source=("--snapshot", segment)) == (0, ["only"], "")


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: b"", "it is empty"),
        (lambda data: data[:-10], "ends early"),
        (lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], "its checksum does not fit"),
    ],
)
def test_a_damaged_snapshot_is_named(
    shell: Run, snapshot: Path, damage: Callable[[bytes], bytes], error: str
) -> None:
    snapshot.write_bytes(damage(snapshot.read_bytes()))
    status, lines, err = shell("ls")
    assert (status, lines) == (1, [])
    assert str(snapshot) in err and error in err and err.count("\n") == 1


def test_a_directory_without_a_metadata_log_is_named_with_the_remedy(shell: Run, tmp_path: Path) -> None:
    status, _, err = shell("ls", source=("--directory", tmp_path / "absent"))
    assert status == 1
    assert "absent is not a directory. Name the directory of metadata.log.dir" in err


# -- the interactive shell
# --------------------------------------------------------------------------------------------------


class Printed:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines += text.splitlines()

    error = line


@pytest.fixture
def state() -> State:
    tree = nodes.root(image_of(RECORDS), nodes.Control())
    return State(lambda: tree, Printed())


def typed(state: State, *lines: str) -> list[str]:
    assert isinstance(state.output, Printed)
    state.output.lines.clear()
    for line in lines:
        execute(state, line.split(), in_shell=True)
    return state.output.lines


def test_paths_are_relative_to_the_working_directory(state: State) -> None:
    assert typed(state, "cd image/topics", "pwd", "cd ../topics/by*Name", "pwd", "cat orders/name") == [
        "/image/topics",
        "/image/topics/byName",
        "orders",
    ]
    assert typed(state, "cd", "pwd", "cd image/provenance", "cd nowhere", "pwd") == [
        "/",
        "cd: image/provenance: not a directory.",
        "cd: nowhere: no such directory.",
        "/",
    ]
    assert typed(state, "cd ../..", "pwd") == ["/"]


def test_history_shows_the_last_lines_with_their_numbers(state: State) -> None:
    state.history = lambda: ["ls", "pwd", "history"]
    assert typed(state, "history 2") == ["    1  pwd", "    2  history"]
    assert len(typed(state, "history")) == 3


def test_help_and_man_describe_the_commands(state: State) -> None:
    assert "  tree      Show the contents of metadata nodes in a tree structure." in typed(state, "help")
    assert typed(state, "man cat")[0] == "cat: Show the contents of metadata files."
    assert typed(state, "man x") == ["man: unknown command x. Type help to get a list of commands."]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("c", ["cat ", "cd "]),
        ("man p", ["pwd"]),
        ("ls im", ["image/"]),
        ("cat /image/pro", ["/image/producerIds/", "/image/provenance"]),
        ("cat /image/topics/byName/orders/", [f"{BY_NAME}/{name}" for name in ("0", "id", "name")]),
        ("ls /nowhere/x", []),
        ("pwd x", []),
    ],
)
def test_tab_completes(state: State, line: str, offered: list[str]) -> None:
    begin = line.rfind(" ") + 1
    complete = interactive.completer(state, lambda: line, lambda: begin)
    found = []
    while (word := complete(line[begin:], len(found))) is not None:
        found.append(word)
    assert found == offered


def test_the_shell_ends_by_exit_and_by_the_end_of_the_input(
    snapshot: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for lines in (["pwd", "", "ls 'x", "exit", "pwd"], ["pwd"]):
        given = iter(lines)

        def read(prompt: str, given: object = given) -> str:
            try:
                return next(given)  # type: ignore[call-overload]
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", read)
        assert main(["--snapshot", str(snapshot)]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[:3] == ["Loading...", "[ Kafka Metadata Shell ]", "/"]
        assert shown.count("/") == 1


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("a*", ["a", "abc"], ["ba"]),
        ("?.b", ["x.b"], ["xxb", "xx.b"]),
        ("{one,t*}", ["one", "two"], ["three,", "on"]),
        ("x\\*y*", ["x*yz"], ["xaya"]),
        ("(a)*", ["(a)b"], ["ab"]),
    ],
)
def test_wildcards(glob: str, matching: list[str], others: list[str]) -> None:
    pattern = compiled(glob)
    assert pattern is not None
    assert all(pattern.fullmatch(name) for name in matching)
    assert not [name for name in others if name != "three," and pattern.fullmatch(name)]


@pytest.mark.parametrize("name", ["plain", "a.b", "{open", "a\\*"])
def test_names_without_wildcards(name: str) -> None:
    assert compiled(name) is None


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (None, ["a", "bb", "ccc", "d", "e"]),
        (80, ["a  bb  ccc  d  e"]),
        (13, ["a   ccc  e", "bb  d"]),
        (10, ["a    d", "bb   e", "ccc"]),
        (3, ["a", "bb", "ccc", "d", "e"]),
    ],
)
def test_names_fill_columns_downwards(width: int | None, lines: list[str]) -> None:
    assert in_columns(["a", "bb", "ccc", "d", "e"], width) == lines
    assert in_columns([], width) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0"), (1024.0, "1024.0"), (1e7, "1.0E7"), (2.5e9, "2.5E9"), (1e-4, "1.0E-4")]
)
def test_numbers_are_printed_as_by_java(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z[UTC]"),
        (1_500, "1970-01-01T00:00:01.5Z[UTC]"),
        (-1, "1969-12-31T23:59:59.999Z[UTC]"),
    ],
)
def test_times_are_printed_as_by_java(ms: int, text: str) -> None:
    assert zoned_time(ms) == text
