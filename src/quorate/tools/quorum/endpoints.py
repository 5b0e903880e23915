"""The text form of a controller's endpoint."""

from __future__ import annotations

Endpoint = tuple[str, str, int]
"""Listener name, host and port."""


def endpoint_text(listener: str, host: str, port: int) -> str:
    """Returns an endpoint as Kafka prints it, for example `CONTROLLER://[::1]:9093`."""
    return f"{listener}://{f'[{host}]' if ':' in host else host}:{port}"
