"""The sections about topics and partitions."""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as f

from quorate.pipeline.questions import balance, growth, leaders, replication
from quorate.pipeline.questions.spans import Unit
from quorate.pipeline.questions.state import state_at
from quorate.pipeline.tables.cluster import BROKERS
from quorate.tools.lake.report import plots
from quorate.tools.lake.report.asking import ROWS, Asking, Row, rows_of, total
from quorate.tools.lake.report.contents import Section, Table, duration

_DONE: Final = ("created", "deleted")


def growth_section(asking: Asking, title: str) -> Section:
    """Topics, partitions and replicas."""
    rows = rows_of(growth.growth(*asking.of, asking.unit).orderBy("time"))
    last = rows[-1]
    created, deleted = (total(rows, f"topics_{what}") for what in ("created", "deleted"))
    asking.figure("Topics", last["topics"], f"{created:,} created, {deleted:,} deleted")
    new, gone = (total(rows, f"partitions_{what}") for what in ("created", "deleted"))
    asking.figure("Partitions", last["partitions"], f"{last['replicas']:,} replicas")
    found = Section(
        title,
        f"Topics created: {created:,}, deleted: {deleted:,}. Partitions created: {new:,}, deleted: {gone:,}.",
    )
    if not created + deleted + last["topics"]:
        found.summary = "There was no topic in this period."
        return found
    names = ("topics", "partitions", "replicas")
    for name in names[:2]:
        caption = f"{name.capitalize()} at the end of each {asking.unit.value}"
        found.pictures.append((caption, asking.line(caption, name, rows, {name: name})))
    changed = [row for row in rows if any(row[f"{name}_{what}"] for name in names[:2] for what in _DONE)]
    found.tables.append(
        Table(
            f"The last {asking.unit.value}s in which topics or partitions were created or deleted",
            growth.COLUMNS, changed[-ROWS:], "growth", len(changed) <= ROWS,
        )
    )  # fmt: skip
    return found


def replication_section(asking: Asking, title: str) -> Section:
    """Partitions without all replicas."""
    lacking = replication.degraded(*asking.of, asking.min_isr)
    sums = rows_of(
        lacking.agg(
            f.count("*").alias("partitions"),
            f.count_if(f.col("offline_s") > 0).alias("offline"),
            f.count_if(f.col("under_min_isr_s") > 0).alias("under_min_isr"),
            f.sum("under_replicated_s").alias("under_replicated_s"),
            f.sum("offline_s").alias("offline_s"),
            f.count_if("still").alias("still"),
        )
    )[0]
    asking.figure(
        "Partitions that were offline",
        sums["offline"],
        _together(sums["offline_s"]),
        sums["offline"] > 0,
    )
    asking.figure(
        "Partitions that lacked replicas", sums["partitions"], _together(sums["under_replicated_s"]),
        sums["still"] > 0,
    )  # fmt: skip
    if not sums["partitions"]:
        return Section(title, "All partitions had all their replicas in sync in this period.")
    found = Section(
        title,
        f"{sums['partitions']:,} partitions lacked in-sync replicas or a leader, "
        f"{sums['under_min_isr']:,} were below min.insync.replicas, {sums['offline']:,} were "
        f"offline. Still so at the end: {sums['still']:,}.",
    )
    rows = rows_of(replication.degraded_over_time(*asking.of, asking.unit, asking.min_isr).orderBy("time"))
    caption = f"Partitions in each {asking.unit.value}, on average"
    names = {
        "under-replicated": "under_replicated",
        "below min ISR": "under_min_isr",
        "offline": "offline",
    }
    found.pictures.append((caption, asking.line(caption, "partitions", rows, names)))
    order = ["-offline_s", "-under_min_isr_s", "-under_replicated_s", "topic", "partition"]
    found.tables.append(asking.table("The longest first", lacking, replication.COLUMNS, order, "degraded"))
    return found


def isr_section(asking: Asking, title: str) -> Section:
    """Brokers that left and joined the ISR."""
    rows = rows_of(
        replication.isr_changes(*asking.of, asking.unit)
        .groupBy("time")
        .agg(f.sum("left").alias("left"), f.sum("joined").alias("joined"))
        .orderBy("time")
    )
    left, joined = total(rows, "left"), total(rows, "joined")
    if not rows:
        return Section(title, "No in-sync replicas changed in this period.")
    found = Section(
        title, f"Brokers left the ISR of partitions {left:,} times, and joined it {joined:,} times."
    )
    caption = f"Changes of the ISR in each {asking.unit.value}"
    found.pictures.append((caption, asking.bars(caption, rows, {"joined": "joined", "left": "left"}, "left")))
    by_broker = replication.isr_changes(*asking.of, Unit.TOTAL)
    found.tables.append(
        asking.table(
            "By broker", by_broker, replication.ISR_CHANGES[1:], ["-left", "broker_id"], "isr --by total"
        )
    )
    return found


