"""Construction of the tuning study, which trains every arm with every candidate.

A candidate is a combination of hyperparameter values. The tuning study is registered, trained and
read like any other study, in a separate folder, and compares an arm with its reference for the
same candidate. Tuning trials are evaluated on tasks only if tuning selects by task accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping

from paribus import numbers
from paribus.errors import ParibusError
from paribus.study.base import shortened
from paribus.study.study import Study, built
from paribus.study.tuning import Candidate

# Subfolder of the results folder with the records of tuning.
FOLDER = "tuning"
# Keys that a tuning study does not copy from the study.
OWN = {
    *("tuning", "decision", "hypotheses", "endpoints", "seeds", "plan"),
    *("stages", "interactions"),
}
TASKS = ("macro_accuracy", "task_accuracy")
_IDLE_MARGIN = 0.02  # of a metric without one: tuning has no verdict


def candidate_arm(arm: str, number: int) -> str:
    """Return an arm's name in the tuning study, such as `wide-3` for the third candidate."""
    return f"{arm}-{number}"


def arm_of(candidate: str) -> str:
    """Return the study arm for an arm of the tuning study, such as `wide` for `wide-3`."""
    return candidate.rpartition("-")[0]


def tuning_study(study: Study) -> Study:
    """Build the tuning study, which has one arm for each arm of `study` and each candidate."""
    tuning = study.tuning
    assert tuning is not None
    table = study.model_dump(exclude=OWN)
    asks = tuning.select.partition("/")[0] in TASKS
    margins = {endpoint.metric: endpoint.margin for endpoint in study.endpoints}
    margin = margins.get(tuning.select) or _IDLE_MARGIN
    table |= {
        "name": shortened(study.name, "-tuning"),
        "title": f"tuning of {study.title or study.name}",
        "seeds": list(tuning.seeds),
        "baseline": candidate_arm(study.baseline, 1),
        "endpoints": [{"metric": tuning.select, "primary": True, "margin": margin}],
        "decision": {"unreachable": "accept"},  # it has no verdict
        "arms": {},
    } | study.format.tuning_sections(study, asks=asks)
    numbered = list(enumerate(tuning.candidates, start=1))
    for number, candidate in numbered:
        for arm, spec in study.arms.items():
            table["arms"][candidate_arm(arm, number)] = {
                "title": f"{spec.title or arm}, {values_text(candidate)}",
                "set": spec.set | study.format.tuning_overrides(study, arm) | candidate,
                "reference": candidate_arm(study.reference(arm) or arm, number),
            }
    label = f"tuning of {study.name}"
    arm_study = built(table, folder=study.folder, label=label, foreign=study.is_foreign)
    for arm in study.arms:
        tokens = {arm_study.arm_facts(candidate_arm(arm, number)).tokens for number, _ in numbered}
        if len(tokens) > 1:
            fewest, highest = min(filter(None, tokens)), max(filter(None, tokens))
            raise ParibusError(
                f"tuning would train arm '{arm}' on {fewest} to {highest} tokens, depending on the "
                "candidate, but every trial needs the same budget; set training.tokens",
                code="conflict",
            )
    return arm_study


def with_choice(study: Study, chosen: Mapping[str, Candidate]) -> Study:
    """Return a copy of `study` with the selected hyperparameters `chosen`, keyed by arm."""
    table = study.model_dump()
    table["tuning"]["chosen"] = {arm: dict(values) for arm, values in chosen.items()}
    return built(table, folder=study.folder, foreign=study.is_foreign)


def is_untuned(study: Study) -> bool:
    """Return whether tuning is planned but has not been completed."""
    return study.tuning is not None and not study.tuning.chosen


def values_text(values: Candidate) -> str:
    """Format hyperparameters with the last component of each key, such as `learning_rate 3e-4`."""
    return ", ".join(
        f"{key.rpartition('.')[2]} "
        f"{value if isinstance(value, (bool, str)) else numbers.compact(value)}"
        for key, value in values.items()
    )
