"""Budgets that match in other units than tokens: what a step costs, and the iterations that follow.

An arm trains as many steps as cost what its reference's cost together, to the nearest step. Bytes
follow from the text; FLOPs are counted of the model; seconds are measured, in turn and on this
machine, before the study is registered. What was counted or measured is written into the study
(`training.step_cost`) with the iterations, and is fixed from then on: a later run, on whatever
machine, trains the same steps.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from paribus.engine.execution.backends import Backend
from paribus.engine.execution.start import read_data, settle_precision
from paribus.engine.execution.workers.messages import CountModel, MeasureStep
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.study import Study, parse_study
from paribus.study.bounds import MOST_STEPS

ROUNDS = 3  # in which all arms are timed, one after the other
DIGITS = 6  # of a step's seconds: more are noise
ITERATIONS, STEP_COST = "training.iterations", "training.step_cost"
Costs = dict[str, float]  # of a step, by arm


def settled_budgets(
    study: Study,
    folder: ResultsFolder | None = None,
    *,
    device: Device = "auto",
    backend: str | Backend = "local",
) -> Study:
    """`study` with the iterations of every arm stated, where its budgets match in other units.

    Args:
        study: any study; one in tokens comes back as it is.
        folder: its results; what was settled there is taken from there.
        device, backend: where steps are timed, as for `run`.

    Raises ParibusError where an arm states other iterations than follow, or where nobody knows what
    a step costs.
    """
    unit = study.training.budget
    if unit == "tokens" or not study.contrasts:
        return study
    if unit == "bytes":
        return _settled(study, _bytes(study), "bytes")
    if study_there := _there(study, folder):
        return study_there
    _require_own_costs(study)
    stated = {arm: study.setting(arm).training.step_cost for arm in study.arms}
    unknown = [arm for arm, cost in stated.items() if cost is None]
    if unknown:
        measure = _flops if unit == "flops" else _seconds
        found = measure(study, unknown, device, backend)
        stated |= found
        study = _with(study, {arm: {STEP_COST: cost} for arm, cost in found.items()})
    return _settled(study, {arm: cost for arm, cost in stated.items() if cost}, unit)


def _require_own_costs(study: Study) -> None:
    """Raise ParibusError where one stated cost is of arms that compute different things."""
    shared = [arm for arm in study.arms if STEP_COST not in study.arms[arm].set]
    other = [a for a in shared if study.setting(a).common != study.setting(shared[0]).common]
    if study.training.step_cost is not None and other:
        raise ParibusError(
            f"training.step_cost = {study.training.step_cost:g} is stated for arms '{shared[0]}' "
            f"and '{other[0]}' alike, and a step of them is not the same; state it by arm, or "
            "leave it out and it is counted or measured"
        )


def _settled(study: Study, costs: Costs, unit: str) -> Study:
    """Return the iterations of every arm, from what a step of it costs."""
    stated: dict[str, int] = {}

    def iterations(arm: str) -> int:
        if arm not in stated:
            reference = study.reference(arm)
            if reference is None:
                return study.setting(arm).iterations
            wanted = iterations(reference) * costs[reference] / costs[arm]
            if wanted > MOST_STEPS:
                raise ParibusError(
                    f"arm '{arm}': a step costs {costs[arm]:g}, and one of '{reference}' "
                    f"{costs[reference]:g}: that comes to {wanted:g} steps, and {MOST_STEPS:,} are "
                    "the most; see training.step_cost"
                )
            stated[arm] = max(round(wanted), 1)
        return stated[arm]

    changed: dict[str, dict[str, Any]] = {}
    for arm, _ in study.contrasts:
        there, wanted = study.setting(arm).iterations, iterations(arm)
        if there == wanted:
            continue
        if study.format.alternatives.keys() & study.arms[arm].set.keys():
            raise ParibusError(
                f"arm '{arm}' states {there} iterations, and the {unit} of its reference come to "
                f"{wanted}; leave them out, or state training.budget = 'tokens'"
            )
        changed[arm] = {ITERATIONS: wanted}
    return _with(study, changed)


def _with(study: Study, changed: dict[str, dict[str, Any]]) -> Study:
    """`study` with further overrides of some arms."""
    if not any(changed.values()):
        return study
    table = study.model_dump()
    for arm, values in changed.items():
        table["arms"][arm]["set"] |= values
    label = f"budgets in {study.training.budget}"
    return parse_study(
        table, folder=study.folder, label=label, foreign=study.is_foreign, sealed=study.sealed
    )


def _there(study: Study, folder: ResultsFolder | None) -> Study | None:
    """`study` with the costs and iterations that are registered in `folder`; None of a new one."""
    if folder is None or not folder.exists:
        return None
    there = folder.read_study()
    if there.training.budget != study.training.budget or there.arms.keys() != study.arms.keys():
        return None
    found = {
        arm: {key: spec.set[key] for key in (STEP_COST, ITERATIONS) if key in spec.set}
        for arm, spec in there.arms.items()
    }
    changed = {
        arm: {key: value for key, value in values.items() if key not in study.arms[arm].set}
        for arm, values in found.items()
    }
    return _with(study, changed)


def _bytes(study: Study) -> Costs:
    """Return expected UTF-8 bytes of the tokens of a step."""
    datasets = read_data(study)
    settings = {arm: study.setting(arm) for arm in study.arms}
    return {
        arm: setting.tokens_per_step * datasets[setting.data].bytes_per_token
        for arm, setting in settings.items()
    }


def _flops(study: Study, arms: list[str], device: Device, backend: str | Backend) -> Costs:
    """Operations of a step: by the formula, or counted where an arm has own modules."""
    found: Costs = {}
    with Pool(study, Path(), device=device, backend=backend) as pool:
        pool.ready(pool.start())
        for arm in arms:
            setting = study.setting(arm)
            task, doing = CountModel(arm), "while its FLOPs were counted"
            size = pool.ask(pool.worker_for(setting), task, doing)
            if not size.are_flops_known:
                raise ParibusError(
                    f"arm '{arm}': the FLOPs of its own modules cannot be counted, for they need "
                    "the values of tensors; state its training.step_cost, or training.budget = "
                    "'tokens'"
                )
            found[arm] = float(size.flops_per_token * setting.tokens_per_step)
    return found


def _seconds(study: Study, arms: list[str], device: Device, backend: str | Backend) -> Costs:
    """Seconds of a step of one replica: the median over rounds in which arms take turns.

    Arms that compute the same (`Setting.common`) share what they measure: noise would give one of
    them more steps.
    """
    found: dict[Setting, list[float]] = {}
    with Pool(study, Path(), device=device, backend=backend) as pool:
        study = settle_precision(study, pool.ready(pool.start()), pool)
        for _ in range(ROUNDS):
            for common, arm in {study.setting(arm).common: arm for arm in arms}.items():
                worker = pool.worker_for(study.setting(arm))
                cost = pool.ask(worker, MeasureStep(arm, 1), "while a step of it was timed")
                if not cost.measured:
                    raise ParibusError(
                        f"arm '{arm}' is too large to time a step of it here; state its "
                        "training.step_cost in seconds"
                    )
                found.setdefault(common, []).append(cost.step_seconds)
    return {arm: float(f"{median(found[study.setting(arm).common]):.{DIGITS}g}") for arm in arms}
