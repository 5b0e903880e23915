"""Group coordinator: classic consumer groups, committed offsets, and ids for idempotent producers.

A pure core (`classic_group`, `rebalance`, `classic`, `offsets`, joined in `shard`) and its asyncio
shell (`driver`, `service`). `model` has the values that flow between them; `records` the schemas of the
internal topics, `record_codec` their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.broker.coordinators.service import GroupService

__all__ = ["GroupService"]


def __getattr__(name: str) -> Any:
    # The record schemas below this package are wanted by tools too, which should not pay for the service.
    if name == "GroupService":
        from quorate.broker.coordinators.service import GroupService

        return GroupService
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
