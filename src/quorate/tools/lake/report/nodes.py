"""The sections about brokers and controllers."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import functions as f

from quorate.pipeline.questions import availability, quorum, recovery
from quorate.tools.lake.report import plots
from quorate.tools.lake.report.asking import BARS, ROWS, Asking, rows_of, total
from quorate.tools.lake.report.contents import Section, Table, duration

_NODES: Final = 40
"""The brokers of a picture of states."""
_PLANNED: Final = "controlled shutdown"


def brokers_section(asking: Asking, title: str) -> Section:
    """When brokers were active."""
    rows = rows_of(availability.availability(*asking.of).orderBy("broker_id"))
    if not rows:
        return Section(title, "No broker was registered in this period.")
    registered = sum([row["registered_s"] for row in rows])
    active = sum([row["active_s"] for row in rows])
    now = [row for row in rows if row["state"] is not None]
    ready = [row for row in now if row["state"] == availability.ACTIVE]
    asking.figure(
        "Active brokers", f"{len(ready)} of {len(now)}", "at the end of the period", len(ready) < len(now)
    )
    share = 100 * active / registered if registered else 100.0
    asking.figure("Availability of brokers", f"{share:.3f} %", "of the time they were registered")
    worst = sorted(rows, key=lambda row: row["availability"] or 0)
    found = Section(
        title,
        f"{len(rows)} brokers were registered. They were active for {share:.3f} % of that time, and were "
        f"restarted {total(rows, 'restarts'):,} times.",
    )
    states = availability.states(*asking.of)
    longest = states.orderBy(f.col("state") == availability.ACTIVE, f.desc("seconds")).limit(BARS)
    chosen = {row["broker_id"] for row in worst[:_NODES]}
    spans = [
        plots.Span(f"broker {row['broker_id']}", row["state"], row["from_time"], row["to_time"])
        for row in sorted(rows_of(longest), key=lambda row: (row["broker_id"], row["from_offset"]))
        if row["broker_id"] in chosen
    ]
    caption = "States of the brokers" + (
        "" if len(rows) <= _NODES else f" (the {_NODES} with the lowest availability)"
    )
    heights = {"active": 0.2, "controlled shutdown": 0.5, "fenced": 0.8}
    found.pictures.append((caption, plots.states(caption, spans, heights)))
    found.tables.append(
        Table(
            "The lowest availability first", availability.COLUMNS, worst[:ROWS], "availability",
            len(worst) <= ROWS,
        )
    )  # fmt: skip
    restarted = asking.table(
        "Restarts, the newest first", availability.restarts(*asking.of), availability.RESTARTS,
        ["-offset"], "restarts",
    )  # fmt: skip
    found.tables += [restarted] if restarted.rows else []
    return found


def recovery_section(asking: Asking, title: str) -> Section:
    """Shows the failures of brokers, and how long the cluster took to recover."""
    away = recovery.recovery(*asking.of)
    totals = rows_of(
        away.groupBy("kind").agg(
            f.count("*").alias("count"),
            f.count("recovery_s").alias("recovered"),
            f.max("recovery_s").alias("longest"),
            f.percentile_approx("recovery_s", 0.5).alias("median"),
        )
    )
    by_kind = {row["kind"]: row for row in totals}
    failed = sum([row["count"] for kind, row in by_kind.items() if kind != _PLANNED])
    planned = by_kind.get(_PLANNED, {"count": 0})["count"]
    asking.figure("Failures of brokers", failed, f"and {planned:,} controlled shutdowns", failed > 0)
    if not totals:
        return Section(title, "No failure and no shutdown of a broker in this period.")
    longest = max([row["longest"] for row in totals if row["longest"] is not None], default=None)
    if longest is not None:
        asking.figure("Longest recovery", duration(longest), "until all partitions had all replicas")
    still = sum([row["count"] - row["recovered"] for row in totals])
    found = Section(
        title,
        f"Failures: {failed:,}. Controlled shutdowns: {planned:,}. "
        + (f"Not recovered at the end: {still:,}." if still else "The cluster recovered each time."),
    )
    drawn = rows_of(away.where("recovery_s IS NOT NULL").orderBy(f.desc("recovery_s")).limit(BARS))
    if drawn:
        scale, unit = _scale(max([row["recovery_s"] for row in drawn]))
        kinds = sorted({row["kind"] for row in drawn})
        caption = f"Time to recover, by the begin of the failure, in {unit}"
        at = {
            kind: [(row["time"], row["recovery_s"] / scale) for row in drawn if row["kind"] == kind]
            for kind in kinds
        }
        found.pictures.append((caption, plots.points(caption, unit, asking.when, at)))
    found.tables.append(
        asking.table("The longest first", away, recovery.COLUMNS, ["-recovery_s", "offset"], "recovery")
    )
    return found


def quorum_section(asking: Asking, title: str) -> Section:
    """Shows the failovers of the active controller, and changes of the voters."""
    elections = quorum.failovers(*asking.of)
    rows = rows_of(elections.orderBy(f.desc("led_s")).limit(BARS))
    another = f.col("before") != f.col("controller_id")
    counts = rows_of(elections.agg(f.count("*").alias("all"), f.count_if(another).alias("changed")))[0]
    asking.figure("Failovers of the controller", counts["changed"])
    voters = asking.table(
        "Voters, the newest first", quorum.voters_history(*asking.of), quorum.VOTERS, ["-offset"], "voters"
    )
    if not rows:
        found = Section(title, "The active controller did not change in this period.")
    else:
        found = Section(
            title,
            f"{counts['all']:,} elections, {counts['changed']:,} of them of another controller than before.",
        )
        caption = "Active controllers"
        spans = [
            plots.Span(
                f"controller {row['controller_id']}", "active", row["time"],
                row["time"] + timedelta(seconds=row["led_s"]),
            )
            for row in sorted(rows, key=lambda row: (row["controller_id"], row["offset"]))
        ]  # fmt: skip
        earliest = min(rows, key=lambda row: row["time"])
        if earliest["before"] is not None:
            before = plots.Span(
                f"controller {earliest['before']}", "active", asking.when[0], earliest["time"]
            )
            spans = sorted([before, *spans], key=lambda span: span.row)
        found.pictures.append((caption, plots.states(caption, spans, {"active": 0.5})))
        found.tables.append(
            asking.table("Elections, the newest first", elections, quorum.FAILOVERS, ["-offset"], "failovers")
        )
    found.tables += [voters] if voters.rows else []
    return found


def _scale(longest_s: float) -> tuple[float, str]:
    """The unit in which a picture shows times."""
    for longest, length, name in ((300, 1.0, "seconds"), (10_800, 60.0, "minutes")):
        if longest_s < longest:
            return length, name
    return 3600.0, "hours"
