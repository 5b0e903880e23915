"""Reads the node id, the directory and the endpoints of a controller from its configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quorate.config.listeners import parse_listeners
from quorate.tools.client.options import read_properties
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.endpoints import Endpoint


def controller_id(properties: Mapping[str, str]) -> int:
    """Returns `node.id` of a controller's configuration. Raises ToolError."""
    suspicion = "Is this a valid controller configuration file?"
    text = properties.get("node.id")
    if text is None:
        raise ToolError(f"node.id not found in configuration file. {suspicion}")
    if not text.strip().isdigit():
        raise ToolError(f"node.id was negative in configuration file. {suspicion}")
    if "controller" not in properties.get("process.roles", ""):
        raise ToolError(f"process.roles did not contain 'controller' in configuration file. {suspicion}")
    return int(text)


def read_meta_properties(properties: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """Returns the path and the content of meta.properties in the configured metadata directory.

    Raises ToolError, also if the directory belongs to another node.
    """
    directory = (
        properties.get("metadata.log.dir")
        or properties.get("log.dirs", properties.get("log.dir", "")).split(",")[0].strip()
    )
    if not directory:
        raise ToolError(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller configuration file?"
        )
    path = Path(directory) / "meta.properties"
    found = read_properties(str(path))
    if "directory.id" not in found:
        raise ToolError(f"No directory id found in {directory}")
    own, configured = found.get("node.id", "").strip(), properties.get("node.id", "").strip()
    if own != configured:
        raise ToolError(
            f"{path} belongs to node.id {own or '(none)'}, the configuration to node.id {configured}: "
            "name the configuration with which this directory was formatted"
        )
    return path, found


def controller_endpoints(properties: Mapping[str, str]) -> list[Endpoint]:
    """Returns the endpoints of the controller listeners: the advertised ones where there are any.

    Raises ToolError.
    """
    known: dict[str, Endpoint] = {}
    for key in ("listeners", "advertised.listeners"):
        text = properties.get(key, "")
        protocols = dict.fromkeys(
            (part.split("://")[0].strip().upper() for part in text.split(",")), 0
        )  # the protocol does not matter here
        for endpoint in parse_listeners(key, text, protocols, distinct_ports=False):
            known[endpoint.name] = (endpoint.name, endpoint.host or "localhost", endpoint.port)
    names = properties.get("controller.listener.names")
    if not names:
        raise ToolError(
            "controller.listener.names was not found. Is this a valid controller configuration file?"
        )
    found = []
    for name in (name.strip().upper() for name in names.split(",")):
        if name not in known:
            raise ToolError(f"Cannot find information about controller listener name: {name}")
        found.append(known[name])
    return found
