"""Compares what a lake answers to `state` with the controller's image."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quorate.metadata.image import MetadataImage
from quorate.pipeline.tables import ENTITIES

from .oracle import rows_of

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

NOT_IN_IMAGE = {
    "features": {("kraft.version",)},  # is that of the quorum
}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list) and value and isinstance(value[0], dict) and "entity_type" in value[0]:
        return tuple([(each["entity_type"], each["entity_name"]) for each in value])
    return value


def check_states(lake: Lake, cluster: str, expected: Iterable[tuple[int, MetadataImage]]) -> None:
    """Every entity of a cluster, at each of these offsets."""
    from quorate.pipeline.questions.state import state_at

    for offset, image in expected:
        for name, wanted in rows_of(image).items():
            entity = ENTITIES[name]
            if not lake.exists(name):
                assert not wanted, f"{cluster}: there is no table {name} at offset {offset}"
                continue
            found: dict[Any, dict[str, Any]] = {}
            for row in state_at(lake, cluster, entity, offset).collect():
                values = {column: _plain(value) for column, value in row.asDict(recursive=True).items()}
                key = tuple([values.pop(column) for column in entity.key_names])
                assert key not in found, f"{cluster}: {name} {key} has two states at offset {offset}"
                if key not in NOT_IN_IMAGE.get(name, ()):
                    found[key] = values
            if name == "producer_ids":  # the image has only the next one
                found = {key: {"next_producer_id": row["next_producer_id"]} for key, row in found.items()}
            assert found == wanted, f"{cluster}: {name} at offset {offset}"
