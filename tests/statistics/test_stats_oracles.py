"""Independent implementations as oracles: scipy, and statsmodels where installed."""

import numpy as np
import pytest
import scipy.stats

from paribus.statistics import (
    Decided,
    decided,
    holm,
    mcnemar,
    paired_t,
    sign_flip,
)
from paribus.statistics.power import t_power

RNG_SEED = 20240611


def tost(deltas: np.ndarray, margin: float) -> Decided:
    return decided(paired_t(deltas), "paired_t", margin=margin)


def random_arms(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(RNG_SEED)
    sizes = rng.integers(3, 15, size=count)
    return [(rng.normal(size=n), rng.normal(0.5, 1.5, size=n)) for n in sizes]


def test_paired_t_matches_scipy():
    for baseline, treatment in random_arms(200):
        ours, theirs = paired_t(treatment - baseline), scipy.stats.ttest_rel(treatment, baseline)
        assert ours.statistic() == pytest.approx(theirs.statistic, rel=1e-12)
        assert ours.p_value() == pytest.approx(theirs.pvalue, rel=1e-10)
        interval, reference = ours.interval(0.9), theirs.confidence_interval(0.9)
        assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high))


def test_sign_flip_matches_scipy_permutation_test():
    for baseline, treatment in random_arms(20):
        reference = scipy.stats.permutation_test(
            (treatment - baseline,),
            lambda x, axis: np.abs(x.mean(axis=axis)),
            permutation_type="samples",
            alternative="greater",
            vectorized=True,
            n_resamples=10**6,  # above 2^n: exact
        )
        assert sign_flip(treatment - baseline)[0] == pytest.approx(reference.pvalue)


def test_statsmodels_agrees():
    pytest.importorskip("statsmodels")
    from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.power import TTestPower
    from statsmodels.stats.weightstats import ttost_paired

    rng = np.random.default_rng(RNG_SEED)
    for baseline, treatment in random_arms(20):
        margin = float(rng.uniform(0.2, 2))
        p_value = ttost_paired(treatment, baseline, -margin, margin)[0]
        ours = tost(treatment - baseline, margin)
        assert ours.equivalence_p == pytest.approx(p_value, rel=1e-9)
        p_values = rng.uniform(size=baseline.size) ** 3
        reference = np.asarray(multipletests(p_values, method="holm")[1], dtype=float)
        np.testing.assert_allclose(holm(p_values), reference)
        b, c = (int(count) for count in rng.integers(0, 12, size=2))
        exact = sm_mcnemar([[3, b], [c, 4]], exact=True).pvalue
        assert mcnemar(b, c) == pytest.approx(exact, rel=1e-10)
    for d_z, n in ((0.3, 8), (0.5, 20), (1.0, 10), (1.5, 5)):
        reference = TTestPower().power(d_z, n, 0.05)
        assert t_power(n - 1, d_z * np.sqrt(n), 0.05) == pytest.approx(reference, abs=1e-9)
