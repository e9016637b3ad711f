"""Looks and stages, where a study has them: the table, and what the method says."""

from __future__ import annotations

import math
from typing import Any

from paribus import numbers
from paribus.analysis import Analysis, Contrast, extension_in_words
from paribus.report.figures import names
from paribus.report.tables import Table

SPENDINGS = {"obrien_fleming": "O'Brien-Fleming", "pocock": "Pocock"}


def sampling_table(analysis: Analysis) -> Table | None:
    """The primary endpoint of every contrast: the interval that holds over all looks or stages, and
    beside it the plain one of the same pairs. None where all pairs are one sample."""
    study = analysis.study
    if study.plan is None and not study.stages:
        return None
    rows = [_row(contrast, names(study)) for contrast in analysis.contrasts if contrast.primary]
    level = numbers.level(study.inference.alpha)
    return Table(
        "looks",
        "How the pairs of every contrast were sampled: the interval that holds over all looks and "
        "stages, which decides, and the plain one of the same pairs, which does not hold.",
        (
            *("endpoint", "arm", "against", "sampled", "pairs"),
            *(f"{level}, holds", f"{level}, plain", "p", "Holm p"),
        ),
        tuple(rows),
        frozenset({"endpoint", "arm", "against", "sampled"}),
        wide=True,
    )


def looks_table(analysis: Analysis) -> Table | None:
    """Each look that was taken at each contrast, and what it decided; None where none was."""
    if not analysis.looks:
        return None
    called = names(analysis.study)
    rows = [
        (
            str(entry["look"]),
            str(entry["seeds"]),
            called[arm],
            analysis.metrics[metric].label,
            str(one["pairs"]),
            _change(one, analysis.metrics[metric].digits),
            numbers.p_or_blank(one.get("holm_p")),
            numbers.p_or_blank(one.get("equivalence_holm_p")),
            numbers.fixed(one["predictive_power"], 2),
            one.get("resolved") or said["decision"],
        )
        for entry in analysis.looks
        for arm, said in entry["contrasts"].items()
        if said["look"] == entry["look"]
        for metric, one in said["endpoints"].items()
    ]
    return Table(
        "looks-taken",
        "Every look at the primary endpoints: the change with its interval over all looks, p and "
        "the p of two one-sided tests against the margin by Holm's method, the predicted chance to "
        "be resolved by the last look, and the decision.",
        (
            *("look", "seeds", "arm", "endpoint", "pairs", "change", "Holm p", "TOST p"),
            *("prospect", "decision"),
        ),
        tuple(rows),
        frozenset({"arm", "endpoint", "decision"}),
        wide=True,
    )


def sampling_method(analysis: Analysis) -> str:
    """What the method says of looks and stages; empty where all pairs are one sample."""
    study, told = analysis.study, []
    if study.plan is not None:
        looks = ", ".join(map(str, study.plan.looks))
        told.append(
            f"The data were looked at after {looks} seeds of every arm that was still needed. The "
            f"level is spent over these looks by the {SPENDINGS[study.plan.spending]}-like "
            "function of Lan and DeMets (1983); boundaries are of the paired t with so few pairs, "
            "from simulated studies under a registered seed. A contrast stops where it is an "
            "effect, where it lies inside the margin"
            + (
                ", and where the chance to resolve it by the last look, given what was seen, is "
                f"below {study.plan.futility:g}. "
                if study.plan.futility
                else ". "
            )
            + "By Holm's method it passes its level on to the others from that look on, and what a "
            "look resolved stays resolved, also where the contrast goes on for another endpoint "
            "(Maurer and Bretz 2013). Every p and interval is of all looks: intervals are repeated "
            "confidence intervals (Jennison and Turnbull 1989), which hold whatever made sampling "
            "stop."
        )
    if study.stages:
        told.append(extension_in_words(analysis.study))
    return " ".join(told)


def _row(contrast: Contrast, called: dict[str, str]) -> tuple[str, ...]:
    says, paired, sampled = contrast.decided, contrast.paired, contrast.sampling
    digits, words = contrast.declared.digits, sampled.in_words if sampled else ""
    who = (contrast.declared.label, called[contrast.arm], called[contrast.reference], words)
    if says is None or paired is None:
        return (*who, str(len(contrast.seeds)), contrast.why_not, "", "", "")
    return (
        *who,
        str(says.n),
        numbers.delta(says.mean, says.interval.low, says.interval.high, digits),
        numbers.delta(paired.mean, paired.t_interval.low, paired.t_interval.high, digits),
        numbers.p_or_blank(contrast.p),
        numbers.p_or_blank(contrast.tested_p),
    )


def _change(said: dict[str, Any], digits: int) -> str:
    if "mean" not in said:
        return said["why_not"]
    low, high = said["interval"]
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return numbers.delta(said["mean"], low, high, digits)
