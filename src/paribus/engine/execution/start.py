"""Preparation of a run: data sets, resolved settings, tasks and cost estimates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.decision import find_rule
from paribus.engine.cost import Cost, Rate, is_large, model_size, study_cost
from paribus.engine.data import Dataset, describe_data, load_dataset
from paribus.engine.data.tokenizer import train_missing
from paribus.engine.execution.trial.stacks import default_size, plan_stacks
from paribus.engine.setting import Data, is_open, with_precision
from paribus.engine.tasks import STANDARD_FILE, own_tasks, registered_tasks, write_suite
from paribus.errors import ParibusError, require_positive
from paribus.files import whole_folder
from paribus.results import ResultsFolder, extended
from paribus.results.formats import write_json
from paribus.runs.executors import Backend
from paribus.runs.queue import Task
from paribus.runs.run import Device, ask
from paribus.study import Study, parse_study, require_trust, with_choice


def as_registered(study: Study, folder: ResultsFolder) -> Study:
    """Return `study` with the values that were resolved when it was registered in `folder`.

    These are the precision, the tuned hyperparameters, and the seeds of a second stage.
    """
    registered = folder.read_study() if folder.exists else None
    if is_open(study) and registered is not None:
        study = with_precision(study, registered.training.precision)
    if study.tuning is not None:
        tuning = registered.tuning if registered is not None else None
        chosen = tuning.chosen if tuning is not None else {}
        is_same = tuning == study.tuning.model_copy(update={"chosen": chosen})
        is_whole = chosen.keys() == study.arms.keys()
        study = with_choice(study, chosen if is_same and is_whole else {})
    return extended(study, folder)


def read_data(study: Study) -> dict[Data, Dataset]:
    """Load the data sets of the study and of each arm, keyed by data settings.

    Missing tokenizers are trained first. Raises ParibusError if a text cannot be read, or if
    compared arms have different held-out text.
    """
    require_trust(study)  # a corpus may be custom code
    find_rule(study)
    texts = dict.fromkeys((study.data, *(study.setting(arm).data for arm in study.arms)))
    for data in texts:
        train_missing(data, study.folder)
    datasets = {data: load_dataset(data, study.folder) for data in texts}
    for arm, reference in study.contrasts:
        pair = [datasets[study.setting(name).data] for name in (arm, reference)]
        for part in ("validation_text", "test"):
            ours, theirs = (str(dataset.digests.get(part))[:12] for dataset in pair)
            if ours != theirs:
                part = part.partition("_")[0]
                raise ParibusError(
                    f"arms '{arm}' and '{reference}' have different {part} text (SHA-256 {ours} "
                    f"and {theirs}), but must be compared on the same bytes; set the same "
                    f"data.{part}_path for all arms"
                )
    return datasets


def described(study: Study, datasets: dict[Data, Dataset]) -> dict[str, Any]:
    """Return the content of data.json, which describes the study's text.

    The key `arms` contains the texts of arms with a different text. Texts are equal if their tokens
    are equal, regardless of context length and order.
    """
    shared = datasets[study.data]
    others = {
        data: describe_data(dataset)
        for data, dataset in datasets.items()
        if tuple(dataset.digests.values()) != tuple(shared.digests.values())
    }
    data_of = {arm: study.setting(arm).data for arm in study.arms}
    arms = {arm: others[data] for arm, data in data_of.items() if data in others}
    return describe_data(shared) | ({"arms": arms} if arms else {})


def settled_budgets(study: Study) -> Study:
    """Return `study` with each arm's iterations set to match its budget in bytes or FLOPs.

    An arm trains for the number of steps whose total bytes of text, or FLOPs, are closest to those
    of its reference. A study with budgets in tokens is returned unchanged.

    Raises ParibusError if an arm sets a different number of iterations, or if the FLOPs of
    custom modules cannot be counted.
    """
    unit = study.training.budget
    if unit == "tokens" or not study.contrasts:
        return study
    datasets, costs = read_data(study), dict[str, float]()
    for arm in study.arms:
        setting = study.setting(arm)
        dataset = datasets[setting.data]
        per_token: float | None = dataset.bytes_per_token
        if unit == "flops":
            per_token = model_size(setting, dataset.vocab_size, study.folder)[1]
        if per_token is None:
            raise ParibusError(
                f"the FLOPs of custom modules in arm '{arm}' cannot be counted, because they "
                "depend on tensor values; set training.budget = 'tokens'"
            )
        costs[arm] = setting.tokens_per_step * per_token

    def iterations(arm: str) -> int:
        reference = study.reference(arm)
        if reference is None:
            return study.setting(arm).iterations
        return max(round(iterations(reference) * costs[reference] / costs[arm]), 1)

    table = study.model_dump()
    for arm, _ in study.contrasts:
        stated, wanted = study.setting(arm).iterations, iterations(arm)
        if stated == wanted:
            continue
        if study.format.alternatives.keys() & study.arms[arm].set.keys():
            raise ParibusError(
                f"arm '{arm}' sets {stated} iterations, but needs {wanted} to match its "
                f"reference in {unit}; remove training.iterations and training.tokens from the "
                "arm, or set training.budget = 'tokens'"
            )
        table["arms"][arm]["set"]["training.iterations"] = wanted
    label = f"budgets in {unit}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)


def estimate(
    study: Study,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
    backend: str | Backend = "local",
    price: float | None = None,
) -> Cost:
    """Estimate the cost of a study by timing a training step of the baseline on all workers.

    No files are written. If a step would take too long on a CPU, timing is skipped, and the
    estimate contains no hours.

    Args:
        workers, device, stack, backend: as for `run`.
        price: price per device-hour, in any currency.
    """
    require_positive(workers=workers, stack=stack)
    study = settled_budgets(study)
    datasets = read_data(study)
    vocabularies = {arm: datasets[study.setting(arm).data].vocab_size for arm in study.arms}
    cost, setting = study_cost(study, vocabularies), study.setting(study.baseline)
    windows = setting.training.largest_batch
    place = {"device": device, "backend": backend}
    [machine] = ask(study, Path(), [Task("machine", "machine", "at the start", "")], **place)
    if machine["device"] == "cpu" and is_large(setting, vocabularies[study.baseline], windows):
        return cost
    if is_open(study):
        study = with_precision(study, machine["precision"])
    n_workers = workers or max(machine["workers"] // study.resources.devices, 1)
    size = stack or default_size(study, machine, vocabularies, n_workers)
    stacks = plan_stacks(study, size)
    size, n_workers = max(map(len, stacks)), min(n_workers, len(stacks))
    # All workers at once, because they share caches and memory, as in the study.
    arguments = {"arm": study.baseline, "stack": size}
    tasks = [
        Task(f"step.{k}", "step", "while a step was timed", "", arguments) for k in range(n_workers)
    ]
    slowest = max(ask(study, Path(), tasks, workers=n_workers, **place))
    flops = size * cost.arms[study.baseline].flops / setting.budget_iterations
    rate = Rate(flops / slowest, n_workers, step_seconds=slowest)
    return study_cost(study, vocabularies, rate=rate, price=price)


FOLDER = "tasks"


def settled_tasks(
    study: Study, folder: ResultsFolder, datasets: Mapping[Data, Dataset]
) -> dict[str, Any]:
    """Create the study's tasks if necessary, and return the record of tasks for registration.

    Raises ParibusError if a task cannot be created, or if its data cannot be loaded.
    """
    tasks, place = study.tasks, suite_folder(study, folder)
    if place is None:
        return {}
    if not place.is_dir():
        with whole_folder(place) as new:
            if tasks.standard:  # first, because their data may not be available
                from paribus.engine.evaluation.harness.standard import describe_standard

                asked = (tasks.standard, tasks.shots, tasks.standard_items, standard_data(study))
                write_json(new / STANDARD_FILE, describe_standard(*asked))
            if tasks.names != ():
                make_suite(study, datasets, new)
            folder.create(study)  # fails if the folder holds something else
    registered = registered_tasks(place, tasks)
    if taken := registered.get("standard", {}).keys() & registered.get("names", ()):
        raise ParibusError(
            f"tasks.own and tasks.standard both have a task '{min(taken)}'; rename your custom task"
        )
    return registered


def make_suite(study: Study, datasets: Mapping[Data, Dataset], place: Path) -> None:
    """Generate a task suite from the study's validation text, and write it to `place`.

    All arms answer the same questions, so each question must fit in every arm's window. As many
    questions are generated as the text allows, because `paribus evaluate` may use all of them.
    """
    readers = [
        (datasets[setting.data].tokenizer.encode, setting.data.seq_len)
        for setting in map(study.setting, study.arms)
        if setting.data != study.data
    ]
    write_suite(
        place,
        datasets[study.data],
        study.tasks.seed,
        min(study.setting(arm).data.seq_len for arm in study.arms),
        n_least=study.tasks.items,
        own=own_tasks(study.tasks.own, study.folder),
        readers=readers,
    )


def suite_folder(study: Study, folder: ResultsFolder) -> Path | None:
    """Return the folder of the study's tasks, or None if the study has no tasks."""
    has_tasks = study.tasks.names != () or study.tasks.standard
    return folder.path / FOLDER if has_tasks else None


def standard_data(study: Study) -> Path | None:
    """Return the folder with copies of the standard tasks' data sets, or None to use the hub."""
    stated = study.tasks.standard_data
    return None if stated is None else (study.folder / stated).resolve()
