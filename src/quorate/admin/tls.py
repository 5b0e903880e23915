"""The TLS settings of a client, with Kafka's names: whom it trusts, and who it is.

Stores of certificates are PEM files or texts (`ssl.truststore.type=PEM`, KIP-651). Those of Java's own
formats are refused with the command that converts them.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_REFUSED: Final = {
    "ssl.engine.factory.class": "Java's classes cannot be used",
    "ssl.cipher.suites": "cipher suites are those of OpenSSL's configuration",
}


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of connections with `ssl.*` of Kafka's client properties. Raises ValueError.

    As in Java, every certificate of the trust store is trusted by itself, also one that is no
    authority's. Without a trust store, those of the system are trusted.
    """
    for name, reason in _REFUSED.items():
        if properties.get(name, "").strip():
            raise ValueError(f"Invalid value {properties[name]} for configuration {name}: {reason}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _versions(properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "https"):
        raise ValueError(
            f"Invalid value {algorithm} for configuration ssl.endpoint.identification.algorithm: "
            "it must be https, or empty to accept any host name"
        )
    context.check_hostname = algorithm == "https"
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, properties)
    _identify(context, properties)
    return context


def _versions(properties: Mapping[str, str]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    name = "ssl.enabled.protocols"
    words = [word.strip() for word in properties.get(name, ",".join(_VERSIONS)).split(",")]
    unknown = [word for word in words if word not in _VERSIONS]
    if unknown:
        raise ValueError(
            f"Invalid value {unknown[0]} for configuration {name}: it must be of {', '.join(_VERSIONS)}"
        )
    found = [_VERSIONS[word] for word in words]
    return min(found), max(found)


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location = properties.get("ssl.truststore.location", "").strip()
    text = properties.get("ssl.truststore.certificates", "")
    if location and text.strip():
        raise ValueError("ssl.truststore.certificates and ssl.truststore.location exclude each other")
    if location:
        text = _pem("ssl.truststore", location, "keytool -list -rfc -keystore STORE > ca.pem")
    if not text.strip():
        context.load_default_certs()
        return
    name = "ssl.truststore.location" if location else "ssl.truststore.certificates"
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"Invalid value for configuration {name}: it has no certificate ({error})"
        ) from error


def _identify(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location = properties.get("ssl.keystore.location", "").strip()
    if location:
        convert = "openssl pkcs12 -in STORE -out client.pem; one of JKS first by keytool -importkeystore"
        _pem("ssl.keystore", location, convert)  # refuses a store of Java
        _load_identity(context, location, "ssl.keystore.location", properties)
        return
    parts = [properties.get(f"ssl.keystore.{part}", "") for part in ("key", "certificate.chain")]
    if not any(part.strip() for part in parts):
        return
    if not all(part.strip() for part in parts):
        raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain must be given together")
    # Python reads keys from files only. This one is readable by its owner, and deleted at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write("\n".join(parts))
        file.flush()
        _load_identity(context, file.name, "ssl.keystore.key", properties)


def _load_identity(context: ssl.SSLContext, path: str, name: str, properties: Mapping[str, str]) -> None:
    """Loads a key and its certificates from a file, which the configuration `name` has given."""
    try:
        context.load_cert_chain(path, password=properties.get("ssl.key.password", ""))
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"Invalid value for configuration {name}: no certificate with its key, or ssl.key.password "
            f"is wrong ({error})"
        ) from error


def _pem(store: str, location: str, convert: str) -> str:
    """The text of a PEM file. Raises ValueError for another store."""
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise ValueError(f"{store}.location: cannot read {location}: {error.strerror}") from error
    if b"-----BEGIN" not in data:
        raise ValueError(
            f"{store}.location={location} is not a PEM file, and no other store can be read here. "
            f"Convert it ({convert}) and set {store}.type=PEM"
        )
    return data.decode("utf-8", "replace")
