"""Access control entries: which are valid, and which a filter selects (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorate.controller.context import View
from quorate.metadata.image.parts import AclsImage
from quorate.metadata.records import AccessControlEntryRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.security.unenforced import refuse_acls

ANY = 1
RESOURCE_TYPES = range(2, 8)  # topic, group, cluster, transactional id, delegation token, user
MATCH, LITERAL, PREFIXED = 2, 3, 4
PATTERN_TYPES = (LITERAL, PREFIXED)
OPERATIONS = range(2, 16)  # all, read, ..., create tokens, describe tokens, two-phase commit
PERMISSIONS = (2, 3)  # deny, allow
WILDCARD = "*"
MAX_LOOKS = 1_000_000
"""At entries by the filters of one DeleteAcls: some half a second, in one turn, since the removals are
atomic."""


@dataclass(slots=True, frozen=True)
class AclFilter:
    """Which entries are meant; None and ANY match all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Raises INVALID_REQUEST for codes that nobody knows."""
        if self.resource_type != ANY and self.resource_type not in RESOURCE_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.pattern_type not in (ANY, MATCH, *PATTERN_TYPES):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.operation != ANY and self.operation not in OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        if self.permission_type != ANY and self.permission_type not in PERMISSIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def matches(self, acl: AccessControlEntryRecord) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_name(self, acl: AccessControlEntryRecord) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == MATCH:  # which entries would apply to this resource?
            if acl.pattern_type == LITERAL:
                return acl.resource_name in (self.resource_name, WILDCARD)
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == self.resource_name


def matching(acls: AclsImage, wanted: AclFilter) -> Iterator[AccessControlEntryRecord]:
    return (acl for acl in acls.by_id.values() if wanted.matches(acl))


class AclIndex:
    """The entries of an image, for many filters one after the other.

    Comparing each filter with each entry would take minutes for a request of one megabyte: a filter
    that names its resource or its principal looks only at the entries of that name, and one that was
    applied already looks at none.
    """

    __slots__ = ("_acls", "_by_name", "_by_principal", "_known", "_looks", "_prefix_lengths")

    def __init__(self, acls: AclsImage) -> None:
        self._acls = acls
        self._by_name: dict[str, list[AccessControlEntryRecord]] = {}
        self._by_principal: dict[str, list[AccessControlEntryRecord]] = {}
        self._prefix_lengths: set[int] = set()
        for acl in acls.by_id.values():
            self._by_name.setdefault(acl.resource_name, []).append(acl)
            self._by_principal.setdefault(acl.principal, []).append(acl)
            if acl.pattern_type == PREFIXED:
                self._prefix_lengths.add(len(acl.resource_name))
        self._known: dict[AclFilter, list[AccessControlEntryRecord]] = {}
        self._looks = 0

    def matching(self, wanted: AclFilter) -> list[AccessControlEntryRecord]:
        """Raises INVALID_REQUEST when the filters of one request have looked at too many entries."""
        known = self._known.get(wanted)
        if known is None:
            candidates = list(self._candidates(wanted))
            self._looks += len(candidates)
            if self._looks > MAX_LOOKS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"These filters take more than {MAX_LOOKS} looks at ACLs."
                )
            known = self._known[wanted] = [acl for acl in candidates if wanted.matches(acl)]
        return known

    def _candidates(self, wanted: AclFilter) -> Iterable[AccessControlEntryRecord]:
        name = wanted.resource_name
        if name is None:
            return (
                self._acls.by_id.values()
                if wanted.principal is None
                else self._by_principal.get(wanted.principal, ())
            )
        if wanted.pattern_type != MATCH:
            return self._by_name.get(name, ())
        names = {name, WILDCARD, *(name[:length] for length in self._prefix_lengths if length <= len(name))}
        return [acl for one in names for acl in self._by_name.get(one, ())]


def require_authorizer(view: View) -> None:
    """An ACL that nobody enforces must not be taken."""
    if not view.config.authorizer:
        refuse_acls()


def acl_identity(acl: AccessControlEntryRecord) -> tuple[object, ...]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
