"""Paired inference for tables of scores: seeds in rows, two arms side by side.

Needs numpy and scipy alone, and knows nothing of training: any scores measured on the same seeds
(or folds, or subjects) under two conditions will do.

| question | function |
| --- | --- |
| what does a report say about one contrast? | `paired_contrast` |
| ... macro-averaged over tasks of many items? | `macro_contrast`, from `crossed_bootstrap` |
| is there an effect? | `seed_test`: `paired_t` or the gate, its larger p with `paired_bootstrap` |
| ... by another test? | `sign_flip`, `paired_bootstrap` |
| is there none worth having? | `equivalence` of any test; `two_one_sided_tests` of the paired t |
| how large is it, in SDs? | `effect_size` |
| which of several effects stand? | `holm`; a sensitivity analysis, `max_statistic_sign_flip` |
| how many seeds? what could they show? | `required_pairs`, `minimum_detectable_effect` |
| may one look at the data while they grow? | `Looks`, `AtLook`, `predictive_power` |
| what does a plan of looks cost and find? | `characteristics`, `detectable_effect` |
| ... and a stage that was not planned? | `InverseNormal`, `error_of_either` |
| does one arm diverge more often? | `paired_event_rates`, `mcnemar` |
| how sure is a rate? | `clopper_pearson`, `wilson` |
| did this run diverge or spike? | `stability_events` under a `StabilityRule` |
| where along training do arms differ? | `curve_contrast` |
| who reached a target first, if at all? | `which_first` |
| how delicate is the learning rate? | `learning_rate_sensitivity` |
| what would the best of n tuning trials be? | `expected_best_of` |

>>> from paribus.statistics import paired_contrast
>>> result = paired_contrast([3.10, 3.14, 3.09, 3.12, 3.11], [3.06, 3.11, 3.07, 3.08, 3.08], seed=0)
>>> round(result.mean, 3), round(result.decided.p_value, 4), result.sign_flip_p
(-0.032, 0.001, 0.0625)

Randomness is seeded by the caller, always; bad input raises `StatisticsError`; every result has
`to_dict()`, of JSON types. Differences are treatment minus baseline.
"""

from .bootstrap import PairedBootstrap, paired_bootstrap
from .contrast import (
    MacroContrast,
    Pair,
    PairedContrast,
    Target,
    macro_contrast,
    paired_contrast,
    slopes,
    trend,
)
from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    POWER,
    RESAMPLES,
    Interval,
    StatisticsError,
)
from .crossed import CrossedBootstrap, crossed_bootstrap, item_deltas, seed_means
from .deciding import (
    CROSSED,
    Decided,
    DecidingTest,
    Design,
    Equivalence,
    SeedTest,
    decided,
    equivalence,
    seed_test,
    two_one_sided_tests,
)
from .distributions import noncentral_t_cdf
from .multiplicity import FamilySignFlip, SignFlip, holm, max_statistic_sign_flip, sign_flip
from .paired import (
    EffectSize,
    PairedT,
    correlation,
    effect_size,
    hedges_correction,
    paired_deltas,
    paired_t,
)
from .power import (
    TestName,
    minimum_detectable_effect,
    paired_t_power,
    power_error,
    power_of,
    required_pairs,
)
from .proportions import (
    Granularity,
    PairedRates,
    clopper_pearson,
    granularity,
    mcnemar,
    paired_event_rates,
    wilson,
)
from .searches import expected_best_of, learning_rate_sensitivity
from .sequential import (
    AtLook,
    Boundary,
    Characteristics,
    InverseNormal,
    Looks,
    OneLook,
    Spending,
    Stages,
    characteristics,
    combined_mcnemar,
    detectable_effect,
    error_of_either,
    predictive_power,
    stage_weights,
)
from .training_curves import (
    Crossing,
    CurveContrast,
    First,
    StabilityEvents,
    StabilityRule,
    curve_contrast,
    stability_events,
    which_first,
)

__all__ = [
    "ALPHA",
    "CROSSED",
    "DESCRIPTIVE_BELOW",
    "POWER",
    "RESAMPLES",
    "AtLook",
    "Boundary",
    "Characteristics",
    "CrossedBootstrap",
    "Crossing",
    "CurveContrast",
    "Decided",
    "DecidingTest",
    "Design",
    "EffectSize",
    "Equivalence",
    "FamilySignFlip",
    "First",
    "Granularity",
    "Interval",
    "InverseNormal",
    "Looks",
    "MacroContrast",
    "OneLook",
    "Pair",
    "PairedBootstrap",
    "PairedContrast",
    "PairedRates",
    "PairedT",
    "SeedTest",
    "SignFlip",
    "Spending",
    "StabilityEvents",
    "StabilityRule",
    "Stages",
    "StatisticsError",
    "Target",
    "TestName",
    "characteristics",
    "clopper_pearson",
    "combined_mcnemar",
    "correlation",
    "crossed_bootstrap",
    "curve_contrast",
    "decided",
    "detectable_effect",
    "effect_size",
    "equivalence",
    "error_of_either",
    "expected_best_of",
    "granularity",
    "hedges_correction",
    "holm",
    "item_deltas",
    "learning_rate_sensitivity",
    "macro_contrast",
    "max_statistic_sign_flip",
    "mcnemar",
    "minimum_detectable_effect",
    "noncentral_t_cdf",
    "paired_bootstrap",
    "paired_contrast",
    "paired_deltas",
    "paired_event_rates",
    "paired_t",
    "paired_t_power",
    "power_error",
    "power_of",
    "predictive_power",
    "required_pairs",
    "seed_means",
    "seed_test",
    "sign_flip",
    "slopes",
    "stability_events",
    "stage_weights",
    "trend",
    "two_one_sided_tests",
    "which_first",
    "wilson",
]
