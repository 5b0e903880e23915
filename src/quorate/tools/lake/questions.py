"""The commands of `quorate-pipeline` that ask a question."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import ToolError, printable
from quorate.tools.lake import output, progress
from quorate.tools.lake.options import (
    ENTITIES,
    add_entity,
    add_format,
    add_key,
    add_lake,
    add_min_isr,
    add_period,
    add_racks,
    add_unit,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    from quorate.pipeline import tables
    from quorate.pipeline.questions import (
        availability,
        balance,
        changes,
        diff,
        growth,
        history,
        leaders,
        moments,
        quorum,
        recovery,
        replication,
        spans,
        state,
        unchanged,
    )
    from quorate.pipeline.tables import lake as lakes
    from quorate.pipeline.tables.declaration import Column, Entity
else:
    f = lazy_module("pyspark.sql.functions")
    tables = lazy_module("quorate.pipeline.tables")
    availability, balance, changes, diff, growth, history, leaders = lazy_modules(
        "quorate.pipeline.questions",
        *("availability", "balance", "changes", "diff", "growth", "history", "leaders"),
    )
    moments, quorum, recovery, replication, spans, state, unchanged = lazy_modules(
        "quorate.pipeline.questions",
        *("moments", "quorum", "recovery", "replication", "spans", "state", "unchanged"),
    )
    lakes = lazy_module("quorate.pipeline.tables.lake")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is asked with a command."""

    lake: lakes.Lake
    cluster: str
    args: argparse.Namespace

    def period(self, *names: str) -> moments.Period:
        """The period of the options, up to where these tables are complete."""
        since, until = moments.parse_moment(self.args.since), moments.parse_moment(self.args.until)
        entities = tuple([tables.ENTITIES[name] for name in names])
        return moments.period_of(self.lake, self.cluster, since, until, entities)

    def unit(self) -> spans.Unit:
        """The unit of the option `--by`."""
        return spans.Unit(self.args.by)

    def condition(self, columns: Iterable[Column]) -> str | None:
        """The options `--key` as a condition in SQL. Raises ToolError if a column does not exist."""
        known = [column.name for column in columns]
        conditions = []
        for text in self.args.key:
            name, sign, value = text.partition("=")
            if not sign or name not in known:
                raise ToolError(f"--key {text}: COLUMN=VALUE, with one of the columns {', '.join(known)}")
            conditions.append(f"string({name}) = '{lakes.literal(value)}'")
        return " AND ".join(conditions) or None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    rows: DataFrame
    columns: Sequence[Column]
    order: Sequence[str]
    """The columns by which the rows are sorted; `-` before a name is for descending order."""
    line: Callable[[dict[str, Any]], str] | None = None
    """The text of a row, if it is no table."""


