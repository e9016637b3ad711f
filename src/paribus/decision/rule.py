"""A decision rule: rows in their order, and the table of every state that they give.

A rule decides on a finite number of states of the evidence. All of them are tried before anything
runs, so that a rule which leaves one open, or has a row that no state reaches, is refused; and the
table that this gives is what a study with an own rule registers, so that reading its results runs
no code.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paribus.decision.evidence import Evidence
from paribus.decision.row import (
    UNJUDGED,
    Row,
    State,
    require_braces,
    require_line,
    state_of,
    states,
)
from paribus.errors import ParibusError, nearest
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Decision

SYMBOLS = string.digits + string.ascii_lowercase  # of rows, in a registered table
# What `Rule.adopts` may name, in braces.
REGISTERED = frozenset({"calibration", "throughput", "benefit", "least"})
# What a rule may weigh of `[decision]`: all but its own name.
KEYS = tuple(key for key in Decision.model_fields if key != "rule")

# Before any rule: what no rule judges.
CANNOT, TOO_FEW = (
    Row(
        "0",
        "INVALID",
        when="a run is missing, a control did not hold, or the registration was changed",
        reason="a run is missing, or a control did not hold",
        why="{arm} cannot be judged, as {invalid}",
        advice="Mend what is missing or broken before anything is concluded.",
        claims=False,
    ),
    Row(
        "1",
        "DESCRIPTIVE ONLY",
        when=f"fewer than {DESCRIPTIVE_BELOW} seed pairs",
        reason=f"fewer than {DESCRIPTIVE_BELOW} seed pairs",
        why="{arm} has {pairs}, and fewer than five are described, not tested; {effect}",
        advice="Take this as a pilot: plan the number of seeds from its spread, and register "
        "again.",
        claims=False,
    ),
)


@dataclass(frozen=True, eq=False)
class Rule:
    """When a change is adopted: a total function of the evidence, first match wins.

    Attributes:
        name: how a study calls it.
        title: how readers do.
        adopts: when an arm is adopted, a sentence of the paper's method. In braces: {calibration},
            {throughput}, {benefit} and {least} are what the study registers of them.
        rows: what is tried in their order, after the two that every rule has (a study that cannot
            be judged, and fewer than five pairs).
        keys: keys of `[decision]` that it weighs.
        registered: the table as a registration holds it; None is to be found from the conditions.
    """

    name: str
    title: str
    adopts: str
    rows: tuple[Row, ...]
    keys: tuple[str, ...] = ()
    registered: str | None = field(default=None, repr=False)

    @property
    def all_rows(self) -> dict[str, Row]:
        """Every row by its id, those of every rule first."""
        return {row.id: row for row in (CANNOT, TOO_FEW, *self.rows)}

    @cached_property
    def table(self) -> dict[State, Row]:
        """The row of every state. Raises ValueError for a rule that is not whole."""
        if self.registered is None:
            return self._tried(states())
        every, symbols = tuple(states()), SYMBOLS[: len(self.rows)]
        if len(self.registered) != len(every) or not set(self.registered) <= set(symbols):
            raise ValueError("its table does not name a row for every state")
        return {
            state: self.rows[symbols.index(symbol)]
            for state, symbol in zip(every, self.registered, strict=True)
        }

    def _tried(self, order: Iterable[State]) -> dict[State, Row]:
        """The row of each state by the conditions, asked in this order."""
        found = {}
        for state in order:
            row = next((row for row in self.rows if row.met(state)), None)
            if row is None:
                raise ValueError(f"no row holds where {state}: end with a row that always does")
            found[state] = row
        return found

    def decide(self, evidence: Evidence) -> Row:
        """The row that fires."""
        if evidence.invalid:
            return CANNOT
        if evidence.n < DESCRIPTIVE_BELOW:
            return TOO_FEW
        return self.table[state_of(evidence)]

    def require_whole(self) -> None:
        """Raise ValueError where this is no rule: its words, rows, keys or conditions.

        A row is there twice or never fires, a state has none, or a condition has no lasting answer:
        each is asked twice of every state, the second time in the opposite order.
        """
        self._require_parts()
        ids = [row.id for row in self.rows]
        reserved = [row for row in (CANNOT.id, TOO_FEW.id) if row in ids]
        if reserved:
            raise ValueError(f"row '{reserved[0]}' is one that every rule has; call it otherwise")
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice:
            raise ValueError(f"row '{twice}' is there twice; give each its own id")
        if not 0 < len(ids) <= len(SYMBOLS):
            raise ValueError(f"it has {len(ids)} rows; 1 to {len(SYMBOLS)} are a table")
        unjudged = next((row.id for row in self.rows if row.outcome in UNJUDGED), None)
        if unjudged:
            raise ValueError(f"row '{unjudged}' judges, and may not be {' or '.join(UNJUDGED)}")
        table = self.table
        if self.registered is None:
            again = self._tried(reversed(tuple(states())))
            other = next((state for state, row in table.items() if again[state] is not row), None)
            if other:
                raise ValueError(
                    f"row '{table[other].id}' decides where {other}, and row "
                    f"'{again[other].id}' when asked again: conditions depend on the state alone"
                )
        fired = {row.id for row in table.values()}
        dead = next((row for row in self.rows if row.id not in fired), None)
        if dead:
            raise ValueError(f"row '{dead.id}' never fires: rows before it hold wherever it does")

    def _require_parts(self) -> None:
        """Raise ValueError for words, rows or keys of another kind."""
        for name in ("name", "title", "adopts"):
            require_line(getattr(self, name), name)
        require_braces(self.adopts, REGISTERED, "adopts")
        if not _several(self.rows, Row):
            raise ValueError("rows is a tuple of Row")
        if not _several(self.keys, str):
            raise ValueError(f"keys {self.keys!r:.80} is no tuple of names, such as ('benefit',)")
        unknown = next((key for key in self.keys if key not in KEYS), None)
        if unknown is not None:
            raise ValueError(f"key {unknown!r:.80} is none of [decision]: {nearest(unknown, KEYS)}")

    @property
    def record(self) -> dict[str, Any]:
        """The whole rule as data, from which `rule_from_record` makes it again."""
        places = {row.id: SYMBOLS[place] for place, row in enumerate(self.rows)}
        return {
            "name": self.name,
            "title": self.title,
            "adopts": self.adopts,
            "keys": list(self.keys),
            "rows": [row.record for row in self.rows],
            "table": "".join(places[row.id] for row in self.table.values()),
        }


def _several(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def rule_from_record(record: Mapping[str, Any], where: str) -> Rule:
    """`Rule.record` read back. Raises ParibusError where it is something else."""
    try:
        name, title, adopts, table = (record[k] for k in ("name", "title", "adopts", "table"))
        if not isinstance(table, str) or not isinstance(record["keys"], list):
            raise ValueError("its table is a text, its keys are a list")
        rows = tuple(Row(**row) for row in record["rows"])
        rule = Rule(name, title, adopts, rows, tuple(record["keys"]), registered=table)
        rule.require_whole()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParibusError(f"{where}: this is no decision rule: {error}; restore it") from None
    return rule
