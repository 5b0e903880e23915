"""The audit log: a line for each change of the metadata, with its client, API, subject and outcome.

    [QuorumController id=1] principal=User:ann client=tool address=10.0.0.7 api=CREATE_TOPICS
        change="topics a, b" outcome=committed offset=1234

(in one line). A change that the controller makes by itself has a reason instead of a client. A line
is written after the change is committed, when it is refused, or when the leadership is lost in
between. The logger `quorate.audit` at the level WARN turns the lines off. Values of configurations
and credentials are not in them.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorate.controller.changes.attribution import MAX_CHARACTERS, Attribution, of_request
from quorate.metadata.records import RECORD_TYPES
from quorate.protocol.api import ApiKey
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import PRIMITIVES, Data, Response, Struct
from quorate.protocol.uuids import uuid_text

if TYPE_CHECKING:
    import asyncio

    from quorate.net.dispatch import RequestContext
    from quorate.protocol.schema import Request

logger = logging.getLogger("quorate.audit")

MAX_NAMES: Final = 5
"""The subjects that a line names."""

MAX_EXAMINED: Final = 1_000
"""The parts of a response whose error codes are examined, which takes less than a millisecond."""

DELAY_S: Final = 0.05
"""How long the line of a committed change waits for those of others."""

MAX_CACHED: Final = 1_000
"""The texts of clients that are kept."""

_BY_BROKERS: Final = frozenset(
    {
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""The requests that nodes send by themselves, and repeat if they are refused."""


class _Change(NamedTuple):
    """A change that has no line yet."""

    last_offset: int
    cause: Attribution | str
    """Who asked for it, or the reason for which the controller made it by itself."""
    what: Any
    """The request, or how many records of each type the controller wrote."""
    response: Response | None


class AuditLog:
    """The lines of one controller.

    The client of a change does not wait for its line: with a loop, the lines of committed changes
    are written up to `DELAY_S` later, all at once. Without one they are written when the change is
    committed. The line of a refused request waits for those of the changes that were committed
    before it.
    """

    __slots__ = ("_clients", "_due", "_loop", "_prefix", "_timer", "_uncommitted")

    def __init__(self, node_id: int) -> None:
        self._prefix = f"[QuorumController id={node_id}] "
        self._clients: dict[Attribution, str] = {}
        self._uncommitted: deque[_Change] = deque()
        self._due: list[_Change | str] = []
        """The committed changes whose lines wait for the timer, and the lines of the refusals among them."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def write_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """Writes the lines of committed changes by a timer of this loop from now on."""
        self._loop = loop

    def close(self) -> None:
        """Writes a line for each change: its outcome is unknown if it is not committed yet. No change may
        follow."""
        self._loop = None
        self.term_ended()

    def request_written(
        self, cause: Attribution, request: Request, response: Response | None, offset: int
    ) -> None:
        """Notes the change of a request. `response` is None if more of the same change follows."""
        if logger.isEnabledFor(logging.INFO):
            self._uncommitted.append(_Change(offset, cause, request, response))

    def own_written(self, reason: str, records: list[Data], offset: int) -> None:
        """Notes a change that the controller makes by itself."""
        if logger.isEnabledFor(logging.INFO):
            counts = Counter([RECORD_TYPES[record.KEY].__name__ for record in records])
            self._uncommitted.append(_Change(offset, reason, counts, None))

    def request_unwritten(self, ctx: RequestContext, request: Request, response: Response) -> None:
        """Writes a line if the response to a request that wrote nothing has errors."""
        if _is_audited(ctx.api_key, request) and (errors := _errors_text(response)):
            self._refused(ctx, request, errors)

    def request_failed(self, ctx: RequestContext, request: Request, code: int) -> None:
        """Writes a line for a request that is answered with an error."""
        if code != ErrorCode.NOT_CONTROLLER and _is_audited(ctx.api_key, request):
            self._refused(ctx, request, ErrorCode.of(code).name)

    @contextmanager
    def refusal(self, ctx: RequestContext, request: Request) -> Iterator[None]:
        """Writes a line for a request if the body raises KafkaError, which is raised again."""
        try:
            yield
        except KafkaError as error:
            self.request_failed(ctx, request, error.code)
            raise

    def _refused(self, ctx: RequestContext, request: Request, errors: str) -> None:
        self._due.append(f"{self._line(of_request(ctx), request)} outcome=refused errors={errors}")
        if self._timer is None:
            self._write_due()

    def committed(self, offset: int) -> None:
        """Writes the lines of the changes up to this offset, or sets the timer that writes them."""
        uncommitted = self._uncommitted
        if not uncommitted or uncommitted[0].last_offset > offset:
            return
        while uncommitted and uncommitted[0].last_offset <= offset:
            self._due.append(uncommitted.popleft())
        if self._loop is None:
            self._write_due()
        elif self._timer is None:
            self._timer = self._loop.call_later(DELAY_S, self._write_due)

    def term_ended(self) -> None:
        """Writes what is due, and the lines of changes whose commit this controller does not see as the
        leader."""
        self._write_due()
        uncommitted, self._uncommitted = self._uncommitted, deque()
        for change in uncommitted:
            outcome = self._outcome("unknown", change)
            logger.info("%s %s (this controller leads no longer)", self._line_of(change), outcome)

    def _write_due(self) -> None:
        """Writes the lines that are due, all at once.

        One write for each line would take three times as long as composing it. The formatter of the
        process begins each of `lines` as if it had a record of its own.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            due, self._due = self._due, []
            lines = [
                item if isinstance(item, str) else f"{self._line_of(item)} {self._outcome('committed', item)}"
                for item in due
            ]
            logger.info("\n".join(lines), extra={"lines": lines})

    @staticmethod
    def _outcome(outcome: str, change: _Change) -> str:
        errors = "" if change.response is None else _errors_text(change.response)
        return f"outcome={outcome} offset={change.last_offset}{errors and f' errors={errors}'}"

    def _line_of(self, change: _Change) -> str:
        """The line of a change up to its outcome."""
        if isinstance(change.cause, Attribution):
            return self._line(change.cause, change.what)
        text = ", ".join([f"{count} {name}" for name, count in change.what.items()])
        return f'{self._prefix}reason={_quoted(change.cause)} change="{text}"'

    def _line(self, cause: Attribution, request: Request) -> str:
        client = self._clients.get(cause)
        if client is None:
            if len(self._clients) >= MAX_CACHED:
                self._clients.clear()
            client = (
                f"{self._prefix}principal={_word(cause.principal)} client={_word(cause.client_id)} "
                f"address={_word(cause.address)} api={_api_name(cause.api)}"
            )
            if len(client) < 3 * MAX_CHARACTERS:
                self._clients[cause] = client
        return f"{client} change={_quoted(_subject(cause.api, request))}"


