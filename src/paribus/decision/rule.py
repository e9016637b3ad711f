"""Decision rules: ordered tables of conditions and outcomes, in which the first match applies.

Conditions are data, namely allowed values for the fields of a `State`. A custom rule can therefore
be stored in the registration, and reading results runs no custom code.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from paribus.decision.evidence import PARTS, Evidence, State, Value
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.metric import Line, Words
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Decision

# What more seeds would have to show: an effect or its absence, that an arm is not worse, a cure of
# instability or that it is caused, that a cost is within its budget, or the benefit.
Open = Literal["", "quality", "not worse", "cure", "harm", "cost", "benefit"]
Outcome = Literal[
    "ADOPT", "IMPROVES", "EQUIVALENT", "BASELINE", "NO EFFECT", "DIFFERENT", "REJECT",
    "INCONCLUSIVE", "DESCRIPTIVE ONLY", "INVALID",
]  # fmt: skip
OUTCOMES: tuple[str, ...] = get_args(Outcome)
UNJUDGED = ("INVALID", "DESCRIPTIVE ONLY")  # outcomes without a judgement
SYMBOLS = string.digits + string.ascii_lowercase  # of rows, in a table of all states
# What a rule may weigh of `[decision]`: all but its own name, and what is accepted of a design.
KEYS = tuple(key for key in Decision.model_fields if key not in ("rule", "unreachable"))
Condition = Mapping[str, tuple[Value, ...]]


def holds_where(conditions: tuple[Condition, ...], state: Mapping[str, Value]) -> bool:
    """Return whether a state satisfies at least one of the conditions."""
    return any(
        all(state[part] in allowed for part, allowed in condition.items())
        for condition in conditions
    )


def _as_lists(holds: Any) -> Any:
    """Normalize a condition or list of conditions to a list of {field: list of values}."""
    tables = [holds] if isinstance(holds, Mapping) else holds
    return [
        {part: value if isinstance(value, list | tuple) else [value] for part, value in t.items()}
        for t in tables
    ]


def _known_key(key: str) -> str:
    if key not in KEYS:
        raise ValueError(f"[decision] has no key '{key}'; {nearest(key, KEYS)}")
    return key


if TYPE_CHECKING:
    Conditions = Any  # a table, or a list of tables
else:
    _Parts = {part: tuple[values, ...] for part, values in get_type_hints(State).items()}
    _Table = TypedDict("Condition", _Parts, total=False)
    _Table.__pydantic_config__ = ConfigDict(extra="forbid")
    Conditions = Annotated[tuple[_Table, ...], BeforeValidator(_as_lists)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Row:
    """A row of a decision table.

    Attributes:
        id: identifier of the row in records and reports.
        outcome: one of OUTCOMES.
        when: description of the condition, given that no earlier row applies.
        holds: condition: allowed values for fields of `State`, such as {"quality": ["Q+"]}, or a
            list of alternative conditions. By default the row always applies.
        reason: reason reported with the verdict; by default `when`.
        open: for an inconclusive row, the question that more seeds would have to answer.
    """

    id: Annotated[str, Field(pattern="^[0-9A-Za-z-]{1,8}$")]
    outcome: Outcome
    when: Words
    reason: Line = ""
    holds: Conditions = ({},)
    open: Open = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.open and self.outcome != "INCONCLUSIVE":
            raise ValueError(
                f"row '{self.id}' has 'open', but its outcome is not INCONCLUSIVE; remove 'open'"
            )
        return self


# Before any rule: what no rule judges.
CANNOT = Row(
    "0", "INVALID", "a run is missing, a control did not hold, or the registration was changed"
)
TOO_FEW = Row(
    "1", "DESCRIPTIVE ONLY", f"fewer than {DESCRIPTIVE_BELOW} seed pairs, or runs of an arm"
)


@dataclass(frozen=True, eq=False, config=ConfigDict(extra="ignore"))
class Rule:
    """A decision rule that maps evidence to the first row of a table that applies.

    Attributes:
        name: name of the rule in study files.
        title: display name of the rule.
        rows: rows in order of precedence. Two built-in rows come first, for invalid studies and
            for fewer than five pairs. The last row must always apply.
        keys: keys of `[decision]` that the rule uses.
        table: row index for every state in the order of PARTS, one symbol each. Only rules from old
            registrations have a table; their rows have no conditions.
    """

    name: Words
    title: Words
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=len(SYMBOLS))]
    keys: tuple[Annotated[str, AfterValidator(_known_key)], ...] = ()
    table: str = field(default="", repr=False)

    @property
    def all_rows(self) -> dict[str, Row]:
        """All rows, keyed by ID, beginning with the two built-in rows."""
        return {row.id: row for row in (CANNOT, TOO_FEW, *self.rows)}

    def decide(self, evidence: Evidence) -> Row:
        """Return the first row that applies to the evidence."""
        if evidence.invalid:
            return CANNOT
        if evidence.n < DESCRIPTIVE_BELOW:
            return TOO_FEW
        if not self.table:
            return self._first(evidence.state._asdict())
        place = 0
        for value, values in zip(evidence.state, PARTS.values(), strict=True):
            place = place * len(values) + values.index(value)
        return self.rows[SYMBOLS.index(self.table[place])]

    def _first(self, state: Mapping[str, Value]) -> Row:
        return next(row for row in self.rows if holds_where(row.holds, state))

    def reachable(self, known: Mapping[str, Value]) -> set[str]:
        """Return the IDs of the rows that apply to at least one state with the `known` values."""
        parts = {part for row in self.rows for condition in row.holds for part in condition}
        options = [[known[part]] if part in known else PARTS[part] for part in parts]
        states = (dict(zip(parts, values, strict=True)) for values in itertools.product(*options))
        return {self._first(state).id for state in states}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        ids = [row.id for row in self.rows]
        if len(self.all_rows) < len(ids) + 2:
            raise ValueError("row IDs are not unique; rename a row (IDs 0 and 1 are reserved)")
        if row := next((row for row in self.rows if row.outcome in UNJUDGED), None):
            raise ValueError(
                f"row '{row.id}' has the reserved outcome {row.outcome}; choose another outcome"
            )
        if self.table:
            n_states = len(list(itertools.product(*PARTS.values())))
            if len(self.table) != n_states or set(self.table) - set(SYMBOLS[: len(ids)]):
                raise ValueError(f"the table must have {n_states} symbols, one for each state")
            return self
        if {} not in self.rows[-1].holds:
            raise ValueError("the last row has a condition; add a last row without 'holds'")
        if dead := set(ids) - self.reachable({}):
            raise ValueError(
                f"row '{min(dead)}' can never apply, because earlier rows cover its condition; "
                "remove the row or move it up"
            )
        return self

    @property
    def record(self) -> dict[str, Any]:
        """The rule as JSON-serializable data, which `rule_from_record` reads."""
        record: dict[str, Any] = FORM.dump_python(self, mode="json", exclude={"table"})
        return record


FORM = TypeAdapter(Rule)


def rule_from_record(record: Mapping[str, Any], where: str) -> Rule:
    """Build a rule from `Rule.record`. Raises ParibusError if the record is invalid.

    Args:
        record: the rule as data.
        where: name of the record, used in error messages.
    """
    rows = record.get("rows")
    if isinstance(rows, list):  # kept studies say of each row whether it claims an effect
        record = {**record, "rows": [{k: v for k, v in r.items() if k != "claims"} for r in rows]}
    try:
        return FORM.validate_python(dict(record))
    except ValidationError as error:
        text = f"{where} is not a valid decision rule ({explain(error)}); restore the record"
        raise ParibusError(text) from None
