"""The standard suite by name: the harness's own tasks, on the data sets that it fetches from a hub.

LAMBADA, HellaSwag, PIQA, ARC, WinoGrande and BoolQ, as the harness words them and in T0's words.
They are made for models that learned from web text with a BPE tokenizer; a model of characters with
a short window runs too, and the results say how much it could not read."""

from __future__ import annotations

import inspect
import itertools
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import BaseLoader, Environment

from paribus.digests import digest
from paribus.engine.evaluation.harness.outcome import TaskResults, package_pins
from paribus.engine.evaluation.harness.task_runs import Ran, SharedRequests, run_tasks, undisturbed
from paribus.errors import ParibusError, nearest

if TYPE_CHECKING:
    from torch import nn

    from paribus.engine.data import Tokenizer
    from paribus.engine.evaluation.harness.adapter import Unknown


SEPARATOR = "|||"
# As promptsource protects the separator where a text has it.
STAND_IN = "3ed2dface8203c4c9dfb1a5dc58e41e0"

_jinja = Environment(loader=BaseLoader())  # texts are no HTML: nothing is escaped
_jinja.globals.update(zip=zip)


@dataclass(frozen=True)
class Template:
    """One wording of a task.

    Attributes:
        task: the harness's task, whose data it words.
        name: promptsource's name for it, and `id` its identifier there.
        choices: Jinja text of the choices, apart by SEPARATOR.
        jinja: Jinja text of the prompt and, after SEPARATOR, of the right answer.
    """

    task: str
    name: str
    id: str
    choices: str
    jinja: str

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the prompts."""
        return digest([self.choices, self.jinja])

    def text(self, document: dict[str, Any]) -> str:
        """Return what the model reads."""
        return self._parts(document)[0]

    def options(self, document: dict[str, Any]) -> list[str]:
        """Return the choices, in their order."""
        return _render(self.choices, document)

    def right(self, document: dict[str, Any]) -> int:
        """Return the place of the right choice."""
        return self.options(document).index(self._parts(document)[1])

    def word(self, document: dict[str, Any]) -> str:
        """Return the right answer as a continuation of the prompt, for a task without choices."""
        return " " + self._parts(document)[1]

    def config(self, has_choices: bool) -> dict[str, Any]:
        """Return what it changes in the configuration of its task."""
        if not has_choices:
            return {"doc_to_text": self.text, "doc_to_target": self.word}
        return {
            "doc_to_text": self.text,
            "doc_to_choice": self.options,
            "doc_to_target": self.right,
            "metric_list": [
                {"metric": metric, "aggregation": "mean", "higher_is_better": True}
                for metric in ("acc", "acc_norm")
            ],
        }

    def _parts(self, document: dict[str, Any]) -> list[str]:
        return _render(self.jinja, document | {"answer_choices": self.options(document)})


def _render(jinja: str, document: dict[str, Any]) -> list[str]:
    """Return the parts of a rendered template, stripped (promptsource's `Template.apply`)."""
    protected = {
        key: value.replace(SEPARATOR, STAND_IN) if isinstance(value, str) else value
        for key, value in document.items()
    }
    rendered = _jinja.from_string(jinja).render(**protected)
    return [part.strip().replace(STAND_IN, SEPARATOR) for part in rendered.split(SEPARATOR)]


@cache
def templates() -> dict[str, Template]:
    """Return every template by its name here, `task:wording`; read once."""
    text = (resources.files("paribus.engine.evaluation.harness") / "t0.toml").read_text("utf-8")
    tasks = tomllib.loads(text)
    del tasks["source"]
    return {
        f"{task}:{wording}": Template(task, **table)
        for task, wordings in tasks.items()
        for wording, table in wordings.items()
    }


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
    "description",
    "doc_to_text",
    "doc_to_choice",
    "doc_to_target",
    "process_docs",
    "target_delimiter",
    "fewshot_delimiter",
)


