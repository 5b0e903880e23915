"""The principal of a forwarded request, as EnvelopeRequest contains it after an int16, its version."""

from __future__ import annotations

from quorate.protocol.schema import Data


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """Type and name of the principal, and whether a delegation token proved it. KIP-590."""

    type: str = ""
    name: str = ""
    token_authenticated: bool = False
