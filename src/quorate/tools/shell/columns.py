"""Names in columns, like those of `ls`."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = 2
_LEAST_WIDTH = 4
"""The width of a column with names of one or two characters."""


def in_columns(names: Sequence[str], width: int | None) -> list[str]:
    """Returns the lines of names in as many columns as fit, ordered downwards; None is one column."""
    most = 1 if width is None else min(max(1, width // _LEAST_WIDTH), max(1, len(names)))
    for count in range(most, 0, -1):
        rows = -(-len(names) // count)
        parts = [names[start : start + rows] for start in range(0, len(names), rows or 1)]
        widths = [max(map(len, part)) + _GAP for part in parts]
        if count == 1 or (len(parts) == count and width is not None and sum(widths) <= width):
            return [
                "".join(
                    part[row] if position == len(parts) - 1 else part[row].ljust(widths[position])
                    for position, part in enumerate(parts)
                    if row < len(part)
                ).rstrip()
                for row in range(rows)
            ]
    return list(names)
