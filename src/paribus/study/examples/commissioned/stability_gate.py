"""Decision rule "stability gate": adopt an arm only if it cures unstable training.

If the baseline trains stably, it is kept; an improvement by the arm is reported but not adopted.
Limits on costs are an increase of the expected calibration error by 0.01 and a loss of 5% of
training throughput, set in the study file together with the rule:

    [decision]
    rule = "stability_gate.py:STABILITY_GATE"
    calibration_budget = 0.01
    throughput_budget = 0.05
"""

from __future__ import annotations

from paribus.decision import Row, Rule

STABLE = "the baseline is stable"
NOT_CURED = "the baseline is unstable, a cure is not shown"
CURED = "the instability is cured"
QUALITY_HOLDS = f"{CURED}, quality holds"

# Rows are tried in their order. Two rows come before them in every rule: 0 for a study that cannot
# be judged, and 1 for fewer than five seeds.
ROWS = (
    Row(
        "2",
        "BASELINE",
        when="the arm is shown to cause instability",
        holds={"fix": "harm"},
    ),
    Row(
        "2b",
        "BASELINE",
        when="the arm diverges in every seed, the baseline in none",
        holds={"collapse": True},
        reason="it diverges in every seed and the baseline in none, which so few seeds describe "
        "and cannot test",
    ),
    Row(
        "3",
        "BASELINE",
        when=f"{STABLE}, the arm is significantly worse",
        holds={"baseline_stable": True, "quality": "Q-"},
    ),
    Row(
        "4",
        "BASELINE",
        when=f"{STABLE}, the effect is shown to lie inside the margin",
        holds={"baseline_stable": True, "quality": "Q0"},
        reason="no effect worth having",
    ),
    Row(
        "5",
        "IMPROVES",
        when=f"{STABLE}, the arm is significantly better",
        holds={"baseline_stable": True, "quality": "Q+"},
        reason="a gain is adopted only where it also cures unstable training, and the baseline is "
        "stable",
    ),
    Row(
        "6",
        "INCONCLUSIVE",
        when=f"{STABLE}, anything else",
        holds={"baseline_stable": True},
        reason="more seeds are needed",
        open="quality",
    ),
    Row(
        "7",
        "BASELINE",
        when=f"{NOT_CURED}, the arm is significantly worse",
        holds={"fix": "unshown", "quality": "Q-"},
    ),
    Row(
        "8",
        "INCONCLUSIVE",
        when=f"{NOT_CURED}, anything else",
        holds={"fix": "unshown"},
        reason=NOT_CURED,
        open="cure",
    ),
    Row(
        "9",
        "BASELINE",
        when=f"{CURED}, the arm is significantly worse",
        holds={"quality": "Q-"},
    ),
    Row(
        "9b",
        "BASELINE",
        when=f"{CURED}, the arm is significantly worse on another primary endpoint",
        holds={"elsewhere": ["worse", "within margin"]},
    ),
    Row(
        "10",
        "INCONCLUSIVE",
        when=f"{CURED}, the effect on quality is unresolved",
        holds={"quality": "Q?"},
        open="quality",
    ),
    Row(
        "11",
        "BASELINE",
        when=f"{QUALITY_HOLDS}, a cost is over its budget",
        holds={"budget": "over"},
    ),
    Row(
        "11b",
        "INCONCLUSIVE",
        when=f"{QUALITY_HOLDS}, a cost is not shown within its budget",
        holds={"budget": "not shown"},
        open="cost",
    ),
    Row(
        "11c",
        "INCONCLUSIVE",
        when=f"{QUALITY_HOLDS}, but it diverged in more seeds",
        holds={"divergence": "more"},
        reason="quality is that of the seeds that survived, but the arm diverged in more than the "
        "baseline, and harm is not excluded",
        open="harm",
    ),
    Row(
        "12",
        "ADOPT",
        when=f"{QUALITY_HOLDS}, costs are within the budgets",
    ),
)

STABILITY_GATE = Rule(
    name="stability_gate",
    title="stability gate",
    keys=("calibration_budget", "throughput_budget"),
    rows=ROWS,
)
