"""`python -m bench.probes IMPL [PROBE]...`: one JSON line for each probe; without a PROBE, of all."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from bench.probes.one_node import coldstart, partitions, topics
from bench.probes.quorum import failover, failover_term, fencing, quorum_topics
from bench.probes.requests import requests
from bench.probes.throughput import end_to_end, perf_tools, perf_tools_rf3, produce, replicated

PROBES: dict[str, Callable[[str], dict[str, object]]] = {
    probe.__name__: probe
    for probe in (
        coldstart,
        topics,
        quorum_topics,
        partitions,
        produce,
        perf_tools,
        perf_tools_rf3,
        replicated,
        failover,
        failover_term,
        fencing,
        requests,
        end_to_end,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("impl", choices=("java", "quorate"))
    parser.add_argument("probes", nargs="*", metavar="PROBE", help=f"of {', '.join(PROBES)}")
    args = parser.parse_args()
    unknown = set(args.probes) - set(PROBES)
    if unknown:
        parser.error(f"no such probe: {', '.join(sorted(unknown))} (there are {', '.join(PROBES)})")
    for name in args.probes or PROBES:
        began = time.perf_counter()
        figures = PROBES[name](args.impl)
        rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
        took = round(time.perf_counter() - began, 1)
        print(json.dumps({"impl": args.impl, "probe": name, **rounded, "took_s": took}), flush=True)


if __name__ == "__main__":
    main()
