"""The word of a verdict: its truth table is total, every line of it fires, and none claims more."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from paribus.decision import TRUTH, WORDS, Evidence, State, Word, exit_code, word_of
from paribus.decision.evidence import states

STATES = tuple(states())
CASES = [(invalid, n) for invalid in ("", "a trial is missing") for n in (0, 4, 5, 100)]
PLAIN = State(
    quality="Q?",
    not_worse=False,
    baseline_stable=True,
    fix="unshown",
    collapse=False,
    budget="within",
    benefit="not shown",
    divergence="equal",
    elsewhere="not worse",
)
JUDGED = ("BETTER", "WORSE", "SAME", "UNRESOLVED")


@pytest.mark.parametrize(("invalid", "n"), CASES)
def test_every_state_has_a_word(invalid: str, n: int) -> None:
    words = {word_of(Evidence(invalid, n, state)) for state in STATES}
    expected = {"INVALID"} if invalid else {"DESCRIPTIVE"} if n < 5 else set(JUDGED)
    assert words == expected


def test_every_line_fires() -> None:
    fired: Counter[int] = Counter()
    for invalid, n in CASES:
        for state in STATES:
            evidence = Evidence(invalid, n, state)
            place = next(i for i, line in enumerate(TRUTH) if line.holds(evidence))
            assert TRUTH[place].word == word_of(evidence)
            fired[place] += 1
    assert set(fired) == set(range(len(TRUTH)))
    assert {line.word for line in TRUTH} == set(WORDS)
    assert len({line.when for line in TRUTH}) == len(TRUTH)


def test_a_word_never_claims_more_than_its_evidence() -> None:
    for state in STATES:
        word = word_of(Evidence("", 5, state))
        harmed = state.fix == "harm" or state.collapse
        if word in ("BETTER", "SAME"):
            assert state.quality == {"BETTER": "Q+", "SAME": "Q0"}[word]
            assert state.divergence != "more" and not harmed, state
        # An arm is worse where that is shown, and nowhere else.
        assert (word == "WORSE") == (harmed or state.quality == "Q-"), state


def test_a_word_is_of_quality_and_stability_alone() -> None:
    """Budgets, benefits, other endpoints and the margin for a loss are what rules weigh."""
    read = ("quality", "fix", "collapse", "divergence")
    words: dict[tuple[Any, ...], Word] = {}
    for state in STATES:
        key = tuple(getattr(state, name) for name in read)
        word = word_of(Evidence("", 5, state))
        assert words.setdefault(key, word) == word, state


@pytest.mark.parametrize(
    ("changes", "n", "invalid", "word"),
    [
        ({}, 5, "", "UNRESOLVED"),
        ({"quality": "Q+"}, 5, "", "BETTER"),
        ({"quality": "Q-"}, 5, "", "WORSE"),
        ({"quality": "Q0"}, 5, "", "SAME"),
        ({"quality": "Q+"}, 4, "", "DESCRIPTIVE"),
        ({"quality": "Q+"}, 5, "a trial is missing: arm, seed 3", "INVALID"),
        ({"quality": "Q-"}, 1, "the registration was changed", "INVALID"),
        ({"quality": "Q+", "divergence": "more"}, 5, "", "UNRESOLVED"),
        ({"quality": "Q0", "divergence": "more"}, 5, "", "UNRESOLVED"),
        ({"quality": "Q-", "divergence": "more"}, 5, "", "WORSE"),
        ({"quality": "Q+", "divergence": "fewer"}, 5, "", "BETTER"),
        ({"quality": "Q+", "fix": "harm", "divergence": "more"}, 9, "", "WORSE"),
        ({"collapse": True, "divergence": "more"}, 5, "", "WORSE"),
        # Three seeds of three describe a collapse.
        ({"collapse": True, "divergence": "more"}, 3, "", "DESCRIPTIVE"),
        # A cure is no better quality.
        ({"fix": "fix", "divergence": "fewer"}, 9, "", "UNRESOLVED"),
        # Too dear is still better: what it costs stands beside the word.
        ({"quality": "Q+", "budget": "over", "elsewhere": "worse"}, 5, "", "BETTER"),
    ],
)
def test_words_by_hand(changes: dict[str, Any], n: int, invalid: str, word: str) -> None:
    assert word_of(Evidence(invalid, n, PLAIN._replace(**changes))) == word


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["BETTER"], 0),
        (["BETTER", "BETTER"], 0),
        (["SAME"], 12),
        (["DESCRIPTIVE"], 14),
        (["UNRESOLVED"], 13),
        (["WORSE"], 11),
        (["INVALID"], 3),
        (["BETTER", "SAME"], 12),
        (["SAME", "BETTER"], 12),
        (["SAME", "UNRESOLVED", "BETTER"], 13),
        (["DESCRIPTIVE", "SAME"], 14),
        (["UNRESOLVED", "WORSE", "SAME"], 11),
        (["WORSE", "INVALID", "BETTER"], 3),
    ],
)
def test_the_exit_code_of_several_words_is_that_of_the_one_to_look_at_first(
    words: list[Word], code: int
) -> None:
    assert exit_code(words) == code


def test_exit_codes_are_apart_and_those_of_errors_are_not_among_them() -> None:
    codes = [says.exit_code for says in WORDS.values()]
    assert len(set(codes)) == len(codes)
    assert not {1, 2} & set(codes)  # of an error, and of a wrong command line
    assert len(STATES) == math.prod((4, 2, 2, 3, 2, 3, 3, 3, 3)) == len(set(STATES))
