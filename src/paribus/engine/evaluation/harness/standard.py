"""Standard task suite: LM Evaluation Harness tasks on data sets from the Hugging Face hub.

The tasks are LAMBADA, HellaSwag, PIQA, ARC, WinoGrande and BoolQ, with prompts from the harness or
from T0. They suit models trained on web text with a BPE tokenizer, but also run on character-level
models with short windows.
"""

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
from paribus.engine.tasks.suite import METRICS
from paribus.errors import ParibusError, nearest

SEPARATOR = "|||"

_jinja = Environment(loader=BaseLoader())  # texts are no HTML: nothing is escaped
_jinja.globals.update(zip=zip)  # type: ignore


@cache
def templates() -> dict[str, dict[str, str]]:
    """Return T0's prompt templates, keyed by "task:wording", and cache them.

    A template's `jinja` renders the prompt and the correct answer, separated by SEPARATOR. Its
    `choices` renders the answer choices, also separated by SEPARATOR.
    """
    text = (resources.files("paribus.engine.evaluation.harness") / "t0.toml").read_text("utf-8")
    tasks = tomllib.loads(text)
    del tasks["source"]
    return {f"{task}:{name}": table for task in tasks for name, table in tasks[task].items()}


def _worded(template: dict[str, str], has_choices: bool) -> dict[str, Any]:
    """Return the entries of an `lm_eval` task configuration that a T0 template overrides."""

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
        "metric_list": METRICS,
    }


def _render(jinja: str, document: dict[str, Any]) -> list[str]:
    """Render a template, and split it at SEPARATOR like promptsource's `Template.apply`."""
    return [part.strip() for part in _jinja.from_string(jinja).render(document).split(SEPARATOR)]


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
    """Resolve names of tasks or task sets to names of standard tasks.

    A name is a task ("piqa"), a task with one of T0's prompts ("piqa:what_is_..."), or a set:
    "standard", "t0", or "piqa:t0" for all T0 prompts of one task. Raises ParibusError for any other
    name.
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
                f"'{name}' is not a standard task or task set; {meant}", code="unknown"
            )
        chosen += known[name]
    return tuple(dict.fromkeys(chosen))


def standard(
    names: Sequence[str] | None = None, n_items: int | None = None, data_folder: Path | None = None
) -> Asked:
    """Load tasks of the standard suite.

    Few-shot examples are those that `lm_eval` samples by default. A task without training data
    (LAMBADA) runs only with zero examples. A prompt longer than the model's window is truncated on
    the left.

    Args:
        names: see `standard_tasks`; None means the seven tasks with the harness's prompts.
        n_items: number of items per task that the data digests cover; None means all.
        data_folder: folder with copies of the hub's data set repositories, such as
            `data_folder`/Rowan/hellaswag; None uses the hub or its cache.

    Raises ParibusError for an unknown task, or if a data set cannot be loaded.
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
    """Describe standard tasks for registration, without running them.

    Returns {task: description}, with the version, data set, number of scored documents, and digests
    of documents and prompts.
    """
    asked = standard(names, n_items, data_folder)
    find_offered(asked, shots)
    return asked.pins(asked.tasks)["tasks"]


def _pinned(name: str, task: Any, n_items: int | None) -> dict[str, Any]:
    """Return a task's version, data set, document count and digests, for registration."""
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
    """Build and cache the `lm_eval` task object of a standard task."""
    from lm_eval.tasks import TaskManager

    base = name.partition(":")[0]
    # The harness has thousands of tasks, and to look through all of them takes long.
    folder = Path(str(resources.files("lm_eval.tasks"))) / STANDARD[base]
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    config = manager.task_index[base].cfg or {}
    dataset = config["dataset_path"]
    changed: dict[str, Any] = {"metadata": config["metadata"] | {"dataset": dataset}}
    if data_folder is not None:
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
            f"cannot load the data set {dataset} of task '{base}' ({type(error).__name__}: "
            f"{reason}); if the hub is unreachable, set HF_DATASETS_CACHE to a cache that contains "
            "the data set, or set tasks.standard_data or --data to a folder with a copy",
            code="missing",
        ) from error
    task.set_config("task", name)
    return task
