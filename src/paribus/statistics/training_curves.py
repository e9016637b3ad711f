"""Divergence and spikes in a training curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class StabilityEvents:
    """Whether one run diverged or spiked, and its final smoothed loss."""

    diverged: bool
    final_smoothed_loss: float | None  # None after a non-finite loss
    spiked: bool

    @property
    def has_losses(self) -> bool:
        """True if the run has training losses; the stability of other runs is unknown."""
        return self.final_smoothed_loss is not None or self.diverged


def stability_events(
    losses: ArrayLike,
    *,
    smoothing_steps: int,
    median_steps: int,
    mad_multiplier: float,
    spike_steps: int,
) -> StabilityEvents:
    """Detect divergence and spikes in training losses of shape (T,), from step 0 on.

    Divergence: a loss that is not finite, or a final loss (the mean of the last `smoothing_steps`
    losses) above the loss at step 0. Spike: at least `spike_steps` consecutive steps with loss >
    median + `mad_multiplier` * MAD (raw, not scaled to the normal SD) of the previous
    `median_steps` steps. Spikes are searched from the first step with that many predecessors up to
    the first non-finite loss. If the previous losses are constant (MAD 0), any rise above them
    counts. There are no defaults: a study registers its own values.

    A curve that starts with a non-finite loss diverged at step 0. A curve without steps has no
    events. A curve too short for these windows has no spike, and its final loss is the mean of the
    whole curve.
    """
    curve = np.asarray(losses, dtype=np.float64)
    if not curve.size or not np.isfinite(curve[0]):
        return StabilityEvents(bool(curve.size), None, spiked=False)
    nonfinite = np.flatnonzero(~np.isfinite(curve))
    last = curve[-smoothing_steps:]
    # A mean lies within its values: that of a constant curve is not above it by rounding.
    final = None if nonfinite.size else float(np.clip(last.mean(), last.min(), last.max()))
    finite = curve[: nonfinite[0]] if nonfinite.size else curve
    judged = finite[median_steps:]
    spiked = False
    if judged.size >= spike_steps:
        windows = sliding_window_view(finite, median_steps)[: judged.size]
        median = np.median(windows, axis=1)
        mad = np.median(np.abs(windows - median[:, None]), axis=1)
        above = judged > median + mad_multiplier * mad
        edges = np.diff(above.astype(np.int8), prepend=0, append=0)
        starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        spiked = bool((stops - starts >= spike_steps).any())
    return StabilityEvents(
        diverged=final is None or final > float(curve[0]),
        final_smoothed_loss=final,
        spiked=spiked,
    )
