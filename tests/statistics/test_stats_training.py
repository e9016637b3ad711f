"""Stability events and learning-rate sensitivity against curves worked by hand."""

import math

import numpy as np
import pytest

from paribus.statistics import (
    StabilityRule,
    learning_rate_sensitivity,
    paired_event_rates,
    stability_events,
)

RULE = StabilityRule(smoothing_steps=5, median_steps=20, mad_multiplier=6, spike_steps=3)


def falling_curve(steps: int = 200) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 0.02, size=steps)
    return 2 + 8 * np.exp(-np.arange(steps) / 40) + noise


def test_an_ordinary_run_has_no_events() -> None:
    events = stability_events(falling_curve(), RULE)
    assert not events.diverged and not events.spiked and events.first_nonfinite_step is None
    assert events.final_smoothed_loss == pytest.approx(falling_curve()[-5:].mean())


def test_spikes_need_consecutive_steps_and_are_counted_once_each() -> None:
    curve = falling_curve()
    curve[100:105] += 3  # five steps: one spike
    curve[140:142] += 3  # two steps: too short
    curve[160:163] += 3  # three steps: exactly enough
    events = stability_events(curve, RULE)
    assert events.spike_starts == (100, 160)
    assert not events.diverged


def test_a_spike_as_the_run_ends_counts() -> None:
    curve = falling_curve()
    curve[-3:] += 3
    assert stability_events(curve, RULE).spike_starts == (197,)


def test_threshold_is_median_plus_k_raw_mad_of_the_steps_before() -> None:
    # Window 0, 1, 2, 3, 4 (falling back below): median 2, MAD 1, so k = 6 puts the bar at 8.
    rule = StabilityRule(smoothing_steps=1, median_steps=5, mad_multiplier=6, spike_steps=1)
    assert stability_events([4, 0, 1, 2, 3, 8.0], rule).spike_starts == ()
    assert stability_events([4, 0, 1, 2, 3, 8.001], rule).spike_starts == (5,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_nonfinite_loss_is_divergence_and_not_an_error(bad: float) -> None:
    curve = falling_curve()
    curve[60:63] += 3
    curve[120:] = bad
    events = stability_events(curve, RULE)
    assert events.diverged and events.first_nonfinite_step == 120
    assert events.final_smoothed_loss is None
    assert events.spike_starts == (60,)


def test_ending_above_the_initial_loss_is_divergence() -> None:
    curve = falling_curve()
    curve[-5:] = curve[0]
    assert not stability_events(curve, RULE).diverged  # equal is not above
    curve[-1] += 0.01
    assert stability_events(curve, RULE).diverged


def test_divergence_rates_are_compared_by_pairs() -> None:
    rates = paired_event_rates([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1])
    assert (rates.only_baseline, rates.only_treatment, rates.both, rates.neither) == (6, 0, 1, 1)
    assert (rates.baseline_rate, rates.treatment_rate) == (7 / 8, 1 / 8)
    assert rates.p_value == 0.03125


def test_learning_rate_sensitivity_by_hand() -> None:
    final = [[3.0, 2.5, 2.0, 9.0], [3.0, 2.5, 2.0, math.nan], [2.0, 2.0, 2.0, 2.0]]
    sensitivity = learning_rate_sensitivity(final, [4.0, 4.0, 4.0])
    # Rows 1 and 2: mean of 3, 2.5, 2 and 4 (capped at the initial loss) minus 2.
    np.testing.assert_allclose(sensitivity, [0.875, 0.875, 0.0], atol=1e-15)


def test_infinite_losses_count_as_the_initial_one() -> None:
    same = [learning_rate_sensitivity([[2.0, bad]], [4.0]) for bad in (math.inf, math.nan, 5.0)]
    np.testing.assert_array_equal(np.concatenate(same), [1.0, 1.0, 1.0])
