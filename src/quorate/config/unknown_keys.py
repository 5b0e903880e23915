"""The keys of a properties file that no table defines: obsolete ones, misspelt ones, and those of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from quorate.config.broker_defs import BROKER_CONFIGS, is_known
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")

OBSOLETE = {
    "control.plane.listener.name": "brokers and controllers have separate listeners",
    "broker.id.generation.enable": "every node has its own node.id",
    "reserved.broker.max.id": "ids are no longer generated",
    "inter.broker.protocol.version": "metadata.version, a feature, took its place (kafka-features)",
    "log.message.format.version": "there is one message format",
    "log.message.downconversion.enable": "there is one message format",
    "message.downconversion.enable": "there is one message format",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "offsets.commit.required.acks": "offset commits always wait for the whole ISR",
    "leader.imbalance.per.broker.percentage": "the controller moves every leadership back",
    "eligible.leader.replicas.enable": "eligible.leader.replicas.version, a feature, took its place",
    "group.share.enable": "share.version, a feature, took its place",
    "internal.metadata.max.fetch.size.in.bytes": "use controller.quorum.fetch.max.bytes",
    "delegation.token.master.key": "it is delegation.token.secret.key now",
}
"""Keys of older versions of Kafka, with what took their place. They have no effect, and a warning says
so.
"""

RENAMED = {
    "delegation.token.master.key": "delegation.token.secret.key",
    "internal.metadata.max.fetch.size.in.bytes": "controller.quorum.fetch.max.bytes",
}
"""Old keys, with the key that has the same meaning and takes the same values."""


class UnknownKey(NamedTuple):
    """A key without a definition. `replacement` is the key that was probably meant, None if none is near.
    `hint` is what the warning says about it."""

    name: str
    warning: str
    obsolete: bool
    replacement: str | None
    hint: str = ""


def unknown_keys(names: Iterable[str]) -> list[UnknownKey]:
    """The unknown keys among `names`, in their order."""
    return [_classified(name) for name in names if not is_known(name)]


def _classified(name: str) -> UnknownKey:
    if name.startswith("zookeeper."):
        text = "is obsolete and ignored: there is no ZooKeeper, the controllers hold the metadata"
        return UnknownKey(name, f"{name} {text}", True, None)
    if name in OBSOLETE:
        text = f"{name} is obsolete and ignored: {OBSOLETE[name]}"
        return UnknownKey(name, text, True, RENAMED.get(name))
    text = f"{name} is not a known configuration and is ignored"
    if name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].synonyms:
        meant = TOPIC_CONFIGS[name].synonyms[0]
        hint = f" (a topic's key; a broker's is {meant})"
        return UnknownKey(name, text + hint, False, meant, hint)
    close = difflib.get_close_matches(name, BROKER_CONFIGS, n=1, cutoff=0.85)
    if not close:
        return UnknownKey(name, text, False, None)
    hint = f" (did you mean {close[0]}?)"
    return UnknownKey(name, text + hint, False, close[0], hint)
