"""A decision rule: rows in their order, and the table of every state that they give.

A rule decides on a finite number of states of the evidence. All of them are tried before anything
runs, so that a rule which leaves one open, or has a row that no state reaches, is refused; and the
table that this gives is what a study with an own rule registers, so that reading its results runs
no code.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from paribus.decision.evidence import Evidence, State, states
from paribus.errors import ParibusError, nearest
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Decision

# What more seeds would have to show: an effect or its absence, that an arm is not worse, a cure of
# instability or that it is caused, that a cost is within its budget, or the benefit.
Open = Literal["", "quality", "not worse", "cure", "harm", "cost", "benefit"]

MOST_TEXT = 1_000  # characters of a row's words
ID = re.compile(r"[0-9A-Za-z-]{1,8}")
SYMBOLS = string.digits + string.ascii_lowercase  # of rows, in a registered table
# What `Rule.adopts` may name, in braces.
REGISTERED = frozenset({"budgets", "calibration", "throughput", "benefit", "least"})
# What a rule may weigh of `[decision]`: all but its own name, and what is accepted of a design.
KEYS = tuple(key for key in Decision.model_fields if key not in ("rule", "unreachable"))


class Outcome(NamedTuple):
    """What a rule says to do.

    Attributes:
        action: in a sentence; {arm} and {base} are names.
        several: of some contrasts among others: "2 keep the baseline".
    """

    action: str
    several: str


OUTCOMES = {
    "ADOPT": Outcome("adopt {arm}", "adopt the arm"),
    "IMPROVES": Outcome("the registered rule keeps {base}", "improve on what is kept"),
    "EQUIVALENT": Outcome("{arm} and {base} are equivalent", "are equivalent"),
    "BASELINE": Outcome("keep {base}", "keep the baseline"),
    "NO EFFECT": Outcome("keep {base}", "show no effect"),
    "DIFFERENT": Outcome("{arm} and {base} differ", "differ"),
    "REJECT": Outcome("keep {base}", "reject the arm"),
    "INCONCLUSIVE": Outcome("nothing is decided", "are undecided"),
    "DESCRIPTIVE ONLY": Outcome("nothing is decided", "are described only"),
    "INVALID": Outcome("nothing is decided", "cannot be judged"),
}
UNJUDGED = ("INVALID", "DESCRIPTIVE ONLY")  # outcomes without a judgement
CLAIMING = ("ADOPT", "IMPROVES", "DIFFERENT")  # outcomes that say that the arm has an effect


def _require_line(text: object, where: str) -> None:
    """Raise ValueError where `text` is not one printable line that is not too long."""
    if not isinstance(text, str) or not 0 < len(text) <= MOST_TEXT or not text.isprintable():
        raise ValueError(f"{where} is a line of 1 to {MOST_TEXT} characters")


def _require_braces(text: str, names: Collection[str], where: str) -> None:
    """Raise ValueError where `text`, which is filled in, names something else or formats it."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in names or spec or conversion):
            raise ValueError(f"{where} names {{{name}}}: {nearest(name, names)}")


def _never(state: State) -> bool:
    """Stand for the condition of a row that is read from a registered table."""
    return False