def standard_tasks(names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the tasks that `names` stand for; None is "standard".

    A name is that of a task ("piqa"), of a task in one of T0's wordings ("piqa:what_is_..."), or of
    all of a kind: "standard", "t0", and "piqa:t0" for all wordings of one task. Raises ParibusError
    for another.
    """
    known = (*STANDARD, *templates())
    sets = {"standard": tuple(STANDARD), "t0": tuple(templates())}
    for task in STANDARD:
        sets[f"{task}:t0"] = tuple(name for name in templates() if name.startswith(f"{task}:"))
    found: list[str] = []
    for name in ("standard",) if names is None else names:
        if name not in known and name not in sets:
            raise ParibusError(
                f"task '{name}' is not of the standard suite: {nearest(name, (*sets, *known))}"
            )
        found += sets.get(name, (name,))
    if not found:
        raise ParibusError("no task is named; leave the names out for the whole standard suite")
    return tuple(dict.fromkeys(found))


def evaluate_standard(
    model: nn.Module,
    tokenizer: Tokenizer,
    seq_len: int,
    *,
    tasks: Sequence[str] | None = None,
    shots: Sequence[int] = (0,),
    n_items: int | None = None,
    unknown: Unknown = "replace",
    data_folder: Path | None = None,
    shared: SharedRequests | None = None,
) -> TaskResults:
    """Return `model` on the harness's own tasks, each as the harness of this version has it.

    Args:
        model: tokens [B, T] -> logits [B, T, V]; left in the mode it was in.
        tokenizer: the one it was trained with.
        seq_len: tokens in its window. What is longer loses its beginning, and is counted in
            `truncated`.
        tasks: names (see `standard_tasks`); None is the seven tasks in the harness's words.
        shots: solved examples before each item, drawn as anybody's lm_eval draws them. A task whose
            data set has none but the scored items (LAMBADA) is not run with any, and told in
            `not_offered`.
        n_items: the first so many items of every task, or as many as it has; None is all.
        unknown: what to do with characters outside the vocabulary (see `ParibusLM`).
        data_folder: where copies of the hub's data set repositories lie, by their names there
            (`data_folder`/Rowan/hellaswag); None fetches them, or takes them from the hub's cache.
        shared: as for `evaluate_tasks`.

    `chance` is the mean over the items of 1 / choices. The global random states of Python, NumPy
    and PyTorch are what they were afterwards. Raises ParibusError for an unknown task, and where a
    data set cannot be had.
    """
    names = standard_tasks(tasks)
    if not shots or min(shots) < 0 or (n_items is not None and n_items < 1):
        raise ParibusError(
            f"shots = {list(shots)} and n_items = {n_items} leave nothing to run; use numbers of "
            "solved examples from 0 on, and at least one item"
        )
    with undisturbed():
        built = {name: _harness_task(name, data_folder) for name in names}
        pairs, offered = _offered(built, shots)
        ran = run_tasks(
            model, tokenizer, seq_len, built, offered,
            n_items=n_items, unknown=unknown, truncate=True, shared=shared,
        )  # fmt: skip
    return ran.results(
        chance={name: _chance(ran, name) for name in names if name in ran.documents},
        not_offered=tuple(pair for pair in pairs if pair not in offered),
        pins=_pins(built, ran),
    )


def describe_standard(
    names: Sequence[str],
    *,
    shots: Sequence[int] = (0,),
    n_items: int | None = None,
    data_folder: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """Return what `evaluate_standard` would run, for a registration: nothing is asked.

    For each task its version, data set, number of scored documents, and digests of these and of its
    wording. Raises ParibusError as `evaluate_standard` does.
    """
    with undisturbed():
        built = {name: _harness_task(name, data_folder) for name in standard_tasks(names)}
        _offered(built, shots)
        return {
            name: _pinned(name, task, list(itertools.islice(task.eval_docs, n_items)))
            for name, task in built.items()
        }


Pairs = list[tuple[str, int]]


def _offered(built: dict[str, Any], shots: Sequence[int]) -> tuple[Pairs, Pairs]:
    """Return (what is asked for, what of that has examples). Raises ParibusError for none."""
    pairs = [(name, n) for n in dict.fromkeys(shots) for name in built]
    offered = [(name, n) for name, n in pairs if n == 0 or built[name].has_training_docs()]
    if not offered:
        raise ParibusError(
            f"{', '.join(built)} has no data to take {list(shots)} solved examples from but "
            "its scored items; use 0"
        )
    return pairs, offered


def _chance(ran: Ran, name: str) -> float:
    """Return the accuracy of a guess: the mean of 1 / choices, 0 where there are none."""
    choices = [len(row["loglikelihood"]) for row in ran.rows if row["task"] == name]
    return statistics.fmean(1 / n if n > 1 else 0.0 for n in choices) if choices else 0.0


def _pins(built: dict[str, Any], ran: Ran) -> dict[str, Any]:
    """Return the pins of what ran: the harness, and the version and digests of each task.

    `data_sha256` is that of the records that were scored, as the harness read them.
    """
    return package_pins() | {
        "tasks": {
            name: _pinned(name, task, ran.documents[name])
            for name, task in built.items()
            if name in ran.documents
        }
    }


def _pinned(name: str, task: Any, documents: list[Any]) -> dict[str, Any]:
    return {
        "version": task.VERSION,
        "dataset": task.config.metadata["dataset"],
        "documents": len(documents),
        "data_sha256": digest(documents),
        "wording_sha256": _wording_digest(name, task),
    }


def _wording_digest(name: str, task: Any) -> str:
    """Return that of the template, or of texts and code that the task has."""
    if name in templates():
        return templates()[name].digest
    parts = {key: getattr(task.config, key) for key in WORDING}
    return digest({k: inspect.getsource(v) if callable(v) else v for k, v in parts.items()})


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
                f"folder; put a copy of the hub's repository {dataset} there"
            )
        changed["dataset_path"] = str(data_folder / dataset)
    if name in templates():
        changed |= templates()[name].config(config["output_type"] == "multiple_choice")
    try:
        # A group of one: the harness's way to change what a task of its own says.
        group = {"group": "paribus", "task": [{"task": base} | changed]}
        task = manager.load([group])["tasks"][base]
    except Exception as error:  # whatever the network, the hub's client or its cache raise
        raise ParibusError(
            f"task '{base}': its data set {dataset} cannot be loaded "
            f"({type(error).__name__}: {_first_line(error)}); where the hub cannot be reached, set "
            f"HF_DATASETS_CACHE to a cache that has it, or name a folder with a copy of "
            f"{dataset} (tasks.standard_data, or --data)"
        ) from error
    task.set_config("task", name)
    return task


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")[:200]
