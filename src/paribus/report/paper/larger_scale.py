"""What the studies leave to larger ones: what they span, and what it would take to resolve more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paribus import numbers
from paribus.report.paper.designs import spanned
from paribus.report.paper.document import Part, say
from paribus.report.paper.judged import Judged, judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.paper.recommendations import by_treatment, called
from paribus.report.words import listed


def larger_scale(studies: Sequence[Material]) -> Part | None:
    """The section; None where nothing is compared."""
    found = [(material, one) for material in studies for one in judged(material)]
    if not found:
        return None
    # Of several studies the results have it.
    by_size = _by_size(studies[0]) if len(studies) == 1 else []
    told = [_span(studies), *by_size, *_seeds(studies), _instability(found)]
    told += _chance(studies)
    return Part("What larger scale would have to show", [say(" ".join(filter(None, told)))])


def _span(studies: Sequence[Material]) -> str:
    parameters = spanned(n for one in studies for n in one.parameters)
    settings = [one.study.setting(arm) for one in studies for arm in one.study.arms]
    size = f"from models of {parameters} parameters and " if parameters else "from "
    return (
        f"All evidence here is {size}{spanned(s.tokens for s in settings)} training tokens a "
        "trial, and nothing is extrapolated from it."
    )


def _by_size(material: Material) -> list[str]:
    """Whether the sign of a change is the same at every size that the study tested it at."""
    told = []
    for mine in by_treatment([one for one in judged(material) if one.contrast.tested]).values():
        for metric in dict.fromkeys(one.metric for one in mine):
            line = _signs(material, judged_on(mine, metric))
            told += [f"In {material.name} {line}"] if line else []
    return told


def _signs(material: Material, found: Sequence[Judged]) -> str:
    """The change at every size, and whether its sign is the same; empty of a single size."""
    sizes = [material.parameters_of[one.contrast.reference] for one in found]
    if len(set(sizes)) < 2:
        return ""
    means = [one.contrast.decided.mean for one in found if one.contrast.decided]
    metric = found[0].contrast.declared
    values = [
        f"{numbers.signed(mean, metric.change_digits)} at {size:,}"
        for size, mean in sorted(zip(sizes, means, strict=True))
    ]
    same = len({mean > 0 for mean in means}) == 1
    return (
        f"the change of {metric.label} with {called(found)} "
        f"{'has the same sign' if same else 'changes its sign'} over {len(set(sizes))} sizes "
        f"({listed(values)} parameters)."
    )


def _seeds(studies: Sequence[Material]) -> list[str]:
    """How many pairs a change of the margin's size takes with the spread that was seen."""
    told = []
    for metric in dict.fromkeys(e.metric for one in studies for e in one.study.judged):
        needed, powers, label = [], set(), ""
        for material in (one for one in studies if one.errors is None):
            study = material.study
            for contrast in material.analysis.contrasts:
                says, test = contrast.decided, contrast.test
                if contrast.metric != metric or not contrast.primary or contrast.margin is None:
                    continue
                if test is None or says is None or says.descriptive_only:
                    continue
                alpha, power = study.inference.alpha / study.family, study.inference.power
                pairs = test.pairs_needed(contrast.margin, power=power, alpha=alpha)
                if pairs is not None:
                    needed.append(pairs)
                    powers.add(f"{power:.0%}")
                    label = contrast.declared.label
        if needed:
            told.append(
                f"With the spread seen here, a change of {label} of the registered margin's size "
                f"takes {spanned(needed)} seed pairs to be seen with {listed(sorted(powers))} "
                "power, so that a single run an arm shows none."
            )
    return told


def _instability(found: Sequence[tuple[Material, Judged]]) -> str:
    """Whether there was an instability to cure."""
    unstable = dict.fromkeys(
        material.name for material, one in found if not one.verdict.evidence.state.baseline_stable
    )
    if not unstable:
        return (
            "No reference was unstable by the registered threshold, so that a cure of instability, "
            "which larger models are reported to need, was not put to the test."
        )
    return (
        f"A reference was unstable by the registered threshold in {listed(list(unstable))}; "
        "whether the instabilities of larger models have the same cause is open."
    )


def _chance(studies: Sequence[Material]) -> list[str]:
    """How far accuracy on tasks is above guessing, on which claims about larger models rest."""
    above = []
    for material in studies:
        rows = [
            r for r in material.results.tasks.to_pylist() if r["arm"] == material.study.baseline
        ]
        if rows:
            above.append(float(np.mean([row["accuracy"] - row["chance"] for row in rows])))
    if not above:
        return []
    low, high = (numbers.signed(100 * value, 1) for value in (min(above), max(above)))
    lie = f"is {low}" if low == high else f"lies between {low} and {high}"
    return [
        f"Accuracy of the baseline over the tasks {lie} percentage points above guessing; a "
        "cost in zero-shot accuracy has to be shown where models are well above it."
    ]
