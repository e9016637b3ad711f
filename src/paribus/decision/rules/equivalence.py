"""Are two arms the same for all that matters? Nothing is better or worse here, only apart.

For what should change nothing: another precision, another implementation, a part that is dropped.
"""

from __future__ import annotations

from paribus.decision.row import Row
from paribus.decision.rule import Rule

RULE = Rule(
    name="equivalence",
    title="equivalence",
    adopts="Two arms are called equivalent where the change is shown to lie inside the margin and "
    "training is not shown to be more or less stable; nothing is adopted.",
    rows=(
        Row(
            "2",
            "DIFFERENT",
            when="the arm is shown to cause or to cure instability",
            holds=lambda s: s.fix != "unshown",
            reason="they differ in stability",
            why="{arm} and {base} differ in stability: {events}",
            advice="Do not take one arm for the other.",
        ),
        Row(
            "2b",
            "DIFFERENT",
            when="the arm diverges in every seed, the baseline in none",
            holds=lambda s: s.collapse,
            reason="the arm diverges in every seed and the baseline in none, which so few seeds "
            "describe and cannot test",
            why="{arm} and {base} differ in stability: {events}; the counts are described, as so "
            "few seeds cannot test them",
            advice="Do not take one arm for the other; nothing of it was left to compare.",
        ),
        Row(
            "2c",
            "INCONCLUSIVE",
            when="the effect lies inside the margin, but the arms diverged in unequal numbers of "
            "seeds",
            holds=lambda s: s.quality == "Q0" and s.divergence != "equal",
            reason="the change is shown to lie inside the margin over the seeds that survived, but "
            "the arms diverged in unequal numbers of seeds",
            why="{arm} and {base} differ by less than {margin} over the seeds that survived: "
            "{effect}; but they diverged in unequal numbers of seeds",
            advice="Study the stability of both with more seeds before one stands for the other.",
            claims=False,
        ),
        Row(
            "3",
            "EQUIVALENT",
            when="the effect is shown to lie inside the margin",
            holds=lambda s: s.quality == "Q0",
            reason="the change is shown to lie inside the margin",
            why="{arm} and {base} differ by less than {margin}: {effect}",
            advice="Either arm may stand for the other where differences of that size do not "
            "matter.",
            claims=False,
        ),
        Row(
            "4",
            "DIFFERENT",
            when="the arm is significantly worse",
            holds=lambda s: s.quality == "Q-",
            reason="the arm is significantly worse, and not shown to stay inside the margin",
            why="{arm} {shown}, and is not shown to stay within {margin}",
            advice="Do not take one arm for the other: quality is lost.",
        ),
        Row(
            "5",
            "DIFFERENT",
            when="the arm is significantly better",
            holds=lambda s: s.quality == "Q+",
            reason="the arm is significantly better, and not shown to stay inside the margin",
            why="{arm} {shown}, a gain that is not shown to stay within {margin}",
            advice="The gain is worth a study of its own, registered for superiority.",
        ),
        Row(
            "6",
            "INCONCLUSIVE",
            when="anything else",
            holds=lambda s: True,
            reason="underpowered",
            why="{arm} and {base} are neither shown to differ nor to be within {margin}; {effect}",
            advice="Do not take one arm for the other on this evidence.",
            open="quality",
            claims=False,
        ),
    ),
)
