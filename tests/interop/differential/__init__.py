"""Requests that are sent to both implementations, and the intended differences between the responses."""
