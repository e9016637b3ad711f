"""Does an effect grow or shrink with size? By seed a slope, over seeds an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paribus.statistics.contrast import PairedContrast, paired_contrast


def slopes(sizes: Sequence[int], effects: np.ndarray) -> np.ndarray:
    """Least-squares slopes against log10 of the sizes: effects [sizes, seeds] -> [seeds]."""
    x = np.log10(np.asarray(sizes, dtype=np.float64))
    x = x - x.mean()
    return (x[:, None] * effects).sum(axis=0) / (x**2).sum()


def trend(sizes: Sequence[int], effects: np.ndarray) -> PairedContrast:
    """The mean slope over seeds, as a contrast with no slope at all; `effects` as in `slopes`."""
    found = slopes(sizes, effects)
    return paired_contrast(np.zeros_like(found), found, seed=0)
