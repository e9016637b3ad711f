"""Detection of divergence and loss spikes in training curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class StabilityEvents:
    """Divergence, loss spikes and final smoothed loss of one run."""

    diverged: bool
    final_smoothed_loss: float | None  # None after a non-finite loss
    spiked: bool

    @property
    def is_unstable(self) -> bool:
        """True if the run diverged or spiked."""
        return self.diverged or self.spiked

    @property
    def has_losses(self) -> bool:
        """True if the run recorded training losses."""
        return self.final_smoothed_loss is not None or self.diverged


def stability_events(
    losses: ArrayLike,
    *,
    smoothing_steps: int,
    median_steps: int,
    mad_multiplier: float,
    spike_steps: int,
) -> StabilityEvents:
    """Detect divergence and spikes in the training losses of one run.

    A run diverged if a loss is not finite, or if the final loss (the mean of the last
    `smoothing_steps` losses) exceeds the first loss. A spike is a sequence of at least
    `spike_steps` steps whose loss exceeds median + `mad_multiplier` * MAD over the previous
    `median_steps` steps, before any non-finite loss. The MAD is not scaled to the normal SD.

    Args:
        losses: training losses of shape (T,). An empty array has no events.
        smoothing_steps: number of last steps over which the final loss is averaged.
        median_steps: number of previous steps for median and MAD.
        mad_multiplier: spike threshold in MADs.
        spike_steps: minimum number of consecutive steps in a spike.
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
