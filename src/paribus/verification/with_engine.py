"""Checks that need the engine: trials against their arm and seed, and trials repeated.

Imported only where PyTorch is installed. A trial's record states its arm, seed and setting, which
somebody may edit and seal. Here they are held against what else was recorded and follows from them:
steps and tokens, what is scheduled at every step, the parts of the model, names, shapes and rules
of its parameters, initial values as the seed draws them, and the optimizer with its options. So two
trials that were exchanged whole are told, unless they agree in all of that.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.engine.execution.checks.repeat import describe_again, repeat_trials
from paribus.engine.execution.workers.lifetime import ending_children
from paribus.engine.model import (
    GPT,
    InitialRule,
    ModelConfig,
    build_model,
    describe_parts,
    initial_parameters,
    initial_rules,
)
from paribus.engine.model.uses import ParameterUse, parameter_uses
from paribus.engine.setting import Setting, curve_steps
from paribus.engine.setting.bounds import matrix_parameters
from paribus.engine.training.groups import optimizer_record, parameter_groups
from paribus.engine.training.schedules import Schedules, scheduled_columns
from paribus.engine.training.step_metrics import BATCH_SIZE
from paribus.errors import ParibusError
from paribus.metric import readable
from paribus.results import Results
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study, parse_study

if TYPE_CHECKING:
    from paribus.engine.execution.backends import Backend
    from paribus.engine.execution.workers.processes import Device

# Initial values that are drawn again of a trial, small parameters first; 4 million take 50 ms.
MOST_DRAWN = 2**22
MOST_VOCABULARY = 2**24  # of a record, whoever wrote it
RATE_ROUNDING = 1e-6  # the records keep float32


def arm_findings(results: Results, *, trust: bool) -> tuple[list[str], str]:
    """Return (what does not follow from the settings, what was looked at in words).

    Custom code is run with `trust` alone; of trials with such code less is looked at without.
    """
    found: list[str] = []
    built = 0
    models = _Models(results.study.folder)
    # Models of own code are built here. Without it nothing of ours starts a process, and what a
    # notebook has started meanwhile is its own.
    with ending_children() if trust else contextlib.nullcontext():
        for trial in results.finished:
            setting = results.study.setting(trial.arm, trial.seed)
            record = results.trials[trial.arm, trial.seed]
            found += _told(trial, _steps(results, trial, setting, record, trust))
            found += _told(trial, _points(trial, results.study, record))
            if trust or not setting.own_parts:
                built += 1
                found += _told(trial, _model(models, trial, setting, record))
    n = len(results.finished)
    left = "" if built == n else f", of {n - built} with custom code less, for want of --trust"
    return found, f"steps, parts, initial values and optimizer of {n} trials by arm and seed{left}"


def repeat_findings(
    results: Results,
    is_tuning: bool,
    folder: Path | None,
    workers: int | None,
    device: Device,
    backend: Backend,
) -> list[str]:
    """Build, evaluate and draw every trial again, and count the text again; return what differs."""
    study = results.study
    if folder is not None:
        study = parse_study(study.model_dump(), folder=folder, foreign=study.is_foreign)
    found = repeat_trials(study, results, workers=workers, device=device, backend=backend)
    if is_tuning:
        return found
    try:
        return [*found, *describe_again(study, results)]
    except ParibusError as error:
        return [*found, f"data: {error}"]


def _told(trial: TrialFolder, findings: Iterator[str]) -> list[str]:
    try:
        return [f"trial {trial.label}: {finding}" for finding in findings]
    except (ParibusError, MemoryError, RuntimeError) as error:
        return [f"trial {trial.label}: no model of its arm ({error})"]


def _steps(
    results: Results, trial: TrialFolder, setting: Setting, record: dict[str, Any], trust: bool
) -> Iterator[str]:
    t, planned = record["iterations"], setting.iterations
    if t != planned and not (record["diverged_at"] is not None and 0 <= t < planned):
        yield f"it has {t} steps, and its arm {planned}"
    if record["tokens"] != setting.tokens_before(t):
        yield f"it has {record['tokens']:,} tokens, and {t} steps of its arm have other"
    steps = results.trial_steps[trial.arm, trial.seed]
    if "learning_rate" not in steps.column_names:
        return
    training = setting.training
    if any(":" in schedule.kind for _, schedule in training.all_schedules) and not trust:
        return  # it would be run
    schedules = Schedules([setting], results.study.folder)
    names = ["learning_rate", *scheduled_columns(training)]
    names += [BATCH_SIZE] if BATCH_SIZE in steps.column_names else []
    if absent := [name for name in names if name not in steps.column_names]:
        yield f"its steps have no {', '.join(absent)}, which its arm has a schedule of"
        return
    for step, recorded in enumerate(zip(*(steps[name].to_pylist() for name in names), strict=True)):
        if None in recorded and record["diverged_at"] is not None:
            return  # frozen from there on
        (rate,), others = schedules.at(step)
        expected = [rate, *others[:, 0], setting.windows_in(step)]
        for name, value, right in zip(names, recorded, map(float, expected), strict=False):
            if value is None or not math.isclose(
                value, right, rel_tol=RATE_ROUNDING, abs_tol=1e-30
            ):
                found = value if value is None else f"{value:.7g}"
                told = f"{readable(name)} at step {step + 1} is {found}"
                yield f"its {told}, and that of its arm {right:.7g}"
                return


def _points(trial: TrialFolder, study: Study, record: dict[str, Any]) -> Iterator[str]:
    points = trial.read_columns("curve.parquet", ["step", "predicted"])
    steps = points["step"].to_pylist()
    if steps != list(curve_steps(study, trial.arm)):
        yield f"its held-out curve has other steps than evaluation.every = {study.evaluation.every}"
    there = record["data"].get("validation_tokens")
    most = min(study.evaluation.curve_tokens + 1, there if isinstance(there, int) else 0) - 1
    if any(predicted != most for predicted in points["predicted"].to_pylist()):
        yield f"points of its held-out curve are not of {most:,} tokens"


def _model(
    models: _Models, trial: TrialFolder, setting: Setting, record: dict[str, Any]
) -> Iterator[str]:
    vocab_size = record["data"].get("vocab_size")
    if not isinstance(vocab_size, int) or not 0 < vocab_size <= MOST_VOCABULARY:
        yield f"its vocabulary has {str(vocab_size)[:20]} tokens"
        return
    model = models.of(setting, vocab_size)
    if _names(record.get("parts")) != model.parts:
        yield "its parts are not those of its arm"
    there = trial.read_json("initial.json")
    if {name: tuple(about["shape"]) for name, about in there.items()} != model.sizes:
        yield "its parameters are not those of its arm"
        return
    drawn = initial_parameters(
        model.built, setting, trial.seed, only=list(model.small), uses=model.uses
    )
    initial = {name: one.record for name, one in drawn.items()}
    for name, about in there.items():
        # A salt of the draw follows the rule's words.
        if not about["rule"].startswith(model.rules[name].text) or (
            name in initial and initial[name] | about != initial[name]  # an earlier one said less
        ):
            yield f"the initial values of {name} are not those of its arm and seed"
            return
    if record.get("optimizer") != models.optimizer(trial.arm, setting, vocab_size):
        yield "its optimizer is not that of its arm"


@dataclass(frozen=True)
class _Model:
    """A model of a setting, with what follows from it whatever the seed.

    Attributes:
        sizes: the shape of every parameter by name.
        small: names of the parameters that are drawn again, as many as `MOST_DRAWN` allows.
    """

    built: GPT
    parts: dict[str, Any]
    sizes: dict[str, tuple[int, ...]]
    small: tuple[str, ...]
    rules: dict[str, InitialRule]
    uses: dict[str, ParameterUse]


class _Models:
    """The models of a study, each built once: arms may differ in their training alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[str, _Model] = {}
        self._optimizers: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def of(self, setting: Setting, vocab_size: int) -> _Model:
        """Return the model of a setting. Raises ParibusError where none can be built."""
        key = ModelConfig.of(setting, vocab_size).model_dump_json()
        if key not in self._models:
            self._models[key] = self._new(setting, vocab_size)
        return self._models[key]

    def optimizer(self, arm: str, setting: Setting, vocab_size: int) -> list[dict[str, Any]]:
        """Return the optimizer of an arm, as trial.json describes it."""
        if (arm, vocab_size) not in self._optimizers:
            model = self.of(setting, vocab_size).built
            groups = parameter_groups([setting], model, self._folder)
            self._optimizers[arm, vocab_size] = optimizer_record(groups, model)
        return self._optimizers[arm, vocab_size]

    def _new(self, setting: Setting, vocab_size: int) -> _Model:
        # A user's module may look at its values, or keep those of its constructor. Shapes alone are
        # enough of a large model; for a small one they are no faster.
        is_small = matrix_parameters(setting, vocab_size) <= MOST_DRAWN
        device = "cpu" if is_small or setting.model.modules.named else "meta"
        model = build_model(setting, vocab_size, self._folder, device=device)
        sizes = {name: tuple(value.shape) for name, value in model.named_parameters()}
        small, drawn = [], 0
        for name in sorted(sizes, key=lambda name: math.prod(sizes[name])):
            drawn += math.prod(sizes[name])
            if drawn <= MOST_DRAWN:
                small.append(name)
        parts = {site: about["name"] for site, about in describe_parts(setting.model).items()}
        rules, uses = initial_rules(model, setting), parameter_uses(model)
        return _Model(model, parts, sizes, tuple(small), rules, uses)


def _names(parts: Any) -> dict[str, Any]:
    if not isinstance(parts, dict):
        return {}
    return {
        site: about.get("name") if isinstance(about, dict) else None
        for site, about in parts.items()
    }
