"""The operations of an engine that run on kiln, as a table, and the variable that turns operators off."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

#: names of operators, separated by commas; "all" is every operator
VARIABLE = "KILN_ENGINES_OFF"


def is_off(operator: str) -> bool:
    """True when KILN_ENGINES_OFF names the operator. The variable is read at each call."""
    names = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    return operator in names or "all" in names


class Row(NamedTuple):
    """One operation of one layer of an engine."""

    place: str  #: where it stands, such as "model.layers.0.input_layernorm"
    operator: str  #: kiln's operator
    runs: bool  #: true: it runs on kiln
    reason: str  #: why it does not; empty when it runs


class Explanation:
    """The operations of an engine that kiln knows: which run on it, which do not, and why."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, place: str, operator: str, reason: str = "") -> bool:
        """Notes an operation, which runs on kiln unless there is a reason against it. Returns whether it does."""
        if not reason and is_off(operator):
            reason = f"{VARIABLE} names it"
        self.rows.append(Row(place, operator, not reason, reason))
        return not reason

    def running(self) -> list[Row]:
        return [row for row in self.rows if row.runs]

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        return [row._asdict() for row in self.rows]

    def __str__(self) -> str:
        """A table with one line for all places that share operator and reason."""
        grouped: dict[tuple[str, bool, str], list[str]] = {}
        for row in self.rows:
            grouped.setdefault((row.operator, row.runs, row.reason), []).append(row.place)
        lines = [("operator", "places", "runs on", "first place", "reason")]
        lines += [
            (operator, str(len(places)), "kiln" if runs else "engine", places[0], reason)
            for (operator, runs, reason), places in grouped.items()
        ]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join("  ".join([*(cell.ljust(w) for cell, w in zip(line, widths)), line[4]]).rstrip() for line in lines)
