"""What a run that tunes leaves, from loss surfaces whose best is known: fabricated, not trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paribus.analysis import tuning_record
from paribus.engine.data import load_dataset
from paribus.results import Results, ResultsFolder, settle
from paribus.study import Study, tuning_study, with_choice

from .fabricated import registered, write_results

RATE = "training.optimizer.learning_rate"
Loss = Callable[[str, Any, int], float]
# By arm, where in log10 of the rate its loss is least.
BEST = {"baseline": -3.0, "layernorm": -2.0}
ARMS = {
    "baseline": {},
    "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
}


def surface(arm: str, rate: float, seed: int) -> float:
    """A parabola in the logarithm of the rate; the arms are equally good, each at its best."""
    return 2.0 + 0.1 * (math.log10(rate) - BEST[arm]) ** 2 + 0.001 * math.sin(7 * seed)


def rate_of(setting: Any) -> Any:
    """What the surface depends on."""
    return setting.training.optimizer.learning_rate


def tune_by(study: Study, path: Path, loss: Loss, at: Callable[[Any], Any] = rate_of) -> Results:
    """The tuning trials that the plan asks for, with the records that training would leave."""
    made = tuning_study(study)

    def of(arm: str, seed: int) -> float:
        return loss(arm.rpartition("-")[0], at(made.setting(arm)), seed)

    return write_results(ResultsFolder(path).tuning_trials.path, made, of)


def tuned_and_trained(
    study: Study, path: Path, loss: Loss = surface, at: Callable[[Any], Any] = rate_of
) -> Results:
    """All that a run leaves: the registration, tuning trials, the choice, the verdict's trials.

    `loss` is of an arm, what `at` gives of its setting, and a seed.
    """
    folder = ResultsFolder(path)
    dataset = load_dataset(study.data, study.folder)
    settle(folder, study, registered(study, dict.fromkeys(study.arms, dataset.record)))
    record = tuning_record(study, tune_by(study, path, loss, at))
    folder.seal("tuning.json", record)
    chosen = {arm: one["values"] for arm, one in record["chosen"].items()}
    made = with_choice(study, chosen)
    folder.create(made)
    return write_results(path, made, lambda a, seed: loss(a, at(made.setting(a)), seed))


def tables(rates: list[float], **more: Any) -> dict[str, Any]:
    plan = {"seeds": [101, 102], "grid": {RATE: rates}} | more
    return {"arms": ARMS, "seeds": [1, 2, 3, 4, 5], "tasks": {"names": []}, "tuning": plan}
