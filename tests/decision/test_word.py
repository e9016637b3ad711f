"""The word of a verdict: its truth table is total, every line of it fires, and none claims more."""

import itertools

import pytest

from paribus.decision import TRUTH, WORDS, Evidence, State, exit_code, word_of
from paribus.decision.evidence import PARTS
from paribus.decision.rule import holds_where
from paribus.decision.word import JUDGED

STATES = [State(*values) for values in itertools.product(*PARTS.values())]
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


def test_every_line_fires():
    fired = {
        next(i for i, line in enumerate(JUDGED) if holds_where(line.holds, state._asdict()))
        for state in STATES
    }
    assert fired == set(range(len(JUDGED)))
    assert {line.word for line in TRUTH} == set(WORDS)
    assert len({line.when for line in TRUTH}) == len(TRUTH)


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
    mirrored = {"BETTER": "WORSE", "WORSE": "BETTER"}
    quality = {"Q+": "Q-", "Q-": "Q+"}
    fix = {"fix": "harm", "harm": "fix"}
    divergence = {"more": "fewer", "fewer": "more"}
    for state in STATES:
        swapped = state._replace(
            quality=quality.get(state.quality, state.quality),
            fix=fix.get(state.fix, state.fix),
            divergence=divergence.get(state.divergence, state.divergence),
        )
        word, other = (word_of(Evidence("", 5, either)) for either in (state, swapped))
        assert other == mirrored.get(word, word), state


@pytest.mark.parametrize(
    ("changes", "n", "invalid", "word"),
    [
        ({}, 5, "", "UNRESOLVED"),
        ({"quality": "Q+"}, 5, "", "BETTER"),
        ({"quality": "Q-"}, 5, "", "WORSE"),
        ({"quality": "Q0"}, 5, "", "SAME"),
        ({"quality": "Q+"}, 5, "missing", "INVALID"),
        # Quality holds with diverged runs counted: a difference of counts alone forbids nothing.
        ({"quality": "Q+", "divergence": "more"}, 5, "", "BETTER"),
        # Rates of events differ, and the runs that survive say the opposite.
        ({"quality": "Q+", "fix": "harm", "divergence": "more"}, 9, "", "UNRESOLVED"),
        ({"quality": "Q-", "fix": "fix", "divergence": "fewer"}, 9, "", "UNRESOLVED"),
        # Five pairs of five cannot show a collapse: exact p is 0.062.
        ({"collapse": True, "divergence": "more"}, 5, "", "UNRESOLVED"),
        ({"collapse": True, "fix": "harm", "divergence": "more"}, 6, "", "WORSE"),
        # Fewer spikes do not outvote more divergence.
        ({"fix": "fix", "divergence": "more"}, 9, "", "UNRESOLVED"),
        ({"collapse": True, "divergence": "more"}, 3, "", "DESCRIPTIVE"),
        # Too dear is still better: what it costs stands beside the word.
        ({"quality": "Q+", "budget": "over", "elsewhere": "worse"}, 5, "", "BETTER"),
    ],
)
def test_words_by_hand(changes, n, invalid, word):
    assert word_of(Evidence(invalid, n, PLAIN._replace(**changes))) == word


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["BETTER"], 0),
        (["SAME", "BETTER"], 12),
        (["SAME", "UNRESOLVED", "BETTER"], 13),
        (["DESCRIPTIVE", "SAME"], 14),
        (["UNRESOLVED", "WORSE", "SAME"], 11),
        (["WORSE", "INVALID", "BETTER"], 3),
    ],
)
def test_the_exit_code_of_several_words_is_the_worst(words, code):
    assert exit_code(words) == code
