"""Detects servers that are not Kafka, so that a wrong port is reported at once and not after a timeout."""

from __future__ import annotations

import asyncio
import ssl
import struct

_PROBE = struct.pack(">ihhih", 10, 18, 0, 1, -1) + b"\r\n\r\n"
"""A request for ApiVersions, version 0, with correlation id 1 and no client id, which Kafka answers since
0.10. The line end after it makes servers of text protocols answer.
"""

PLAIN = "give the port of a Kafka listener (listeners in a node's properties)"
TLS = "it speaks TLS: set security.protocol to SSL or SASL_SSL"
NO_TLS = "it does not speak TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"


async def foreign_server(host: str, port: int, timeout_s: float = 1.0, *, tls: bool = False) -> str | None:
    """Returns what listens at an address instead of Kafka, and a remedy, or None if that is not certain.

    With `tls`, a TLS listener of Kafka was wanted, and without it one that does not speak TLS. Takes up to
    twice `timeout_s`. Raises no errors.
    """
    try:
        async with asyncio.timeout(timeout_s):
            first = await _first_bytes(host, port)
    except (OSError, TimeoutError):
        first = b""
    if tls and (not first or first[:2] == b"\x15\x03"):
        return None
    if not first:
        return TLS if await _speaks_tls(host, port, timeout_s) else None
    if first[:2] == b"\x15\x03":  # an alert
        return TLS
    line = first.split(b"\r")[0].split(b"\n")[0].decode("ascii", "backslashreplace")[:40]
    if first.startswith(b"HTTP/"):
        return f"it is an HTTP server ({line}): {PLAIN}"
    if first.startswith(b"SSH-"):
        return f"it is an SSH server ({line}): {PLAIN}"
    if len(first) >= 8 and first[4:8] == _PROBE[8:12]:
        return NO_TLS if tls else None
    return f"it answered {first[:12]!r}, which is not Kafka's protocol: {PLAIN}"


async def _first_bytes(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host.strip("[]"), port)
    try:
        writer.write(_PROBE)
        return await reader.readexactly(8) + await reader.read(64)
    except asyncio.IncompleteReadError as e:
        return e.partial
    finally:
        writer.transport.abort()


async def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no data is sent over this connection
    try:
        opening = asyncio.open_connection(
            host.strip("[]"), port, ssl=context, ssl_handshake_timeout=timeout_s
        )
        async with asyncio.timeout(timeout_s):
            _, writer = await opening
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True
