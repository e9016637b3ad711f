"""The rules as functions: total, every row reached, monotone where they must be, by hand."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from paribus.decision import UNJUDGED, Evidence, State, find_rule, shipped_rule
from paribus.decision.evidence import PARTS
from paribus.decision.rule import rule_from_record
from paribus.errors import ParibusError

NAMES = ("superiority", "non_inferiority", "equivalence")
PLAIN = {
    "invalid": "",
    "n": 5,
    "quality": "Q?",
    "not_worse": False,
    "baseline_stable": True,
    "fix": "unshown",
    "collapse": False,
    "budget": "within",
    "benefit": "not shown",
    "divergence": "equal",
    "elsewhere": "not worse",
}
# By rule, row by row: (evidence, row).
NO_WORSE = {"not_worse": True}
TABLES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "superiority": [
        ({"invalid": "a run is missing"}, "0"),
        ({"n": 4}, "1"),
        ({"fix": "harm"}, "2"),
        ({"fix": "harm", "quality": "Q+"}, "2a"),
        ({"fix": "harm", "divergence": "fewer"}, "2a"),
        ({"collapse": True}, "2b"),
        ({"quality": "Q-"}, "3"),
        ({"quality": "Q+", "budget": "over"}, "4"),
        ({"quality": "Q0", "budget": "not shown"}, "5"),
        ({"quality": "Q+"}, "6"),
        ({"quality": "Q+", "budget": "not shown"}, "7"),
        ({"fix": "fix"}, "4c"),
        ({"fix": "fix", "quality": "Q-"}, "4b"),
        ({"fix": "fix", "quality": "Q+", "divergence": "more"}, "4b"),
        ({"fix": "fix", "budget": "not shown"}, "4d"),
        ({"quality": "Q+", "elsewhere": "worse"}, "3b"),
        ({}, "8"),
    ],
    "non_inferiority": [
        ({"fix": "harm"}, "2"),
        ({"fix": "harm", "quality": "Q+"}, "2a"),
        ({"collapse": True}, "2b"),
        ({"quality": "Q-"}, "3"),
        (NO_WORSE | {"benefit": "shown", "budget": "over"}, "4"),
        (NO_WORSE | {"benefit": "absent"}, "5"),
        (NO_WORSE | {"benefit": "shown"}, "6"),
        (NO_WORSE | {"benefit": "shown", "budget": "not shown"}, "7"),
        (NO_WORSE | {"benefit": "shown", "elsewhere": "worse"}, "3b"),
        (NO_WORSE | {"benefit": "shown", "elsewhere": "within margin"}, "6"),
        (NO_WORSE, "8"),
        ({"benefit": "shown"}, "9"),
    ],
    "equivalence": [
        ({"fix": "harm"}, "2"),
        ({"fix": "fix", "quality": "Q0"}, "2"),
        ({"collapse": True}, "2b"),
        ({"quality": "Q0"}, "3"),
        ({"quality": "Q-"}, "4"),
        ({"quality": "Q+"}, "5"),
        ({}, "6"),
    ],
}


def evidence(invalid: str, n: int, **state: Any) -> Evidence:
    return Evidence(invalid, n, State(**state))


def every_state() -> Iterator[Evidence]:
    """Yield evidence of five pairs in each state."""
    for values in itertools.product(*PARTS.values()):
        yield Evidence("", 5, State(*values))


BY_HAND = [(rule, *case) for rule, cases in TABLES.items() for case in cases]


@pytest.mark.parametrize(("rule", "changes", "row"), BY_HAND)
def test_the_tables_by_hand(rule, changes, row):
    assert shipped_rule(rule).decide(evidence(**(PLAIN | changes))).id == row


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_rule(name):
    rule = shipped_rule(name)
    again = rule_from_record(json.loads(json.dumps(rule.record)), "here")
    assert again.record == rule.record
    for state in every_state():
        assert again.decide(state).id == rule.decide(state).id


# What is better: each state of a part of the evidence, from the worst on.
BETTER: dict[str, tuple[Any, ...]] = {
    "quality": ("Q-", "Q?", "Q+"),
    "not_worse": (False, True),
    "fix": ("harm", "unshown", "fix"),
    "collapse": (True, False),
    "budget": ("over", "not shown", "within"),
    "benefit": ("absent", "not shown", "shown"),
    "divergence": ("more", "equal", "fewer"),
    "elsewhere": ("worse", "within margin", "not worse"),
}
RANK = {"REJECT": 0, "DIFFERENT": 0, "NO EFFECT": 1, "INCONCLUSIVE": 1, "ADOPT": 2}


def improved(state: State) -> Iterator[State]:
    """Yield the state with one part better by one step."""
    for part, values in BETTER.items():
        value = getattr(state, part)
        if value in values[:-1]:
            better = state._replace(**{part: values[values.index(value) + 1]})
            # A gain beyond the margin is not a loss beyond it; and where the arm is shown to cure,
            # and diverges in more runs, nothing is adopted.
            if (better.quality, better.not_worse) != ("Q+", False) and (
                (better.fix, better.divergence) != ("fix", "more")
            ):
                yield better


@pytest.mark.parametrize("name", ["superiority", "non_inferiority"])
def test_better_evidence_never_gets_a_worse_verdict(name):
    ranks = {e.state: RANK[shipped_rule(name).decide(e).outcome] for e in every_state()}
    for state, rank in ranks.items():
        assert all(rank <= ranks[better] for better in improved(state)), state


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_never_claims_more_than_its_evidence(name):
    for evidence_ in every_state():
        row, e = shipped_rule(name).decide(evidence_), evidence_.state
        assert row.outcome not in UNJUDGED
        if row.outcome == "ADOPT":
            assert (e.fix != "harm", e.budget, e.collapse) == (True, "within", False)
            assert e.elsewhere != "worse"
            wanted = {
                "superiority": (e.quality == "Q+" and e.fix == "unshown")
                or (e.fix == "fix" and e.quality != "Q-" and e.divergence != "more"),
                "non_inferiority": e.not_worse and e.benefit == "shown",
            }
            assert wanted[name], e
        if row.outcome in ("NO EFFECT", "EQUIVALENT"):
            assert e.quality == "Q0"
        disagrees = e.quality == "Q+" or e.divergence == "fewer"
        if e.fix == "harm" and not (disagrees and row.id == "2a"):
            assert row.outcome in ("REJECT", "DIFFERENT")
        if e.collapse:  # not a result by itself
            assert row.outcome in ("REJECT", "DIFFERENT", "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"decision.rule": "superority"}, "'superiority'"),
        ({"decision.rule": "non_inferiority"}, "benefit"),
        ({"decision.benefit": "brier_score"}, "= 'brier_score'"),
        (
            {"decision.rule": "equivalence", "decision.calibration_budget": 0.5},
            "decision.calibration_budget =",
        ),
    ],
)
def test_keys_that_the_rule_does_not_weigh_are_refused(small_study, overrides, why):
    with pytest.raises(ParibusError) as error:
        find_rule(small_study(overrides))
    assert why in str(error.value)
