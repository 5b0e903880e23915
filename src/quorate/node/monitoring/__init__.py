"""Measures a node, and knows its health.

- metrics: collects the metrics of a node's parts and writes them for Prometheus
- metric_sources: joins the parts of a node to its metrics
- process_metrics: the metrics of the process
- health: the phase, progress and readiness of a node
- loop_lag: measures the lag of the event loop and its idle time

`quorate.node.server` creates what these modules declare; `quorate.node.http` serves it.
"""
