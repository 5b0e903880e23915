"""UpdateFeatures (57): makes all changes of a request or none (KIP-584, KIP-778, KIP-1022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from quorate.controller.context import FAILED_UPDATE, MIN_ISR, Context, Result, View
from quorate.metadata.features import (
    ELR_VERSION,
    FEATURES,
    FIRST_CONTROLLER_REGISTRATION,
    KRAFT_VERSION,
    LATEST_LEVEL,
    LEVELS,
    METADATA_VERSION,
    MINIMUM_LEVEL,
    check_dependencies,
    format_changed_between,
    last_format_change,
)
from quorate.metadata.records import ConfigRecord, FeatureLevelRecord
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError, explained
from quorate.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from quorate.protocol.schema import Data

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
DISABLED = (0, 0)
MAX_BLOCKERS = 20
"""The blockers that a message names. Each costs a look at the nodes of the cluster."""
_RESTART = (
    "Restart these nodes with a release that supports it. The registration of a node that will not "
    "come back is removed by kafka-cluster unregister --id ID, that of a controller by "
    "unregister-controller."
)


def update_features(
    view: View, request: UpdateFeaturesRequest, ctx: Context
) -> Result[UpdateFeaturesResponse]:
    """Changes feature levels. An error is reported for the whole request (95 INVALID_UPDATE_VERSION).
    Below version 2, success is reported for each feature."""
    records: list[Data] = []
    upgrade: int | None = None
    updates = {update.feature: update for update in request.feature_updates}
    """The last level of each feature counts, as in Kafka."""
    proposed = dict(view.image.features.finalized)
    proposed.update({update.feature: update.max_version_level for update in updates.values()})
    errors: list[KafkaError] = []
    for update in updates.values():
        # Version 0 has no upgrade type, and Kafka's controller ignores its allow_downgrade.
        upgrade_type = update.upgrade_type if ctx.api_version > 0 else UPGRADE
        try:
            kraft_level = _update(
                view, update.feature, update.max_version_level, upgrade_type, proposed, records
            )
            upgrade = kraft_level if kraft_level is not None else upgrade
        except KafkaError as error:
            errors.append(error)
            if len(errors) == MAX_BLOCKERS:
                break
    if errors:
        nodes_block = any(
            next(unsupported_reasons(view, update.feature, update.max_version_level), None) is not None
            for update in updates.values()
        )
        return Result(
            UpdateFeaturesResponse(
                error_code=errors[0].code, error_message=_failed_update_message(errors, nodes_block)
            )
        )
    response = UpdateFeaturesResponse(error_message=None)
    if ctx.api_version <= 1:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.feature, error_message="NONE")
            for update in request.feature_updates
        ]
    if request.validate_only:
        return Result(response, upgrade_kraft_version=upgrade, validate_only=True)
    if any(u.feature == ELR_VERSION and u.max_version_level > 0 for u in updates.values()):
        records[:0] = elr_safety_records(view)
    return Result(response, records, upgrade_kraft_version=upgrade)


def _failed_update_message(errors: Sequence[KafkaError], nodes_block: bool) -> str:
    """The message for a request that failed. It begins with the first error, in Kafka's words, and names the
    errors of the other features after it, and what to do about nodes that do not support a level."""
    first, *others = dict.fromkeys(error.message or error.code.name for error in errors)
    message = f"{FAILED_UPDATE}{first}"
    for other in others:
        message = explained(message, f"Another error: {other}")
    return explained(message, _RESTART) if nodes_block else message


def _invalid(feature: str, level: int, why: str, remedy: str = "") -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {feature}. {why}",
        remedy=remedy,
    )


def _update(
    view: View, feature: str, level: int, upgrade_type: int, proposed: Mapping[str, int], records: list[Data]
) -> int | None:
    """Adds the record of one feature. Returns the kraft.version that Raft has to write, or None."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(feature, level, "The controller does not support the given upgrade type.")
    current = view.kraft_version if feature == KRAFT_VERSION else view.image.features.level(feature)
    if level < 0:
        raise _invalid(feature, level, "A feature version cannot be less than 0.")
    blockers = list(islice(unsupported_reasons(view, feature, level), MAX_BLOCKERS))
    if blockers:
        others = "; ".join(blocker.removesuffix(".") for blocker in blockers[1:])
        raise _invalid(feature, level, blockers[0], f"Also: {others}." if others else "")
    if level < current and upgrade_type == UPGRADE:
        raise _invalid(
            feature,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
            f"The level is {current}; kafka-features downgrade lowers it.",
        )
    if level > current and upgrade_type != UPGRADE:
        raise _invalid(
            feature,
            level,
            "Can't downgrade to a newer version.",
            f"The level is {current}; kafka-features upgrade raises it.",
        )
    if feature == METADATA_VERSION:
        records.append(_metadata_version(current, level, upgrade_type == UNSAFE_DOWNGRADE))
        return None
    if feature == KRAFT_VERSION:
        if level < current:
            raise _invalid(feature, level, "Can't downgrade the version of this feature.")
        if level == current:
            return None
        _check_dependencies(feature, level, {**proposed, KRAFT_VERSION: level})
        return level
    if feature not in FEATURES:  # level 0 of an unknown feature passes all checks above
        raise _invalid(feature, level, f"Feature {feature} not found.")
    _check_dependencies(feature, level, proposed)
    records.append(FeatureLevelRecord(name=feature, feature_level=level))
    return None


