"""Computation of verdicts from the analysis of a study."""

from __future__ import annotations

from collections.abc import Iterable

from paribus.analysis import Analysis, BudgetState, Contrast, Interacting
from paribus.decision.evidence import cost_of, estimate_of, gather
from paribus.decision.hypotheses import supports
from paribus.decision.reach import needed
from paribus.decision.rule import Rule
from paribus.decision.rules import rule_of
from paribus.decision.schema import Depends, Verdict
from paribus.decision.word import word_of
from paribus.declared import provided
from paribus.study.tuning_study import TASKS


class Verdicts(list[Verdict]):
    """List of a study's verdicts, with the analysis on which they are based."""

    def __init__(self, analysis: Analysis, verdicts: Iterable[Verdict]) -> None:
        super().__init__(verdicts)
        self.analysis = analysis

    def _repr_markdown_(self) -> str:
        """Return the report card as Markdown, for display in notebooks."""
        build, render = (provided("function", name) for name in ("build_report", "card_markdown"))
        return render(build(self))

    @property
    def interactions(self) -> list[Depends]:
        """Verdicts on all interactions of the study."""
        return [self._depends(interacting) for interacting in self.analysis.interactions]

    def _depends(self, interacting: Interacting) -> Depends:
        """Return the verdict on an interaction, which is INVALID if one of its arms is."""
        alpha, says = self.analysis.study.inference.alpha, interacting.decided
        arms = (*interacting.of, *interacting.than)
        invalid = {v.arm for v in self if v.metric == interacting.metric and v.evidence.invalid}
        if not invalid.isdisjoint(arms):
            word = "INVALID"
        elif says is None or says.descriptive_only:
            word = "DESCRIPTIVE"
        elif interacting.equivalent(alpha):
            word = "SAME"
        else:
            word = "DIFFERS" if interacting.significant(alpha) else "UNRESOLVED"
        return Depends(
            name=interacting.name,
            title=interacting.title,
            metric=interacting.metric,
            word=word,
            of=interacting.of,
            than=interacting.than,
            **estimate_of(says),
            p=says.p_value if says and interacting.holm_p is not None else None,
            adjusted_p=interacting.holm_p,
            margin=interacting.margin,
            why_not=interacting.why_not,
            interacting=interacting,
        )


def decide(analysis: Analysis) -> Verdicts:
    """Apply the registered decision rule to every contrast and primary endpoint."""
    rule = rule_of(analysis)
    verdicts = [
        _verdict(analysis, analysis.contrast(arm, endpoint.metric), rule)
        for endpoint in analysis.study.judged
        for arm, _ in analysis.study.contrasts
    ]
    return Verdicts(analysis, verdicts)


def _verdict(analysis: Analysis, contrast: Contrast, rule: Rule) -> Verdict:
    evidence = gather(analysis, contrast)
    row, word = rule.decide(evidence), word_of(evidence)
    bearing = {
        h.name: supports(h, contrast.arm, row.id, row.outcome)
        for h in analysis.study.hypotheses
        if h.endpoint in (None, contrast.metric)
    }
    return Verdict(
        arm=contrast.arm,
        reference=contrast.reference,
        metric=contrast.metric,
        label=contrast.declared.label,
        word=word,
        cost=_cost(analysis, contrast.arm, evidence.state.budget) if word == "BETTER" else "",
        **estimate_of(contrast.decided),
        p=contrast.p,
        adjusted_p=contrast.holm_p,
        target=contrast.target,
        margin=contrast.margin,
        rule=analysis.study.decision.rule,
        row=row.id,
        outcome=row.outcome,
        reason=row.reason or row.when,
        supports=tuple(name for name, is_for in bearing.items() if is_for),
        contradicts=tuple(name for name, is_for in bearing.items() if is_for is False),
        evidence=evidence,
        needed=needed(analysis, contrast, row, word),
        p_over_studies=_over_studies(analysis, contrast),
    )


def _cost(analysis: Analysis, arm: str, budget: BudgetState) -> str:
    """Return the problem with an arm's costs, such as "over", or "" if they are within limits."""
    limits = analysis.study.decision
    is_asked = limits.throughput_budget is not None or limits.calibration_budget is None
    if budget != "over" and is_asked and cost_of(analysis, arm).throughput is None:
        return "not measured"
    return "" if budget == "within" else budget


def is_of_text(metric: str) -> bool:
    """Return whether a metric is measured on held-out text, not on tasks."""
    return metric.partition("/")[0] not in TASKS


def _over_studies(analysis: Analysis, contrast: Contrast) -> float | None:
    reuse, p = analysis.reuse, contrast.holm_p
    if reuse is None or not reuse.recorded or p is None or not is_of_text(contrast.metric):
        return None
    return min(1.0, reuse.studies * p)
