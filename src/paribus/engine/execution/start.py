"""The start of a run: workers, one step of every arm, how many side by side, the registration."""

from __future__ import annotations

import logging
import math

from paribus.analysis import boundaries
from paribus.decision import own_rule
from paribus.digests import digest
from paribus.engine.data import Dataset
from paribus.engine.execution.device_precision import device_warnings, settle_precision
from paribus.engine.execution.messages import Check, Checked, DryPart, MeasureMemory
from paribus.engine.execution.pool import Pool
from paribus.engine.execution.stacks import (
    Recorded,
    Trial,
    default_size,
    plan_stacks,
    read_recorded,
    sharing_arms,
)
from paribus.engine.execution.suite import adopt_suite, drafted_tasks
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, registration, settle
from paribus.study import Data, Study, step_code

Tried = set[tuple[str, int]]
"""Of dry runs that were passed: the digest of what replicas of a stack share, and its size."""


def start(
    pool: Pool,
    folder: ResultsFolder,
    study: Study,
    datasets: dict[Data, Dataset],
    workers: int | None,
    stack: int | None,
    n_trials: int,
    tried: Tried,
) -> tuple[Study, list[list[Trial]]]:
    """Start the workers for `n_trials`, try a step of every arm, and register the study.

    Models that `tried` has are not tried again; those that are now, are added to it.

    Returns the study with its precision settled, and all its trials as stacks. Raises ParibusError
    before anything is written, and before anything is warned of.
    """
    warnings: list[str] = []
    first = pool.start()
    pool.start_where_surely_cpu(workers, n_trials)
    # While they import PyTorch, which takes seconds, the questions are drawn.
    with drafted_tasks(study, folder, datasets) as asked:
        ready = pool.ready(first)
        metrics = pool.metrics(first)
        study = settle_precision(study, ready, pool)
        size = stack or default_size(study, ready.device, ready.devices)
        recorded = read_recorded(study, folder)
        stacks = plan_stacks(study, size, recorded.stacks)
        if n_trials:
            warnings += device_warnings(study, ready)
            pool.start_more(min(pool.n_workers(workers, ready), n_trials))
            sharing = math.ceil(pool.at_once / ready.devices)
            warnings += _check(pool, study, max(map(len, stacks)), tried)
            stacks, smaller = _fitting(pool, study, size, sharing, recorded)
            warnings += smaller
        data = {arm: datasets[study.setting(arm).data].record for arm in study.arms}
        settle(
            folder,
            study,
            registration(
                study, data, ready.device, metrics, asked, own_rule(study), boundaries(study)
            ),
        )
        adopt_suite(folder)
    for line in dict.fromkeys(warnings):
        logging.getLogger("paribus").warning("%s", line)
    return study, stacks


def _check(pool: Pool, study: Study, size: int, tried: Tried) -> list[str]:
    """Try some steps of every arm, the workers sharing the arms; returns what to warn of.

    Arms that could share a stack run the same code, and are tried as one: a grid of learning rates
    costs no more dry runs than its arms. Without own code, the steps of an arm and the reading with
    its weights know nothing of each other, and are two tasks.
    """
    warnings: list[str] = []
    todo: dict[tuple[str, int], str] = {}
    for arms in sharing_arms(study):
        setting = study.setting(arms[0])
        shared = setting if study.probes.own else setting.common
        todo[digest(shared.model_dump(mode="json")), size] = arms[0]

    def hear(task: Check, message: Checked) -> None:
        warnings.extend(message.warnings)

    parts: dict[str, tuple[DryPart, ...]] = {}
    for key, arm in todo.items():
        if key not in tried:
            parts[arm] = ("whole",) if step_code(study, arm) else ("steps", "reading")
    tasks = [Check(arm, size, part) for arm, names in parts.items() for part in names]
    pool.work(tasks, lambda task: f"in the dry run of arm '{task.arm}'", hear)
    tried.update(todo)
    return warnings


def _fitting(
    pool: Pool, study: Study, size: int, sharing: int, recorded: Recorded
) -> tuple[list[list[Trial]], list[str]]:
    """All trials as stacks of `size`, or of as many replicas as the memory of a device holds; and
    what to warn of.

    `sharing` workers share the memory. What was begun in a stack that does not fit any more starts
    again in a smaller one. Raises ParibusError where that would put trials beside others that were
    finished in a larger one: sizes within a pair are a control.
    """
    stacks, warnings = plan_stacks(study, size, recorded.stacks), list[str]()
    for arms in sharing_arms(study):
        wanted = recorded.largest(stacks, arms)
        if wanted == 1:
            continue
        worker = pool.worker_for(study.setting(arms[0]))
        task = MeasureMemory(arms[0], wanted, sharing)
        found = pool.ask(worker, task, "while its memory was measured")
        size = found.stack
        if size >= wanted:
            continue
        bound = recorded.binding(study, size)
        if bound is not None:
            labels = ", ".join(f"{arm}/seed-{seed}" for arm, seed in bound)
            raise ParibusError(
                f"{labels} were trained {len(bound)} side by side and so are those they are "
                f"compared with, but memory holds {size} now ({found.why}); free memory, state "
                "fewer --workers, or delete their folders to train all of them again"
            )
        again = len(recorded.begun) - len(recorded.up_to(size).begun)
        warnings.append(
            f"{size} of {wanted} replicas side by side: {found.why}"
            + (f"; {again} stacks that were begun start again" if again else "")
        )
        recorded = recorded.up_to(size)
        stacks = plan_stacks(study, size, recorded.stacks)
    return stacks, warnings
