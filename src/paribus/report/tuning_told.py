"""The tuning of a study in tables and sentences: the choices, and what a contrast depends on."""

from __future__ import annotations

import math

from paribus import numbers
from paribus.analysis import Analysis, SharedContrast, Tuned
from paribus.report.figures import names
from paribus.report.figures.tuning_curves import at_best, judged_label
from paribus.report.tables import Table
from paribus.report.vocabulary import listed
from paribus.study import in_words

AT_BEST = "each at its best (verdict)"


def tuning_table(analysis: Analysis) -> Table | None:
    """What every arm was tuned to; None where nothing was tuned, or it is not finished."""
    tuned = analysis.tuned
    if tuned is None:
        return None
    called, digits = names(analysis.study), tuned.metric.digits
    rows = []
    for arm in analysis.study.arms:
        best = tuned.best(arm)
        values = [value for value in best.values.values() if math.isfinite(value)]
        curve = tuned.best_of.get(arm, ())
        lost = sum(point.n_diverged for point in tuned.of(arm))
        rows.append(
            (
                called[arm],
                in_words(tuned.values_of(best)),
                numbers.fixed(best.mean, digits),
                f"{numbers.fixed(min(values), digits)} to {numbers.fixed(max(values), digits)}"
                if values
                else "",
                numbers.fixed(curve[0], digits) if curve else "",
                str(lost),
                "; ".join(tuned.caveats.get(arm, [])),
            )
        )
    n_seeds = len(tuned.points[0].values)
    return Table(
        "tuning",
        f"What every arm was tuned to: of {len(tuned.candidates)} candidates, each with "
        f"{n_seeds} tuning seed{'s' if n_seeds > 1 else ''}, the one with the best mean "
        f"{tuned.metric.title}. Beside it what one candidate drawn at random would be expected to "
        "give, and how many of the arm's tuning trials diverged.",
        ("arm", "chosen", "mean", "seeds from, to", "any one", "diverged", "left open"),
        tuple(rows),
        frozenset({"arm", "chosen", "left open"}),
        wide=True,
    )


def shared_table(analysis: Analysis) -> Table | None:
    """Each contrast at every shared value, and beside them the verdict's: each arm at its best."""
    tuned = analysis.tuned
    if tuned is None or not tuned.shared:
        return None
    called, digits = names(analysis.study), tuned.metric.change_digits
    rows = []
    for arm, reference in analysis.study.contrasts:
        who = (called[arm], called[reference])
        for one in tuned.shared_by(arm):
            there = list(one.differences.values())
            rows.append(
                (
                    *who,
                    f"both at {in_words(tuned.values_of(one))}",
                    str(len(there)),
                    numbers.signed(one.mean, digits) if there else "",
                    numbers.span(min(there), max(there), digits) if there else "diverged",
                )
            )
        says = at_best(analysis, arm)
        if says is not None:
            low, high = says.interval.low, says.interval.high
            mean, span = numbers.signed(says.mean, digits), numbers.span(low, high, digits)
            rows.append((*who, AT_BEST, str(says.n), mean, span))
    level = numbers.level(analysis.study.inference.alpha)
    return Table(
        "tuning-shared",
        f"Change of {tuned.metric.label} where both arms have the same values, on the tuning "
        "seeds: its mean and its range over these seeds, which describe and test nothing. The last "
        f"row of a contrast is the verdict's, of {judged_label(analysis)}, on other seeds and with "
        f"its {level} interval.",
        ("arm", "against", "at", "seeds", "change", "from, to"),
        tuple(rows),
        frozenset({"arm", "against", "at"}),
        wide=True,
    )


def sensitivity_table(analysis: Analysis) -> Table | None:
    """Learning-rate sensitivity of every arm; None where that alone is not what was tuned."""
    if analysis.tuned is None or not analysis.tuned.sensitivities:
        return None
    called, rows = names(analysis.study), []
    for s in analysis.tuned.sensitivities:
        values = [value for value in s.values.values() if math.isfinite(value)]
        mean = numbers.fixed(sum(values) / len(values) if values else None, 4)
        change = p = ""
        if s.paired is not None:
            interval = s.paired.decided.interval
            change = numbers.delta(s.paired.mean, interval.low, interval.high, 4)
            p = "" if s.paired.descriptive_only else numbers.p_value(s.paired.decided.p_value)
        against = called[s.reference] if s.reference else ""
        rows.append((called[s.arm], against, mean, str(len(values)), change, p))
    level = numbers.level(analysis.study.inference.alpha)
    return Table(
        "sensitivities",
        "Learning-rate sensitivity (Wortsman et al. 2023): by how much a loss exceeds that of the "
        "best rate, in the mean over all rates that were tried, in nats/token. Paired by tuning "
        "seed; a trial that diverged counts as one that learned nothing.",
        ("arm", "against", "mean", "tuning seeds", f"change [{level}]", "p"),
        tuple(rows),
        wide=True,
    )


def tuning_tables(analysis: Analysis) -> list[Table]:
    """All of them that there are."""
    every = (tuning_table(analysis), shared_table(analysis), sensitivity_table(analysis))
    return [table for table in every if table is not None]


def tuning_in_words(analysis: Analysis) -> list[str]:
    """Sentences: how the arms were tuned, and what each contrast depends on."""
    tuned, plan = analysis.tuned, analysis.study.tuning
    if tuned is None or plan is None:
        return []
    called, each = names(analysis.study), len(tuned.candidates) * len(plan.seeds)
    keys = listed([key.rpartition(".")[2].replace("_", " ") for key in plan.keys])
    told = [
        f"Every arm was trained with the same {len(tuned.candidates)} candidates for {keys} on "
        f"{len(plan.seeds)} tuning seed{'s' if len(plan.seeds) > 1 else ''}, {each} trials an arm, "
        "before any trial of the verdict. Each got the one with the best mean "
        f"{tuned.metric.label}; the verdict is of other seeds."
    ]
    for arm, reference in analysis.study.contrasts:
        if line := _depends(analysis, tuned, arm):
            told.append(f"{called[arm]} against {called[reference]}: {line}")
    left = tuned.left_open(tuple(analysis.study.arms))
    told += [f"Left open: {'; '.join(left)}."] if left else []
    return told


def _depends(analysis: Analysis, tuned: Tuned, arm: str) -> str:
    """`the change lies between -0.50 (learning_rate 3e-3) and +0.14 (...) over shared values`."""
    extremes = tuned.extremes(arm)
    if extremes is None:
        return ""
    low, high = extremes
    digits = tuned.metric.change_digits
    unit = f" {tuned.metric.change_unit}" if tuned.metric.change_unit not in ("", "1") else ""

    def at(one: SharedContrast) -> str:
        where = in_words(tuned.values_of(one))
        return f"{numbers.signed(one.mean, digits)} ({where})"

    text = f"over values that both share, the change of {tuned.metric.label} lies between "
    text += f"{at(low)} and {at(high)}{unit}"
    if low.mean < 0 < high.mean:
        text += ", so that its sign depends on the value"
    says = at_best(analysis, arm)
    if says is not None:
        bounds = numbers.delta(says.mean, says.interval.low, says.interval.high, digits)
        text += f"; of {judged_label(analysis)}, each at its best, it is {bounds} on the verdict's "
        text += "seeds"
    return f"{text}."
