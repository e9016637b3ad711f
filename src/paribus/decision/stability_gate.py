"""The commissioned rule: a change is adopted where it cures instability at no undue cost.

A total function of the evidence: first match wins, and every outcome, inconclusive included, has a
row. Quality of a contrast, on the primary endpoint:
    Q0  shown to lie inside the registered margin (two one-sided tests, Holm over contrasts)
    Q-  significantly worse, Q+ significantly better (the registered test, Holm over contrasts)
    Q?  anything else
"""

from __future__ import annotations

from paribus.decision.evidence import Evidence
from paribus.decision.rule import Row, first_match, table
from paribus.statistics import DESCRIPTIVE_BELOW

KEEP, ADOPT, OPEN, NONE = "Keep {base}", "Adopt {arm}", "Undecided", "No verdict"
STABLE = "training was stable without it{threshold}"

ROWS = table(
    Row(
        "0",
        "INVALID",
        when="a run is missing, a control did not hold, or the registration was changed",
        holds=lambda e: bool(e.invalid),
        reason="a run is missing, or a control did not hold",
        lead=NONE,
        why="{arm} cannot be judged, as {invalid}",
        advice="Mend what is missing or broken before anything is concluded.",
    ),
    Row(
        "1",
        "DESCRIPTIVE ONLY",
        when=f"fewer than {DESCRIPTIVE_BELOW} seed pairs",
        holds=lambda e: e.n < DESCRIPTIVE_BELOW,
        reason=f"fewer than {DESCRIPTIVE_BELOW} seed pairs",
        lead=NONE,
        why="{arm} has {pairs}, and fewer than five are described, not tested; {effect}",
        advice="Take this as a pilot: plan the number of seeds from its spread, and register "
        "again.",
    ),
    Row(
        "2",
        "BASELINE",
        when="the arm is shown to cause instability",
        holds=lambda e: e.fix == "harm",
        reason="the arm destabilises training",
        lead=KEEP,
        why="{arm} destabilises training: {events}",
        advice="Do not use the arm in this setting.",
    ),
    Row(
        "2b",
        "BASELINE",
        when="the arm diverges in every seed, the baseline in none",
        holds=lambda e: e.collapse,
        reason="the arm destabilises training: it diverges in every seed and the baseline in none, "
        "which so few seeds describe and cannot test",
        lead=KEEP,
        why="{arm} destabilises training: {events}; the counts are described, as so few seeds "
        "cannot test them",
        advice="Do not use the arm in this setting; nothing of it was left to compare.",
    ),
    Row(
        "3",
        "BASELINE",
        when="the baseline is stable, the arm is significantly worse",
        holds=lambda e: e.baseline_stable and e.quality == "Q-",
        reason="regression where the baseline is stable",
        lead=KEEP,
        why=f"{{arm}} {{shown}}, and {STABLE}",
        advice="In this setting there is no reason to use the arm: it costs quality and cures "
        "nothing.",
        hypothesis="H1a",
    ),
    Row(
        "4",
        "BASELINE",
        when="the baseline is stable, the effect is shown to lie inside the margin",
        holds=lambda e: e.baseline_stable and e.quality == "Q0",
        reason="no effect worth having",
        lead=KEEP,
        why="{arm} makes no difference worth having: {effect}, within {margin}",
        advice="Keep the simpler model; calibration and speed may break the tie.",
        hypothesis="H0",
    ),
    Row(
        "5",
        "IMPROVES",
        when="the baseline is stable, the arm is significantly better",
        holds=lambda e: e.baseline_stable and e.quality == "Q+",
        reason="a gain, but the baseline is stable: the adoption gate is not met",
        lead=KEEP,
        why=f"{{arm}} {{shown}}, but {STABLE}, and by the registered criteria only a cure of "
        "instability is adopted",
        advice="The gain is worth a study of its own, registered for quality and not for "
        "stability.",
    ),
    Row(
        "6",
        "INCONCLUSIVE",
        when="the baseline is stable, anything else",
        holds=lambda e: e.baseline_stable,
        reason="underpowered",
        lead=OPEN,
        why="{arm} is neither shown to differ nor to stay within {margin}; {effect}",
        advice="Neither arm should be preferred on this evidence.",
    ),
    Row(
        "7",
        "BASELINE",
        when="the baseline is unstable, a cure is not shown, the arm is significantly worse",
        holds=lambda e: e.fix == "unshown" and e.quality == "Q-",
        reason="a cost, and no instability shown to be cured",
        lead=KEEP,
        why="{arm} {shown}, and is not shown to cure the instability without it; {events}",
        advice="In this setting the arm costs quality, and what it was to cure is not cured.",
        hypothesis="H1a",
    ),
    Row(
        "8",
        "INCONCLUSIVE",
        when="the baseline is unstable, a cure is not shown, anything else",
        holds=lambda e: e.fix == "unshown",
        reason="the baseline is unstable, a cure is not shown",
        lead=OPEN,
        why="training was unstable without {arm}, and a cure is not shown; {events}",
        advice="Study the instability with more seeds, or at a setting where it shows more often.",
    ),
    Row(
        "9",
        "BASELINE",
        when="the instability is cured, the arm is significantly worse",
        holds=lambda e: e.quality == "Q-",
        reason="the instability is cured, at a cost that exceeds the benefit",
        lead=KEEP,
        why="{arm} cures instability ({events}), but {shown}",
        advice="Look for a cure that costs less.",
        hypothesis="H1b",
    ),
    Row(
        "10",
        "INCONCLUSIVE",
        when="the instability is cured, the effect on quality is unresolved",
        holds=lambda e: e.quality == "Q?",
        reason="the instability is cured, the effect on quality is unresolved",
        lead=OPEN,
        why="{arm} cures instability ({events}), but its effect on quality is open; {effect}",
        advice="Add quality evidence in a new registered study before the arm is used.",
    ),
    Row(
        "11",
        "BASELINE",
        when="the instability is cured, quality holds, a cost is over its budget",
        holds=lambda e: e.budget == "over",
        reason="the instability is cured, a cost is over its budget",
        lead=KEEP,
        why="{arm} cures instability ({events}), but a cost is over its budget",
        advice="Reduce the cost before the arm is used.",
        hypothesis="H1b",
    ),
    Row(
        "11b",
        "INCONCLUSIVE",
        when="the instability is cured, quality holds, a cost is not shown within its budget",
        holds=lambda e: e.budget == "not shown",
        reason="the instability is cured, a cost is not shown to be within its budget",
        lead=OPEN,
        why="{arm} cures instability ({events}), but a cost is not shown to be within its budget",
        advice="Measure the cost with more seeds before the arm is used.",
    ),
    Row(
        "12",
        "ADOPT",
        when="the instability is cured, quality holds, costs are within the budgets",
        holds=lambda e: True,
        reason="the instability is cured at no cost beyond the budgets",
        lead=ADOPT,
        why="it cures instability ({events}) at no cost beyond the budgets",
        advice="Use the arm in settings like this one.",
        hypothesis="H1b",
    ),
)


def decide_row(evidence: Evidence) -> Row:
    """The row of the decision table that fires."""
    return first_match(ROWS.values(), evidence)