def _is_audited(api: int, request: Request) -> bool:
    """Whether a refused request gets a line: not those of nodes, those that read, and dry runs."""
    return (
        logger.isEnabledFor(logging.INFO)
        and api not in _BY_BROKERS
        and api != ApiKey.LIST_PARTITION_REASSIGNMENTS
        and not getattr(request, "validate_only", False)
    )


def _api_name(api: int) -> str:
    return ApiKey(api).name


def _word(text: str | None) -> str:
    """A text of a client in one word, or in quotes. "-" stands for what is not known."""
    if text is None:
        return "-"
    if text.isprintable() and not (set(text) & _QUOTED) and 0 < len(text) <= MAX_CHARACTERS:
        return text
    return _quoted(text)


_QUOTED = frozenset(' "=')


def _quoted(text: str) -> str:
    """A text in quotes, without characters that would end the line."""
    if len(text) > MAX_CHARACTERS:
        text = text[: MAX_CHARACTERS - 3] + "..."
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join([c if c.isprintable() else ascii(c)[1:-1] for c in escaped]) + '"'


# -- the subject of a request


def _subject(api: int, request: Any) -> str:
    """The topics, brokers or other parts of the metadata that a request names."""
    named = _SUBJECTS.get(api)
    if named is None:
        return ""
    kind, names = named
    found = list(islice(names(request), MAX_NAMES + 1))
    if not found:
        return ""
    if len(found) > MAX_NAMES:
        found[MAX_NAMES] = "..."
    return f"{kind}{' ' if kind else ''}{', '.join(found)}"


def _topics(request: Any) -> Iterator[str]:
    return (topic.name for topic in request.topics)


def _deleted_topics(request: Any) -> Iterator[str]:
    for topic in request.topics:
        yield uuid_text(topic.topic_id) if topic.name is None else topic.name
    yield from request.topic_names


