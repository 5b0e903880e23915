"""Which APIs a node serves, as its listeners advertise them."""

from __future__ import annotations

import importlib
import pkgutil
import re
import socket
import struct

from quorate.protocol import messages
from quorate.protocol.api import REGISTRY, ApiKey, decode_response, encode_request
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.testing import KafkaCluster


def advertised(address: str) -> set[int]:
    """The keys in a listener's answer to ApiVersions."""
    message = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    request = encode_request(1, "tests", message, 3)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        _, response = decode_response(stream.read(size), ApiKey.API_VERSIONS, 3)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 0
    return {api.api_key for api in response.api_keys}


def test_the_apis_that_no_node_serves_are_listed_with_their_messages(kafka_cluster: KafkaCluster) -> None:
    served = advertised(kafka_cluster.bootstrap_servers) | advertised(kafka_cluster.bootstrap_controllers)
    assert messages.__doc__ is not None
    items = re.findall(r"^- [^:]*:([\w\s,]*)$", messages.__doc__, re.M)
    listed = {name for item in items for name in re.findall(r"[a-z]+_\w+", item)}
    unserved = {spec.module.rpartition(".")[2] for key, spec in REGISTRY.items() if key not in served}
    assert listed == unserved


def test_each_module_of_messages_is_an_api_or_named_as_none() -> None:
    modules = {module.name for module in pkgutil.iter_modules(messages.__path__)}
    apis = {spec.module.rpartition(".")[2] for spec in REGISTRY.values()}
    assert modules - apis == {"consumer_protocol", "principal_data"}
    for name in modules - apis:
        assert name in (messages.__doc__ or "")
        importlib.import_module(f"{messages.__name__}.{name}")
