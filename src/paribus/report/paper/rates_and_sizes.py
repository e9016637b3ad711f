"""What no single verdict has: sensitivity to the learning rate, and the trend over sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paribus import numbers
from paribus.analysis import Contrast
from paribus.metric import Metric
from paribus.report.paper.document import Block, Cite, Grid, Part, Ref, say
from paribus.report.paper.judged import judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.paper.recommendations import by_treatment, called
from paribus.report.table_model import Table
from paribus.report.words import listed
from paribus.statistics import PairedContrast, trend
from paribus.study import LEARNING_RATE

LEAST_SIZES = 3
DIGITS = 4


def rate_sensitivity(studies: Sequence[Material]) -> Part | None:
    """Whether the loss depends less on the learning rate with an arm than with its reference; None
    where no study has enough tuning seeds to test that."""
    found = [
        (material, one.arm, one.reference or "", one.values, one.paired)
        for material in studies
        for one in (material.analysis.tuned.sensitivities if material.analysis.tuned else ())
        if one.paired is not None and not one.paired.descriptive_only
    ]
    if not found:
        return None
    rows, counts = [], {"lower": 0, "higher": 0, "open": 0}
    for material, arm, reference, values, paired in found:
        says = paired.decided
        means = [_mean(_values(material, reference)), _mean(values)]
        finding = "open"
        if says.p_value is not None and says.p_value < material.study.inference.alpha:
            finding = "lower" if paired.mean < 0 else "higher"
        counts[finding] += 1
        change = numbers.delta(paired.mean, says.interval.low, says.interval.high, DIGITS)
        label = f"{material.name}: {material.called[arm]}"
        rows.append((label, " → ".join(means), change, numbers.p_value(says.p_value)))
    head = ("arm", "mean", "change", "p")
    table = Table(
        "rate-sensitivity",
        "Sensitivity to the learning rate: by how much the loss exceeds that of the best rate, in "
        "the mean over all rates that were tried, in nats/token; of the reference → of the arm, "
        "paired by tuning seed, with the interval and p of the registered test, not adjusted.",
        head,
        tuple(rows),
        frozenset({"arm"}),
    )
    told = [f"{what} in {n}" for what, n in counts.items() if n]
    opening = (
        f"Over {_rates(found[0][0])} of {found[0][0].name} the loss depends on the rate as "
        if len({material.name for material, *_ in found}) == 1
        else "The loss depends on the rate as "
    )
    blocks: list[Block] = [
        say(opening, Ref(table.name), " says, in the measure of ", Cite("Wortsman2023"),
            f". Of {numbers.plural(len(found), 'comparison')} with enough tuning seeds for a test, "
            f"the sensitivity is {listed(told)}: {_meaning(counts)}"),
        Grid(table),
    ]  # fmt: skip
    return Part("Sensitivity to the learning rate", blocks, level=2)


def _meaning(counts: dict[str, int]) -> str:
    if counts["lower"] and not counts["higher"]:
        return "where it is lower, a badly chosen rate costs less than it costs the reference."
    if counts["higher"] and not counts["lower"]:
        return "where it is higher, a badly chosen rate costs more than it costs the reference."
    if counts["lower"]:
        return "the direction is not the same everywhere."
    return "that an arm is less sensitive than its reference is not shown."


def _values(material: Material, arm: str) -> dict[int, float]:
    tuned = material.analysis.tuned
    every = tuned.sensitivities if tuned else ()
    return next((one.values for one in every if one.arm == arm), {})


def _mean(values: dict[int, float]) -> str:
    known = [value for value in values.values() if math.isfinite(value)]
    return numbers.fixed(sum(known) / len(known) if known else None, DIGITS)


def _rates(material: Material) -> str:
    tuned = material.analysis.tuned
    assert tuned is not None
    rates = sorted(float(one[LEARNING_RATE]) for one in tuned.candidates)
    return f"{len(rates)} rates from {numbers.compact(rates[0])} to {numbers.compact(rates[-1])}"


def size_trends(studies: Sequence[Material]) -> Part | None:
    """Of studies of one treatment at several sizes: the sign everywhere, then the trend; None where
    there is none."""
    told = [line for material in studies for line in _of_study(material)]
    if not told:
        return None
    return Part("The effect and the size of the model", [say(line) for line in told], level=2)


def _of_study(material: Material) -> list[str]:
    metric, told = material.study.primary.metric, []
    for mine in by_treatment(judged_on(judged(material), metric)).values():
        by_size: dict[int, Contrast] = {}
        for one in mine:
            size = material.parameters_of.get(one.contrast.reference, 0)
            if one.contrast.paired is not None and size:
                by_size[size] = one.contrast
        if len(by_size) >= LEAST_SIZES:
            told.append(_told(material, called(mine).partition(",")[0], by_size))
    return [line for line in told if line]


def _told(material: Material, arm: str, by_size: dict[int, Contrast]) -> str:
    sizes = sorted(by_size)
    found = _trend(sizes, by_size)
    if found is None:
        return ""
    declared = by_size[sizes[0]].declared
    means = [one.paired.mean for size in sizes if (one := by_size[size]).paired is not None]
    same = len({mean > 0 for mean in means}) == 1
    sign = "has the same sign at each" if same else "does not have the same sign at each"
    unit = f" {declared.change_unit}" if declared.change_unit else ""
    text = (
        f"In {material.name} the change of {declared.label} with {arm} {sign} of {len(sizes)} "
        f"sizes, {sizes[0]:,} to {sizes[-1]:,} parameters. Its trend, by seed the "
        f"least-squares slope against log10 of the parameters, is {_slope(found, declared)}{unit} "
        f"for ten times the parameters, over {found.n} seeds"
    )
    rest = _trend(sizes[1:], by_size) if len(sizes) > LEAST_SIZES else None
    if rest is not None:
        text += f"; without the smallest size it is {_slope(rest, declared)}"
    return f"{text}. Nothing beyond these sizes follows from it."


def _trend(sizes: Sequence[int], by_size: dict[int, Contrast]) -> PairedContrast | None:
    """Over the seeds that all sizes have; None of fewer than two."""
    pairs = [
        {seed: pair.delta for seed, pair in zip(one.seeds, one.paired.pairs, strict=True)}
        for one in (by_size[size] for size in sizes)
        if one.paired is not None
    ]
    seeds = sorted(set.intersection(*(set(of) for of in pairs)))
    if len(seeds) < 2:
        return None
    return trend(sizes, np.array([[of[seed] for seed in seeds] for of in pairs]))


def _slope(found: PairedContrast, declared: Metric) -> str:
    low, high = found.t_interval.low, found.t_interval.high
    return numbers.delta(found.mean, low, high, declared.change_digits)
