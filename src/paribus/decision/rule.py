"""Decision rules: ordered rows of conditions and outcomes. The first row that holds decides.

A row's condition is data: allowed values of the parts of a `State`. So a registration can hold the
complete rule, and reading results runs no custom code.
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
    """Return whether the state meets at least one of the conditions."""
    return any(
        all(state[part] in allowed for part, allowed in condition.items())
        for condition in conditions
    )


def _as_lists(holds: Any) -> Any:
    """Normalize conditions to a list of tables whose values are lists."""
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
        id: name of the row, also in records.
        outcome: one of OUTCOMES.
        when: the condition in words, given that no earlier row holds.
        holds: the condition: allowed values of parts of the state, such as {"quality": ["Q+"]}. If
            there are several such tables, one must hold. By default the row always holds.
        reason: the reason stated with the verdict; by default `when`.
        open: for an inconclusive row, what more seeds would have to show.
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
            raise ValueError(f"row {self.id}: {self.outcome} leaves nothing open; remove 'open'")
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
    """A criterion for adopting a change: a total function of the evidence, first match wins.

    Attributes:
        name: name in a study file.
        title: name for readers.
        rows: rows in the order in which they are tried, after the two that every rule has (a study
            that cannot be judged, and fewer than five pairs). The last row always holds.
        keys: keys of `[decision]` that the rule uses.
        table: for rules whose conditions were code, one symbol per state, in the order of PARTS,
            which names the row. The rows of such rules have no conditions.
    """

    name: Words
    title: Words
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=len(SYMBOLS))]
    keys: tuple[Annotated[str, AfterValidator(_known_key)], ...] = ()
    table: str = field(default="", repr=False)

    @property
    def all_rows(self) -> dict[str, Row]:
        """All rows keyed by id, beginning with the two that every rule has."""
        return {row.id: row for row in (CANNOT, TOO_FEW, *self.rows)}

    def decide(self, evidence: Evidence) -> Row:
        """Return the first row that holds for the evidence."""
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
        """Return the ids of the rows that decide in at least one state with the `known` values."""
        parts = {part for row in self.rows for condition in row.holds for part in condition}
        options = [[known[part]] if part in known else PARTS[part] for part in parts]
        states = (dict(zip(parts, values, strict=True)) for values in itertools.product(*options))
        return {self._first(state).id for state in states}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        ids = [row.id for row in self.rows]
        if len(self.all_rows) < len(ids) + 2:
            raise ValueError("two rows have the same id; rename one (0 and 1 are built-in rows)")
        if row := next((row for row in self.rows if row.outcome in UNJUDGED), None):
            raise ValueError(
                f"row '{row.id}' has the outcome {row.outcome}, which is reserved; choose another"
            )
        if self.table:
            n_states = len(list(itertools.product(*PARTS.values())))
            if len(self.table) != n_states or set(self.table) - set(SYMBOLS[: len(ids)]):
                raise ValueError("its table must name a row for every state")
            return self
        if {} not in self.rows[-1].holds:
            raise ValueError("the last row has a condition; end with a row that always holds")
        if dead := set(ids) - self.reachable({}):
            raise ValueError(
                f"row '{min(dead)}' can never apply, because earlier rows cover its condition; "
                "remove or reorder it"
            )
        return self

    @property
    def record(self) -> dict[str, Any]:
        """The whole rule as data, which `rule_from_record` reads back."""
        record: dict[str, Any] = FORM.dump_python(self, mode="json", exclude={"table"})
        return record


FORM = TypeAdapter(Rule)


def rule_from_record(record: Mapping[str, Any], where: str) -> Rule:
    """Read a rule back from `Rule.record`. Raises ParibusError for any other content.

    Args:
        where: name of the record in error messages.
    """
    rows = record.get("rows")
    if isinstance(rows, list):  # kept studies say of each row whether it claims an effect
        record = {**record, "rows": [{k: v for k, v in r.items() if k != "claims"} for r in rows]}
    try:
        return FORM.validate_python(dict(record))
    except ValidationError as error:
        text = f"{where} holds no valid decision rule: {explain(error)}; restore it"
        raise ParibusError(text) from None
