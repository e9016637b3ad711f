"""Formatting of changes, costs and counts for all parts of a report."""

from __future__ import annotations

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Interacting, Tuned
from paribus.decision.evidence import cost_of
from paribus.report.sentences import sentence
from paribus.study import Study, open_edges, values_text

# What `Decided.test` is called.
TESTS = {
    "paired_t": "paired t-test",
    "welch_t": "Welch's t-test",
    "crossed_components": "t-test with errors of seeds and items",
    "crossed_bootstrap": "crossed bootstrap over seeds and items",
}
IDENTICAL = "0 (identical to rounding)"
MOST_DIGITS = 12  # of a change that is too small for the digits of its metric
UNEQUAL = 0.05  # of a cost: an arm whose cost differs by less is as costly as its reference
SIDES = {-1: "smallest", 1: "largest"}


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


def p_text(p: float | None, holm_p: float | None, name: str = "p") -> str:
    """Format a p-value, followed by the Holm-adjusted one if it differs, or "" if untested."""
    text, holm = numbers.p_value(p), numbers.p_value(holm_p)
    holm = f", Holm {holm}" if holm != text else ""
    return f"{name} {text}{holm}" if text else ""


def inside_text(study: Study, contrast: Contrast | Interacting) -> str:
    """Format an equivalence result as `inside ±0.02`, or `90% interval inside ±0.02`.

    The level is given if only the narrower interval, that of two one-sided tests, is inside.
    """
    endpoint = next(e for e in study.endpoints if e.metric == contrast.metric)
    says = contrast.decided
    is_shown = says is None or says.margin is None or says.interval.inside(says.margin)
    level = "" if is_shown else numbers.level(2 * study.inference.alpha)
    return sentence(
        "inside", margin=contrast.declared.stated_text(endpoint.margin or 0), level=level
    )


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
    unequal = {
        noun: share for noun, share in shares.items() if share is not None and abs(share) >= UNEQUAL
    }
    return sentence("sizes", shares=unequal)


def speed_text(analysis: Analysis, arm: str) -> str:
    """Format the difference in training speed, such as `takes 30% longer`.

    Returns "" for a difference below 5%, for an interval that includes zero, and without a valid
    measurement, which is one made in alternation, or speeds in the logs of finished runs.
    """
    cost = cost_of(analysis, arm)
    is_measured = cost.in_turn or analysis.runs is not None
    if cost.throughput is None or not is_measured or abs(cost.throughput.mean) < UNEQUAL:
        return ""
    ends = cost.throughput.interval
    return "" if ends.low <= 0 <= ends.high else sentence("speed", share=cost.throughput.mean)


def divergence_text(analysis: Analysis, arm: str) -> str:
    """Format divergence counts: `diverged in 5 of 5 seeds against 0 of 5`, or "" if none did."""
    stability = analysis.stability(arm)
    rates = stability.diverged if stability else None
    if rates is None or not rates.treatment_events + rates.baseline_events:
        return ""
    return sentence("diverged", rates=rates, runs="seeds" if analysis.study.is_paired else "runs")


def loss_text(contrast: Contrast) -> str:
    """Format an endpoint that got worse: `accuracy (-0.10 [-0.12, -0.08], p 0.010, Holm 0.021)`."""
    return sentence(
        "loss",
        label=contrast.declared.label,
        change=change_text(contrast),
        tests=p_text(contrast.p, contrast.holm_p),
    )


def tuning_texts(tuned: Tuned, arm: str) -> list[str]:
    """Return warnings about the choice of an arm's tuned values."""
    best = tuned.best(arm)
    values = tuned.values_of(best)
    edges = [
        (SIDES[side], values_text({key: values[key]}))
        for key, side in open_edges(tuned.candidates, values)
    ]
    lost = sentence("tuning_diverged", lost=best.n_diverged, n=len(best.values))
    edge = sentence("tuning_edge", edges=edges)
    return [lost] * bool(best.n_diverged) + [edge] * bool(edges)
