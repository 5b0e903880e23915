"""Options of the operations that are refused before the cluster is asked."""

from __future__ import annotations

import pytest

from quorate.tools import quorate
from quorate.tools.command_line import ToolError
from quorate.tools.operations.node_command import check_command


@pytest.mark.parametrize("command", ["", "  "])
def test_an_empty_command_is_refused(command: str) -> None:
    with pytest.raises(ToolError, match="--stop-command is empty"):
        check_command("--stop-command", command)


@pytest.mark.parametrize("rate", ["0", "-5"])
def test_a_rate_at_which_nothing_moves_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        quorate.main(["decommission", "1", "-b", "127.0.0.1:1", f"--throttle={rate}"])
    assert f"argument --throttle: {rate}: at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("node", ["-1", "x", "2147483648", "9" * 5000, "\u0661"])
@pytest.mark.parametrize("operation", ["decommission", "replace-disk"])
def test_a_text_that_is_no_node_id_is_refused(
    operation: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        quorate.main([operation, "-b", "127.0.0.1:1", "--", node])
    assert f"{node}: a node id, 0 to 2147483647" in capsys.readouterr().err
