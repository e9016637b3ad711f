"""The commissioned rule: a change is adopted where it cures instability at no undue cost.

A total function of the evidence: first match wins, and every outcome, inconclusive included, has a
row. Quality of a contrast, on the endpoint that is judged:
    Q0  shown to lie inside the registered margin (two one-sided tests, Holm over the family)
    Q-  significantly worse, Q+ significantly better (the registered test, Holm over the family)
    Q?  anything else
"""

from __future__ import annotations

from paribus.decision.row import Row
from paribus.decision.rule import Rule

STABLE = "training was stable without it{threshold}"

RULE = Rule(
    name="stability_gate",
    title="stability gate",
    adopts="An arm is adopted only where it cures instability, diverges in no more "
    "seeds than the baseline, loses no primary endpoint, raises the expected calibration "
    "error by at most {calibration} and loses at most a share of {throughput} of the training "
    "throughput.",
    keys=("calibration_budget", "throughput_budget"),
    rows=(
        Row(
            "2",
            "BASELINE",
            when="the arm is shown to cause instability",
            holds=lambda s: s.fix == "harm",
            reason="the arm destabilises training",
            why="{arm} destabilises training: {events}",
            advice="Do not use the arm in this setting.",
        ),
        Row(
            "2b",
            "BASELINE",
            when="the arm diverges in every seed, the baseline in none",
            holds=lambda s: s.collapse,
            reason="the arm destabilises training: it diverges in every seed and the baseline in "
            "none, which so few seeds describe and cannot test",
            why="{arm} destabilises training: {events}; the counts are described, as so few seeds "
            "cannot test them",
            advice="Do not use the arm in this setting; nothing of it was left to compare.",
        ),
        Row(
            "3",
            "BASELINE",
            when="the baseline is stable, the arm is significantly worse",
            holds=lambda s: s.baseline_stable and s.quality == "Q-",
            reason="regression where the baseline is stable",
            why=f"{{arm}} {{shown}}, and {STABLE}",
            advice="In this setting there is no reason to use the arm: it costs quality and cures "
            "nothing.",
            hypothesis="H1a",
        ),
        Row(
            "4",
            "BASELINE",
            when="the baseline is stable, the effect is shown to lie inside the margin",
            holds=lambda s: s.baseline_stable and s.quality == "Q0",
            reason="no effect worth having",
            why="{arm} makes no difference worth having: {effect}, within {margin}",
            advice="Keep the simpler model; calibration and speed may break the tie.",
            hypothesis="H0",
            claims=False,
        ),
        Row(
            "5",
            "IMPROVES",
            when="the baseline is stable, the arm is significantly better",
            holds=lambda s: s.baseline_stable and s.quality == "Q+",
            reason="a gain, but the baseline is stable: the adoption gate is not met",
            why=f"{{arm}} {{shown}}, but {STABLE}, and by the registered criteria only a cure of "
            "instability is adopted",
            advice="The gain is worth a study of its own, registered for quality and not for "
            "stability.",
        ),
        Row(
            "6",
            "INCONCLUSIVE",
            when="the baseline is stable, anything else",
            holds=lambda s: s.baseline_stable,
            reason="underpowered",
            why="{arm} is neither shown to differ nor to stay within {margin}; {effect}",
            advice="Neither arm should be preferred on this evidence.",
            open="quality",
            claims=False,
        ),
        Row(
            "7",
            "BASELINE",
            when="the baseline is unstable, a cure is not shown, the arm is significantly worse",
            holds=lambda s: s.fix == "unshown" and s.quality == "Q-",
            reason="a cost, and no instability shown to be cured",
            why="{arm} {shown}, and is not shown to cure the instability without it; {events}",
            advice="In this setting the arm costs quality, and what it was to cure is not cured.",
            hypothesis="H1a",
        ),
        Row(
            "8",
            "INCONCLUSIVE",
            when="the baseline is unstable, a cure is not shown, anything else",
            holds=lambda s: s.fix == "unshown",
            reason="the baseline is unstable, a cure is not shown",
            why="training was unstable without {arm}, and a cure is not shown; {events}",
            advice="Study the instability with more seeds, or at a setting where it shows more "
            "often.",
            open="cure",
            claims=False,
        ),
        Row(
            "9",
            "BASELINE",
            when="the instability is cured, the arm is significantly worse",
            holds=lambda s: s.quality == "Q-",
            reason="the instability is cured, at a cost that exceeds the benefit",
            why="{arm} cures instability ({events}), but {shown}",
            advice="Look for a cure that costs less.",
            hypothesis="H1b",
        ),
        Row(
            "9b",
            "BASELINE",
            when="the instability is cured, another primary endpoint is significantly worse",
            holds=lambda s: s.elsewhere != "not worse",
            reason="the instability is cured, at a cost on another primary endpoint",
            why="{arm} cures instability ({events}), but {elsewhere}, another primary endpoint",
            advice="Decide what the loss is worth and register that trade; or look for a cure "
            "that costs less.",
            hypothesis="H1b",
        ),
        Row(
            "10",
            "INCONCLUSIVE",
            when="the instability is cured, the effect on quality is unresolved",
            holds=lambda s: s.quality == "Q?",
            reason="the instability is cured, the effect on quality is unresolved",
            why="{arm} cures instability ({events}), but its effect on quality is open; {effect}",
            advice="Add quality evidence in a new registered study before the arm is used.",
            open="quality",
        ),
        Row(
            "11",
            "BASELINE",
            when="the instability is cured, quality holds, a cost is over its budget",
            holds=lambda s: s.budget == "over",
            reason="the instability is cured, a cost is over its budget",
            why="{arm} cures instability ({events}), but a cost is over its budget",
            advice="Reduce the cost before the arm is used.",
            hypothesis="H1b",
        ),
        Row(
            "11b",
            "INCONCLUSIVE",
            when="the instability is cured, quality holds, a cost is not shown within its budget",
            holds=lambda s: s.budget == "not shown",
            reason="the instability is cured, a cost is not shown to be within its budget",
            why="{arm} cures instability ({events}), but a cost is not shown to be within its "
            "budget",
            advice="Measure the cost with more seeds before the arm is used.",
            open="cost",
        ),
        Row(
            "11c",
            "INCONCLUSIVE",
            when="the instability is cured, quality holds, but it diverged in more seeds",
            holds=lambda s: s.divergence == "more",
            reason="events are cured and quality holds, but over the seeds that survived: the arm "
            "diverged in more seeds "
            "than the baseline, and harm is not excluded",
            why="{arm} cures events ({events}) and quality holds, over the seeds that survived; "
            "it diverged in more seeds than {base}, and "
            "harm is not excluded",
            advice="Study the stability of the arm with more seeds before it is used.",
            open="harm",
        ),
        Row(
            "12",
            "ADOPT",
            when="the instability is cured, quality holds, costs are within the budgets",
            holds=lambda s: True,
            reason="the instability is cured at no cost beyond the budgets",
            why="it cures instability ({events}) at no cost beyond the budgets",
            advice="Use the arm in settings like this one.",
            hypothesis="H1b",
        ),
    ),
)