def _resources(request: Any) -> Iterator[str]:
    for resource in request.resources:
        keys = ", ".join([config.name for config in islice(resource.configs, MAX_NAMES)])
        kind = ConfigResourceType.name_of(resource.resource_type).lower()
        yield f"{kind} {resource.resource_name or 'default'} ({keys})"


def _elections(request: Any) -> Iterator[str]:
    if request.topic_partitions is None:
        return iter(("all partitions",))
    return (topic.topic for topic in request.topic_partitions)


def _by_broker(request: Any) -> Iterator[str]:
    return iter((str(request.broker_id),))


def _altered_partitions(request: Any) -> Iterator[str]:
    count = sum([len(topic.partitions) for topic in request.topics])
    return iter((f"{request.broker_id} ({count} partitions)",))


def _by_controller(request: Any) -> Iterator[str]:
    return iter((str(request.controller_id),))


def _features(request: Any) -> Iterator[str]:
    return (f"{update.feature}={update.max_version_level}" for update in request.feature_updates)


def _created_acls(request: Any) -> Iterator[str]:
    return (f"{acl.principal} on {acl.resource_name}" for acl in request.creations)


def _deleted_acls(request: Any) -> Iterator[str]:
    return (f"{acl.principal_filter or '*'} on {acl.resource_name_filter or '*'}" for acl in request.filters)


def _quotas(request: Any) -> Iterator[str]:
    for entry in request.entries:
        entity = ", ".join([f"{part.entity_type} {part.entity_name or 'default'}" for part in entry.entity])
        yield f"{entity} ({', '.join([op.key for op in islice(entry.ops, MAX_NAMES)])})"


def _users(request: Any) -> Iterator[str]:
    for part in (*request.deletions, *request.upsertions):
        yield part.name


_SUBJECTS: Final[dict[int, tuple[str, Callable[[Any], Iterator[str]]]]] = {
    ApiKey.CREATE_TOPICS: ("topics", _topics),
    ApiKey.DELETE_TOPICS: ("topics", _deleted_topics),
    ApiKey.CREATE_PARTITIONS: ("topics", _topics),
    ApiKey.ALTER_CONFIGS: ("", _resources),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("", _resources),
    ApiKey.ALTER_PARTITION: ("by broker", _altered_partitions),
    ApiKey.ELECT_LEADERS: ("topics", _elections),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("broker", _by_broker),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("topics", _topics),
    ApiKey.BROKER_REGISTRATION: ("broker", _by_broker),
    ApiKey.BROKER_HEARTBEAT: ("broker", _by_broker),
    ApiKey.UNREGISTER_BROKER: ("broker", _by_broker),
    ApiKey.CONTROLLER_REGISTRATION: ("controller", _by_controller),
    ApiKey.UNREGISTER_CONTROLLER: ("controller", _by_controller),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("broker", _by_broker),
    ApiKey.UPDATE_FEATURES: ("", _features),
    ApiKey.CREATE_ACLS: ("ACLs of", _created_acls),
    ApiKey.DELETE_ACLS: ("ACLs of", _deleted_acls),
    ApiKey.ALTER_CLIENT_QUOTAS: ("quotas of", _quotas),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("users", _users),
}
"""The kind and the names of what a request changes. Requests about tokens name none: an HMAC is a secret."""


# -- the errors of a response


def _errors_text(response: Response) -> str:
    """The names of the errors in a response, with their number if one occurs several times."""
    found = [code for code in islice(_error_codes(response), MAX_EXAMINED) if code]
    return (
        ",".join(
            [
                ErrorCode.of(code).name + (f"*{count}" if count > 1 else "")
                for code, count in Counter(found).items()
            ]
        )
        if found
        else ""
    )


def _error_codes(part: Struct) -> Iterator[int]:
    """The error codes of a response and of its parts, also those that are NONE. A part with an error code is
    not divided further."""
    if "error_code" in part._declared:
        yield part.error_code  # type: ignore[attr-defined]
        if not isinstance(part, Response):
            return
    for name in _lists_of_parts(type(part)):
        for item in getattr(part, name) or ():
            yield from _error_codes(item)


@cache
def _lists_of_parts(cls: type[Struct]) -> tuple[str, ...]:
    """The fields that are lists of structs."""
    return tuple([spec.name for spec in cls.fields() if spec.array and spec.kind not in PRIMITIVES])
