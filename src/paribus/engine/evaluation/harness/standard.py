"""The standard suite by name: the harness's own tasks, on the data sets that it fetches from a hub.

LAMBADA, HellaSwag, PIQA, ARC, WinoGrande and BoolQ, as the harness words them and in T0's words.
They are made for models that learned from web text with a BPE tokenizer; a model of characters with
a short window runs too, and the results say how much it could not read."""

from __future__ import annotations

import inspect
import itertools
import tomllib
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment

from paribus.digests import digest
from paribus.engine.evaluation.harness.task_runs import Asked, find_offered, undisturbed
from paribus.errors import ParibusError, nearest

SEPARATOR = "|||"
# As promptsource protects the separator where a text has it.
STAND_IN = "3ed2dface8203c4c9dfb1a5dc58e41e0"

_jinja = Environment(loader=BaseLoader())  # texts are no HTML: nothing is escaped
_jinja.globals.update(zip=zip)


@cache
def templates() -> dict[str, dict[str, str]]:
    """Return every wording of T0 by its name here, `task:wording`; read once.

    `jinja` is the text of the prompt and, after SEPARATOR, of the right answer; `choices` that of
    the choices, with SEPARATOR between them.
    """
    text = (resources.files("paribus.engine.evaluation.harness") / "t0.toml").read_text("utf-8")
    tasks = tomllib.loads(text)
    del tasks["source"]
    return {f"{task}:{name}": table for task in tasks for name, table in tasks[task].items()}


def _worded(template: dict[str, str], has_choices: bool) -> dict[str, Any]:
    """Return what a wording changes in the configuration of its task."""

    def choices(document: dict[str, Any]) -> list[str]:
        return _render(template["choices"], document)

    def parts(document: dict[str, Any]) -> list[str]:
        return _render(template["jinja"], document | {"answer_choices": choices(document)})

    if not has_choices:  # the answer continues the prompt
        return {
            "doc_to_text": lambda document: parts(document)[0],
            "doc_to_target": lambda document: " " + parts(document)[1],
        }
    return {
        "doc_to_text": lambda document: parts(document)[0],
        "doc_to_choice": choices,
        "doc_to_target": lambda document: choices(document).index(parts(document)[1]),
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")
        ],
    }


def _render(jinja: str, document: dict[str, Any]) -> list[str]:
    """Return the parts of a rendered template, stripped (promptsource's `Template.apply`)."""
    protected = {
        key: value.replace(SEPARATOR, STAND_IN) if isinstance(value, str) else value
        for key, value in document.items()
    }
    rendered = _jinja.from_string(jinja).render(**protected)
    return [part.strip().replace(STAND_IN, SEPARATOR) for part in rendered.split(SEPARATOR)]


# The harness's name of each task, and the folder of its tasks that has it.
STANDARD = {
    "lambada_openai": "lambada",
    "hellaswag": "hellaswag",
    "piqa": "piqa",
    "arc_easy": "arc",
    "arc_challenge": "arc",
    "winogrande": "winogrande",
    "boolq": "super_glue/boolq",
}
# What decides a prompt, of a task's configuration.
WORDING = (
    *("description", "doc_to_text", "doc_to_choice", "doc_to_target", "process_docs"),
    *("target_delimiter", "fewshot_delimiter"),
)