def leaders_section(asking: Asking, title: str) -> Section:
    """Shows the elections of leaders, preferred and unclean ones apart."""
    rows = rows_of(
        leaders.leader_changes(*asking.of, asking.unit)
        .groupBy("time")
        .agg(
            f.sum("gained").alias("every"),
            f.sum("preferred").alias("preferred"),
            f.sum("unclean").alias("unclean"),
            f.sum(f.when(f.col("broker_id") == -1, f.col("gained")).otherwise(0)).alias("none"),
        )
        .orderBy("time")
    )
    for row in rows:
        row["other"] = row["every"] - row["preferred"] - row["unclean"] - row["none"]
    every, unclean = total(rows, "every"), total(rows, "unclean")
    asking.figure("Changes of leaders", every, f"{unclean:,} unclean", unclean > 0)
    if not every:
        return Section(title, "No partition changed its leader in this period.")
    found = Section(
        title,
        f"Leaders changed {every:,} times: {total(rows, 'preferred'):,} times to the preferred one, "
        f"{unclean:,} times to one that was not in sync, and {total(rows, 'none'):,} times a "
        "partition was left without a leader.",
    )
    caption = f"Changes of leaders in each {asking.unit.value}"
    kinds = {"preferred": "preferred", "other": "other", "no leader": "none", "unclean": "unclean"}
    found.pictures.append((caption, asking.bars(caption, rows, kinds)))
    by_broker = leaders.leader_changes(*asking.of, Unit.TOTAL)
    found.tables.append(
        asking.table(
            "By broker", by_broker, leaders.COLUMNS[1:], ["-lost", "broker_id"], "leaders --by total"
        )
    )
    bad = leaders.elections(*asking.of).where("kind IN ('unclean', 'none')")
    table = asking.table(
        "Partitions that lost their leader, and unclean elections, the newest first", bad, leaders.ELECTIONS,
        ["-offset", "topic", "partition"], "elections",
    )  # fmt: skip
    found.tables += [table] if table.rows else []
    return found


def balance_section(asking: Asking, title: str) -> Section:
    """Replicas and leaders of brokers."""
    rows = rows_of(balance.balance(*asking.of, asking.unit).orderBy("time", "broker_id"))
    if not any(row["replicas"] for row in rows):
        return Section(title, "No broker had a replica in this period.")
    lake, cluster, period = asking.of
    there = rows_of(state_at(lake, cluster, BROKERS, period.last).select("broker_id"))
    registered = {row["broker_id"] for row in there}
    last = [
        row
        for row in rows
        if row["time"] == rows[-1]["time"] and (row["broker_id"] in registered or row["replicas"])
    ]
    summary = []
    for name in ("replicas", "leaders"):
        counts = [row[name] for row in last]
        mean = sum(counts) / len(counts)
        if mean:
            summary.append(
                f"{name.capitalize()} of a broker: {min(counts):,} to {max(counts):,}, {mean:,.1f} "
                "on average."
            )
    racks = {row["rack"] for row in last if row["rack"] is not None}
    found = Section(
        title,
        f"At the end, {len(last):,} brokers in {len(racks) or 'no'} racks. " + " ".join(summary),
    )
    by_broker: dict[int, list[Row]] = {}
    for row in rows:
        by_broker.setdefault(row["broker_id"], []).append(row)
    times = [row["time"] for row in next(iter(by_broker.values()))]
    for name in ("replicas", "leaders"):
        caption = f"{name.capitalize()} of each broker"
        series = {f"broker {broker}": [row[name] for row in of] for broker, of in by_broker.items()}
        found.pictures.append((caption, plots.lines(caption, name, times, series)))
    most = sorted(last, key=lambda row: (-row["replicas"], row["broker_id"]))
    found.tables.append(
        Table(
            "At the end, the most replicas first",
            balance.COLUMNS[1:],
            most[:ROWS],
            "balance",
            len(most) <= ROWS,
        )
    )
    return found


def _together(seconds: float | None) -> str:
    return f"for {duration(seconds)} altogether" if seconds else ""
