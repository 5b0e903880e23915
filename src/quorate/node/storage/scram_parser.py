"""Parses SCRAM credentials like `SCRAM-SHA-256=[name=alice,password=secret]`, as Kafka's ScramParser
does (KIP-900).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable

from quorate.metadata.records import UserScramCredentialRecord
from quorate.security.scram import MECHANISMS


def parse_scram(text: str, random_bytes: Callable[[int], bytes] = os.urandom) -> UserScramCredentialRecord:
    """Returns the record of a credential. Raises ValueError.

    Without `salt` the salt is random. Without `iterations` there are 4096, the minimum of RFC 7677.
    """
    name, equals, rest = text.strip().partition("=")
    if not equals:
        raise ValueError(f"Failed to find equals sign in SCRAM argument '{text}'")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ValueError(f"The add-scram mechanism {name} is not supported.")
    if not rest.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    parts: dict[str, str] = {}
    for item in rest[1:-1].split(","):
        key, equals, value = item.strip().partition("=")
        if not equals:
            raise ValueError(f"Failed to find equals sign in SCRAM component '{item}'")
        parts[key.strip()] = _unquoted(value.strip())
    user = parts.pop("name", None)
    if user is None:
        raise ValueError("You must supply 'name' to add-scram")
    salt = _base64("salt", parts.pop("salt", None))
    iterations_text = parts.pop("iterations", "4096")
    if not re.fullmatch(r"[0-9]+", iterations_text):
        raise ValueError(f"Failed to parse iterations count: {iterations_text}")
    iterations = int(iterations_text)
    password, salted = (
        parts.pop("password", None),
        _base64("saltedPassword", parts.pop("saltedpassword", None)),
    )
    if parts:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    if password is None and salted is None:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if not mechanism.min_iterations <= iterations <= mechanism.max_iterations:
        side = "<=" if iterations > mechanism.max_iterations else ">="
        limit = mechanism.max_iterations if side == "<=" else mechanism.min_iterations
        raise ValueError(f"The 'iterations' value must be {side} {limit} for add-scram using {name}")
    salt = salt if salt is not None else random_bytes(32)
    if password is not None:
        salted = mechanism.salted_password(password, salt, iterations)
    assert salted is not None
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.type,
        salt=salt,
        stored_key=mechanism.stored_key(mechanism.client_key(salted)),
        server_key=mechanism.server_key(salted),
        iterations=iterations,
    )


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def _base64(what: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(f"Failed to decode given {what}: {text}") from e
