"""Formatting of changes, costs and counts for all parts of a report."""

from __future__ import annotations

from collections.abc import Sequence

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Interacting
from paribus.decision.evidence import cost_of
from paribus.study import Study

# What `Decided.test` is called.
TESTS = {
    "paired_t": "paired t-test",
    "welch_t": "Welch's t-test",
    "crossed_components": "t-test with errors of seeds and items",
    "crossed_bootstrap": "crossed bootstrap over seeds and items",
}
IDENTICAL = "0 (identical to rounding)"
MOST_NAMED = 3  # arms in a sentence
MOST_DIGITS = 12  # of a change that is too small for the digits of its metric
UNEQUAL = 0.05  # of a cost: an arm whose cost differs by less is as costly as its reference


def join(words: Sequence[str]) -> str:
    """Join words with commas and a final "and": `a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def join_some(arms: Sequence[str]) -> str:
    """Join the first arm titles and count the rest: `a, b, c and 2 more`."""
    rest = len(arms) - MOST_NAMED
    return join([*arms[:MOST_NAMED], f"{rest} more"] if rest > 0 else arms)


def key_text(key: str) -> str:
    """Convert a dotted key to a label: `optimizer.learning_rate` becomes `learning rate`."""
    return key.rpartition(".")[2].replace("_", " ")


def change_text(contrast: Contrast) -> str:
    """Format a change as `-0.0321 [-0.0410, -0.0233]`, or return why it is missing."""
    says, digits = contrast.decided, contrast.declared.change_digits
    if says is None:
        return contrast.why_not
    if not says.has_interval:
        return contrast.declared.change_text(says.mean)
    low, high = says.interval.low, says.interval.high
    if low <= 0 <= high:
        is_nothing = max(abs(low), abs(high)) < 0.5 * 10.0**-digits
        return IDENTICAL if is_nothing else contrast.declared.delta_text(says.mean, low, high)
    # A change that is shown to exist is not printed as +0.
    while abs(says.mean) < 0.5 * 10.0**-digits and digits < MOST_DIGITS:
        digits += 1
    extra = digits - contrast.declared.change_digits
    digits = contrast.declared.shown_change_digits + extra
    return contrast.declared.delta_text(says.mean, low, high, digits)


def inside_text(study: Study, contrast: Contrast | Interacting) -> str:
    """Format an equivalence result as `inside ±0.02`, or `90% interval inside ±0.02`.

    The level is given if only the narrower interval, that of two one-sided tests, is inside.
    """
    endpoint = next(e for e in study.endpoints if e.metric == contrast.metric)
    inside = f"inside ±{contrast.declared.stated_text(endpoint.margin or 0)}"
    says = contrast.decided
    if says is None or says.margin is None or says.interval.inside(says.margin):
        return inside
    return f"{numbers.level(2 * study.inference.alpha)} interval {inside}"


def size_text(analysis: Analysis, arm: str) -> str:
    """Format differences in model size and cost: `66% more parameters, 57% more training FLOPs`.

    Differences below 5% are omitted; memory is shown only if the arm needs more of it.
    """
    cost = cost_of(analysis, arm)
    shares = {
        "parameters": cost.more_parameters,
        "training FLOPs": cost.more_flops,
        "memory": max(cost.more_memory or 0.0, 0.0),
    }
    return ", ".join(
        f"{abs(share):.0%} {'more' if share > 0 else 'fewer'} {noun}"
        for noun, share in shares.items()
        if share is not None and abs(share) >= UNEQUAL
    )


def speed_text(analysis: Analysis, arm: str) -> str:
    """Format the difference in training speed, such as `36% slower`.

    Returns "" for a difference below 5%, for an interval that includes zero, and without a valid
    measurement, which is one made in alternation, or speeds in the logs of finished runs.
    """
    cost = cost_of(analysis, arm)
    is_measured = cost.in_turn or analysis.runs is not None
    if cost.throughput is None or not is_measured or abs(cost.throughput.mean) < UNEQUAL:
        return ""
    lost, ends = cost.throughput.mean, cost.throughput.interval
    if ends.low <= 0 <= ends.high:
        return ""
    return f"{abs(lost):.0%} {'slower' if lost > 0 else 'faster'}"


def divergence_text(analysis: Analysis, arm: str) -> str:
    """Format divergence counts: `diverged in 5 of 5 seeds against 0 of 5`; "" if all are zero."""
    stability = analysis.stability(arm)
    if stability is None:
        return ""
    rates = stability.diverged
    if not rates.treatment_events + rates.baseline_events:
        return ""
    seeds = "seeds" if analysis.study.is_paired else "runs"
    return (
        f"diverged in {rates.treatment_events} of {rates.n_treatment} {seeds} against "
        f"{rates.baseline_events} of {rates.n_baseline}"
    )


def loss_text(contrast: Contrast) -> str:
    """Format an endpoint that got worse: `accuracy (-0.100 [-0.123, -0.077], p <0.001)`."""
    p = numbers.p_value(contrast.holm_p)
    return f"{contrast.declared.label} ({change_text(contrast)}, p {p})"


def missing_text(analysis: Analysis) -> str:
    """List the missing trials of an unfinished study, or return "" if it is finished."""
    total, missing = analysis.n_trials, len(analysis.missing)
    if not missing:
        return ""
    some = numbers.some(analysis.missing)
    return f"{total - missing} of {total} trials are finished; missing: {some}."
