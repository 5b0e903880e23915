"""The tree of directories and files that shows a metadata image.

Its layout is that of Kafka's shell: `/image` has the parts of the image, and `/local` the version of the
shell. `/raft` has what only control records say, which Kafka's shell does not show. Nodes are created when a
command reaches them, so that the tree of a million partitions costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from quorate import __version__
from quorate.dataclass import dataclass
from quorate.metadata.features import LEVELS, METADATA_VERSION
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.uuids import parse_uuid, uuid_text
from quorate.security.client_quota import CLIENT_ID, IP, USER
from quorate.security.scram import MECHANISMS
from quorate.tools.shell import texts

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.image.topics import TopicImage
    from quorate.records.control import VotersRecord

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, frozen=True)
class Control:
    """What the control records of the log say last."""

    kraft_version: int = 0
    voters: VotersRecord | None = None


@dataclass(slots=True, frozen=True)
class File:
    """A node with a text."""

    text: str


@dataclass(slots=True, frozen=True)
class Directory:
    """A node with children: their names, and the child of a name, or None."""

    names: Callable[[], Iterable[str]]
    child: Callable[[str], Node | None]

    def sorted_names(self) -> list[str]:
        return sorted(self.names())


Node = File | Directory


def root(image: MetadataImage, control: Control) -> Directory:
    """Returns the root of the tree."""
    return _fixed({"image": lambda: _image(image), "local": _local, "raft": lambda: _raft(control)})


def _fixed(children: Mapping[str, Callable[[], Node]]) -> Directory:
    """Returns a directory with these children."""
    return Directory(lambda: children, lambda name: children[name]() if name in children else None)


def _mapped(
    entries: Mapping[K, V], name: Callable[[K], str], key: Callable[[str], K], node: Callable[[V], Node]
) -> Directory:
    """Returns a directory with a child for each entry. `key` raises ValueError for an impossible name."""

    def child(wanted: str) -> Node | None:
        try:
            found = entries.get(key(wanted))
        except ValueError:
            return None
        return None if found is None else node(found)

    return Directory(lambda: map(name, entries), child)


def _by_number(entries: Mapping[int, V], text: Callable[[V], str]) -> Directory:
    return _mapped(entries, str, int, lambda entry: File(text(entry)))


def _by_text(entries: Mapping[str, V], node: Callable[[V], Node]) -> Directory:
    return _mapped(entries, str, str, node)


def _local() -> Directory:
    return _fixed({"version": lambda: File(__version__), "commitId": lambda: File("unknown")})


def _raft(control: Control) -> Directory:
    found: dict[str, Callable[[], Node]] = {"kraftVersion": lambda: File(str(control.kraft_version))}
    if control.voters is not None:
        voters = {str(voter.voter_id): voter for voter in control.voters.voters}
        found["voters"] = lambda: _by_text(voters, lambda voter: File(_voter_text(voter)))
    return _fixed(found)


def _voter_text(voter: Any) -> str:
    endpoints = ", ".join(f"{e.name}://{e.host}:{e.port}" for e in voter.endpoints)
    supported: Any = voter.kraft_version_feature
    return (
        f"Voter(id={voter.voter_id}, directoryId={uuid_text(voter.voter_directory_id)}, "
        f"endpoints=[{endpoints}], kraftVersions={supported.min_supported_version}-"
        f"{supported.max_supported_version})"
    )


def _image(image: MetadataImage) -> Directory:
    return _fixed(
        {
            "acls": lambda: _fixed(
                {
                    "byId": lambda: _mapped(
                        image.acls.by_id, uuid_text, parse_uuid, lambda acl: File(texts.acl_text(acl))
                    )
                }
            ),
            "clientQuotas": lambda: _quotas(image),
            "cluster": lambda: _fixed(
                {
                    "brokers": lambda: _by_number(image.cluster.brokers, texts.broker_text),
                    "controllers": lambda: _by_number(image.cluster.controllers, texts.controller_text),
                }
            ),
            "configs": lambda: _configs(image),
            "delegationToken": lambda: _by_text(
                image.delegation_tokens.tokens, lambda token: File(texts.token_text(token))
            ),
            "features": lambda: _features(image),
            "producerIds": lambda: _fixed(
                {"nextProducerId": lambda: File(str(image.producer_ids.next_producer_id))}
            ),
            "provenance": lambda: File(texts.provenance_text(image)),
            "scram": lambda: _scram(image),
            "topics": lambda: _fixed(
                {
                    "byName": lambda: _by_text(image.topics.by_name, _topic),
                    "byId": lambda: _mapped(image.topics.by_id, uuid_text, parse_uuid, _topic),
                }
            ),
        }
    )


def _topic(topic: TopicImage) -> Directory:
    def names() -> Iterable[str]:
        yield "name"
        yield "id"
        yield from map(str, range(len(topic.partitions)))

    def child(name: str) -> Node | None:
        if name == "name":
            return File(topic.name)
        if name == "id":
            return File(uuid_text(topic.id))
        found = topic.partitions.get(int(name)) if name.isdecimal() else None
        return None if found is None else File(texts.partition_text(found))

    return Directory(names, child)


def _features(image: MetadataImage) -> Directory:
    finalized = {name: level for name, level in image.features.finalized.items() if name != METADATA_VERSION}
    level = image.features.metadata_version
    version = f"Optional[{LEVELS[level].name if level in LEVELS else level}]" if level else "Optional.empty"

    def child(name: str) -> Node | None:
        if name == "metadataVersion":
            return File(version)
        feature = name.removeprefix("finalized_")
        return File(str(finalized.get(feature, 0))) if feature != name else None

    return Directory(lambda: ["metadataVersion", *(f"finalized_{name}" for name in finalized)], child)


def _configs(image: MetadataImage) -> Directory:
    def name(resource: tuple[int, str]) -> str:
        kind = ConfigResourceType(resource[0]).name
        return f"{kind}:{resource[1]}" if resource[1] else kind

    def key(text: str) -> tuple[int, str]:
        kind, _, resource = text.partition(":")
        if kind not in ConfigResourceType.__members__:
            raise ValueError(kind)
        return int(ConfigResourceType[kind]), resource

    return _mapped(image.configs.resources, name, key, lambda values: _by_text(values, File))


_QUOTA_TYPES = {CLIENT_ID: "clientId", IP: "ip", USER: "user"}
"""The types of quota entities, in the order of their names in a directory name."""


def _quotas(image: MetadataImage) -> Directory:
    found = {_entity_name(entity): quotas for entity, quotas in image.client_quotas.entities.items()}
    return _by_text(found, lambda quotas: _by_text(quotas, lambda value: File(texts.double_text(value))))


def _entity_name(entity: tuple[tuple[str, str | None], ...]) -> str:
    """Returns a name like `clientId(app)_user(ann)`. A default entity, whose name is empty in Kafka's
    shell, is `user(<default>)`.
    """
    names = dict(entity)
    return "_".join(
        f"{shown}({_escaped(names[kind])})" for kind, shown in _QUOTA_TYPES.items() if kind in names
    )


def _escaped(name: str | None) -> str:
    if name is None:
        return "<default>"
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _scram(image: MetadataImage) -> Directory:
    users: dict[int, dict[str, Any]] = {}
    for (mechanism, user), credential in image.scram.credentials.items():
        users.setdefault(mechanism, {})[user] = credential
    return _fixed(
        {
            name: lambda type_=mechanism.type: _by_text(  # type: ignore[misc]
                users.get(type_, {}), lambda credential: File(texts.scram_text(credential))
            )
            for name, mechanism in MECHANISMS.items()
        }
    )
