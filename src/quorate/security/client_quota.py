"""The entities of client quotas, as requests and ClientQuotaRecord name them.

Source: Kafka's `ClientQuotaEntity` and `QuotaConfig`, KIP-546, KIP-612.
"""

from __future__ import annotations

from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
"""The key of the only quota of an IP address: new connections a second."""
