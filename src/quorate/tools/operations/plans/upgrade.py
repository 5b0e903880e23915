"""`quorate upgrade`: finalizes the feature levels of a release (KIP-584, KIP-778, KIP-1022).

All nodes must run software that supports the levels. Everything that blocks is named, while a controller
names the first reason only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from quorate.admin.errors import error_text
from quorate.admin.types import FeatureUpgrade
from quorate.dataclass import dataclass
from quorate.metadata.features import (
    FEATURES,
    FIRST_CONTROLLER_REGISTRATION,
    KRAFT_VERSION,
    LATEST_STABLE_LEVEL,
    LEVELS,
    METADATA_VERSION,
    MINIMUM_LEVEL,
    check_dependencies,
    format_changed_between,
    parse_version,
)
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Broker, Cluster, Controller
from quorate.tools.operations.plan import OperationPlan, Progress, Refusal, Step

if TYPE_CHECKING:
    from quorate.tools.operations.observer import Observer

_NO_FEATURE = (0, 0)


def parse_release(text: str) -> int:
    """Returns the metadata.version of a release. Raises ToolError."""
    try:
        return parse_version(text).level
    except ValueError as error:
        raise ToolError(str(error)) from None


def common_release(cluster: Cluster) -> int:
    """Returns the highest metadata.version that all nodes support, but no lower one than now."""
    tops = [high for _, (_, high) in _supported(cluster, METADATA_VERSION)]
    return max(min([LATEST_STABLE_LEVEL, *tops]), cluster.metadata_version, MINIMUM_LEVEL)


def _supported(cluster: Cluster, feature: str) -> Iterator[tuple[Broker | Controller, tuple[int, int]]]:
    """The range of levels that each node supports. A node without the feature supports level 0."""
    nodes: list[Broker | Controller] = [*cluster.brokers.values(), *cluster.controllers.values()]
    for node in nodes:
        yield node, node.features.get(feature, _NO_FEATURE)


def unsupported(cluster: Cluster, feature: str, level: int) -> list[Refusal]:
    """Returns a refusal for each node that does not support a level, or may not support it."""
    found = []
    for node, (low, high) in _supported(cluster, feature):
        if not low <= level <= high:
            has = "does not support" if high == 0 else f"supports {low} to {high} of"
            remedy = "upgrade its software and restart it (quorate rolling-restart)"
            who = f"{'broker' if isinstance(node, Broker) else 'controller'} {node.id}"
            if isinstance(node, Broker) and node.fenced:
                who += ", which is fenced,"
                remedy += ", or unregister it if it will not return (kafka-cluster unregister)"
            found.append(Refusal(f"{who} {has} {feature}, and {_level(feature, level)} is needed", remedy))
    if cluster.metadata_version >= FIRST_CONTROLLER_REGISTRATION:
        found += [
            Refusal(
                f"controller {voter.id} has not registered, and may not support {feature}={level}",
                f"start controller {voter.id}",
            )
            for voter in cluster.voters
            if voter.id not in cluster.controllers
        ]
    return found


def _level(feature: str, level: int) -> str:
    known = LEVELS.get(level)
    return f"{level} ({known.name})" if feature == METADATA_VERSION and known is not None else str(level)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The upgrade to the levels that belong to a metadata.version. `verdict` is why the active controller
    refuses the levels that are left, if it does."""

    release: int
    verdict: str | None = None

    @property
    def title(self) -> str:
        return f"Upgrade the features to those of metadata.version {_level(METADATA_VERSION, self.release)}"

    @property
    def again(self) -> Mapping[str, str]:
        return {"--release-version": LEVELS[self.release].name}

    def changes(self, cluster: Cluster) -> dict[str, int]:
        """The levels that are higher than the finalized ones."""
        wanted = {METADATA_VERSION: self.release}
        wanted |= {
            f.name: f.default_level(self.release) for f in FEATURES.values() if f.name != KRAFT_VERSION
        }
        return {name: level for name, level in wanted.items() if level > cluster.features.get(name, 0)}

    def plan(self, cluster: Cluster, _progress: Progress) -> OperationPlan:
        changes = self.changes(cluster)
        notes = []
        if cluster.kraft_version < 1:
            notes.append("kraft.version stays 0, with static voters: see quorate move-to-dynamic-quorum")
        if not changes:
            return OperationPlan(notes=tuple(notes))
        refusals = [r for name, level in changes.items() for r in unsupported(cluster, name, level)]
        try:
            check_dependencies({**cluster.features, **changes})
        except ValueError as error:
            refusals.append(Refusal(str(error), "choose another --release-version"))
        if not refusals and self.verdict is not None:
            refusals.append(Refusal(self.verdict, "see the log of the active controller"))
        if refusals:
            return OperationPlan(refusals=tuple(dict.fromkeys(refusals)), notes=tuple(notes))
        if format_changed_between(
            cluster.metadata_version, changes.get(METADATA_VERSION, cluster.metadata_version)
        ):
            notes.append(
                "the records of the metadata change: a downgrade below the new version is not possible"
            )
        shown = ", ".join(
            f"{name} from {_level(name, cluster.features.get(name, 0))} to {_level(name, level)}"
            for name, level in changes.items()
        )
        return OperationPlan((Step("update-features", f"upgrade {shown}", data=changes),), notes=tuple(notes))

    async def perform(self, _step: Step, cluster: Cluster, _progress: Progress, observer: Observer) -> None:
        """Finalizes all levels at once, or none. Raises ToolError, KafkaError and NetError."""
        reason = await update_features(observer, self.changes(cluster), validate_only=False)
        if reason is not None:
            raise ToolError(reason)


async def update_features(
    observer: Observer, changes: Mapping[str, int], *, validate_only: bool
) -> str | None:
    """Sends a change of levels to the active controller. Returns why it refuses, or None."""
    if not changes:
        return None
    admin = await observer.controllers()
    updates = {name: (level, FeatureUpgrade.UPGRADE) for name, level in changes.items()}
    results = await admin.update_features(updates, validate_only=validate_only)
    errors = {error_text(error) for error in results.values() if error is not None}
    return "; ".join(sorted(errors)) if errors else None
