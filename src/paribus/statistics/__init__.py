"""Statistical inference for the scores of two arms, paired by seed or unpaired.

It needs only numpy and scipy, and knows nothing about training: it takes any scores measured on the
same seeds (or folds, or subjects) under two conditions, and those of two independent samples.

| question | function |
| --- | --- |
| how do two arms compare in one metric? | `paired_contrast`, `unpaired_contrast` |
| ... in a macro average over tasks of many items? | `macro_contrast` |
| is there an effect? | `paired_t`, `welch` (both return a `TTest`) |
| ... by another test? | `paired_bootstrap`, `sign_flip` |
| is the effect too small to matter? | `decided`, for any test |
| which of several effects are significant? | `holm` |
| ... of ideas that arrive one by one? | `Lord` |
| how many seeds? what can they detect? | `required_pairs`, `minimum_detectable_effect` |
| what does tuning add to the error? | `vertex_error`, `lack_of_fit` |
| how to test at interim looks? | `Looks`, `OneLook` |
| ... and after an unplanned second stage? | `Stages` |
| does one arm diverge more often? | `event_rates` |
| did this run diverge or spike? | `stability_events` |

>>> from paribus.statistics import paired_contrast
>>> result = paired_contrast([3.10, 3.14, 3.09, 3.12, 3.11], [3.06, 3.11, 3.07, 3.08, 3.08], seed=0)
>>> round(result.mean, 3), round(result.decided.p_value, 4), round(result.g, 2)
(-0.032, 0.001, -3.05)

The caller always seeds randomness. Invalid input raises `StatisticsError`. Differences are
treatment minus baseline.
"""

from .choice import (
    LEAST_TUNING_SEEDS,
    TunedArm,
    best_of,
    finite_means,
    lack_of_fit,
    parabola,
    redrawn_error,
    vertex_error,
)
from .contrast import (
    Decided,
    Design,
    RunContrast,
    decided,
    macro_contrast,
    paired_contrast,
    unpaired_contrast,
)
from .conventions import DESCRIPTIVE_BELOW, Interval, StatisticsError
from .crossed import LEAST_IN_BLOCK, contiguous_blocks, crossed_components, joined
from .looks import Boundary, Looks, OneLook, skewness
from .multiplicity import Lord, holm
from .power import minimum_detectable_effect, required_pairs
from .proportions import EventRates, event_rates, fisher_exact, mcnemar
from .resampling import paired_bootstrap, sign_flip
from .stages import Stages, combined_mcnemar, stage_weights
from .t_test import TTest, paired_deltas, paired_t, welch
from .training_curves import StabilityEvents, stability_events
