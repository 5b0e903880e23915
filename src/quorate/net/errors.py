"""Exceptions of listeners and connections."""

from __future__ import annotations


class NetError(Exception):
    """The base of all exceptions of this package."""


class ListenerError(NetError):
    """A listener could not be opened. The message names the address, the reason and a remedy."""


class KafkaConnectionError(NetError, ConnectionError):
    """A peer could not be reached, or has refused, reset or closed the connection."""


class TlsError(NetError):
    """A TLS handshake failed, and would fail again.

    A certificate is not trusted, or the two ends have no version or cipher in common.
    """


class RequestTimedOut(NetError, TimeoutError):  # noqa: N818 - named after the event, as in Kafka
    """A response did not arrive in time. The request may still have taken effect."""


class UnsupportedVersion(NetError):  # noqa: N818 - Kafka's name
    """The two ends have no common version of the API."""


class ProtocolViolation(NetError):  # noqa: N818 - named after the event
    """A peer has violated Kafka's protocol. Its connection is closed."""
