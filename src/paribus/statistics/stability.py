"""Training-stability events of one loss curve: divergence and spikes, by a registered rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from .conventions import Result, StatisticsError, checked_count, checked_positive


@dataclass(frozen=True)
class StabilityRule(Result):
    """What counts as an event. There are no defaults: a study registers its own numbers."""

    smoothing_steps: int  # the final loss is the mean of this many last steps
    median_steps: int  # trailing window of the running median and MAD, current step excluded
    mad_multiplier: float  # k in loss > median + k * MAD (raw MAD, not scaled to the normal SD)
    spike_steps: int  # w, consecutive steps above it that make one spike

    def __post_init__(self) -> None:
        for name in ("smoothing_steps", "median_steps", "spike_steps"):
            checked_count(getattr(self, name), name, 1)
        checked_positive(self.mad_multiplier, "mad_multiplier")


@dataclass(frozen=True)
class StabilityEvents(Result):
    """What happened to one run; a diverged run is data, not an error."""

    diverged: bool
    first_nonfinite_step: int | None
    initial_loss: float
    final_smoothed_loss: float | None  # None after a non-finite loss
    spike_starts: tuple[int, ...]  # first step of each spike

    @property
    def spiked(self) -> bool:
        """Whether there was any spike."""
        return bool(self.spike_starts)


def stability_events(losses: ArrayLike, rule: StabilityRule) -> StabilityEvents:
    """Divergence and spikes of a curve of shape (T,), one loss per step, step 0 first.

    Divergence: a loss that is not finite, or a final smoothed loss above the loss at step 0.
    Spike: at least `spike_steps` consecutive steps with loss > running median + k * MAD, judged
    from the first step with a full window, up to the first non-finite loss. Where the window is
    constant (MAD 0) any rise above it counts.

    Raises StatisticsError where the curve is shorter than the rule's windows or starts non-finite.
    """
    curve = np.asarray(losses, dtype=np.float64)
    needed = max(rule.smoothing_steps, rule.median_steps + rule.spike_steps)
    if curve.ndim != 1 or curve.size < needed:
        raise StatisticsError(
            f"losses has shape {curve.shape}, the rule needs (T,) with T >= {needed}: "
            "register shorter windows"
        )
    if not np.isfinite(curve[0]):
        raise StatisticsError(f"losses[0] is {curve[0]}, needs a finite loss at initialization")
    nonfinite = np.flatnonzero(~np.isfinite(curve))
    first_nonfinite = int(nonfinite[0]) if nonfinite.size else None
    final = None if nonfinite.size else float(curve[-rule.smoothing_steps :].mean())
    return StabilityEvents(
        diverged=final is None or final > float(curve[0]),
        first_nonfinite_step=first_nonfinite,
        initial_loss=float(curve[0]),
        final_smoothed_loss=final,
        spike_starts=_spike_starts(curve[:first_nonfinite], rule),
    )


def _spike_starts(curve: np.ndarray, rule: StabilityRule) -> tuple[int, ...]:
    judged = curve[rule.median_steps :]
    if judged.size < rule.spike_steps:
        return ()
    windows = sliding_window_view(curve, rule.median_steps)[: judged.size]
    median = np.median(windows, axis=1)
    mad = np.median(np.abs(windows - median[:, None]), axis=1)
    above = judged > median + rule.mad_multiplier * mad
    edges = np.diff(above.astype(np.int8), prepend=0, append=0)
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    spikes = starts[stops - starts >= rule.spike_steps] + rule.median_steps
    return tuple(spikes.tolist())
