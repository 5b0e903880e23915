"""The partition that holds a cluster's metadata: its topic, and its directory in a log directory."""

from __future__ import annotations

from typing import Final

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
