"""The start of a run: texts, precision, workers, one step of every arm, and the registration."""

from __future__ import annotations

import logging
import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from paribus.analysis import boundaries
from paribus.decision import find_rule, own_rule, require_reachable
from paribus.digests import digest
from paribus.engine.cost import is_large
from paribus.engine.data import Dataset, describe_data, load_dataset
from paribus.engine.data.train_tokenizer import train_missing
from paribus.engine.execution.trial.stacks import (
    Recorded,
    default_size,
    plan_stacks,
    read_recorded,
    sharing_arms,
)
from paribus.engine.execution.trial.suite import adopt_suite, drafted_tasks
from paribus.engine.execution.workers.messages import Check, Findings, MeasureMemory, Ready
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.machine.measurements import Fit
from paribus.engine.ops import shortcoming
from paribus.engine.setting import Data, is_open, with_precision
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, extended, registration, settle
from paribus.study import Study, require_trust, with_choice
from paribus.study.trainer import Trial

DRY_ROWS = 2 * 6  # windows of a dry run: two in each of six passes
Tried = set[tuple[str, int]]
"""Of dry runs that were passed: the digest of what a step is, and whether of one replica or two."""


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    Attributes:
        datasets: the text, by what cuts it.
        n_trials: how many are to be trained.
        tried: models that are not tried again; those that are now, are added to it.
        n_jobs: on how many machines like this one they will be trained side by side.
        briefly: nothing is trained after it: models that a step here takes minutes with are tried
            by their shapes.
    """

    folder: ResultsFolder
    study: Study
    datasets: dict[Data, Dataset]
    n_trials: int
    tried: Tried
    n_jobs: int = 1
    briefly: bool = False


def start(
    pool: Pool, begins: Beginning, workers: int | None, stack: int | None
) -> tuple[Study, list[list[Trial]]]:
    """Start the workers for the trials, try a step of every arm, and register the study.

    Returns the study with its precision settled, and all its trials as stacks. Raises ParibusError
    before anything is written, and before anything is warned of.
    """
    folder, study, datasets = begins.folder, begins.study, begins.datasets
    n_trials, tried = begins.n_trials, begins.tried
    warnings: list[str] = []
    if study.resources.devices_per_trial is not None and stack not in (None, 1):
        raise ParibusError(
            f"--stack {stack} trains trials side by side, and resources.devices_per_trial = "
            f"{study.resources.devices_per_trial} trains one at a time; remove one of them"
        )
    if not folder.exists:
        require_reachable(study)
    first = pool.start()
    # While they import PyTorch, which takes seconds, the questions are drawn.
    with drafted_tasks(study, folder, datasets) as asked:
        ready = pool.ready(first)
        metrics = pool.metrics(first)
        study = settle_precision(study, ready, pool)
        size = stack or default_size(study, ready.device, ready.devices * begins.n_jobs)
        recorded = read_recorded(study, folder)
        stacks = plan_stacks(study, size, recorded.stacks)
        if n_trials:
            warnings += device_warnings(study, ready)
            pool.start_more(min(pool.n_workers(workers, ready), n_trials))
            sharing = math.ceil(pool.at_once / ready.devices)
            by_shapes = begins.briefly and ready.device == "cpu"
            large = large_arms(study, datasets) if by_shapes else set()
            warnings += _check(pool, study, max(map(len, stacks)), tried, large)
            stacks, smaller = _fitting(pool, study, size, sharing, recorded)
            warnings += smaller
        data = {arm: datasets[study.setting(arm).data].record for arm in study.arms}
        settle(
            folder,
            study,
            registration(
                study, data, ready.device, metrics, asked, own_rule(study), boundaries(study)
            ),
            retries=pool.retries,
        )
        adopt_suite(folder)
    for line in dict.fromkeys(warnings):
        logging.getLogger("paribus").warning("%s", line)
    return study, stacks


def large_arms(study: Study, datasets: dict[Data, Dataset]) -> set[str]:
    """Return the arms with which a dry run on a CPU would take minutes."""
    settings = {arm: study.setting(arm) for arm in study.arms}
    return {
        arm
        for arm, setting in settings.items()
        if is_large(setting, datasets[setting.data].vocab_size, DRY_ROWS)
    }


def _check(
    pool: Pool, study: Study, size: int, tried: Tried, large: Set[str] = frozenset()
) -> list[str]:
    """Try some steps of every arm, the workers sharing the arms; returns what to warn of.

    Arms that could share a stack, or differ in warmup besides, run the same code, and are tried as
    one: a grid of both costs no more dry runs than its arms.
    """
    warnings: list[str] = []
    todo: dict[tuple[str, int], str] = {}
    for arms in sharing_arms(study):
        # Two replicas go the way of any more.
        todo.setdefault((_as_tried(study, arms[0]), min(size, 2)), arms[0])

    def hear(task: Check, message: Findings) -> None:
        warnings.extend(message.lines)

    tasks = [Check(arm, size, arm in large) for key, arm in todo.items() if key not in tried]
    pool.work(tasks, hear)
    tried.update(key for key, arm in todo.items() if arm not in large)
    return warnings


def _as_tried(study: Study, arm: str) -> str:
    """Return the digest of what a step of `arm` is: alike of arms that one dry run is for."""
    setting = study.setting(arm)
    shared = (setting if study.probes.own else setting.common).model_dump(mode="json")
    if not setting.own_parts and not study.probes.own:
        del shared["training"]["schedule"]["warmup"]
    return digest(shared)


def _fitting(
    pool: Pool, study: Study, size: int, sharing: int, recorded: Recorded
) -> tuple[list[list[Trial]], list[str]]:
    """All trials as stacks of `size`, or of as many replicas as the memory of a device holds; and
    what to warn of.

    `sharing` workers share the memory. What was begun in a stack that does not fit any more starts
    again in a smaller one; beside trials that were finished in a larger one, sizes stay theirs.
    """
    stacks, warnings = plan_stacks(study, size, recorded.stacks), list[str]()
    fits: dict[tuple[str, int], Fit] = {}
    for arms in sharing_arms(study):
        wanted = recorded.largest(stacks, arms)
        if wanted == 1:
            continue
        model = _as_tried(study, arms[0]), wanted
        if model not in fits:
            worker = pool.worker_for(study.setting(arms[0]))
            task = MeasureMemory(arms[0], wanted, sharing)
            fits[model] = pool.ask(worker, task, "while its memory was measured")
        found = fits[model]
        size = found.stack
        if size >= wanted:
            continue
        again = len(recorded.begun) - len(recorded.up_to(size).begun)
        warnings.append(
            f"{size} of {wanted} replicas side by side: {found.why}"
            + (f"; {again} stacks that were begun start again" if again else "")
        )
        recorded = recorded.up_to(size)
        stacks = plan_stacks(study, size, recorded.stacks)
    return stacks, warnings


def as_registered(study: Study, folder: ResultsFolder) -> Study:
    """`study` with what was settled in `folder`: its precision, where it leaves it open itself,
    what its tuning chose, and a second stage."""
    if is_open(study) and folder.exists:
        study = with_precision(study, folder.read_study().training.precision)
    if study.tuning is not None:
        # A study that is run anew, or with another plan, is tuned anew.
        there = folder.read_study().tuning if folder.exists else None
        same = there if there and there.same_plan(study.tuning) else None
        chosen = same.chosen if same and same.chosen.keys() == study.arms.keys() else {}
        study = with_choice(study, chosen, same.chosen_by_seed if same else {})
    return extended(study, folder)


def settle_precision(study: Study, ready: Ready, pool: Pool) -> Study:
    """`study` with the precision that "auto" means on the device of a worker that is `ready`.

    Every worker of `pool` works on that study from now on.
    """
    if not is_open(study):
        return study
    settled = with_precision(study, ready.precision)
    pool.work_on(settled)
    return settled


def device_warnings(study: Study, ready: Ready) -> list[str]:
    """Return what is slow on the device of `ready`, a line each: a precision of `study` that it has
    to emulate, and a CPU without compiled kernels for want of a compiler."""
    lines = [
        f"{precision} on this {ready.device} is emulated: right, but slow"
        for precision in _emulated(study, ready)
    ]
    if ready.device == "cpu" and (words := shortcoming()):
        lines.append(
            f"{words}: PyTorch's own kernels train here, some 1.2 times slower; install g++ or "
            "clang++, or say --cpu-kernels off"
        )
    return lines


def _emulated(study: Study, ready: Ready) -> list[str]:
    """Return the precisions that arms ask for and `ready`'s device only emulates.

    PyTorch does not tell for MPS, and none of our kernels has float16.
    """
    wanted = {study.setting(arm).training.precision for arm in study.arms}
    there = {"float32", ready.precision, *(() if ready.device == "cpu" else ("float16",))}
    return [] if ready.device == "mps" else sorted(wanted - there)


def read_data(study: Study) -> dict[Data, Dataset]:
    """Return the text as the study and each arm read it; one that cannot be read is told at once.

    Raises ParibusError also where two arms that are compared have other held-out text.
    """
    require_trust(study)  # a corpus may be custom code
    find_rule(study)
    found: dict[Data, Dataset] = {}
    for data in dict.fromkeys((study.data, *(study.setting(arm).data for arm in study.arms))):
        train_missing(data, study.folder)
    found[study.data] = load_dataset(study.data, study.folder)
    for arm in study.arms:
        data = study.setting(arm).data
        if data not in found:
            try:
                found[data] = load_dataset(data, study.folder)
            except ParibusError as error:
                raise ParibusError(f"arm '{arm}': {error}") from None
    for arm, reference in study.contrasts:
        ours, theirs = (found[study.setting(one).data] for one in (arm, reference))
        for part, name in (("validation", "validation_text"), ("test", "test")):
            digests = [one.digests.get(name) for one in (ours, theirs)]
            if digests[0] != digests[1]:
                shown = " and ".join(str(digest)[:12] for digest in digests)
                raise ParibusError(
                    f"arms '{arm}' and '{reference}' have different {part} text (SHA-256 {shown}); "
                    f"arms are compared on the same bytes: state one data.{part}_path for all"
                )
    return found


def described(study: Study, datasets: dict[Data, Dataset]) -> dict[str, Any]:
    """Return what data.json says: of the shared text, and under `arms` of that of each arm that
    reads another.

    Text is the same where its tokens are, whatever the windows and their order.
    """
    shared = datasets[study.data]
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for arm in study.arms:
        dataset = datasets[study.setting(arm).data]
        key = tuple(dataset.digests.values())
        if key != tuple(shared.digests.values()):
            if key not in tables:
                tables[key] = describe_data(dataset)
            found[arm] = tables[key]
    return describe_data(shared) | ({"arms": found} if found else {})
