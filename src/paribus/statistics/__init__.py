"""Statistical inference for the scores of two arms, paired by seed or unpaired.

The package depends only on NumPy and SciPy and is independent of training. It applies to any scores
of two conditions, measured on the same seeds, folds or subjects, or on independent samples.

| task | function |
| --- | --- |
| compare two arms on one metric | `paired_contrast`, `unpaired_contrast` |
| ... on a macro average over tasks with many items | `macro_contrast` |
| test for an effect | `paired_t`, `welch` (both return a `TTest`) |
| ... without assuming normality | `paired_bootstrap`, `sign_flip` |
| test for equivalence | `decided`, for any test |
| adjust a family of p-values | `holm` |
| ... for tests that arrive sequentially | `Lord` |
| compute sample size and detectable effect | `required_pairs`, `minimum_detectable_effect` |
| estimate the error from hyperparameter selection | `vertex_error`, `lack_of_fit` |
| test at interim analyses | `Looks`, `OneLook` |
| ... after an unplanned second stage | `Stages` |
| compare rates of divergence | `event_rates` |
| detect divergence and spikes of a run | `stability_events` |

>>> from paribus.statistics import paired_contrast
>>> result = paired_contrast([3.10, 3.14, 3.09, 3.12, 3.11], [3.06, 3.11, 3.07, 3.08, 3.08], seed=0)
>>> round(result.mean, 3), round(result.decided.p_value, 4), round(result.g, 2)
(-0.032, 0.001, -3.05)

Differences are treatment minus baseline. Functions that resample take a seed. Invalid input raises
`StatisticsError`.
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
