"""Handlers of the controller, by API: pure functions of (view, request, context) to records and a
response."""