def _check_dependencies(feature: str, level: int, proposed: Mapping[str, int]) -> None:
    try:
        check_dependencies({METADATA_VERSION: proposed.get(METADATA_VERSION, 0), **proposed, feature: level})
    except ValueError as error:
        raise _invalid(feature, level, str(error)) from error


def _metadata_version(current: int, level: int, unsafe: bool) -> FeatureLevelRecord:
    def invalid(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {level}. {why}")

    if level not in LEVELS:
        raise invalid(f"Valid versions are from {MINIMUM_LEVEL} to {LATEST_LEVEL}.")
    if level < current and format_changed_between(current, level):
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if unsafe:
            why = "Unsafe metadata downgrade is not supported in this version."
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {why}",
            remedy=f"The lowest level without loss is {last_format_change(current)}, which changed "
            "the format of records.",
        )
    return FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)


def unsupported_reasons(view: View, feature: str, level: int) -> Iterator[str]:
    """Why nodes do not support this level: one sentence for this controller, each broker and each controller
    that does not. The first one is what Kafka reports."""
    own = view.config.features.get(feature, DISABLED)
    if (reason := _outside(level, f"Local controller {view.config.node_id}", own)) is not None:
        yield reason
    for broker in view.image.cluster.brokers.values():
        offered = broker.features.get(feature, DISABLED)
        if (reason := _outside(level, f"Broker {broker.id}", offered)) is not None:
            yield reason
    if view.metadata_version < FIRST_CONTROLLER_REGISTRATION:
        return
    found = {view.config.node_id}
    for controller in view.image.cluster.controllers.values():
        if controller.id in found:
            continue
        found.add(controller.id)
        offered = controller.features.get(feature, DISABLED)
        if (reason := _outside(level, f"Controller {controller.id}", offered)) is not None:
            yield reason
    for voter_id in view.voter_ids:
        if voter_id not in found:
            yield f"controller {voter_id} has not registered, and may not support this feature"


def _outside(level: int, who: str, offered: tuple[int, int]) -> str | None:
    """The reason why a node that offers this range does not support the level, or None."""
    low, high = offered
    if low <= level <= high:
        return None
    if high == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {low}-{high}"


def elr_safety_records(view: View) -> list[Data]:
    """The records that make min.insync.replicas the same on all brokers, which eligible leader replicas
    require. It is set as the default of all brokers, and removed from single brokers."""
    configs = view.image.configs
    records: list[Data] = []
    if MIN_ISR not in configs.cluster_default():
        records.append(
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                name=MIN_ISR,
                value=str(view.config.static_min_isr),
            )
        )
    for resource_type, name in sorted(configs.resources):
        if (
            resource_type == ConfigResourceType.BROKER
            and name
            and MIN_ISR in configs.get(resource_type, name)
        ):
            records.append(
                ConfigRecord(
                    resource_type=ConfigResourceType.BROKER, resource_name=name, name=MIN_ISR, value=None
                )
            )
    return records
