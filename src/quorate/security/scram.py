"""Derives the keys of SCRAM credentials (RFC 5802) for the two mechanisms of Kafka, with its limits."""

from __future__ import annotations

import hashlib
import hmac

from quorate.dataclass import dataclass


@dataclass(slots=True, frozen=True)
class ScramMechanism:
    """A mechanism of Kafka's ScramMechanism. `type` is its number in UserScramCredentialRecord."""

    name: str
    type: int
    hash_name: str
    min_iterations: int = 4096
    max_iterations: int = 16384

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return hmac.digest(salted_password, b"Client Key", self.hash_name)

    def stored_key(self, client_key: bytes) -> bytes:
        return hashlib.new(self.hash_name, client_key).digest()

    def server_key(self, salted_password: bytes) -> bytes:
        return hmac.digest(salted_password, b"Server Key", self.hash_name)


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS = {m.name: m for m in (SCRAM_SHA_256, SCRAM_SHA_512)}
