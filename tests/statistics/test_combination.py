"""Two stages combined: known answers, the interval that inverts the test, and its error."""

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtr
from scipy.stats import binom, binomtest, combine_pvalues, norm

from paribus.statistics import (
    Stages,
    combined_mcnemar,
    mcnemar,
    paired_t,
    stage_weights,
)

PUBLISHED = 0.083  # Armitage, McPherson and Rowe (1969), table 2: two equal stages at 5%


def combined(*stages):
    both = np.concatenate(stages)
    design = Stages(len(stages[0]), stage_weights(len(stages[0]) / len(both)))
    return design.decide(lambda part: paired_t(both[part]))


def test_the_interval_inverts_the_test_and_holds_the_estimate():
    rng = np.random.default_rng(2)
    for _ in range(10):
        both = combined(rng.normal(0.3, 1, 5), rng.normal(1.3, 0.1, 9))
        for level in (0.9, 0.95, 0.99):
            interval = both.interval(level)
            assert interval.low < both.mean < interval.high
            assert both.p_value(interval.low) == pytest.approx(1 - level)
            assert both.p_value(interval.high) == pytest.approx(1 - level)
            assert (0.0 in interval) == (both.p_value() > 1 - level)


def test_a_second_stage_of_any_size_chosen_beforehand_holds_the_level():
    rng, studies = np.random.default_rng(4), 100_000
    z = []
    for n in (5, 10):
        deltas = rng.standard_normal((studies, n))
        t = deltas.mean(axis=1) / (deltas.std(axis=1, ddof=1) / math.sqrt(n))
        z.append(-ndtri(stdtr(n - 1, -t)))
    first, second = stage_weights(1 / 3)
    total = np.abs(first * z[0] + second * z[1]) > 1.96
    assert total.mean() == pytest.approx(0.05, abs=0.0025)
    # Where the first stage could have been claimed as well, the two have this chance together.
    either = total | (np.abs(z[0]) > 1.96)
    assert 0.08 < either.mean() < 0.09
    given_nothing = total[np.abs(z[0]) <= 1.96].mean()
    assert given_nothing < 0.05


def test_a_known_answer():
    """Two stages of five, t = 2 and t = 3 with equal weights: p from the t and normal tables."""
    stages = [
        [t / math.sqrt(5) + x for x in (-1.264911, -0.632456, 0, 0.632456, 1.264911)]
        for t in (2, 3)
    ]
    both = combined(*stages)
    # One-sided p of t with 4 df: 0.058058 and 0.019971; z = 1.57125 and 2.05436; sum / sqrt(2).
    assert both.one_sided_p(0.0, greater=True) == pytest.approx(norm.sf(2.56370), rel=1e-3)
    assert both.p_value() == pytest.approx(0.010356, rel=1e-3)


def test_mcnemar_by_stage_is_the_stouffer_combination_of_exact_binomial_tests():
    stages, weights = [(6, 1), (9, 2)], stage_weights(0.3)
    p = [binomtest(b, b + c, alternative="greater").pvalue for b, c in stages]
    expected = 2 * combine_pvalues(p, "stouffer", weights=weights).pvalue
    assert combined_mcnemar(stages, weights) == pytest.approx(expected)
    assert combined_mcnemar([s[::-1] for s in stages], weights) == pytest.approx(expected)
    # A stage without discordant pairs is left out; without any, nothing is said.
    assert combined_mcnemar([(6, 0), (0, 0)], weights) == pytest.approx(mcnemar(6, 0))
    assert combined_mcnemar([(0, 0), (1, 8)], weights) == pytest.approx(mcnemar(1, 8))
    assert combined_mcnemar([(0, 0), (0, 0)], weights) == 1.0
    theirs, ours = [True] * 14, [False] * 14
    assert Stages(8, weights).events_p(theirs, ours) == combined_mcnemar([(8, 0), (6, 0)], weights)


@pytest.mark.parametrize("discordant", [0.1, 0.6])
def test_events_hold_their_level_at_the_size_that_serves_a_claim_best(discordant):
    """Exact: every outcome of 10 pairs, then of the size at which a claim is likeliest."""
    weights, alpha, first = stage_weights(0.5), 0.05, 10

    def outcomes(n):
        return [
            (float(binom.pmf(m, n, discordant) * binom.pmf(b, m, 0.5)), (b, m - b))
            for m in range(n + 1)
            for b in range(m + 1)
        ]

    seconds = {n: outcomes(n) for n in (2, 6, 12)}
    either = 0.0
    for chance, counts in outcomes(first):
        if mcnemar(*counts) <= alpha:
            either += chance
            continue
        claims = [
            sum(p for p, there in after if combined_mcnemar([counts, there], weights) <= alpha)
            for after in seconds.values()
        ]
        either += chance * max(claims)
    assert 0 < either <= PUBLISHED
