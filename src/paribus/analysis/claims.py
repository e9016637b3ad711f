"""Checks of reported values that need no training: sizes that fit, shares that can be."""

from __future__ import annotations

from paribus.metric import SHARE, Metric
from paribus.numbers import some
from paribus.results import Results
from paribus.statistics import granularity
from paribus.study.sections import Claim

FITS = 0.05  # a model is of the size that was reported where it differs by at most so much of it


def check_claims(results: Results) -> tuple[str, ...]:
    """Say what each check of the study's claims finds: sizes of models, granularity of shares."""
    claims = results.study.claims
    if claims is None:
        return ()
    sizes = _sizes(results, claims.parameters) if claims.parameters else []
    shares = [
        check_share(claim, results.metrics[claim.metric])
        for claim in claims.values
        if claim.items is not None
    ]
    return tuple(dict.fromkeys([*sizes, *filter(None, shares)]))


def check_share(claim: Claim, metric: Metric) -> str:
    """Say whether a share of so many items can be the reported one; empty for other metrics."""
    if metric.unit != SHARE or claim.items is None or not 0 <= claim.mean <= 1:
        return ""
    digits = claim.digits if claim.digits is not None else _digits(claim.mean)
    found, written = granularity(claim.mean, claim.items, digits), f"{claim.mean:.{digits}f}"
    if not found.possible:
        near = found.nearest / claim.items
        return (
            f"A {metric.label} of {written} is no share of {claim.items} items: the nearest, "
            f"{found.nearest} of {claim.items}, is {near:.{digits}f}."
        )
    first, last = found.counts[0], found.counts[-1]
    counts = f"{first}" if first == last else f"{first} to {last}"
    return f"A {metric.label} of {written} is {counts} of {claim.items} items."


def _sizes(results: Results, reported: int) -> list[str]:
    """Say which of the claimed arms have a model of the reported size, as far as trials tell."""
    claims = results.study.claims
    arms = dict.fromkeys(arm for claim in (claims.values if claims else ()) for arm in claim.arms)
    found: dict[int, list[str]] = {}
    for arm in arms:
        sizes = [trial["parameters"] for (name, _), trial in results.trials.items() if name == arm]
        if sizes:
            found.setdefault(sizes[0], []).append(arm)
    return [
        f"The reported {reported:,} parameters {_fit(size, reported)} {some(names)}: {size:,}."
        for size, names in found.items()
    ]


def _fit(size: int, reported: int) -> str:
    return "fit" if abs(size - reported) <= FITS * reported else "do not fit"


def _digits(value: float) -> int:
    text = f"{value:.12f}".rstrip("0")
    return len(text.partition(".")[2])
