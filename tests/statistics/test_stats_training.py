"""Events of training curves against cases worked by hand."""

import math

import numpy as np
import pytest

from paribus.statistics import stability_events

RULE = {"smoothing_steps": 5, "median_steps": 20, "mad_multiplier": 6, "spike_steps": 3}


def falling_curve(steps: int = 200) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 0.02, size=steps)
    return 2 + 8 * np.exp(-np.arange(steps) / 40) + noise


@pytest.mark.parametrize(("steps", "spiked"), [(5, True), (3, True), (2, False), (0, False)])
def test_spikes_need_consecutive_steps(steps, spiked):
    curve = falling_curve()
    curve[140 : 140 + steps] += 3
    events = stability_events(curve, **RULE)
    assert events.spiked == spiked and not events.diverged


def test_a_short_run_has_no_spike_and_can_diverge():
    assert not stability_events([3.0, 9.0, 2.0], **RULE).spiked
    assert not stability_events([3.0, 2.5, 2.0], **RULE).diverged
    grows = stability_events([3.0, 4.0, 5.0], **RULE)
    assert grows.diverged and grows.final_smoothed_loss == pytest.approx(4.0)


def test_threshold_is_median_plus_k_raw_mad_of_the_steps_before():
    # Window 0, 1, 2, 3, 4 (falling back below): median 2, MAD 1, so k = 6 puts the bar at 8.
    rule = {"smoothing_steps": 1, "median_steps": 5, "mad_multiplier": 6, "spike_steps": 1}
    assert not stability_events([4, 0, 1, 2, 3, 8.0], **rule).spiked
    assert stability_events([4, 0, 1, 2, 3, 8.001], **rule).spiked


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_nonfinite_loss_is_divergence_and_not_an_error(bad):
    curve = falling_curve()
    curve[60:63] += 3
    curve[120:] = bad
    events = stability_events(curve, **RULE)
    assert events.diverged and events.final_smoothed_loss is None and events.spiked


def test_ending_above_the_initial_loss_is_divergence():
    curve = falling_curve()
    curve[-5:] = curve[0]
    assert not stability_events(curve, **RULE).diverged  # equal is not above
    for loss in np.random.default_rng(3).uniform(1, 9, 100):  # nor by a rounded mean
        assert not stability_events(np.full(curve.size, loss), **RULE).diverged
    curve[-1] += 0.01
    assert stability_events(curve, **RULE).diverged