Options: TypeAlias = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that asks a question."""

    name: str
    help: str
    ask: Callable[[Asked], Answer]
    options: tuple[Options, ...] = (add_period,)


def add_questions(commands: Any) -> None:
    """Adds the commands to the parser."""
    for command in COMMANDS:
        parser: argparse.ArgumentParser = commands.add_parser(command.name, help=command.help)
        add_lake(parser)
        for add in command.options:
            add(parser)
        add_format(parser)
        parser.set_defaults(run_on_lake=_answer, ask=command.ask)


def _answer(lake: lakes.Lake, args: argparse.Namespace) -> None:
    """Asks the question, and prints the answer."""
    with progress.shown(lake.spark):
        answer: Answer = args.ask(Asked(lake, moments.cluster_of(lake, args.cluster), args))
        rows = answer.rows.orderBy(*[_order(name) for name in answer.order]).toLocalIterator()
        found: Iterator[Any] = iter(rows)
        first = next(found, None)
    every = (row.asDict(recursive=True) for row in chain([] if first is None else [first], found))
    if args.json:
        lines = output.json_lines(every)
    elif answer.line is not None:
        lines = map(answer.line, every)
    else:
        names = [column.name for column in answer.columns if args.wide or not column.detail]
        lines = output.table_lines(names, every)
    for line in lines:
        sys.stdout.write(line + "\n")


def _order(name: str) -> Any:
    return f.desc(name[1:]) if name.startswith("-") else f.asc(name)


def _chosen(rows: DataFrame, columns: Sequence[Column]) -> list[Column]:
    """The columns that the rows have."""
    return [column for column in columns if column.name in rows.columns]


def _keys(entity: Entity) -> list[str]:
    """The columns by which entities are sorted: the name of the topic rather than its id, then the key."""
    return [*[name for name in ("topic",) if name in entity.state_names], *entity.key_names]


# --- states ---------------------------------------------------------------------------------------


def _state(asked: Asked) -> Answer:
    entity = tables.ENTITIES[asked.args.entity]
    rows = state.state(asked.lake, asked.cluster, entity, moments.parse_moment(asked.args.at))
    return Answer(rows, state.columns(entity), _keys(entity))


def _diff(asked: Asked) -> Answer:
    args = asked.args
    since, until = moments.parse_moment(args.since), moments.parse_moment(args.until)
    chosen = [tables.ENTITIES[name] for name in ENTITIES if name in (args.entity or ENTITIES)]
    rows = diff.diff_all(asked.lake, asked.cluster, chosen, since, until)
    return Answer(rows, diff.COLUMNS, ["entity", "key"], diff_line)


def diff_line(row: dict[str, Any]) -> str:
    """A line about an entity that differs."""
    signs = {"added": "+", "removed": "-", "changed": "~"}
    found = [
        f"{each['name']} {each['after']}"
        if row["change"] == "added"
        else f"{each['name']} {each['before']} -> {each['after']}"
        for each in row["columns"]
        if row["change"] != "removed" and (each["before"] is not None or each["after"] is not None)
    ]
    line = f"{signs[row['change']]} {row['entity']} {row['key']}" + (": " if found else "") + ", ".join(found)
    return printable(line)


def _history(asked: Asked) -> Answer:
    entity = tables.ENTITIES[asked.args.entity]
    where = asked.condition((*entity.key, *entity.columns))
    rows = history.history(asked.lake, asked.cluster, entity, where)
    return Answer(rows, history.columns(entity), [*_keys(entity), "valid_from_offset"])


def _add_at(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", metavar="OFFSET|TIME", help="then, instead of at the end of the lake")


def _add_entities(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--entity", action="append", choices=ENTITIES, help="only these (may be repeated; default: all)"
    )


# --- changes --------------------------------------------------------------------------------------


def _changes(asked: Asked) -> Answer:
    period, where = asked.period("topics"), asked.condition(changes.COLUMNS)
    if asked.args.total:
        rows = changes.authors(asked.lake, asked.cluster, period, where)
        return Answer(rows, changes.AUTHORS, ["-records", "principal", "api", "record"])
    return Answer(changes.changes(asked.lake, asked.cluster, period, where), changes.COLUMNS, ["offset"])


def _unchanged(asked: Asked) -> Answer:
    rows = unchanged.unchanged(asked.lake, asked.cluster, asked.period("topics", "partitions", "configs"))
    return Answer(rows, unchanged.COLUMNS, ["changed_time", "topic"])


def _growth(asked: Asked) -> Answer:
    rows = growth.growth(asked.lake, asked.cluster, asked.period("topics", "partitions"), asked.unit())
    return Answer(rows, growth.COLUMNS, ["time"])


# --- partitions -----------------------------------------------------------------------------------


def _elections(asked: Asked) -> Answer:
    rows = leaders.elections(asked.lake, asked.cluster, asked.period("partitions"))
    return Answer(rows, leaders.ELECTIONS, ["offset", "topic", "partition"])


def _leaders(asked: Asked) -> Answer:
    period = asked.period("partitions", "brokers")
    rows = leaders.leader_changes(asked.lake, asked.cluster, period, asked.unit(), by_rack=asked.args.racks)
    columns = _chosen(rows, leaders.COLUMNS)
    return Answer(rows, columns, [column.name for column in columns if column.name in _SERIES_KEYS])


def _isr(asked: Asked) -> Answer:
    period = asked.period("partitions", "brokers")
    rows = replication.isr_changes(asked.lake, asked.cluster, period, asked.unit(), by_rack=asked.args.racks)
    columns = _chosen(rows, replication.ISR_CHANGES)
    return Answer(rows, columns, [column.name for column in columns if column.name in _SERIES_KEYS])


def _degraded(asked: Asked) -> Answer:
    period, args = asked.period("partitions", "configs"), asked.args
    if args.by != "total":
        rows = replication.degraded_over_time(asked.lake, asked.cluster, period, asked.unit(), args.min_isr)
        return Answer(rows, replication.SERIES, ["time"])
    rows = replication.degraded(asked.lake, asked.cluster, period, args.min_isr)
    order = ["-offline_s", "-under_min_isr_s", "-under_replicated_s", "topic", "partition"]
    return Answer(rows, replication.COLUMNS, order)


def _balance(asked: Asked) -> Answer:
    period = asked.period("partitions", "brokers")
    rows = balance.balance(asked.lake, asked.cluster, period, asked.unit(), by_rack=asked.args.racks)
    columns = _chosen(rows, balance.COLUMNS)
    return Answer(rows, columns, [column.name for column in columns if column.name in _SERIES_KEYS])


_SERIES_KEYS = ("time", "rack", "broker_id")


# --- nodes ----------------------------------------------------------------------------------------


def _availability(asked: Asked) -> Answer:
    period = asked.period("brokers")
    if asked.args.states:
        rows = availability.states(asked.lake, asked.cluster, period).drop("to_offset")
        return Answer(rows, availability.STATES, ["broker_id", "from_offset"])
    rows = availability.availability(asked.lake, asked.cluster, period)
    return Answer(rows, availability.COLUMNS, ["broker_id"])


def _restarts(asked: Asked) -> Answer:
    rows = availability.restarts(asked.lake, asked.cluster, asked.period("brokers"))
    return Answer(rows, availability.RESTARTS, ["offset", "broker_id"])


def _recovery(asked: Asked) -> Answer:
    rows = recovery.recovery(asked.lake, asked.cluster, asked.period("brokers", "partitions"))
    return Answer(rows, recovery.COLUMNS, ["offset", "broker_id"])


def _failovers(asked: Asked) -> Answer:
    return Answer(quorum.failovers(asked.lake, asked.cluster, asked.period()), quorum.FAILOVERS, ["offset"])


def _voters(asked: Asked) -> Answer:
    return Answer(quorum.voters_history(asked.lake, asked.cluster, asked.period()), quorum.VOTERS, ["offset"])


# --- the commands ---------------------------------------------------------------------------------


def _add_total(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--total", action="store_true", help="count by author, API and record type")


def _add_states(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--states", action="store_true", help="show the states one after the other")


def _by(default: str, *, total: bool = True) -> Options:
    return lambda parser: add_unit(parser, default, total=total)


def _key(example: str) -> Options:
    return lambda parser: add_key(parser, example)


def _since(parser: argparse.ArgumentParser) -> None:
    add_period(parser, required=True)


COMMANDS = (
    Command("state", "show the entities at an offset or time", _state, (add_entity, _add_at)),
    Command("diff", "show what differs between two offsets or times", _diff, (_add_entities, _since)),
    Command(
        "history", "show the states of entities one after the other", _history,
        (add_entity, _key("topic=orders")),
    ),
    Command(
        "changes", "show who changed what", _changes, (add_period, _key("principal=User:ann"), _add_total)
    ),
    Command("unchanged", "show topics that nobody changed since an offset or time", _unchanged, (_since,)),
    Command(
        "growth", "show the numbers of topics, partitions and replicas", _growth,
        (add_period, _by("day", total=False)),
    ),
    Command("elections", "show each election of a partition's leader", _elections),
    Command(
        "leaders", "count changes of leaders by time and broker or rack", _leaders,
        (add_period, _by("hour"), add_racks),
    ),
    Command(
        "isr", "count how often brokers left and joined the ISR of partitions", _isr,
        (add_period, _by("hour"), add_racks),
    ),
    Command(
        "degraded", "show how long partitions were under-replicated, below min.insync.replicas, offline",
        _degraded, (add_period, _by("total"), add_min_isr),
    ),
    Command(
        "balance", "show the replicas and leaders of brokers or racks over time", _balance,
        (add_period, _by("day", total=False), add_racks),
    ),
    Command(
        "availability", "show how long brokers were active, fenced, shutting down", _availability,
        (add_period, _add_states),
    ),
    Command("restarts", "show when brokers were started again", _restarts),
    Command("recovery", "show the failures of brokers, and how long the recovery took", _recovery),
    Command("failovers", "show the elections of the active controller", _failovers),
    Command("voters", "show the history of the voters", _voters),
)  # fmt: skip
"""The commands, in the order of --help."""
