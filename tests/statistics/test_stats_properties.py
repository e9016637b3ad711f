"""Properties that hold for any scores, over 100 random cases each."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as hs

from paribus.statistics import (
    TTest,
    crossed_components,
    decided,
    holm,
    paired_bootstrap,
    paired_contrast,
    paired_t,
    sign_flip,
)

cases = settings(max_examples=100, deadline=None, derandomize=True)


def vector(raw: bytes, coarseness: int) -> np.ndarray:
    """Differences on a dyadic grid: shifting is exact, and a coarse one makes ties and zeros."""
    whole = np.frombuffer(raw[: len(raw) // 2 * 2], dtype=np.int16)
    return (whole // coarseness * coarseness) / 64


# Bytes are drawn at once and not number by number, which is what takes time. From 2 to 8 pairs, on
# both sides of the limit of 7 up to which the bootstrap is enumerated.
vectors = hs.builds(vector, hs.binary(min_size=4, max_size=17), hs.sampled_from([1, 1, 2**14]))
value = hs.integers(-(2**14), 2**14).map(lambda integer: integer / 64)
levels = hs.sampled_from([0.8, 0.9, 0.95, 0.99])
scales = hs.floats(1e-6, 1e6)
p_values = hs.lists(hs.floats(0, 1), min_size=1, max_size=8)


def answers(deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every two-sided p of one set of differences, and the bounds (4, 2) of every interval."""
    t, (p_of_bootstrap, percentiles) = paired_t(deltas), paired_bootstrap(deltas, seed=0)
    p_values = [t.p_value(), p_of_bootstrap, sign_flip(deltas)[0]]
    intervals = [t.interval(), percentiles]
    return np.array(p_values), np.array([[i.low, i.high] for i in intervals])


def direction(deltas: np.ndarray) -> float:
    """Above 7 pairs the resamples are oriented by the mean: its sign, 0 where it has none."""
    return np.sign(math.fsum(deltas))


@cases
@given(vectors, value, scales, hs.integers(0, 2**32))
def test_answers_are_equivariant(deltas, shift, scale, seed):
    p_values, bounds = answers(deltas)

    def follow(transformed: np.ndarray, expected: np.ndarray) -> None:
        p_found, found = answers(transformed)
        np.testing.assert_allclose(p_found, p_values, rtol=1e-9)
        np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(transformed).max() + 1e-50)

    follow(deltas * scale, bounds * scale)
    follow(np.random.default_rng(seed).permutation(deltas), bounds)
    if len(deltas) <= 7 or direction(deltas) != 0:
        follow(-deltas, -bounds[:, ::-1])
    if len(deltas) <= 7 or direction(deltas) == direction(deltas + shift):
        moved = answers(deltas + shift)[1]
        np.testing.assert_allclose(
            moved, bounds + shift, atol=1e-7 * (np.abs(deltas).max() + abs(shift))
        )
    g, scaled = (paired_contrast(0 * deltas, k * deltas, seed=0).g for k in (1.0, scale))
    assert scaled == (None if g is None else pytest.approx(g, rel=1e-9, abs=1e-12))


@cases
@given(vectors, value, levels)
def test_intervals_hold_the_nulls_kept(deltas, null, level):
    t = paired_t(deltas)
    interval = t.interval(level)
    bounds = np.array([interval.low, interval.high])
    # Just within and just beyond each bound, and anywhere; at a bound itself p is 1 - level up to
    # rounding, and either answer is right.
    steps = 1e-6 * np.maximum(np.abs(bounds - t.mean), 1.0 if t.constant else t.spread)
    for tested in (null, 0.0, t.mean, *(bounds - steps), *(bounds + steps)):
        if t.constant or (np.abs(tested - bounds) > steps / 2).all():
            assert (tested in interval) == (t.p_value(tested) > 1 - level)


def deciding_tests(deltas: np.ndarray) -> dict[str, TTest]:
    """Every test that can decide, of the same differences; two items share a seed's effect."""
    items = np.stack([deltas, deltas + np.arange(deltas.size) % 3], axis=1)
    return {
        "paired_t": paired_t(deltas),
        "crossed_components": crossed_components([items]),
    }


@cases
@given(vectors, value, levels)
def test_p_and_interval_invert_one_test(deltas, null, level):
    for name, test in deciding_tests(deltas).items():
        interval = test.interval(level)
        for tested in (null, 0.0):
            near = min(abs(tested - interval.low), abs(tested - interval.high))
            if near > 1e-9 * max(1.0, float(np.abs(deltas).max())):
                assert (tested in interval) == (test.p_value(tested) > 1 - level), name
        margin = max(abs(null), 0.5)
        tost = decided(test, name, margin=margin)
        inner = tost.equivalence_interval
        if min(abs(inner.low + margin), abs(inner.high - margin)) > 1e-9:
            assert inner.inside(margin) == (tost.equivalence_p <= 0.05), name


@cases
@given(p_values, hs.integers(0, 2**32))
@example([0.01, 0.04, 0.03, 0.005], 0)
def test_holm_is_monotone_never_below_raw_and_free_of_order(raw, seed):
    adjusted = holm(raw)
    assert (adjusted >= raw).all() and adjusted.max() <= 1
    assert (np.diff(adjusted[np.argsort(raw, kind="stable")]) >= 0).all()
    assert (adjusted <= np.minimum(1, np.array(raw) * len(raw))).all()  # never above Bonferroni
    order = np.random.default_rng(seed).permutation(len(raw))
    np.testing.assert_array_equal(holm(np.array(raw)[order]), adjusted[order])
