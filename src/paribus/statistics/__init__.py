"""Inference for tables of scores of two arms, paired by seed or not.

Needs numpy and scipy alone, and knows nothing of training: any scores measured on the same seeds
(or folds, or subjects) under two conditions will do, and those of two independent samples.

| question | function |
| --- | --- |
| what does a report say about one contrast? | `paired_contrast` |
| ... of runs that are no pairs? | `unpaired_contrast`, by `welch` |
| ... macro-averaged over tasks of many items? | `macro_contrast`, from `crossed_components` |
| ... and unpaired? | `unpaired_macro`, from `crossed_welch` |
| ... over windows of one text? | the same, of `joined` sums of `contiguous_blocks` |
| ... where each arm has its own tuned value? | `vertex_error`, `lack_of_fit`, `redrawn_error` |
| is there an effect? | `seed_test`: `paired_t` or the gate, its larger p with `paired_bootstrap` |
| ... by another test? | `sign_flip`, `paired_bootstrap` |
| ... and is there none worth having? | `decided`, of any test |
| how large is it, in SDs? | `effect_size` |
| which of several effects stand? | `holm` |
| ... of ideas that arrive one after the other? | `Lord` |
| how many seeds? what could they show? | `required_pairs`, `minimum_detectable_effect` |
| ... unpaired? | `required_runs`, `welch_detectable` |
| may one look at the data while they grow? | `Looks`, `AtLook`, `predictive_power` |
| what does a plan of looks find? | `detectable_effect` |
| ... and a stage that was not planned? | `InverseNormal`, `error_of_either` |
| does one arm diverge more often? | `paired_event_rates`, `mcnemar`; `unpaired_event_rates` |
| how sure is a rate? | `clopper_pearson` |
| did this run diverge or spike? | `stability_events` |
| where along training do arms differ? | `curve_contrast` |
| who reached a target first, if at all? | `which_first` |
| how delicate is the learning rate? | `learning_rate_sensitivity` |

>>> from paribus.statistics import paired_contrast
>>> result = paired_contrast([3.10, 3.14, 3.09, 3.12, 3.11], [3.06, 3.11, 3.07, 3.08, 3.08], seed=0)
>>> round(result.mean, 3), round(result.decided.p_value, 4), result.sign_flip_p
(-0.032, 0.001, 0.0625)

Randomness is seeded by the caller, always; bad input raises `StatisticsError`; every result has
`to_dict()`, of JSON types. Differences are treatment minus baseline.
"""

from .bootstrap import paired_bootstrap
from .choice import (
    LEAST_TUNING_SEEDS,
    TunedArm,
    WithChoice,
    best_of,
    detectable_with_choice,
    lack_of_fit,
    pairs_with_choice,
    parabola,
    redrawn_error,
    vertex_error,
    widened,
)
from .contrast import MacroContrast, PairedContrast, macro_contrast, paired_contrast, slopes, trend
from .conventions import DESCRIPTIVE_BELOW, Interval, Result, StatisticsError
from .crossed import (
    LEAST_IN_BLOCK,
    contiguous_blocks,
    crossed_bootstrap,
    crossed_components,
    item_deltas,
    joined,
    seed_means,
)
from .deciding import CROSSED, Decided, DecidingTest, decided, seed_test
from .distributions import noncentral_t_cdf
from .multiplicity import holm, sign_flip
from .online import Lord, OnlineTests
from .paired import PairedT, correlation, effect_size, paired_deltas, paired_t
from .power import minimum_detectable_effect, paired_t_power, required_pairs
from .proportions import PairedRates, clopper_pearson, mcnemar, paired_event_rates
from .sequential.at_look import AtLook, OneLook, predictive_power
from .sequential.boundaries import Boundary, Looks, detectable_effect
from .sequential.two_stages import (
    InverseNormal,
    Stages,
    combined_mcnemar,
    error_of_either,
    stage_weights,
)
from .training_curves import (
    CurveContrast,
    First,
    StabilityEvents,
    curve_contrast,
    learning_rate_sensitivity,
    stability_events,
    which_first,
)
from .unpaired import (
    CROSSED_WELCH,
    WELCH,
    CrossedWelch,
    UnpairedContrast,
    UnpairedMacro,
    UnpairedRates,
    Welch,
    crossed_welch,
    permutation,
    required_runs,
    unpaired_contrast,
    unpaired_event_rates,
    unpaired_macro,
    welch,
    welch_detectable,
    welch_power,
)

__all__ = [
    "CROSSED",
    "CROSSED_WELCH",
    "DESCRIPTIVE_BELOW",
    "LEAST_IN_BLOCK",
    "LEAST_TUNING_SEEDS",
    "WELCH",
    "AtLook",
    "Boundary",
    "CrossedWelch",
    "CurveContrast",
    "Decided",
    "DecidingTest",
    "First",
    "Interval",
    "InverseNormal",
    "Looks",
    "Lord",
    "MacroContrast",
    "OneLook",
    "OnlineTests",
    "PairedContrast",
    "PairedRates",
    "PairedT",
    "Result",
    "StabilityEvents",
    "Stages",
    "StatisticsError",
    "TunedArm",
    "UnpairedContrast",
    "UnpairedMacro",
    "UnpairedRates",
    "Welch",
    "WithChoice",
    "best_of",
    "clopper_pearson",
    "combined_mcnemar",
    "contiguous_blocks",
    "correlation",
    "crossed_bootstrap",
    "crossed_components",
    "crossed_welch",
    "curve_contrast",
    "decided",
    "detectable_effect",
    "detectable_with_choice",
    "effect_size",
    "error_of_either",
    "holm",
    "item_deltas",
    "joined",
    "lack_of_fit",
    "learning_rate_sensitivity",
    "macro_contrast",
    "mcnemar",
    "minimum_detectable_effect",
    "noncentral_t_cdf",
    "paired_bootstrap",
    "paired_contrast",
    "paired_deltas",
    "paired_event_rates",
    "paired_t",
    "paired_t_power",
    "pairs_with_choice",
    "parabola",
    "permutation",
    "predictive_power",
    "redrawn_error",
    "required_pairs",
    "required_runs",
    "seed_means",
    "seed_test",
    "sign_flip",
    "slopes",
    "stability_events",
    "stage_weights",
    "trend",
    "unpaired_contrast",
    "unpaired_event_rates",
    "unpaired_macro",
    "vertex_error",
    "welch",
    "welch_detectable",
    "welch_power",
    "which_first",
    "widened",
]
