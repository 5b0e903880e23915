"""What the metrics of the process mean."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import psutil
import pytest

from quorate.node.monitoring import process_metrics
from quorate.node.monitoring.process_metrics import process_families


def found(proc: Path = process_metrics.PROC) -> dict[str, float]:
    values = {}
    for family in process_families(proc):
        if family is not None:
            [(labels, value)] = family.series
            assert not labels
            assert isinstance(value, int | float)
            values[family.name] = value
    return values


def test_the_process_is_described_as_the_system_sees_it() -> None:
    values, process = found(), psutil.Process()
    assert values["process_start_time_seconds"] == pytest.approx(process.create_time(), abs=1.5)
    assert values["process_resident_memory_bytes"] == pytest.approx(process.memory_info().rss, rel=0.2)
    assert values["process_virtual_memory_bytes"] == pytest.approx(process.memory_info().vms, rel=0.2)
    assert values["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_cpu_time_grows_with_work() -> None:
    before = found()["process_cpu_seconds_total"]
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert 0.05 <= found()["process_cpu_seconds_total"] - before < 5


def test_open_files_are_counted_until_they_are_closed(tmp_path: Path) -> None:
    before = found()["process_open_fds"]
    with (tmp_path / "f").open("w"):
        assert found()["process_open_fds"] == before + 1
    assert found()["process_open_fds"] == before


def test_very_many_open_files_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "PIECE", 2)
    assert list(process_families()).count(None) >= 1


def test_written_bytes_are_counted(tmp_path: Path) -> None:
    name = "kafka_server_kafkaserver_linux_disk_wchar"
    before = found()[name]
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    assert found()[name] - before >= 1 << 20


def test_each_number_of_the_io_of_the_process_has_its_own_metric(tmp_path: Path) -> None:
    counted = {
        "rchar": 1,
        "wchar": 2,
        "syscr": 3,
        "syscw": 4,
        "read_bytes": 5,
        "write_bytes": 6,
        "cancelled_write_bytes": 7,
    }
    (tmp_path / "io").write_text("".join(f"{name}: {value}\n" for name, value in counted.items()))
    families = process_metrics._io_families(tmp_path)
    assert {family.name: family.series for family in families} == {
        f"kafka_server_kafkaserver_linux_disk_{name}": [("", value)] for name, value in counted.items()
    }


def test_the_io_of_the_process_is_that_which_the_system_counts() -> None:
    before, process = psutil.Process().io_counters(), found()
    after = psutil.Process().io_counters()
    for ours, theirs in (
        ("rchar", "read_chars"),
        ("wchar", "write_chars"),
        ("syscr", "read_count"),
        ("syscw", "write_count"),
        ("read_bytes", "read_bytes"),
        ("write_bytes", "write_bytes"),
    ):
        value = process[f"kafka_server_kafkaserver_linux_disk_{ours}"]
        assert getattr(before, theirs) <= value <= getattr(after, theirs), ours


def test_a_command_with_brackets_and_spaces_is_read(tmp_path: Path) -> None:
    own = tmp_path / "self"
    (own / "fd").mkdir(parents=True)
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1000\n")
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(ticks), str(2 * ticks), *["0"] * 6, str(5 * ticks), "4096", "2", "0"]
    (own / "stat").write_text(f"7 (a) b) {' '.join(fields)}\n")
    values = found(tmp_path)
    assert values["process_cpu_seconds_total"] == 3
    assert values["process_start_time_seconds"] == 1005
    assert values["process_virtual_memory_bytes"] == 4096
    assert values["process_resident_memory_bytes"] == 2 * os.sysconf("SC_PAGE_SIZE")
    assert not any("linux" in name for name in values), "without the right to read io"


def test_a_system_without_proc_has_no_metrics(tmp_path: Path) -> None:
    assert found(tmp_path / "none") == {}
