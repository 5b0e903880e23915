"""Asks all questions about a period, and puts the answers together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.pipeline.questions.moments import Moment, period_of
from quorate.pipeline.questions.spans import unit_of
from quorate.pipeline.tables.cluster import BROKERS
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.settings import CONFIGS
from quorate.pipeline.tables.topics import PARTITIONS, TOPICS
from quorate.tools.lake.report import changes, nodes, partitions
from quorate.tools.lake.report.asking import Asking
from quorate.tools.lake.report.contents import Contents

_SECTIONS: Final = {
    "Growth": partitions.growth_section,
    "Brokers": nodes.brokers_section,
    "Failures and recovery": nodes.recovery_section,
    "Replication": partitions.replication_section,
    "In-sync replicas": partitions.isr_section,
    "Leaders": partitions.leaders_section,
    "Balance": partitions.balance_section,
    "Quorum": nodes.quorum_section,
    "Changes": changes.changes_section,
    "Topics that nobody changed": changes.unchanged_section,
}
"""The sections in their order. Each may add figures to the top of the page."""


def collect(
    lake: Lake, cluster: str, since: Moment, until: Moment, min_isr: int, report: Callable[[str], None]
) -> Contents:
    """The contents of the page. `report` is called with a text about each step."""
    report("finding the period")
    period = period_of(lake, cluster, since, until, (TOPICS, PARTITIONS, BROKERS, CONFIGS))
    asking = Asking(lake, cluster, period, unit_of(period), min_isr)
    sections = []
    for title, section in _SECTIONS.items():
        report(f"asking: {title.lower()}")
        sections.append(section(asking, title))
    return Contents(cluster, period, asking.figures, sections)
