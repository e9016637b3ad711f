"""Every contrast in full: estimates with their intervals, then tests and effect sizes."""

from __future__ import annotations

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.report.figures import names
from paribus.report.tables import Table
from paribus.statistics import Interval

WHOSE = ("endpoint", "arm", "against")


def estimates(analysis: Analysis) -> Table:
    """Differences at the same seed, with the intervals of the test that decides."""
    called, alpha = names(analysis.study), analysis.study.inference.alpha
    level = numbers.level(alpha)
    return Table(
        "contrasts",
        "Every contrast: differences at the same seed, with the intervals of the test that "
        f"decides. Simultaneous intervals hold together with {level}, by Bonferroni's method, in "
        "the family of the primary endpoint or of the secondary ones.",
        (*WHOSE, "n", "mean (SD)", level, "simultaneous", numbers.level(2 * alpha)),
        tuple((*_whose(c, called), *_estimated(c)) for c in analysis.contrasts),
        frozenset(WHOSE),
        wide=True,
    )


def tests(analysis: Analysis) -> Table:
    """p by every test, effect sizes and what could have been detected; of what was tested."""
    called = names(analysis.study)
    rows = ((_whose(c, called), _tested(c)) for c in analysis.contrasts)
    return Table(
        "tests",
        "Every contrast: p of the test that decides, and by Holm's method in its family; beside it "
        "p of the studentized bootstrap and of the exact sign flip with its least possible value; "
        "two one-sided tests against the margin, by Holm's method; Hedges g_z with its interval, "
        "the correlation between arms, and the difference that the deciding test detects at the "
        "registered power.",
        (
            *(*WHOSE, "p", "Holm p", "bootstrap", "sign flip", "TOST p"),
            *("g_z", "r", "detectable"),
        ),
        tuple((*whose, *tested) for whose, tested in rows if tested),
        frozenset(WHOSE),
        wide=True,
    )


def _whose(contrast: Contrast, called: dict[str, str]) -> tuple[str, str, str]:
    return contrast.declared.label, called[contrast.arm], called[contrast.reference]


def _estimated(contrast: Contrast) -> tuple[str, ...]:
    """The cells of a contrast; why it has none, where it was not analysed."""
    paired, says, digits = contrast.paired, contrast.decided, contrast.declared.change_digits
    if paired is None or says is None:
        return (str(len(contrast.seeds)), contrast.why_not, "", "", "")
    intervals = (says.interval, says.simultaneous_interval, says.equivalence_interval)
    spans = (_span(interval, digits) for interval in intervals)
    return (str(says.n), numbers.mean_sd(says.mean, paired.sd, digits), *spans)


def _tested(contrast: Contrast) -> tuple[str, ...]:
    """The cells of a contrast; none where it was not analysed, no p where it is not tested."""
    paired, says = contrast.paired, contrast.decided
    if paired is None or says is None:
        return ()

    def p(value: float | None) -> str:
        return numbers.p_or_blank(value if contrast.tested else None)

    flip = f"{p(paired.sign_flip_p)} ({p(paired.sign_flip_floor)})" if contrast.tested else ""
    return (
        p(says.p_value),
        p(contrast.holm_p),
        p(paired.studentized_p),
        flip,
        p(contrast.equivalence_holm_p),
        f"{numbers.signed(paired.g_z, 2)} {_span(paired.g_z_interval, 2)}".strip(),
        numbers.signed(paired.correlation, 2),
        numbers.fixed(says.detectable, contrast.declared.change_digits),
    )


def _span(interval: Interval | None, digits: int) -> str:
    return "" if interval is None else numbers.interval(interval.low, interval.high, digits)
