"""The client's side of a SCRAM exchange (RFC 5802) as Kafka's brokers expect it.

Like Kafka's clients, and unlike RFC 5802, it does not normalize names and passwords (SASLprep), and it
may add the extension `tokenauth`. Libraries of SCRAM do neither.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from quorate.security.scram import ScramMechanism

MAX_ITERATIONS: Final = 1 << 24
"""A limit of the time for which a server can make a client compute: about 4 s of one core with SHA-256, and
9 s with SHA-512. Kafka's servers accept up to 16,384 iterations, and its clients have no limit."""

_NO_CHANNEL_BINDING: Final = "n,,"


class ScramError(Exception):
    """The server's message is malformed, or the server does not know the password."""


class ScramClient:
    """One exchange: `first`, `final` with the server's first message, and `verify` with its final one."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, *, token: bool = False
    ) -> None:
        """`nonce` is random, printable and without a comma. With `token`, `user` and `password` are the id
        and the HMAC of a delegation token."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if token else "")
        self._server_signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, message: bytes) -> bytes:
        """The client's final message, which proves that it knows the password. Raises ScramError."""
        fields = _parse(message)
        nonce = _field(fields, "r", "first")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the nonce in the server's first message does not extend that of the client")
        salt, iterations = _bytes(_field(fields, "s", "first")), _field(fields, "i", "first")
        mechanism = self._mechanism
        if not iterations.isascii() or not iterations.isdecimal() or len(iterations) > 9:
            raise ScramError(f"the server's number of iterations is {iterations[:20]!r}")
        if not mechanism.min_iterations <= int(iterations) <= MAX_ITERATIONS:
            raise ScramError(
                f"the server asks for {iterations} iterations; {mechanism.min_iterations} to "
                f"{MAX_ITERATIONS} are accepted"
            )
        salted = mechanism.salted_password(self._password, salt, int(iterations))
        client_key = mechanism.client_key(salted)
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        unproven = f"c={binding},r={nonce}"
        exchanged = b",".join([self._bare.encode(), message, unproven.encode()])
        signature = hmac.digest(mechanism.stored_key(client_key), exchanged, mechanism.hash_name)
        self._server_signature = hmac.digest(mechanism.server_key(salted), exchanged, mechanism.hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Checks the server's final message, which proves that the server knows the credential.

        Raises ScramError.
        """
        fields = _parse(message)
        if "e" in fields:
            raise ScramError(f"the server refuses the credential: {fields['e'][:80]}")
        if not hmac.compare_digest(_bytes(_field(fields, "v", "final")), self._server_signature):
            raise ScramError("the server does not know the credential of this user: its signature is wrong")


def _parse(message: bytes) -> dict[str, str]:
    """The attributes of a message.

    Raises ScramError, also for a mandatory extension (`m`), as section 5.1 of RFC 5802 requires.
    """
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError as error:
        raise ScramError("the server's message is not UTF-8") from error
    fields: dict[str, str] = {}
    for name, separator, value in parts:
        if name in fields:
            raise ScramError(f"the server's message has more than one {name[:20]}")
        if separator:
            fields[name] = value
    if "m" in fields:
        raise ScramError("the server requires an extension of SCRAM that this client does not know")
    return fields


def _field(fields: dict[str, str], name: str, which: str) -> str:
    if name not in fields:
        raise ScramError(f"the server's {which} message has no {name}")
    return fields[name]


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError("a field of the server's message is not base64") from error
