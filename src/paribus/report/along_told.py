"""What page and paper say of contrasts along training: a table, and sentences of it."""

from __future__ import annotations

from paribus import numbers
from paribus.analysis import Along, Analysis, Ratio
from paribus.report.figures import names
from paribus.report.tables import Table
from paribus.study import Study

BUDGETS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}
MOST_CROSSINGS = 3  # that are told of one contrast
DIGITS = 3  # of a ratio


def note(study: Study) -> str:
    """What curves are no evidence of; a learning rate that is constant depends on no length."""
    falls = any(study.setting(a).training.schedule.kind != "constant" for a in study.arms)
    earlier = ": a shorter run would have lowered its learning rate earlier" if falls else ""
    return (
        "The verdict rests on the end of the schedule. What lies before describes the way there, "
        f"under this schedule{earlier}."
    )


def along_table(analysis: Analysis) -> Table | None:
    """Speed-ups, crossings and targets of every contrast; None where no curve was measured."""
    if not analysis.along:
        return None
    called, level = names(analysis.study), numbers.level(analysis.study.inference.alpha)
    has_target = analysis.study.evaluation.target is not None
    rows = [
        (
            called[one.arm],
            called[one.reference],
            BUDGETS[one.axis],
            _ratio(one.speedup, len(one.seeds)),
            _crossings(one),
            *(_reached(one) if has_target else ()),
        )
        for one in analysis.along
    ]
    head = ("arm", "against", "budget", f"speed-up [{level}]", "mean curves cross at")
    caption = (
        "Along training. The speed-up is of reaching equal loss: how many times the budget the "
        "reference took to the loss that both trials of a pair reach, the higher of their two "
        f"final losses; the mean ratio over seed pairs with its {level} interval, not adjusted. "
        "The first time counts, and between points of a curve the loss is taken to fall in a "
        "straight line. A pair of which one trial ends no lower than it began has no speed-up. A "
        "crossing in brackets has no pointwise interval that excludes zero on one of its sides."
    )
    if has_target:
        head += ("reached by", "ratio to the target", "sign p")
        caption += (
            f" The target is {analysis.study.evaluation.target:g} nats/token: the seeds in which "
            "the arm and its reference reached it within the smaller of their two budgets; the "
            "ratio of what they needed, where a trial that did not counts with that budget; and "
            "an exact sign test of who came first, in which such a trial is behind one that did."
        )
    caption += " ".join(["", *not_compared(analysis)])
    text = frozenset({"arm", "against", "budget"})
    return Table("along", caption, head, tuple(rows), text, wide=True)


def not_compared(analysis: Analysis) -> list[str]:
    """A sentence for each contrast of which some points are left out, along any budget."""
    called, found = names(analysis.study), {}
    for one in analysis.along:
        if one.left_out:
            points, many = numbers.plural(one.left_out, "point"), len(one.seeds_without) > 1
            seeds = ", ".join(map(str, one.seeds_without))
            found[one.arm, one.reference] = (
                f"{called[one.arm]} against {called[one.reference]}: {points} of the contrast "
                f"{'are' if one.left_out > 1 else 'is'} left out, where the loss of seed"
                f"{'s' if many else ''} {seeds} is not finite; speed-ups count it as above any "
                "loss."
            )
    return list(found.values())


def told_along(analysis: Analysis, most: int) -> list[str]:
    """A sentence for each contrast by tokens, of at most so many contrasts."""
    called, told = names(analysis.study), []
    for one in [one for one in analysis.along if one.axis == "tokens"][:most]:
        arm, reference = called[one.arm], called[one.reference]
        words = []
        if one.speedup is not None:
            words.append(
                f"{arm} came to equal loss {_ratio(one.speedup, len(one.seeds))} times as fast as "
                f"{reference}, in tokens"
            )
        clear = [c for c in one.contrast.crossings if c.resolved]
        if clear:
            at = ", ".join(f"{c.at:,.0f}" for c in clear[:MOST_CROSSINGS])
            words.append(f"their mean curves cross at {at} tokens")
        if words:
            told.append(f"{'; '.join(words)}.")
    return told


def _ratio(ratio: Ratio | None, pairs: int) -> str:
    """A ratio with its interval, and of how many pairs where some have none."""
    if ratio is None:
        return numbers.NONE
    interval = numbers.ratio_interval(ratio.low, ratio.high, DIGITS)
    some = f" ({ratio.n} of {pairs} pairs)" if ratio.n < pairs else ""
    return f"{numbers.ratio(ratio.log, DIGITS)} {interval}{some}"


def _crossings(one: Along) -> str:
    found = one.contrast.crossings
    places = [(numbers.short(c.at), c.resolved) for c in found[:MOST_CROSSINGS]]
    told = [at if is_resolved else f"({at})" for at, is_resolved in places]
    more = f" and {len(found) - MOST_CROSSINGS} more" if len(found) > MOST_CROSSINGS else ""
    return (", ".join(told) + more) or numbers.NONE


def _reached(one: Along) -> tuple[str, str, str]:
    if one.reached is None:
        return numbers.NONE, numbers.NONE, ""
    first = one.reached.first
    ours, theirs = first.both + first.only_treatment, first.both + first.only_baseline
    seeds = f"{ours} and {theirs} of {first.n}"
    return seeds, _ratio(one.reached.ratio, first.n), numbers.p_value(first.p_value)
