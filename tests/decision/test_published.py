"""Published rules: their authors' own examples, independent recomputation, and their edges."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from paribus.decision.published import find_published, published_rules
from paribus.errors import ParibusError

# karpathy/nanochat 92d63d4, dev/LEADERBOARD.md, Run 4.
CORE = [0.25373, 0.2584, 0.25489, 0.2568, 0.25732, 0.26765, 0.25119]


def test_every_rule_is_read_and_names_its_source() -> None:
    rules = published_rules()
    assert len(rules) == 4
    assert all("commit" in rule.source for rule in rules.values())


# records/track_3_optimization/README.md: "for a single non-cherry-picked run, any val loss below
# 3.276 suffices, and for n=4 runs, any average below 3.278 suffices."
@pytest.mark.parametrize(("mean", "runs"), [(3.276, 1), (3.278, 4)])
def test_track_3(mean: float, runs: int) -> None:
    rule = find_published("modded-nanogpt-track3")
    assert rule.answer([mean] * runs).word == "supported"
    short = rule.answer([mean + 1e-6] * runs)
    assert short.word == "too few runs"
    assert short.runs_needed == runs + 1
    assert rule.answer([mean - 0.0001] * runs).p_value == pytest.approx(
        stats.norm.sf((3.28 - mean + 0.0001) * math.sqrt(runs) / 0.0013)
    )
    assert rule.answer([3.2801] * runs).word == "not supported"


# The same: "the LHS is 0.0027", "0.00648", and "0.00167" where the loss is the same.
@pytest.mark.parametrize(
    ("new", "runs", "step", "old", "old_runs", "old_step", "statistic", "word"),
    [
        (3.2785, 16, 3210, 3.2778, 10, 3250, 0.0027, "too few runs"),
        (3.2790, 20, 3325, 3.2788, 20, 3375, 0.00648, "supported"),
        (3.2785, 16, 3210, 3.2785, 10, 3225, 0.00167, "too few runs"),
    ],
)
def test_track_3_pairwise(
    new: float,
    runs: int,
    step: int,
    old: float,
    old_runs: int,
    old_step: int,
    statistic: float,
    word: str,
) -> None:
    rule = find_published("modded-nanogpt-track3-pairwise")
    answer = rule.answer(
        [new] * runs, steps=step, baseline=[old] * old_runs, baseline_steps=old_step
    )
    assert answer.statistic == pytest.approx(statistic, abs=0.00005)
    assert answer.word == word
    if answer.runs_needed and word == "too few runs":
        n = answer.runs_needed
        assert answer.gain / math.sqrt(2 / n) >= 0.004
        assert answer.gain / math.sqrt(2 / (n - 1)) < 0.004


def test_track_1_is_a_t_test() -> None:
    rule = find_published("modded-nanogpt-track1")
    losses = [3.2791, 3.2784, 3.2799, 3.2788]
    answer = rule.answer(losses)
    assert answer.p_value == pytest.approx(
        stats.ttest_1samp(losses, 3.28, alternative="less").pvalue
    )
    assert answer.word == "too few runs"
    assert answer.runs_needed is not None
    sd, effect = np.std(losses, ddof=1), 3.28 - np.mean(losses)
    for runs, passes in ((answer.runs_needed, True), (answer.runs_needed - 1, False)):
        p = stats.t.sf(effect / sd * math.sqrt(runs), runs - 1)
        assert (p < 0.01) == passes


def test_how_many_runs_do_often() -> None:
    rule = find_published("modded-nanogpt-track1")
    answer = rule.answer([3.2791, 3.2784, 3.2799, 3.2788, 3.2797])
    assert answer.runs_for_power is not None
    sd, mean = np.std([3.2791, 3.2784, 3.2799, 3.2788, 3.2797], ddof=1), answer.mean
    rng = np.random.default_rng(5)
    drawn = rng.normal(mean, sd, (4000, answer.runs_for_power))
    passed = stats.ttest_1samp(drawn, 3.28, axis=1, alternative="less").pvalue < 0.01
    assert 0.77 < passed.mean() < 0.87
    assert answer.runs_needed is not None
    assert answer.runs_needed < answer.runs_for_power
    assert "80%" in answer.sentence


def test_one_run_and_equal_runs_of_a_t_test() -> None:
    rule = find_published("modded-nanogpt-track1")
    assert rule.answer([3.27]).word == "too few runs"
    assert rule.answer([3.27]).p_value is None
    assert rule.answer([3.27, 3.27]).p_value == 0
    assert rule.answer([3.29, 3.29]).word == "not supported"


def test_the_core_bar_tests_nothing() -> None:
    answer = find_published("nanochat-core").answer(CORE)
    assert answer.word == "supported"
    assert answer.mean == pytest.approx(0.25714)
    assert answer.p_value is None
    assert find_published("nanochat-core").answer([0.256525]).word == "not supported"


def test_an_own_rule(tmp_path: Path) -> None:
    file = tmp_path / "core-tested.toml"
    file.write_text(
        'title = "CORE, tested"\nsource = "here"\nscore = "core_metric"\nbetter = "higher"\n'
        'statistic = "student_t"\ntarget = 0.256525\nthreshold = 0.05\n'
    )
    answer = find_published(str(file)).answer(CORE)
    assert answer.rule == "core-tested"
    # By hand: t = (0.25714 - 0.256525) / (sd / sqrt(7)), 6 df.
    assert answer.p_value == pytest.approx(0.383, abs=0.001)
    assert answer.word == "too few runs"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('statistic = "student_t"', "title"),
        (
            'title = "t"\nsource = "s"\nscore = "x"\nbetter = "lower"\nstatistic = "z"\n',
            "statistic",
        ),
        (
            'title = "t"\nsource = "s"\nscore = "x"\nbetter = "lower"\nstatistic = "mean"\n'
            "target = 1.0\nsigma = 2.0",
            "no use for sigma",
        ),
    ],
)
def test_a_rule_that_is_none(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "rule.toml"
    file.write_text(text)
    with pytest.raises(ParibusError, match=told):
        find_published(str(file))


def test_bad_input() -> None:
    with pytest.raises(ParibusError, match="did you mean"):
        find_published("modded-nanogpt-track-3")
    rule = find_published("modded-nanogpt-track3")
    with pytest.raises(ParibusError, match="nan is no val_loss"):
        rule.answer([math.nan])
    with pytest.raises(ParibusError, match="no runs"):
        rule.answer([])
    with pytest.raises(ParibusError, match="needs the steps"):
        find_published("modded-nanogpt-track3-pairwise").answer([3.2], baseline=[3.2])
