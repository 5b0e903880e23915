"""Access control entries: which are valid, and which a filter matches (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.controller.changes.batched_change import ChangeSteps, parts_of
from quorate.controller.context import View
from quorate.dataclass import dataclass
from quorate.metadata.image.small_images import AclsImage
from quorate.metadata.records import AccessControlEntryRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.security.unenforced_apis import refuse_acls

ANY = 1
RESOURCE_TYPES = range(2, 8)  # topic, group, cluster, transactional id, delegation token, user
MATCH, LITERAL, PREFIXED = 2, 3, 4
PATTERN_TYPES = (LITERAL, PREFIXED)
OPERATIONS = range(2, 16)  # all, read, ..., create tokens, describe tokens, two-phase commit
PERMISSIONS = (2, 3)  # deny, allow
WILDCARD = "*"
MAX_COMPARISONS = 1_000_000
"""The number of entries that the filters of one DeleteAcls request may be compared with. This takes
about half a second."""
STEP_COMPARISONS = 4_000
"""The comparisons of one step, which takes about two milliseconds."""


@dataclass(slots=True, frozen=True)
class AclFilter:
    """A filter of entries. None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Raises INVALID_REQUEST for an unknown code."""
        if self.resource_type != ANY and self.resource_type not in RESOURCE_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.pattern_type not in (ANY, MATCH, *PATTERN_TYPES):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.operation != ANY and self.operation not in OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        if self.permission_type != ANY and self.permission_type not in PERMISSIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def matches(self, acl: AccessControlEntryRecord) -> bool:
        """Whether the filter matches an entry."""
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
        if self.pattern_type == MATCH:  # matches the entries that apply to this resource
            if acl.pattern_type == LITERAL:
                return acl.resource_name in (self.resource_name, WILDCARD)
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == self.resource_name


def matching(acls: AclsImage, wanted: AclFilter) -> Iterator[AccessControlEntryRecord]:
    """The entries that a filter matches."""
    return (acl for acl in acls.by_id.values() if wanted.matches(acl))


class AclIndex:
    """An index of the entries of an image, for requests with many filters.

    A comparison of each filter with each entry would take minutes for a request of one megabyte. A
    filter with a resource name or a principal is compared only with the entries of that name. A repeated
    filter is not compared again.
    """

    __slots__ = (
        "_acls",
        "_by_name",
        "_by_principal",
        "_comparisons",
        "_in_step",
        "_known",
        "_prefix_lengths",
    )

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
        self._comparisons = self._in_step = 0

    def matching(self, wanted: AclFilter) -> ChangeSteps[list[AccessControlEntryRecord]]:
        """Finds the entries that a filter matches, in steps. Raises INVALID_REQUEST if the filters of one
        request are compared with too many entries."""
        known = self._known.get(wanted)
        if known is None:
            candidates = list(self._candidates(wanted))
            self._comparisons += len(candidates)
            if self._comparisons > MAX_COMPARISONS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"These filters need more than {MAX_COMPARISONS} comparisons with ACLs.",
                )
            known = []
            for part in parts_of(candidates, STEP_COMPARISONS):
                if self._in_step + len(part) > STEP_COMPARISONS:
                    self._in_step = 0
                    yield []
                self._in_step += len(part)
                known += [acl for acl in part if wanted.matches(acl)]
            self._known[wanted] = known
        return known

    def _candidates(self, wanted: AclFilter) -> Iterable[AccessControlEntryRecord]:
        """The entries that the filter may match."""
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
    """Raises SECURITY_DISABLED if this node has no authorizer, because nothing would enforce the ACL."""
    if not view.config.authorizer:
        refuse_acls()


def acl_identity(acl: AccessControlEntryRecord) -> tuple[object, ...]:
    """The fields that make two entries equal."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
