"""Rules and words as functions of the evidence: total, by hand, monotone, never claiming more."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from paribus.decision import (
    TRUTH,
    UNJUDGED,
    WORDS,
    Evidence,
    State,
    exit_code,
    find_rule,
    shipped_rule,
    word_of,
)
from paribus.decision.evidence import PARTS
from paribus.decision.rule import holds_where, rule_from_record
from paribus.decision.word import JUDGED
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


STATES = [State(*values) for values in itertools.product(*PARTS.values())]

BY_HAND = [(rule, *case) for rule, cases in TABLES.items() for case in cases]


@pytest.mark.parametrize(("rule", "changes", "row"), BY_HAND)
def test_the_tables_by_hand(rule, changes, row):
    assert shipped_rule(rule).decide(evidence(**(PLAIN | changes))).id == row


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_rule(name):
    rule = shipped_rule(name)
    again = rule_from_record(json.loads(json.dumps(rule.record)), "here")
    assert again.record == rule.record
    assert all(again.decide(Evidence("", 5, s)) == rule.decide(Evidence("", 5, s)) for s in STATES)


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
    rule = shipped_rule(name)
    ranks = {state: RANK[rule.decide(Evidence("", 5, state)).outcome] for state in STATES}
    for state, rank in ranks.items():
        assert all(rank <= ranks[better] for better in improved(state)), state


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_never_claims_more_than_its_evidence(name):
    for e in STATES:
        row = shipped_rule(name).decide(Evidence("", 5, e))
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


def test_every_line_fires():
    fired = {
        next(i for i, line in enumerate(JUDGED) if holds_where(line.holds, state._asdict()))
        for state in STATES
    }
    assert fired == set(range(len(JUDGED))) and {line.word for line in TRUTH} == set(WORDS)


def test_a_word_never_claims_more_than_its_evidence():
    for state in STATES:
        word = word_of(Evidence("", 5, state))
        harmed, cured = state.fix == "harm", state.fix == "fix"
        if word == "SAME":
            assert state.quality == "Q0" and not harmed and not cured, state
        better = state.quality != "Q-" if cured else state.quality == "Q+" and not harmed
        worse = state.quality != "Q+" if harmed else state.quality == "Q-" and not cured
        better &= not cured or state.divergence != "more"
        worse &= not harmed or state.divergence != "fewer"
        assert (word == "BETTER", word == "WORSE") == (better, worse), state


def test_words_are_mirrored_when_the_arms_are_swapped():
    opposites = [("BETTER", "WORSE"), ("Q+", "Q-"), ("fix", "harm"), ("more", "fewer")]
    mirrored = dict(opposites) | {second: first for first, second in opposites}
    for state in STATES:
        parts = {part: getattr(state, part) for part in ("quality", "fix", "divergence")}
        swapped = state._replace(**{k: mirrored.get(v, v) for k, v in parts.items()})
        word, other = (word_of(Evidence("", 5, either)) for either in (state, swapped))
        assert other == mirrored.get(word, word), state


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "UNRESOLVED"),
        ({"quality": "Q+"}, "BETTER"),
        ({"quality": "Q-"}, "WORSE"),
        ({"quality": "Q0"}, "SAME"),
        ({"quality": "Q+", "invalid": "missing"}, "INVALID"),
        # Quality holds with diverged runs counted: a difference of counts alone forbids nothing.
        ({"quality": "Q+", "divergence": "more"}, "BETTER"),
        # Rates of events differ, and the runs that survive say the opposite.
        ({"quality": "Q+", "fix": "harm", "divergence": "more", "n": 9}, "UNRESOLVED"),
        ({"quality": "Q-", "fix": "fix", "divergence": "fewer", "n": 9}, "UNRESOLVED"),
        # Five pairs of five cannot show a collapse: exact p is 0.062.
        ({"collapse": True, "divergence": "more"}, "UNRESOLVED"),
        ({"collapse": True, "fix": "harm", "divergence": "more", "n": 6}, "WORSE"),
        # Fewer spikes do not outvote more divergence.
        ({"fix": "fix", "divergence": "more", "n": 9}, "UNRESOLVED"),
        ({"collapse": True, "divergence": "more", "n": 3}, "DESCRIPTIVE"),
        # Too dear is still better: what it costs stands beside the word.
        ({"quality": "Q+", "budget": "over", "elsewhere": "worse"}, "BETTER"),
    ],
)
def test_words_by_hand(changes, word):
    assert word_of(evidence(**(PLAIN | changes))) == word


def test_the_exit_code_of_several_words_is_the_worst():
    order = ["BETTER", "SAME", "DESCRIPTIVE", "UNRESOLVED", "WORSE", "INVALID"]
    codes = [exit_code(reversed(order[:n])) for n in range(len(order) + 1)]
    assert codes == [0, 0, 12, 14, 13, 11, 3]
