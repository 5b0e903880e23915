"""The offset at which each record of the table `events` takes effect."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

import numpy as np
import pyarrow as pa

from quorate.pipeline.tables.events import ABORT, BEGIN, END, Transactions


def effective(records: int, markers: dict[int, str], outside: tuple[int, ...] = ()) -> list[int | None]:
    found = Transactions.of(np.array([*markers], np.int64), [*markers.values()])
    in_log = np.ones(records, np.bool_)
    in_log[list(outside)] = False
    values: pa.Array = found.effective(np.arange(records), in_log)
    result: list[int | None] = values.to_pylist()
    return result


def test_records_of_transactions_take_effect_at_the_end() -> None:
    markers = {1500: BEGIN, 4501: END, 4505: BEGIN, 4508: ABORT, 4509: BEGIN, 4511: END}
    expected: list[int | None] = [*range(1501), *[4501] * 3000, *range(4501, 4506)]
    expected += [None, None, 4508, 4509, 4511, 4511, 4512]
    assert effective(4513, markers) == expected


def test_a_transaction_that_another_begin_follows_was_aborted_and_other_records_are_not_in_it() -> None:
    assert effective(7, {1: BEGIN, 4: BEGIN, 6: END}, outside=(3,)) == [0, 1, None, 3, 4, 6, 6]
    assert effective(3, {}) == [0, 1, 2]
    assert effective(4, {1: BEGIN}) == [0, 1, 2, 3]
