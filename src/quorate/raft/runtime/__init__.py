"""Runs the Raft core in an event loop: client, network, timers, delivery of committed batches, metrics."""
