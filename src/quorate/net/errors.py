"""What can go wrong between two sockets."""

from __future__ import annotations


class NetError(Exception):
    """Base of everything that this room raises."""


class ListenerError(NetError):
    """A listener could not be opened; the message names address, reason and remedy."""


class KafkaConnectionError(NetError, ConnectionError):
    """A peer could not be reached, refused, reset or closed the connection."""


class RequestTimedOut(NetError, TimeoutError):  # noqa: N818 - the name says what happened, as Kafka's does
    """No answer within the time given; the request may still have taken effect."""


class UnsupportedVersion(NetError):  # noqa: N818 - Kafka's name
    """The two ends have no common version of the API."""


class ProtocolViolation(NetError):  # noqa: N818 - names the peer's deed
    """A peer sent something that is not Kafka's protocol; its connection is closed."""
