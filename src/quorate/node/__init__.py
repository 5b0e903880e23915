"""One process: configuration, directories, roles wired together, signals, logging."""
