"""What names a topic may have, and which topics are the system's own."""

from __future__ import annotations

import re

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
MAX_TOPIC_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(topic: str) -> bool:
    """Whether clients may not write to the topic."""
    return topic in INTERNAL_TOPICS


def topic_name_problem(topic: str) -> str | None:
    """Why this cannot be a topic's name, None when it can."""
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"'{topic}' is not allowed"
    if len(topic) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{topic}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if _LEGAL.fullmatch(topic) is None:
        return f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