@dataclass(frozen=True)
class Row:
    """A row of a decision table.

    Attributes:
        id: what it is called, in records too.
        outcome: one of OUTCOMES.
        when: its condition in words, where no row before it has matched.
        holds: its condition.
        reason: why, in the verdict's sentence; left out, what `when` says.
        open: of an inconclusive one, what is missing.
        claims: that it claims an effect of the arm, which a study of nothing counts.
    """

    id: str
    outcome: str
    when: str
    reason: str = ""
    holds: Callable[[State], bool] = field(default=_never, compare=False, repr=False)
    open: Open = ""
    claims: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not ID.fullmatch(self.id):
            raise ValueError(f"row {self.id!r:.20}: an id is a few letters and digits")
        where = f"row {self.id}"
        for name in ("when", "reason"):
            text = getattr(self, name)
            if name == "when" or text != "":
                _require_line(text, f"{where}: {name}")
        if self.outcome not in OUTCOMES:
            raise ValueError(f"{where}: outcome {self.outcome!r:.40}: known: {', '.join(OUTCOMES)}")
        if self.open not in get_args(Open):
            raise ValueError(f"{where}: open {self.open!r:.40} is none of {get_args(Open)}")
        if not isinstance(self.claims, bool):
            raise ValueError(f"{where}: claims is true or false")
        if self.outcome in CLAIMING and not self.claims:
            raise ValueError(
                f"{where}: {self.outcome} claims an effect of the arm: claims = False is no choice "
                "here"
            )
        if self.open and self.outcome != "INCONCLUSIVE":
            raise ValueError(f"{where}: {self.outcome} has nothing open: leave open out")

    def met(self, state: State) -> bool:
        """Ask its condition. Raises ValueError where it says neither True nor False."""
        answer = self.holds(state)
        if not isinstance(answer, bool):
            raise ValueError(
                f"row {self.id}: its condition gives {answer!r:.40} where {state}; it must give "
                "True or False"
            )
        return answer

    @property
    def record(self) -> dict[str, Any]:
        """Its words, as a registration holds them."""
        return {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)
            if attribute.name != "holds"
        }


# Before any rule: what no rule judges.
CANNOT, TOO_FEW = (
    Row(
        "0",
        "INVALID",
        when="a run is missing, a control did not hold, or the registration was changed",
        claims=False,
    ),
    Row(
        "1",
        "DESCRIPTIVE ONLY",
        when=f"fewer than {DESCRIPTIVE_BELOW} seed pairs, or runs of an arm",
        claims=False,
    ),
)


@dataclass(frozen=True, eq=False)
class Rule:
    """A criterion for adopting a change: a total function of the evidence, first match wins.

    Attributes:
        name: how a study calls it.
        title: how readers do.
        adopts: when an arm is adopted, a sentence. In braces: {calibration}, {throughput},
            {benefit} and {least} are what the study registers of them, and {budgets} a clause on
            those costs that it limits.
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
        """Find the row of each state by the conditions, asked in this order."""
        table = {}
        for state in order:
            row = next((row for row in self.rows if row.met(state)), None)
            if row is None:
                raise ValueError(f"no row holds where {state}: end with a row that always does")
            table[state] = row
        return table

    def decide(self, evidence: Evidence) -> Row:
        """Return the row that fires."""
        if evidence.invalid:
            return CANNOT
        if evidence.n < DESCRIPTIVE_BELOW:
            return TOO_FEW
        return self.table[evidence.state]

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
        twice = next((row_id for row_id in ids if ids.count(row_id) > 1), None)
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
            differing = next(
                (state for state, row in table.items() if again[state] is not row), None
            )
            if differing:
                raise ValueError(
                    f"row '{table[differing].id}' decides where {differing}, and row "
                    f"'{again[differing].id}' when asked again; a condition may use the state only"
                )
        fired = {row.id for row in table.values()}
        dead = next((row for row in self.rows if row.id not in fired), None)
        if dead:
            raise ValueError(f"row '{dead.id}' never fires: rows before it hold wherever it does")

    def _require_parts(self) -> None:
        """Raise ValueError for words, rows or keys of another kind."""
        for name in ("name", "title", "adopts"):
            _require_line(getattr(self, name), name)
        _require_braces(self.adopts, REGISTERED, "adopts")
        if not _is_tuple_of(self.rows, Row):
            raise ValueError("rows is a tuple of Row")
        if not _is_tuple_of(self.keys, str):
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


def rule_from_record(record: Mapping[str, Any], where: str) -> Rule:
    """Read `Rule.record` back. Raises ParibusError where it is something else."""
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


def _is_tuple_of(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)
