"""The settings of the Raft replica of a node."""

from __future__ import annotations

import pytest

from quorate.config.kafka_config import KafkaConfig
from quorate.node.raft_config import raft_config
from quorate.raft.config import RaftConfig

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


def settings(**changes: str) -> RaftConfig:
    config = KafkaConfig(CONTROLLER | {key.replace("_", "."): value for key, value in changes.items()})
    return raft_config(config, cluster_id="c", directory_id=bytes(16), endpoints=(), on_fatal=lambda _: None)


@pytest.mark.parametrize(
    ("given", "fetch", "part"),
    [
        ({}, 1 << 20, 4 << 20),
        ({"controller_quorum_fetch_max_bytes": "1"}, 1, 4 << 20),
        ({"controller_quorum_fetch_snapshot_max_bytes": "65536"}, 1 << 20, 65536),
    ],
)
def test_the_replica_asks_for_as_many_bytes_as_the_properties_allow(
    given: dict[str, str], fetch: int, part: int
) -> None:
    params = settings(**given).params()
    assert (params.fetch_max_bytes, params.fetch_snapshot_max_bytes) == (fetch, part)


@pytest.mark.parametrize(
    ("given", "bootstrap"),
    [
        ({}, ("127.0.0.1", 9093)),
        ({"controller_quorum_voters": "1@127.0.0.1:9091"}, ("127.0.0.1", 9093)),
        (
            {"controller_quorum_voters": "1@127.0.0.1:9091", "controller_quorum_bootstrap_servers": ""},
            ("127.0.0.1", 9091),
        ),
    ],
)
def test_the_bootstrap_servers_replace_the_endpoints_of_static_voters(
    given: dict[str, str], bootstrap: tuple[str, int]
) -> None:
    assert settings(**given).params().bootstrap == (bootstrap,)
