"""A node in a directory that Apache Kafka 4.4 formatted and that has not run yet: the log is empty, and the
first records are in the snapshot 0-0 only (KIP-1170)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quorate.metadata.bootstrap import default_bootstrap
from quorate.metadata.framing import decode_record
from quorate.metadata.records import EndTransactionRecord
from quorate.records.batch import iter_batches, metadata_values
from tests.support.cluster import Node
from tests.support.golden import NEW_KINDS, golden_files, unpack_golden

LOG = "__cluster_metadata-0/00000000000000000000.log"


def first_transaction(log: bytes) -> list[bytes]:
    """The records of a metadata log up to the end of the first transaction."""
    values: list[bytes] = []
    for header, batch in iter_batches(log):
        if header.is_control:
            continue
        for value in metadata_values(batch):
            values.append(bytes(value))
            if isinstance(decode_record(value)[0], EndTransactionRecord):
                return values
    raise AssertionError(f"{len(values)} records without the end of a transaction")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", NEW_KINDS)
def test_the_first_controller_writes_what_kafkas_wrote(tmp_path: Path, kind: str) -> None:
    theirs = first_transaction(golden_files(kind)[f"data/{LOG}"].data)
    assert len(theirs) > len(default_bootstrap()) + 2  # so the records cannot be the default ones
    node = Node(tmp_path / "node", static="static" in kind)
    formatted = unpack_golden(kind, tmp_path / "golden", "formatted") / "formatted"
    shutil.copytree(formatted, node.data, dirs_exist_ok=True)
    try:
        node.start()
        assert node.stop() == 0
    finally:
        node.kill()
    assert first_transaction((node.data / LOG).read_bytes()) == theirs
