"""Requests that both implementations are asked, and the differences between their answers that are meant."""
