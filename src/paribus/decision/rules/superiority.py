"""Adopt a gain: significantly better, at no cost beyond the budgets.

The rule of studies that ask whether a change is an improvement. A cost that is shown (in stability,
or over a budget) rejects whatever the gain; a better effect never gets a worse verdict.
"""

from __future__ import annotations

from paribus.decision.row import Row
from paribus.decision.rule import Rule

RULE = Rule(
    name="superiority",
    title="superiority",
    adopts="An arm is adopted where it is significantly better, is not significantly worse "
    "on another primary endpoint, diverges in no more seeds than the baseline, raises the "
    "expected calibration error by at most {calibration} and loses at most a "
    "share of {throughput} of the training throughput.",
    keys=("calibration_budget", "throughput_budget"),
    rows=(
        Row(
            "2",
            "REJECT",
            when="the arm is shown to cause instability",
            holds=lambda s: s.fix == "harm",
            reason="it destabilises training",
            why="{arm} destabilises training: {events}",
            advice="Do not use the arm in this setting, whatever it does to quality.",
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
            when="the arm is significantly worse",
            holds=lambda s: s.quality == "Q-",
            reason="significantly worse",
            why="{arm} {shown}",
            advice="In this setting the arm is a step back.",
        ),
        Row(
            "3b",
            "REJECT",
            when="the arm is significantly worse on another primary endpoint",
            holds=lambda s: s.elsewhere != "not worse",
            reason="significantly worse on another primary endpoint",
            why="{arm} {elsewhere}, another primary endpoint",
            advice="Decide what the loss is worth and register that trade; in this one the arm is "
            "a step back.",
        ),
        Row(
            "4",
            "REJECT",
            when="a cost is over its budget",
            holds=lambda s: s.budget == "over",
            reason="a cost is over its budget, and no gain would be adopted at it",
            why="a cost of {arm} is over its budget; {effect}",
            advice="Reduce the cost first; then ask about the gain again.",
        ),
        Row(
            "5",
            "NO EFFECT",
            when="the effect is shown to lie inside the margin",
            holds=lambda s: s.quality == "Q0",
            reason="no effect worth having",
            why="{arm} makes no difference worth having: {effect}, within {margin}",
            advice="Keep the simpler model; calibration and speed may break the tie.",
            claims=False,
        ),
        Row(
            "5b",
            "INCONCLUSIVE",
            when="the arm is significantly better, but it diverged in more seeds",
            holds=lambda s: s.quality == "Q+" and s.divergence == "more",
            reason="a gain, but over the seeds that survived: the arm diverged in more seeds "
            "than the baseline, and harm is not excluded",
            why="{arm} {shown}, over the seeds that survived; it diverged in more seeds than "
            "{base}, and "
            "harm is not excluded",
            advice="Study the stability of the arm with more seeds before it is used.",
            open="harm",
        ),
        Row(
            "6",
            "ADOPT",
            when="the arm is significantly better, costs are within the budgets",
            holds=lambda s: s.quality == "Q+" and s.budget == "within",
            reason="a significant gain at no cost beyond the budgets",
            why="{arm} {shown}, at no cost beyond the budgets",
            advice="Use the arm in settings like this one.",
        ),
        Row(
            "7",
            "INCONCLUSIVE",
            when="the arm is significantly better, a cost is not shown within its budget",
            holds=lambda s: s.quality == "Q+",
            reason="a gain, but a cost is not shown to be within its budget",
            why="{arm} {shown}, but a cost is not shown to be within its budget",
            advice="Measure the cost with more seeds before the arm is used.",
            open="cost",
        ),
        Row(
            "8",
            "INCONCLUSIVE",
            when="anything else",
            holds=lambda s: True,
            reason="underpowered",
            why="{arm} is neither shown to differ nor to stay within {margin}; {effect}",
            advice="Neither arm should be preferred on this evidence.",
            open="quality",
            claims=False,
        ),
    ),
)
