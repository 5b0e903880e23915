"""Certificates of a test's own authorities, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """An authority and the certificates that it has signed, as PEM files."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is missing: it makes the test's certificates")
        folder.mkdir(parents=True)
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        words = "req -x509 -newkey rsa:2048 -nodes -days 2 -addext keyUsage=critical,keyCertSign"
        _openssl(*words.split(), "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def issue(self, name: str, alternative_names: str = "") -> Path:
        """A file with a new key, its certificate, and that of the authority."""
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        _openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request
        )
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n" if alternative_names else "")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
            "-days", "2", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text() + self.certificate.read_text())
        return both


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
