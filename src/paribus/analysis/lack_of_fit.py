"""Contrasts of a tuned study with the lack of fit of its parabolas added to their errors.

Studies registered with `inference.choice = "propagated"` left this part of the error out. Their
registered numbers decide; these stand beside them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from paribus.analysis.contrasts import adjusted
from paribus.analysis.schema import Analysis, Contrast
from paribus.statistics import TTest, decided
from paribus.study import Study


def with_lack_of_fit(analysis: Analysis) -> Analysis | None:
    """Return `analysis` with lack of fit in the error of every contrast, p adjusted again.

    Interactions keep their registered errors. Return None if the registered errors contain lack of
    fit, or if no parabola was fitted.
    """
    contrasts = [_widened(contrast, analysis.study) for contrast in analysis.contrasts]
    if contrasts == list(analysis.contrasts):
        return None
    alpha = analysis.study.inference.alpha
    return replace(analysis, contrasts=tuple(adjusted(contrasts, alpha)))


def _widened(contrast: Contrast, study: Study) -> Contrast:
    choice, test, says = contrast.choice, contrast.test, contrast.decided
    # Not of an interim analysis, whose outermost error is not that of the choice.
    if choice is None or choice.fit_included or not choice.lack_of_fit or says is None:
        return contrast
    if type(test) is not TTest or not test.choice:
        return contrast
    test = replace(test, choice=math.hypot(test.choice, choice.lack_of_fit))
    inference = study.inference
    wider = decided(
        test,
        says.test,
        margin=says.margin,
        alpha=inference.alpha,
        family=says.family,
        power=inference.power,
    )
    if contrast.items is not None:
        return replace(contrast, items=replace(contrast.items, test=test, decided=wider))
    assert contrast.paired is not None
    return replace(contrast, by_run=replace(contrast.paired, test=test, decided=wider))
