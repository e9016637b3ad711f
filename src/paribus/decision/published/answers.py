"""What a published rule says of the arms of a study, beside the verdict and not instead of it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from paribus.analysis import Analysis
from paribus.decision.published.rule import PublishedAnswer, PublishedRule, find_published
from paribus.digests import plain
from paribus.errors import ParibusError, nearest


def answers_of(
    rule: PublishedRule, analysis: Analysis, trials: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[str, PublishedAnswer]:
    """Return what `rule` says of each arm; of the pairwise form, of each but its reference.

    `trials` is trial.json by (arm, seed): the pairwise form asks for the steps of both arms. Raises
    ParibusError where the study does not compare the rule's score.
    """
    study, score = analysis.study, rule.score
    if score not in analysis.metrics:
        raise ParibusError(
            f"rule {rule.name} is of '{score}', which is not compared here: "
            f"{nearest(score, analysis.metrics)}; name it with --score"
        )
    scores = {arm: list(analysis.summary(arm, score).values.values()) for arm in study.arms}
    steps = {arm: _steps(arm, trials) for arm in study.arms}
    found = {}
    for arm in study.arms:
        reference = study.reference(arm)
        if rule.statistic != "pairwise":
            found[arm] = rule.answer(scores[arm])
        elif reference is not None:
            found[arm] = rule.answer(
                scores[arm],
                steps=steps[arm],
                baseline=scores[reference],
                baseline_steps=steps[reference],
            )
    return found


def published_record(
    analysis: Analysis, trials: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what verdict.json says of the published rule that a study of runs names, by arm; empty
    where it names none."""
    if not (name := (analysis.study.model_extra or {}).get("runs", {}).get("rule")):
        return {}
    said = answers_of(find_published(name), analysis, trials)
    return {arm: plain(answer) for arm, answer in said.items()}


def _steps(arm: str, trials: Mapping[tuple[str, int], Mapping[str, Any]]) -> float | None:
    """Return at which step the scores of an arm were read: as stated, or the last logged."""
    found = []
    for (name, _), trial in trials.items():
        if name == arm:
            at = trial["setting"].get("runs", {}).get("at_step")
            at = trial.get("facts", {}).get("steps") if at is None else at
            found += [] if at is None else [float(at)]
    return median(found) if found else None
