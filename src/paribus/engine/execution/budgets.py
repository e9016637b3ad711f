"""Budgets that match in bytes or FLOPs: the iterations of every arm, from the cost of a step.

An arm trains as many steps as cost what its reference's steps cost together, to the nearest step.
Bytes follow from the text, FLOPs from the model. The iterations are written into the study.
"""

from __future__ import annotations

from paribus.engine.cost import model_size
from paribus.engine.execution.start import read_data
from paribus.errors import ParibusError
from paribus.study import Study, parse_study
from paribus.study.bounds import MOST_STEPS


def settled_budgets(study: Study) -> Study:
    """Return `study` with the iterations of every arm; a study with budgets in tokens is unchanged.

    Raises ParibusError if an arm sets other iterations, or if the FLOPs of user-defined parts
    cannot be counted.
    """
    unit = study.training.budget
    if unit == "tokens" or not study.contrasts:
        return study
    step_costs = _step_costs(study)
    settled, changed = dict[str, int](), dict[str, int]()

    def iterations(arm: str) -> int:
        if arm not in settled:
            reference = study.reference(arm)
            if reference is None:
                return study.setting(arm).iterations
            wanted = iterations(reference) * step_costs[reference] / step_costs[arm]
            if wanted > MOST_STEPS:
                raise ParibusError(
                    f"arm '{arm}' would train {wanted:g} steps to match the {unit} of "
                    f"'{reference}', and {MOST_STEPS:,} are the most; reduce training.iterations"
                )
            settled[arm] = max(round(wanted), 1)
        return settled[arm]

    for arm, _ in study.contrasts:
        stated, wanted = study.setting(arm).iterations, iterations(arm)
        if stated == wanted:
            continue
        if study.format.alternatives.keys() & study.arms[arm].set.keys():
            raise ParibusError(
                f"arm '{arm}' sets {stated} iterations, and the {unit} of its reference come to "
                f"{wanted}; remove them, or set training.budget = 'tokens'"
            )
        changed[arm] = wanted
    if not changed:
        return study
    table = study.model_dump()
    for arm, wanted in changed.items():
        table["arms"][arm]["set"]["training.iterations"] = wanted
    label = f"budgets in {unit}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)


def _step_costs(study: Study) -> dict[str, float]:
    """Return the expected UTF-8 bytes, or the FLOPs, of a training step by arm."""
    datasets, costs = read_data(study), dict[str, float]()
    for arm in study.arms:
        setting = study.setting(arm)
        dataset = datasets[setting.data]
        each: float | None = dataset.bytes_per_token
        if study.training.budget == "flops":
            each = model_size(setting, dataset.vocab_size, study.folder)[1]
        if each is None:
            raise ParibusError(
                f"arm '{arm}': the FLOPs of its own modules cannot be counted, because they need "
                "the values of tensors; set training.budget = 'tokens'"
            )
        costs[arm] = setting.tokens_per_step * each
    return costs
