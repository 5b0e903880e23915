"""The metadata that a broker has published to itself, and what is read from it."""
