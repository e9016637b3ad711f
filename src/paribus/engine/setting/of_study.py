"""What follows from a study and its settings: the steps of the held-out curve, the precision."""

from __future__ import annotations

from paribus.study.load import parse_study
from paribus.study.study import Study


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return the numbers of steps after which the held-out loss of `arm` is measured.

    These are 0, every `evaluation.every` steps, and the last. With a growing batch,
    `evaluation.every` counts steps of the last size, so that arms are measured at equal tokens.
    Empty if the study measures no curve.
    """
    every, setting = study.evaluation.every, study.setting(arm)
    if every is None:
        return ()
    if every == "tenth":
        every = max(1, min(study.setting(name).budget_iterations for name in study.arms) // 10)
    size, last = setting.training.largest_batch, setting.iterations
    regular = range(0, setting.budget_iterations, every)
    return tuple(dict.fromkeys([*(setting.step_with(k * size) for k in regular), last]))


def is_open(study: Study) -> bool:
    """Return True if the precision is not settled yet; such a study is not trained."""
    return study.training.precision == "auto"


def with_precision(study: Study, precision: str) -> Study:
    """Return `study` with `precision` instead of "auto".

    Raises ParibusError if no difference between arms remains.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
