"""Adopt what is no worse and brings something else: speed, memory, or any registered endpoint.

No worse: the one-sided test against the margin rejects (Holm over primary endpoints x contrasts).
The benefit: the one-sided test of more than `decision.least_benefit` rejects (Holm over contrasts);
it is absent where the opposite one does. To adopt takes both tests, so their number needs no
adjustment (an intersection-union test; Berger 1982).
"""

from __future__ import annotations

from paribus.decision.row import Row
from paribus.decision.rule import Rule

RULE = Rule(
    name="non_inferiority",
    title="non-inferiority with a benefit",
    adopts="An arm is adopted where it is shown to be no worse than by the margin and to gain more "
    "than {least} in {benefit}, loses no other primary endpoint beyond its margin, diverges in no "
    "more seeds than the baseline, raises the expected calibration error by at most {calibration} "
    "and loses at most a share of {throughput} of the "
    "training throughput.",
    keys=("calibration_budget", "throughput_budget", "benefit", "least_benefit"),
    rows=(
        Row(
            "2",
            "REJECT",
            when="the arm is shown to cause instability",
            holds=lambda s: s.fix == "harm",
            reason="it destabilises training",
            why="{arm} destabilises training: {events}",
            advice="Do not use the arm in this setting, whatever it saves.",
        ),
        Row(
            "2b",
            "REJECT",
            when="the arm diverges in every seed, the baseline in none",
            holds=lambda s: s.collapse,
            reason="it destabilises training: it diverges in every seed and the baseline in none, "
            "which so few seeds describe and cannot test",
            why="{arm} destabilises training: {events}; the counts are described, as so few seeds "
            "cannot test them",
            advice="Do not use the arm in this setting; nothing of it was left to compare.",
        ),
        Row(
            "3",
            "REJECT",
            when="the arm is significantly worse, and not shown to stay within the margin",
            holds=lambda s: s.quality == "Q-" and not s.not_worse,
            reason="significantly worse, and not shown to stay within the margin",
            why="{arm} {shown}, and is not shown to stay within {margin}",
            advice="In this setting the arm costs quality.",
        ),
        Row(
            "3b",
            "REJECT",
            when="another primary endpoint is significantly worse, and not shown to stay in its "
            "margin",
            holds=lambda s: s.elsewhere == "worse",
            reason="significantly worse on another primary endpoint, and not shown to stay within "
            "its margin",
            why="{arm} {elsewhere}, another primary endpoint, and is not shown to stay within its "
            "margin",
            advice="Decide what the loss is worth and register that trade; in this one the arm "
            "costs quality.",
        ),
        Row(
            "4",
            "REJECT",
            when="a cost is over its budget",
            holds=lambda s: s.budget == "over",
            reason="a cost is over its budget, and no benefit would be adopted at it",
            why="a cost of {arm} is over its budget; {effect}",
            advice="Reduce the cost first; then ask about the benefit again.",
        ),
        Row(
            "5",
            "REJECT",
            when="the benefit is shown to be absent",
            holds=lambda s: s.benefit == "absent",
            reason="the registered benefit is shown to be absent",
            why="{arm} lacks the registered benefit: {benefit}; {effect}",
            advice="There is nothing to exchange quality for; keep the simpler model.",
        ),
        Row(
            "5b",
            "INCONCLUSIVE",
            when="no worse, the benefit is shown, but it diverged in more seeds",
            holds=lambda s: s.not_worse and s.benefit == "shown" and s.divergence == "more",
            reason="no worse and with the benefit, but over the seeds that survived: the arm "
            "diverged in more seeds "
            "than the baseline, and harm is not excluded",
            why="{arm} is no worse, within {margin}: {effect}; it has the registered benefit: "
            "{benefit}; but all this over the seeds that survived: it diverged in more seeds than "
            "{base}, and "
            "harm is not excluded",
            advice="Study the stability of the arm with more seeds before it is used.",
            open="harm",
        ),
        Row(
            "6",
            "ADOPT",
            when="no worse, the benefit is shown, costs are within the budgets",
            holds=lambda s: s.not_worse and s.benefit == "shown" and s.budget == "within",
            reason="no worse, and the registered benefit is shown",
            why="{arm} is no worse, within {margin}: {effect}; and it has the registered benefit: "
            "{benefit}",
            advice="Use the arm in settings like this one, for what it saves.",
        ),
        Row(
            "7",
            "INCONCLUSIVE",
            when="no worse, the benefit is shown, a cost is not shown within its budget",
            holds=lambda s: s.not_worse and s.benefit == "shown",
            reason="no worse and with the benefit, but a cost is not shown to be within its budget",
            why="{arm} is no worse, within {margin}: {effect}; it has the registered benefit: "
            "{benefit}; but a cost is not shown to be within its budget",
            advice="Measure the cost with more seeds before the arm is used.",
            open="cost",
        ),
        Row(
            "8",
            "INCONCLUSIVE",
            when="no worse, the benefit is not shown",
            holds=lambda s: s.not_worse,
            reason="no worse, but the registered benefit is not shown",
            why="{arm} is no worse, within {margin}: {effect}; but its benefit is not shown: "
            "{benefit}",
            advice="Measure the benefit with more seeds before the arm is used.",
            open="benefit",
            claims=False,
        ),
        Row(
            "9",
            "INCONCLUSIVE",
            when="anything else",
            holds=lambda s: True,
            reason="not shown to be no worse",
            why="{arm} is not shown to be no worse by less than {margin}; {effect}",
            advice="Keep what is there until more seeds show that nothing is lost.",
            open="not worse",
            claims=False,
        ),
    ),
)
