"""The same unusual requests are sent to Quorate and to Apache Kafka 4.4.0, and every difference between the
responses is accounted for.

There are hand-written cases (`differential/cases_*.py`), and for every served API requests that are
generated from its declaration (`differential/strange.py`). A difference that is not in `ACCEPTED`, with its
reason, is a failure. A row of `ACCEPTED` that no longer matches any difference is a failure too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module

import pytest

from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from tests.interop.differential.accepted import ACCEPTED, NOT_HANDLED, NOT_SERVED
from tests.interop.differential.script import CASES, Script
from tests.interop.differential.strange import Filler, versions
from tests.support import java
from tests.support.cluster import Node
from tests.support.differential import Answer, Peer, differences

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

for area in ("data", "topics", "groups", "cluster", "admin"):
    import_module(f"tests.interop.differential.cases_{area}")

REPLICAS_ONLY = frozenset({1, 52, 53, 54, 58, 59, 82})
"""Between the quorum's members: a strange epoch is believed, by Kafka too, and ends the quorum."""
OF_NO_USE = frozenset(
    {
        ApiKey.API_VERSIONS,  # compared by itself
        ApiKey.UNREGISTER_BROKER,  # believed by both, and then there is no broker to ask
        ApiKey.CONTROLLER_REGISTRATION,  # an unknown security protocol ends Kafka's controller
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,  # this and the next are not advertised by Kafka without a plug-in
        ApiKey.PUSH_TELEMETRY,
    }
)

APIS = [
    (to, key)
    for to, left_out in (("broker", NOT_SERVED), ("controller", NOT_HANDLED | REPLICAS_ONLY))
    for key, spec in REGISTRY.items()
    if to in spec.listeners and spec.max_version >= spec.served_from and key not in left_out | OF_NO_USE
]


@dataclass
class Pair:
    """Both nodes, and which accepted differences have been met."""

    ours: Peer
    theirs: Peer
    met: set[int] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)

    def judge(self, where: str, label: str, mine: Answer, kafkas: Answer) -> list[str]:
        """One line for each difference that is not accepted."""
        found = []
        for line in differences(mine.shown, kafkas.shown):
            row = next((i for i, a in enumerate(ACCEPTED) if a.covers(where, label, line)), None)
            if row is None:
                texts = "".join(
                    f"\n        {who}: {m[:200]}"
                    for who, a in (("ours", mine), ("Kafka", kafkas))
                    for m in a.messages[:2]
                )
                found.append(f"{where} / {label}\n    {line[:400]}{texts}")
            else:
                self.met.add(row)
        return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    java.require_java(java.LATEST_VERSION)
    base = tmp_path_factory.mktemp("differential")
    nodes = [Node(base / impl, impl=impl, kafka=java.LATEST_VERSION) for impl in ("quorate", "java")]
    try:
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda node: (node.format(), node.start()), nodes))
        peers = [
            Peer(n.impl, {"broker": n.broker_port, "controller": n.controller_port}, str(n.data))
            for n in nodes
        ]
        for peer in peers:  # the first of these is told to come again
            Script(peer, "warm").group("up")
            Script(peer, "warm").producer_id()
        yield Pair(*peers)
        for peer in peers:
            peer.close()
    finally:
        for node in nodes:
            node.kill()


@pytest.mark.parametrize("name", CASES)
def test_answers_are_apache_kafkas(pair: Pair, name: str) -> None:
    scripts = [Script(peer, name.replace("_", "-")) for peer in (pair.ours, pair.theirs)]
    with ThreadPoolExecutor(2) as both:
        list(both.map(CASES[name], scripts))
    pair.ran.add(name)
    ours, theirs = scripts
    assert [label for label, _ in ours.steps] == [label for label, _ in theirs.steps]
    labels = [label for label, _ in ours.steps]
    assert len(set(labels)) == len(labels), (
        f"labels twice: {[label for label in labels if labels.count(label) > 1]}"
    )
    wrong = [
        line
        for (label, mine), (_, kafkas) in zip(ours.steps, theirs.steps, strict=True)
        for line in pair.judge(name, label, mine, kafkas)
    ]
    assert not wrong, f"{len(wrong)} unexpected differences:\n" + "\n".join(wrong[:200])


@pytest.mark.parametrize(("to", "key"), APIS, ids=[f"{to}-{REGISTRY[key].name}" for to, key in APIS])
def test_unusual_values_in_every_field_get_the_same_responses(pair: Pair, to: str, key: int) -> None:
    spec = REGISTRY[key]
    where = f"strange {spec.name}" if to == "broker" else f"strange {spec.name} to the controller"

    def run(peer: Peer) -> list[tuple[str, Answer]]:
        script = Script(peer, f"strange-{to}-{key}")
        filler = Filler(script.name("t"), script.topic("t", 2))
        for version in versions(spec):
            for filling, request in filler.requests(key, version):
                script.ask(f"{filling} v{version}", request, version, to=to, timeout_s=4)
        return script.steps

    with ThreadPoolExecutor(2) as both:
        ours, theirs = both.map(run, (pair.ours, pair.theirs))
    pair.ran.add(where)
    wrong = [
        line
        for (label, mine), (_, kafkas) in zip(ours, theirs, strict=True)
        for line in pair.judge(where, label, mine, kafkas)
    ]
    assert not wrong, f"{len(wrong)} unexpected differences:\n" + "\n".join(wrong[:200])


def test_the_same_versions_are_advertised_but_for_what_is_not_served(pair: Pair) -> None:
    for to in ("broker", "controller"):
        mine, kafkas = (
            {
                k.api_key: (k.min_version, k.max_version)
                for k in peer.ask(ApiVersionsRequest(), 2, to=to).response.api_keys
            }
            for peer in (pair.ours, pair.theirs)
        )
        assert kafkas.keys() - mine.keys() == (NOT_SERVED if to == "broker" else NOT_HANDLED)
        assert {k: v for k, v in kafkas.items() if k in mine} == mine


def test_every_accepted_difference_is_still_there(pair: Pair) -> None:
    stale = [
        a
        for i, a in enumerate(ACCEPTED)
        if i not in pair.met and not a.depends_on_timing and any(a.about(name) for name in pair.ran)
    ]
    assert not stale, "no longer needed:\n" + "\n".join(f"{a.where} / {a.label}: {a.line}" for a in stale)
