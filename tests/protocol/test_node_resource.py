"""The id of a node in the name of a resource, with the texts of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorate import log_levels
from quorate.protocol.config_resource import altered_node_id, check_described_node, parse_node_id
from quorate.protocol.errors import ErrorCode, KafkaError

CHECKS: dict[str, Callable[[str], object]] = {
    "DescribeConfigs of a broker": lambda name: check_described_node(name, 1, "1 or empty string,"),
    "DescribeConfigs of loggers": lambda name: log_levels.levels_of_node(1, name),
    "AlterConfigs of a broker": altered_node_id,
    "AlterConfigs of loggers": lambda name: log_levels.change_levels(1, name, []),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("name", [" 1", "1 ", "1_0", "1.0", "x", "1\n", "0x1", "9999999999", "-"])
def test_a_name_that_java_does_not_parse_is_no_id(check: Callable[[str], object], name: str) -> None:
    """Integer.parseInt is stricter than int()."""
    with pytest.raises(
        KafkaError, match=r"^INVALID_REQUEST.*(Broker|Node) id must be an integer, but it is: "
    ):
        check(name)
    assert parse_node_id(name) is None


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_id_of_this_node_is_accepted(check: Callable[[str], object]) -> None:
    for name in ("1", "+1", "01"):
        check(name)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            CHECKS["DescribeConfigs of a broker"],
            "Unexpected broker id, expected 1 or empty string, but received 02",
        ),
        (CHECKS["DescribeConfigs of loggers"], "Unexpected broker id, expected 1 but received 02"),
        (CHECKS["AlterConfigs of loggers"], "Unexpected node id. Expected 1, but received 2"),
    ],
)
def test_another_id_is_named_as_in_kafka(check: Callable[[str], object], text: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check("02")
    assert (raised.value.code, raised.value.message) == (ErrorCode.INVALID_REQUEST, text)


def test_the_name_of_loggers_must_not_be_empty() -> None:
    with pytest.raises(KafkaError, match="Broker id must not be empty"):
        log_levels.levels_of_node(1, "")
