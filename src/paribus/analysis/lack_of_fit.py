"""Contrasts of a tuned study with the lack of fit of its parabolas added to their errors.

Studies registered with `inference.choice = "propagated"` left this part of the error out. Their
registered numbers decide; these stand beside them.
"""

from __future__ import annotations

from dataclasses import replace

from paribus.analysis.contrasts import adjusted
from paribus.analysis.schema import Analysis, Contrast
from paribus.statistics import decided
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
    test, says = contrast.test_with_lack_of_fit, contrast.decided
    if test is None or says is None:
        return contrast
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
    return replace(contrast, paired=replace(contrast.paired, test=test, decided=wider))