def standard_tasks(names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the tasks that `names` stand for; None is "standard".

    A name is that of a task ("piqa"), of a task in one of T0's wordings ("piqa:what_is_..."), or of
    all of a kind: "standard", "t0", and "piqa:t0" for all wordings of one task. Raises ParibusError
    for another.
    """
    sets = {"standard": tuple(STANDARD), "t0": tuple(templates())}
    for task in STANDARD:
        sets[f"{task}:t0"] = tuple(name for name in templates() if name.startswith(f"{task}:"))
    known = sets | {name: (name,) for name in (*STANDARD, *templates())}
    chosen: list[str] = []
    for name in ("standard",) if names is None else names:
        if name not in known:
            meant = nearest(name, known)
            raise ParibusError(
                f"task '{name}' is not of the standard suite: {meant}", code="unknown"
            )
        chosen += known[name]
    if not chosen:
        raise ParibusError("no task is named; leave the names out for the whole standard suite")
    return tuple(dict.fromkeys(chosen))


def standard(
    names: Sequence[str] | None = None, n_items: int | None = None, data_folder: Path | None = None
) -> Asked:
    """Return the harness's own tasks, of which the first `n_items` are asked.

    Args:
        names: see `standard_tasks`; None is the seven tasks in the harness's words.
        n_items: None is all.
        data_folder: where copies of the hub's data set repositories lie, by their names there
            (`data_folder`/Rowan/hellaswag); None fetches them, or takes them from the hub's cache.

    Solved examples are drawn as anybody's lm_eval draws them. A task whose data set has none but
    the scored items (LAMBADA) is not run with any. What is longer than the window of a model loses
    its beginning. Raises ParibusError for an unknown task, and where a data set cannot be had.
    """
    with undisturbed():
        built = {name: _harness_task(name, data_folder) for name in standard_tasks(names)}
    return Asked(
        built,
        fits=lambda name, n: n == 0 or built[name].has_training_docs(),
        pins=lambda ran: {"tasks": {name: _pinned(name, built[name], n_items) for name in ran}},
        unknown="replace",
    )


def describe_standard(
    names: Sequence[str], shots: Sequence[int], n_items: int | None, data_folder: Path | None
) -> dict[str, dict[str, Any]]:
    """Return what a registration says of standard tasks; nothing is asked.

    For each its version, data set, number of scored documents, and digests of these and of its
    wording.
    """
    asked = standard(names, n_items, data_folder)
    find_offered(asked, shots, n_items)
    return asked.pins(asked.tasks)["tasks"]


def _pinned(name: str, task: Any, n_items: int | None) -> dict[str, Any]:
    """Return version and data set of a task, and digests of the records that are scored and of the
    template, or of texts and code that the task has."""
    documents = list(itertools.islice(task.eval_docs, n_items))
    if name in templates():
        wording: Any = [templates()[name][key] for key in ("choices", "jinja")]
    else:
        parts = {key: getattr(task.config, key) for key in WORDING}
        wording = {k: inspect.getsource(v) if callable(v) else v for k, v in parts.items()}
    return {
        "version": task.VERSION,
        "dataset": task.config.metadata["dataset"],
        "documents": len(documents),
        "data_sha256": digest(documents),
        "wording_sha256": digest(wording),
    }


@lru_cache(maxsize=256)
def _harness_task(name: str, data_folder: Path | None) -> Any:
    """Return the harness's task object. Built once a process: the trials of a study share it."""
    from lm_eval.tasks import TaskManager

    base = name.partition(":")[0]
    # The harness has thousands of tasks, and to look through all of them takes long.
    folder = Path(str(resources.files("lm_eval.tasks"))) / STANDARD[base]
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    config = manager.task_index[base].cfg or {}
    dataset = config["dataset_path"]
    changed: dict[str, Any] = {"metadata": config["metadata"] | {"dataset": dataset}}
    if data_folder is not None:
        if not (data_folder / dataset).is_dir():
            raise ParibusError(
                f"task '{base}' reads the data set {dataset}, and {data_folder / dataset} is no "
                f"folder; put a copy of the hub's repository {dataset} there",
                code="missing",
            )
        changed["dataset_path"] = str(data_folder / dataset)
    if name in templates():
        changed |= _worded(templates()[name], config["output_type"] == "multiple_choice")
    try:
        # A group of one: the harness's way to change what a task of its own says.
        group = {"group": "paribus", "task": [{"task": base} | changed]}
        task = manager.load([group])["tasks"][base]
    except Exception as error:  # whatever the network, the hub's client or its cache raise
        reason = str(error).partition("\n")[0][:200]
        raise ParibusError(
            f"task '{base}': its data set {dataset} cannot be loaded "
            f"({type(error).__name__}: {reason}); where the hub cannot be reached, set "
            f"HF_DATASETS_CACHE to a cache that has it, or name a folder with a copy of "
            f"{dataset} (tasks.standard_data, or --data)",
            code="missing",
        ) from error
    task.set_config("task", name)
    return task
