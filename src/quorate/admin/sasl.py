"""How a client authenticates itself by SASL, with Kafka's client properties.

The mechanisms are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.security.jaas import parse_jaas
from quorate.security.scram import MECHANISMS
from quorate.security.scram_client import ScramClient, ScramError

if TYPE_CHECKING:
    from quorate.net.client import Connection
    from quorate.protocol.messages import sasl_authenticate, sasl_handshake
else:
    sasl_authenticate = lazy_module("quorate.protocol.messages.sasl_authenticate")
    sasl_handshake = lazy_module("quorate.protocol.messages.sasl_handshake")

PLAIN: Final = "PLAIN"
_MODULES: Final = {"PlainLoginModule": (PLAIN,), "ScramLoginModule": tuple(MECHANISMS)}
"""The mechanisms of each login module."""

_REFUSED: Final = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)

_LIFETIME: Final = 0.85
"""The part of a session's lifetime after which a new connection takes its place, as early as Kafka's clients
authenticate again (KIP-368)."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A user and how it authenticates itself. An instance is the `sasl` of a connection."""

    mechanism: str
    user: str
    password: str
    token: bool = False
    """Whether user and password are the id and the HMAC of a delegation token."""

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism!r}, {self.user!r})"

    async def __call__(self, connection: Connection) -> None:
        """Authenticates the user on a new connection.

        Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE (the listener does not use
        SASL), and SASL_AUTHENTICATION_FAILED. Raises KafkaConnectionError.
        """
        answer = await connection.send(sasl_handshake.SaslHandshakeRequest(mechanism=self.mechanism), 1)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            enabled = ", ".join(answer.mechanisms)
            if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                raise KafkaError(
                    code, f"{connection.peer} does not enable the mechanism {self.mechanism}, but {enabled}."
                )
            if code is ErrorCode.ILLEGAL_SASL_STATE:
                raise KafkaError(
                    code,
                    f"The listener {connection.peer} does not use SASL.",
                    remedy="Set security.protocol to PLAINTEXT, or to SSL.",
                )
            raise KafkaError(code)
        if self.mechanism == PLAIN:
            token = f"\0{self.user}\0{self.password}".encode()
            await _authenticate(connection, token)
            return
        scram = ScramClient(
            MECHANISMS[self.mechanism], self.user, self.password, secrets.token_urlsafe(24), token=self.token
        )
        try:
            challenge = await _authenticate(connection, scram.first())
            # The keys take milliseconds of computation, which must not hold up other connections.
            proof = await asyncio.to_thread(scram.final, challenge)
            scram.verify(await _authenticate(connection, proof))
        except ScramError as error:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Authentication of {self.user} with {connection.peer} failed: {error}.",
            ) from error


async def _authenticate(connection: Connection, token: bytes) -> bytes:
    """Sends a token and returns the server's. Raises KafkaError."""
    answer = await connection.send(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token))
    if answer.error_code:
        told = answer.error_message or "Authentication failed."
        raise KafkaError(ErrorCode.of(answer.error_code), f"{connection.peer}: {told}")
    if answer.session_lifetime_ms > 0:
        connection.replace_after(answer.session_lifetime_ms / 1000 * _LIFETIME)
    return bytes(answer.auth_bytes)


def sasl_login(properties: Mapping[str, str]) -> SaslLogin:
    """The login that Kafka's client properties describe: `sasl.mechanism` and `sasl.jaas.config`.

    Raises ValueError for a mechanism or login module that is not supported, and for one without a user.
    """
    for name in _REFUSED:
        if properties.get(name, "").strip():
            raise ValueError(
                f"Invalid value {properties[name]} for configuration {name}: Java's classes cannot be used"
            )
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism != PLAIN and mechanism not in MECHANISMS:
        raise ValueError(
            f"Invalid value {mechanism} for configuration sasl.mechanism: "
            f"it must be one of {', '.join([PLAIN, *MECHANISMS])}"
        )
    text = properties.get("sasl.jaas.config", "")
    if not text.strip():
        raise ValueError(f"sasl.jaas.config is missing, which has the user of the mechanism {mechanism}")
    module, options = parse_jaas(text)
    if mechanism not in _MODULES.get(module, ()):
        raise ValueError(
            f"Invalid value for configuration sasl.jaas.config: "
            f"{module} does not have the mechanism {mechanism}"
        )
    for name in ("username", "password"):
        if name not in options:
            raise ValueError(f"Invalid value for configuration sasl.jaas.config: {module} needs {name}.")
    token = options.get("tokenauth", "false").lower() == "true"
    return SaslLogin(mechanism, options["username"], options["password"], token)
